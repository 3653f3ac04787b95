//! Buffer sizes that keep a BDP in flight, and their share of a host's memory.

use fullpipe_tcp::buffers::WindowRule;
use fullpipe_units::Bytes;

use crate::input::sysctl::HostSettings;

/// Size of the buffers, as a multiple of the BDP.
pub(super) const BDPS: u64 = 2;
/// Maximum buffer size: the kernel stores sizes in an `int`.
const LARGEST_BUFFER: u64 = i32::MAX as u64;
pub(crate) const PAGE: u64 = 4096;

/// Returns the send buffer limit that keeps `bdp` in flight: `bdps` times `bdp`.
pub(crate) fn sndbuf_for(bdp: Bytes, bdps: u64) -> Bytes {
    capped(bdp.get().saturating_mul(bdps))
}

/// Returns the receive buffer limit that keeps `bdp` in flight: `bdps` times `bdp`, or the size that the
/// window rule requires if that is larger.
pub(crate) fn rcvbuf_for(bdp: Bytes, bdps: u64, rule: WindowRule) -> Bytes {
    capped(bdp.get().saturating_mul(bdps).max(rule.space(bdp).get()))
}

/// Rounds up to whole pages, up to the kernel's maximum.
fn capped(bytes: u64) -> Bytes {
    Bytes::new(bytes.min(LARGEST_BUFFER / PAGE * PAGE).div_ceil(PAGE) * PAGE)
}

pub(super) fn pages(bytes: Bytes) -> u64 {
    bytes.get().div_ceil(PAGE)
}

/// Returns a note on the memory that the raised limits allow. `tcp_mem` is in pages, and limits all sockets
/// of the host together.
pub fn memory_note(bdp: Bytes, rule: WindowRule, host: Option<&HostSettings>) -> String {
    let most = sndbuf_for(bdp, BDPS).max(rcvbuf_for(bdp, BDPS, rule));
    let pages = pages(most);
    match host.and_then(|host| host.tcp_mem_pages) {
        Some([_, pressure, _]) => format!(
            "each flow may take up to {most} ({pages} pages); tcp_mem[1] of {pressure} pages allows {} of them before buffers \
             stop growing",
            pressure / pages.max(1)
        ),
        None => format!(
            "each flow may take up to {most} ({pages} pages); tcp_mem, in pages and for the whole host, must allow that for all \
             flows"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_rule_that_wastes_more_than_half_gets_more() {
        let rcvbuf_for = |bdp, rule| rcvbuf_for(bdp, BDPS, rule);
        assert_eq!(rcvbuf_for(Bytes::from_mib(1), WindowRule::AdvWinScale(-2)), Bytes::from_mib(4));
        assert_eq!(rcvbuf_for(Bytes::from_mib(1), WindowRule::ScalingRatio(160)), Bytes::from_mib(2));
        assert!(rcvbuf_for(Bytes::MAX, WindowRule::AdvWinScale(2)).get() <= LARGEST_BUFFER);
    }

    #[test]
    fn memory_is_counted_in_pages_of_the_whole_host() {
        let host = HostSettings::parse("net.ipv4.tcp_mem = 1 128180 3").unwrap();
        let note = memory_note(Bytes::new(26_250_000), WindowRule::AdvWinScale(2), Some(&host));
        assert!(note.contains("12818 pages") && note.contains("allows 10 of them"), "{note}");
    }
}
