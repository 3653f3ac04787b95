//! iperf3's tests on real networks: its protocol is `fullpipe-iperf3`, the sockets and threads are here.
//!
//! | module | concept |
//! |---|---|
//! | `stream` | one TCP stream: a thread that writes or reads, and counts |
//! | `udp` | the same for datagrams |
//! | `meter` | a stream with its readings: rows, reports, results |
//! | `sums` | the sums of a test, from what both ends have counted |
//! | `options` | what a test asks of its sockets |
//! | `wait` | waiting for a socket, a time and the word to stop |
//! | `place` | where a server is, and connections to it |
//! | `control` | the control connection, of either end |
//! | [`client`] | a test against any iperf3 server |
//! | [`server`] | one port, many tests at a time |

pub mod client;
mod control;
mod meter;
mod options;
mod place;
pub mod server;
mod stream;
mod sums;
mod udp;
mod wait;

pub use place::{Family, ServerAddress};

use fullpipe_iperf3::document::Start;

/// The part of a document that is of this host and program.
pub fn this_host() -> Start {
    let uname = rustix::system::uname();
    let parts = [uname.sysname(), uname.nodename(), uname.release(), uname.version(), uname.machine()];
    let parts: Vec<_> = parts.iter().map(|part| part.to_string_lossy()).collect();
    let version = concat!("fullpipe ", env!("CARGO_PKG_VERSION")).into();
    Start { version, system_info: parts.join(" "), ..Start::default() }
}
