//! A case for tests.

use fullpipe_tcp::buffers::WindowRule;
use fullpipe_units::{Bytes, Duration, Probability};

use super::Case;

/// 1 Gbit/s at 210 ms and a loss of 20 ppm, between hosts of which nothing is known.
pub(crate) fn case() -> Case<'static> {
    Case {
        bdp: Bytes::new(26_250_000),
        rtt: Duration::from_millis(210),
        loss: Probability::from_ppm(20),
        rule: WindowRule::ScalingRatio(160),
        kernel: None,
        sender: None,
        sender_buffers: None,
        receiver_buffers: None,
    }
}
