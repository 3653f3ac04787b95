//! Sockets for tests.

use std::net::SocketAddr;

use fullpipe_lab::trace::{ReceiverInfo, ReceiverSample, TcpInfo};
use fullpipe_measurement::classify::samples::{MSS, row};
use fullpipe_units::{Bytes, Duration, Instant};

use super::{Sample, Sockets};
use crate::demand::Memory;

/// Returns a sender limited by its congestion window: it sends 100 segments per round trip of 50 ms, and
/// `unsent` segments are waiting. Its queue is larger than its send buffer.
fn sender(delivered: u64, unsent: u64) -> TcpInfo {
    TcpInfo {
        sndbuf: Bytes::new(87_040),
        delivered: Bytes::new(delivered),
        notsent: Bytes::new(unsent * MSS),
        ..row(0).sender
    }
}

/// Returns the receiving side of a sample: `received` bytes so far, of which `unread` wait to be read, and a
/// window of `window`.
pub(crate) fn received(received: u64, unread: u64, window: u64) -> ReceiverSample {
    ReceiverSample {
        at: Instant::ZERO,
        flow: 0,
        receiver: ReceiverInfo {
            received: Bytes::new(received),
            unread: Bytes::new(unread),
            rcvbuf: Bytes::new(2 * (unread + window)),
        },
        window: Bytes::new(window),
        rtt: Some(Duration::from_millis(50)),
        out_of_order: 0,
        mss: Bytes::new(MSS),
    }
}

/// Returns a sample with `acked` bytes acknowledged.
pub(crate) fn sample(id: u64, acked: u64, unsent: u64) -> Sample<'static> {
    let end = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
    Sample {
        id,
        local: end(1_000 + id as u16),
        remote: end(443),
        cc: "cubic",
        sender: sender(acked, unsent),
        receiver: received(0, 0, 0),
        acked: Bytes::new(acked),
        queued: Bytes::new((100 + unsent) * MSS),
    }
}

/// Memory available to the queue.
pub(crate) const MEMORY: Memory = Memory::Given(Bytes::new(1_000_000_000));

/// Adds ten samples per second, starting at tenth `from`: 1 MB per second is acknowledged, and the queue
/// grows by `growth` segments per sample.
pub(crate) fn run(sockets: &mut Sockets, id: u64, from: u64, samples: u64, growth: u64) {
    for tenth in from..from + samples {
        let at = Instant::ZERO + Duration::from_millis(100 * tenth);
        sockets.take(at, &sample(id, 100_000 * tenth, 50 + growth * tenth));
    }
}
