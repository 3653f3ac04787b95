//! Reads the IPsec policies of a network namespace. They apply to packets that the kernel routes, but not to packets that
//! nftables forwards without routing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NlasIterator};
use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};

use crate::error::{Doing, Error};

/// Message types from `linux/netlink.h`, and constants from `linux/xfrm.h`.
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRMA_TMPL: u16 = 5;
const XFRM_POLICY_BLOCK: u8 = 1;
/// Sizes of `struct nlmsghdr`, `struct xfrm_userpolicy_id`, `struct xfrm_userpolicy_info` and
/// `struct xfrm_user_tmpl`, in bytes.
const HEADER: usize = 16;
const POLICY_ID: usize = 64;
const POLICY_INFO: usize = 168;
const TEMPLATE: usize = 64;
/// Offsets in `struct xfrm_userpolicy_info`, which begins with a `struct xfrm_selector`, and in
/// `struct xfrm_user_tmpl`.
const DESTINATION: usize = 0;
const SOURCE: usize = 16;
const DESTINATION_PORT: usize = 32;
const SOURCE_PORT: usize = 36;
const FAMILY: usize = 40;
const DESTINATION_LEN: usize = 42;
const SOURCE_LEN: usize = 43;
const PROTOCOL: usize = 44;
const DIRECTION: usize = 160;
const ACTION: usize = 161;
const OPTIONAL: usize = 50;
/// Protocol number of TCP.
const TCP: u8 = 6;

/// Packets to which a policy applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Packets to this host.
    In,
    /// Packets that leave this host, including forwarded packets.
    Out,
    /// Packets that this host forwards.
    Forward,
}

/// One end of a policy's selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Network address.
    pub network: IpAddr,
    /// Prefix length of the network.
    pub prefix_len: u8,
    /// Port, and the mask of the compared bits; a mask of 0 matches all ports.
    pub port: (u16, u16),
}

impl End {
    fn contains(&self, address: SocketAddr) -> bool {
        let same = |ours: u128, theirs: u128, bits: u32| {
            let ignored = bits.saturating_sub(self.prefix_len.into());
            ours.checked_shr(ignored) == theirs.checked_shr(ignored)
        };
        let in_network = match (self.network, address.ip()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                same(ours.to_bits().into(), theirs.to_bits().into(), Ipv4Addr::BITS)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => same(ours.to_bits(), theirs.to_bits(), Ipv6Addr::BITS),
            _ => false,
        };
        let (port, mask) = self.port;
        in_network && (port ^ address.port()) & mask == 0
    }
}

/// An IPsec policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Direction of the packets to which the policy applies.
    pub direction: Direction,
    /// Sources of these packets.
    pub source: End,
    /// Destinations of these packets.
    pub destination: End,
    /// Whether the policy applies to TCP.
    pub tcp: bool,
    /// Whether the policy drops packets that do not arrive through IPsec, or all packets.
    pub requires_ipsec: bool,
}

impl Policy {
    /// Returns whether the kernel drops plain TCP packets to `to` because of this policy, from at least one source.
    pub fn refuses_plain_packets_to(&self, to: SocketAddr) -> bool {
        self.direction == Direction::In && self.tcp && self.requires_ipsec && self.destination.contains(to)
    }

    /// Returns whether this policy prevents the kernel from forwarding plain TCP packets from `from` to at least one
    /// destination.
    pub fn forwards_no_packets_from(&self, from: SocketAddr) -> bool {
        self.direction == Direction::Forward && self.tcp && self.requires_ipsec && self.source.contains(from)
    }
}

/// Returns the IPsec policies of the calling thread's network namespace, without those of single sockets; `None` if the
/// process may not read them.
///
/// # Errors
/// Returns an error if the kernel does not answer.
pub fn policies() -> Result<Option<Vec<Policy>>, Error> {
    let mut socket = match Socket::new(NETLINK_XFRM) {
        Ok(socket) => socket,
        // Either the kernel has no IPsec, or its module is not loaded.
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(Some(Vec::new())),
        Err(error) => return Err(Error::system("open a netlink socket", error)),
    };
    let mut list = || -> io::Result<_> {
        socket.bind_auto()?;
        socket.connect(&NetlinkAddr::new(0, 0))?;
        socket.send(&request(), 0)?;
        let mut policies = Vec::new();
        loop {
            let (answer, _) = socket.recv_from_full()?;
            match read(&answer, &mut policies) {
                Answer::Continues => {}
                Answer::Done => return Ok(Some(policies)),
                Answer::Refused => return Ok(None),
            }
        }
    };
    list().doing("list the IPsec policies")
}

/// Builds a request for all IPsec policies.
fn request() -> Vec<u8> {
    let len = (HEADER + POLICY_ID) as u32;
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(XFRM_MSG_GETPOLICY.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    bytes.resize(HEADER + POLICY_ID, 0);
    bytes
}

/// Part of a reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// More messages follow.
    Continues,
    /// The list is complete.
    Done,
    /// The process may not read the policies.
    Refused,
}

/// Adds the policies in the messages of one datagram to `policies`.
fn read(mut bytes: &[u8], policies: &mut Vec<Policy>) -> Answer {
    while let Ok(message) = NetlinkBuffer::new_checked(bytes) {
        match message.message_type() {
            XFRM_MSG_NEWPOLICY => policies.extend(policy(message.payload())),
            NLMSG_DONE => return Answer::Done,
            NLMSG_ERROR => return Answer::Refused,
            _ => {}
        }
        // Each message is padded to a multiple of four bytes.
        bytes = bytes.get((message.length() as usize).next_multiple_of(4)..).unwrap_or_default();
    }
    Answer::Continues
}

/// Reads a `struct xfrm_userpolicy_info` and the templates that follow it.
fn policy(message: &[u8]) -> Option<Policy> {
    let info = message.get(..POLICY_INFO)?;
    let direction = match info[DIRECTION] {
        0 => Direction::In,
        1 => Direction::Out,
        2 => Direction::Forward,
        // Policies of single sockets have larger numbers.
        _ => return None,
    };
    let is_ipv4 = u16::from_ne_bytes([info[FAMILY], info[FAMILY + 1]]) == libc::AF_INET as u16;
    let number = |at: usize| u16::from_be_bytes([info[at], info[at + 1]]);
    let end = |address: usize, prefix_len: usize, port: usize| {
        let octets: [u8; 16] = info[address..address + 16].try_into().ok()?;
        let network = if is_ipv4 {
            IpAddr::from([octets[0], octets[1], octets[2], octets[3]])
        } else {
            IpAddr::from(octets)
        };
        Some(End { network, prefix_len: info[prefix_len], port: (number(port), number(port + 2)) })
    };
    Some(Policy {
        direction,
        source: end(SOURCE, SOURCE_LEN, SOURCE_PORT)?,
        destination: end(DESTINATION, DESTINATION_LEN, DESTINATION_PORT)?,
        tcp: [0, TCP].contains(&info[PROTOCOL]),
        requires_ipsec: info[ACTION] == XFRM_POLICY_BLOCK || has_required_template(&message[POLICY_INFO..]),
    })
}

/// Returns whether the attributes of a policy contain a template that packets must match.
fn has_required_template(attributes: &[u8]) -> bool {
    let templates =
        NlasIterator::new(attributes).map_while(Result::ok).find(|attribute| attribute.kind() == XFRMA_TMPL);
    templates
        .is_some_and(|found| found.value().chunks_exact(TEMPLATE).any(|template| template[OPTIONAL] == 0))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::namespace::Namespace;

    #[test]
    fn damaged_answers_are_read_as_far_as_possible() {
        let message = |kind: u16| [&[20, 0, 0, 0][..], &kind.to_ne_bytes(), &[0; 14]].concat();
        let mut policies = Vec::new();
        assert_eq!(read(&message(XFRM_MSG_NEWPOLICY), &mut policies), Answer::Continues, "too short");
        assert_eq!(read(&message(NLMSG_ERROR), &mut policies), Answer::Refused);
        assert_eq!(read(&message(NLMSG_DONE), &mut policies), Answer::Done);
        assert_eq!(read(&[0; HEADER], &mut policies), Answer::Continues);
        assert_eq!(read(&[], &mut policies), Answer::Continues);
        assert_eq!(policies, []);
        assert!(!has_required_template(&[0; 7]));
    }

    /// A new namespace has no IPsec policies. Policies that `ip` adds are read with their directions and selectors.
    #[test]
    fn policies_are_read_from_the_kernel() {
        let Ok(namespace) = Namespace::new() else { return };
        let add = |text: &str| {
            let arguments = format!("xfrm policy add {text}");
            let added = Command::new("ip").args(arguments.split(' ')).status();
            added.is_ok_and(|status| status.success())
        };
        let run = || {
            assert_ne!(policies()?.map(|policies| policies.len()), Some(1), "a new namespace");
            let added = add(
                "src 203.0.113.0/24 dst 203.0.113.5/32 proto tcp dport 443 dir in tmpl proto esp mode transport",
            ) && add(
                "src 203.0.113.5/32 dst 198.51.100.0/24 dir fwd tmpl proto esp mode tunnel level use",
            ) && add("src 203.0.113.5/32 dst 198.51.100.0/24 dir out action block");
            if added { policies() } else { Ok(None) }
        };
        // Some kernels have no IPsec.
        let Some(mut found) = namespace.run(run).expect("an answer") else { return };
        found.sort_by_key(|policy| policy.direction as u8);
        let end = |text: &str, prefix_len, port| End {
            network: text.parse().expect("an address"),
            prefix_len,
            port,
        };
        let [server, clients] = [end("203.0.113.5", 32, (0, 0)), end("198.51.100.0", 24, (0, 0))];
        let policy = Policy {
            direction: Direction::In,
            source: end("203.0.113.0", 24, (0, 0)),
            destination: end("203.0.113.5", 32, (443, 0xffff)),
            tcp: true,
            requires_ipsec: true,
        };
        let out = Policy { direction: Direction::Out, source: server, destination: clients, ..policy };
        let forward = Policy { direction: Direction::Forward, requires_ipsec: false, ..out };
        assert_eq!(found, [policy, out, forward]);
        let address = |text: &str| text.parse().expect("an address");
        assert!(policy.refuses_plain_packets_to(address("203.0.113.5:443")));
        assert!(!policy.refuses_plain_packets_to(address("203.0.113.5:80")));
        assert!(!policy.refuses_plain_packets_to(address("203.0.113.6:443")));
        assert!(!policy.refuses_plain_packets_to(address("[::1]:443")));
        assert!(!forward.forwards_no_packets_from(address("203.0.113.5:443")), "the template is optional");
        let strict = Policy { requires_ipsec: true, ..forward };
        assert!(strict.forwards_no_packets_from(address("203.0.113.5:443")));
        assert!(!out.forwards_no_packets_from(address("203.0.113.5:443")));
    }
}
