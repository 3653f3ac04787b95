//! iperf3's tests on real networks: its protocol is `fullpipe-iperf3`, the sockets and threads are here.
//!
//! | module | concept |
//! |---|---|
//! | `control` | the control connection of either end |

#[expect(dead_code, reason = "client and server follow")]
mod control;
