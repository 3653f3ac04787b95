//! Buffer sizes that keep a BDP in flight, and their share of a host's memory.

use fullpipe_tcp::buffers::{self, WindowRule};
use fullpipe_units::Bytes;

use fullpipe_measurement::input::sysctl::HostSettings;
use fullpipe_measurement::segment::DEFAULT_MSS;

/// Usable window of the buffers, as a multiple of the BDP, if no simulation chooses one: one BDP fills the
/// link, and the other holds the data that arrives behind a loss until the loss is repaired.
pub(super) const BDPS: u64 = 2;
/// Usable windows that are tried, as multiples of the BDP.
pub(super) const TRIED_BDPS: [u64; 5] = [1, 2, 4, 8, 16];
/// Bytes in flight beyond the BDP of an idle path: eight segments that are being serialized, wait for a
/// delayed ACK, or arrive as one burst. They matter if the BDP is only a few dozen segments.
const ON_THE_WAY: u64 = 8 * DEFAULT_MSS.get();
/// Memory that an skb in the send queue takes in addition to its payload, in bytes.
/// Source: measured on Linux 6.18 (x86-64): 65 992 bytes for a payload of 65 160.
const SKB_OVERHEAD: u64 = 832;
/// Maximum buffer size: the kernel stores sizes in an `int`.
const LARGEST_BUFFER: u64 = i32::MAX as u64;
pub(crate) const PAGE: u64 = 4096;

/// Returns the send buffer limit that keeps `bdps` times `bdp` in flight.
pub(crate) fn sndbuf_for(bdp: Bytes, bdps: u64) -> Bytes {
    capped(buffers::sndbuf_for(in_skbs(window(bdp, bdps))).get())
}

/// Returns the receive buffer limit for a window of `bdps` times `bdp`.
pub(crate) fn rcvbuf_for(bdp: Bytes, bdps: u64, rule: WindowRule) -> Bytes {
    capped(rule.space(window(bdp, bdps)).get())
}

/// Returns the memory of `payload` in flight. At low rates, each transmission consists of two segments
/// (`tcp_min_tso_segs`) and has its own skb.
fn in_skbs(payload: Bytes) -> Bytes {
    let two = 2 * DEFAULT_MSS.get();
    payload.mul_div(two + SKB_OVERHEAD, two)
}

fn window(bdp: Bytes, bdps: u64) -> Bytes {
    Bytes::new(bdp.get().saturating_mul(bdps).saturating_add(ON_THE_WAY))
}

/// Rounds up to whole pages, up to the kernel's maximum.
fn capped(bytes: u64) -> Bytes {
    Bytes::new(bytes.min(LARGEST_BUFFER / PAGE * PAGE).div_ceil(PAGE) * PAGE)
}

pub(super) fn pages(bytes: Bytes) -> u64 {
    bytes.get().div_ceil(PAGE)
}

/// Returns a note on the memory of one connection whose raised buffer takes `most`. `tcp_mem` is in pages,
/// and limits all sockets of the host together.
pub fn memory_note(most: Bytes, host: Option<&HostSettings>) -> String {
    let pages = pages(most);
    match host.and_then(|host| host.tcp_mem_pages) {
        Some([_, pressure, _]) => format!(
            "each flow may take up to {most} ({pages} pages); tcp_mem[1] of {pressure} pages allows {} such \
             flows before buffers stop growing",
            pressure / pages.max(1)
        ),
        None => format!(
            "each flow may take up to {most} ({pages} pages); tcp_mem, which counts pages of the whole \
             host, must allow this for all flows"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer size allows the required usable window: the kernel's rule determines the share of a receive
    /// buffer that becomes window, and two thirds of a send buffer are in flight.
    #[test]
    fn a_usable_window_takes_what_the_kernel_wastes_on_top() {
        let mib = Bytes::from_mib;
        for bdps in TRIED_BDPS {
            let wanted = mib(bdps) + Bytes::new(ON_THE_WAY);
            let fits = |usable: Bytes| usable >= wanted && usable < wanted + Bytes::new(2 * PAGE);
            for rule in
                [WindowRule::AdvWinScale(-2), WindowRule::AdvWinScale(1), WindowRule::ScalingRatio(160)]
            {
                let window = rule.window(rcvbuf_for(mib(1), bdps, rule));
                assert!(fits(window), "{rule}: {window}");
            }
            let in_flight = buffers::sendable(sndbuf_for(mib(1), bdps)).mul_div(2, 3).mul_div(2_896, 3_728);
            assert!(fits(in_flight), "{in_flight}");
        }
        let largest = [rcvbuf_for(Bytes::MAX, 16, WindowRule::AdvWinScale(2)), sndbuf_for(Bytes::MAX, 16)];
        assert!(largest.iter().all(|size| size.get() <= LARGEST_BUFFER), "{largest:?}");
    }

    #[test]
    fn memory_is_counted_in_pages_of_the_whole_host() {
        let host = HostSettings::parse("net.ipv4.tcp_mem = 1 128180 200000").unwrap();
        let note = memory_note(Bytes::new(12_818 * PAGE), Some(&host));
        assert!(note.contains("12818 pages") && note.contains("allows 10 such flows"), "{note}");
    }
}
