//! iperf3 tests on real networks: the sockets and threads for the protocol in `fullpipe-iperf3`.
//!
//! | module | concept |
//! |---|---|
//! | `stream` | one TCP stream: a thread that writes or reads, and counts bytes |
//! | `udp` | one UDP stream: a thread that sends or receives datagrams, and counts them |
//! | `meter` | the counters of a stream over time, which become rows, reports and results |
//! | `sums` | the sums of a test, from the counters of both ends |
//! | `options` | socket options of a test |
//! | `wait` | waiting for a socket, a timeout or a stop signal |
//! | `place` | address of a server, and connections to it |
//! | `control` | the control connection, at either end |
//! | [`client`] | a client that runs a test against any iperf3 server |
//! | [`server`] | a server that runs many concurrent tests on one port |

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

/// Returns the description of this host and of fullpipe for an iperf3 JSON document.
pub fn this_host() -> Start {
    let uname = rustix::system::uname();
    let parts = [uname.sysname(), uname.nodename(), uname.release(), uname.version(), uname.machine()];
    let parts: Vec<_> = parts.iter().map(|part| part.to_string_lossy()).collect();
    let version = concat!("fullpipe ", env!("CARGO_PKG_VERSION")).into();
    Start { version, system_info: parts.join(" "), ..Start::default() }
}
