//! Register of the tests that the server is running. The register decides whether to admit a new test.
//!
//! ```text
//!   cookie ─► unknown ─► admit ─► a test ─► expects connections ─► takes them ─► expects none ─► leave
//!                          └─► full: ACCESS_DENIED
//! ```
//!
//! A test is identified by its cookie. A UDP hello contains no cookie, so the server assigns UDP streams by
//! the address of the client. Only one test per address may therefore open UDP streams at a time. The
//! server sends no datagrams to an address that has no control connection.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fullpipe_iperf3::Cookie;

use super::Limits;

/// Register of a server's tests. `T` is the type of the channel that receives the connections of a
/// test.
#[derive(Debug)]
pub(super) struct Register<T> {
    limits: Limits,
    /// Maximum total number of streams of all tests, because each stream needs a file descriptor and a
    /// thread.
    streams_most: usize,
    tests: BTreeMap<Cookie, Test<T>>,
}

#[derive(Debug)]
struct Test<T> {
    peer: IpAddr,
    streams: usize,
    expects: Expects<T>,
}

#[derive(Debug)]
enum Expects<T> {
    Nothing,
    Connections(T),
    Datagrams(T),
}

/// Reason why the server does not admit a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The maximum number of concurrent tests is already running.
    Tests(usize),
    /// The maximum number of concurrent tests from one client address is already running.
    OfAddress(usize),
    /// The test requests more streams than the server has left.
    Streams(usize),
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tests(1) => f.write_str("a test is running"),
            Self::Tests(most) => write!(f, "{most} tests are running"),
            Self::OfAddress(most) => write!(f, "{most} tests from this address are running"),
            Self::Streams(most) => {
                write!(f, "the test requests more streams than the server has left (its maximum is {most})")
            }
        }
    }
}

impl<T> Register<T> {
    pub(super) fn new(limits: Limits, streams_most: usize) -> Self {
        Self { limits, streams_most, tests: BTreeMap::new() }
    }

    /// Returns whether a test with this cookie is in the register.
    pub(super) fn knows(&self, cookie: Cookie) -> bool {
        self.tests.contains_key(&cookie)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tests.is_empty()
    }

    /// Returns the number of tests in the register.
    pub(super) fn len(&self) -> usize {
        self.tests.len()
    }

    /// Admits a test with a new cookie, if the limits allow it.
    pub(super) fn admit(&mut self, cookie: Cookie, peer: IpAddr) -> Result<(), Full> {
        if self.tests.len() >= self.limits.tests {
            return Err(Full::Tests(self.limits.tests));
        }
        let of_address = self.tests.values().filter(|test| test.peer == peer).count();
        if of_address >= self.limits.per_address {
            return Err(Full::OfAddress(self.limits.per_address));
        }
        self.tests.insert(cookie, Test { peer, streams: 0, expects: Expects::Nothing });
        Ok(())
    }

    /// Reserves the streams that a test requests, once the parameters of the test are known.
    pub(super) fn reserve(&mut self, cookie: Cookie, streams: usize) -> Result<(), Full> {
        let taken: usize = self.tests.values().map(|test| test.streams).sum();
        if taken + streams > self.streams_most {
            return Err(Full::Streams(self.streams_most));
        }
        if let Some(test) = self.tests.get_mut(&cookie) {
            test.streams = streams;
        }
        Ok(())
    }

    /// Makes the server pass connections with this cookie to `taker` from now on.
    pub(super) fn expect_connections(&mut self, cookie: Cookie, taker: T) {
        if let Some(test) = self.tests.get_mut(&cookie) {
            test.expects = Expects::Connections(taker);
        }
    }

    /// Makes the server pass hellos from the client address of this test to `taker` from now on, unless
    /// another test from that address is expecting hellos. Returns whether `taker` receives the hellos.
    pub(super) fn expect_datagrams(&mut self, cookie: Cookie, taker: T) -> bool {
        let Some(peer) = self.tests.get(&cookie).map(|test| test.peer) else { return false };
        if self.hello(peer).is_some() {
            return false;
        }
        if let Some(test) = self.tests.get_mut(&cookie) {
            test.expects = Expects::Datagrams(taker);
        }
        true
    }

    /// Records that the test expects no further data connections, because it has all of them or has failed.
    pub(super) fn expect_nothing(&mut self, cookie: Cookie) {
        if let Some(test) = self.tests.get_mut(&cookie) {
            test.expects = Expects::Nothing;
        }
    }

    /// Returns the taker of a TCP connection with this cookie. The address of the connection may differ from
    /// that of the test's control connection, because some networks spread the connections of a host over
    /// several addresses.
    pub(super) fn connection(&self, cookie: Cookie) -> Option<&T> {
        match &self.tests.get(&cookie)?.expects {
            Expects::Connections(taker) => Some(taker),
            Expects::Nothing | Expects::Datagrams(_) => None,
        }
    }

    /// Returns the taker of a hello from the address `peer`.
    pub(super) fn hello(&self, peer: IpAddr) -> Option<&T> {
        self.tests.values().find_map(|test| match &test.expects {
            Expects::Datagrams(taker) if test.peer == peer => Some(taker),
            _ => None,
        })
    }

    /// Removes a test from the register.
    pub(super) fn leave(&mut self, cookie: Cookie) {
        self.tests.remove(&cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_iperf3::cookie::LENGTH;

    fn cookie(of: u8) -> Cookie {
        Cookie::from_random([of; LENGTH - 1])
    }

    fn address(of: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, of])
    }

    fn register(tests: usize, per_address: usize) -> Register<u8> {
        Register::new(Limits { tests, per_address, ..Limits::default() }, 10)
    }

    #[test]
    fn tests_are_bounded_in_all_and_for_each_address() {
        let mut register = register(3, 2);
        assert_eq!(register.admit(cookie(1), address(1)), Ok(()));
        assert_eq!(register.admit(cookie(2), address(1)), Ok(()));
        assert_eq!(register.admit(cookie(3), address(1)), Err(Full::OfAddress(2)));
        assert_eq!(register.admit(cookie(3), address(2)), Ok(()));
        assert_eq!(register.admit(cookie(4), address(3)), Err(Full::Tests(3)));
        register.leave(cookie(1));
        assert_eq!(register.admit(cookie(4), address(3)), Ok(()));
    }

    #[test]
    fn streams_are_bounded_over_all_tests() {
        let mut register = register(3, 3);
        for of in 1..=3 {
            register.admit(cookie(of), address(1)).expect("room");
        }
        assert_eq!(register.reserve(cookie(1), 8), Ok(()));
        assert_eq!(register.reserve(cookie(2), 3), Err(Full::Streams(10)));
        assert_eq!(register.reserve(cookie(3), 2), Ok(()));
        register.leave(cookie(1));
        assert_eq!(register.reserve(cookie(2), 8), Ok(()));
    }

    #[test]
    fn a_connection_goes_to_the_test_that_expects_it() {
        let mut register = register(2, 2);
        register.admit(cookie(1), address(1)).expect("room");
        assert_eq!(register.connection(cookie(1)), None);
        register.expect_connections(cookie(1), 7);
        assert_eq!((register.connection(cookie(1)), register.connection(cookie(2))), (Some(&7), None));
        // TCP connections are matched by their cookie, so they are accepted even if no hello is expected from
        // their address.
        assert_eq!(register.hello(address(1)), None);
        register.expect_nothing(cookie(1));
        assert_eq!(register.connection(cookie(1)), None);
    }

    #[test]
    fn of_one_address_one_test_at_a_time_makes_its_udp_streams() {
        let mut register = register(3, 3);
        for (of, at) in [(1, 1), (2, 1), (3, 2)] {
            register.admit(cookie(of), address(at)).expect("room");
        }
        assert!(register.expect_datagrams(cookie(1), 1));
        assert!(!register.expect_datagrams(cookie(2), 2));
        assert!(register.expect_datagrams(cookie(3), 3));
        assert_eq!((register.hello(address(1)), register.hello(address(2))), (Some(&1), Some(&3)));
        register.expect_nothing(cookie(1));
        assert!(register.expect_datagrams(cookie(2), 2));
        assert_eq!(register.hello(address(1)), Some(&2));
        // A test that has left the register does not prevent other tests from opening their streams.
        register.leave(cookie(2));
        assert_eq!(register.hello(address(1)), None);
    }
}
