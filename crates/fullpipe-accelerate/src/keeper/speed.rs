//! Rate limit of all connections together, derived from the speed of the device to the clients.

use fullpipe_linux::{Error, device};
use fullpipe_units::Rate;

use super::Keeper;
use crate::config::Settings;
use crate::handover::Order;
use crate::routes::WayOut;

/// Share of a device's speed that all connections together may use, so that its queue stays empty: 98 %.
const SHARE_OF_SPEED: (u64, u64) = (98, 100);

/// Returns the maximum rate of all connections together; `None` if the speed of the device is not known.
///
/// # Errors
/// Returns an error if the device cannot be examined, for example because it has just disappeared.
pub(super) fn limit(settings: &Settings, way: &WayOut) -> Result<Option<Rate>, Error> {
    let (share, whole) = SHARE_OF_SPEED;
    let speed = match (settings.speed, &way.outgoing()[..]) {
        (Some(speed), _) => Some(speed),
        (None, [only]) => device::speed(only)?,
        // With several devices, the share of each device in the traffic is not known.
        (None, _) => None,
    };
    Ok(speed.map(|speed| speed.mul_div(share, whole)))
}

impl Keeper<'_> {
    /// Adapts the rate limit to the present speed of the device. A shaper may have been added, or a network card may
    /// have negotiated another speed.
    pub(super) fn follow_speed(&mut self) {
        // While the device cannot be examined, the limit does not change.
        let Ok(limit) = limit(self.settings, &self.way) else { return };
        if limit != self.limit {
            self.limit = limit;
            self.order(Order::Limit(limit));
        }
    }
}
