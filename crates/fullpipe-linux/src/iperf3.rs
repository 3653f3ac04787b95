//! iperf3's tests on real networks: its protocol is `fullpipe-iperf3`, the sockets and threads are here.
//!
//! | module | concept |
//! |---|---|
//! | `control` | the control connection of either end |
//! | `stream` | one TCP stream: a thread that writes or reads, and counts |
//! | `udp` | the same for datagrams |

#[expect(dead_code, reason = "client and server follow")]
mod control;
#[expect(dead_code, reason = "client and server follow")]
mod stream;
#[expect(dead_code, reason = "client and server follow")]
mod udp;
