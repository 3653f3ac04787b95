//! Rows for tests.

use fullpipe_lab::trace::{Row, TcpInfo};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

/// Payload length of a full-sized segment in bytes.
pub const MSS: u64 = 1_448;

/// Returns a row of a sender that delivers 100 segments per round trip of 50 ms, with 100 segments in flight
/// and 50 more to send. Every window except cwnd has room.
pub fn row(millis: u64) -> Row {
    let ms = Duration::from_millis;
    let segments = |n: u64| Bytes::new(n * MSS);
    Row {
        at: Instant::ZERO + ms(millis),
        flow: 0,
        sender: TcpInfo {
            cc: None,
            mss: Bytes::new(MSS),
            cwnd: segments(100),
            ssthresh: Some(segments(80)),
            inflight: segments(100),
            flight_size: segments(100),
            rwnd: segments(1_000),
            // 1.2 windows per round trip: the pacing rate that the kernel computes for a loss-based sender.
            pacing_rate: Some(Rate::of(segments(120), ms(50))),
            max_pacing_rate: None,
            delivery_rate: Some(Rate::of(segments(100), ms(50))),
            app_limited: false,
            srtt: Some(ms(50)),
            min_rtt: Some(ms(50)),
            delivered: Bytes::new(millis * 2 * MSS),
            retransmits: 0,
            dsack_dups: 0,
            recovering: false,
            notsent: segments(50),
            sndbuf: segments(1_000),
            sndbuf_used: segments(150),
            bbr: None,
        },
        receiver: None,
        path: None,
        truth: None,
    }
}
