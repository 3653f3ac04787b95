//! A case for tests.

use fullpipe_tcp::buffers::WindowRule;
use fullpipe_units::{Bytes, Duration, Probability};

use super::Case;

/// Returns a path of 1 Gbit/s, 210 ms and 20 ppm of loss between unknown hosts.
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
        rate_option: None,
    }
}
