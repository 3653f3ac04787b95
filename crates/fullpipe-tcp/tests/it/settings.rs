//! Random settings of a connection within their ranges.

use fullpipe_tcp::cc::{Launch, Repair};
use fullpipe_tcp::{Bursts, ProbeTimeout, ReoWnd, Retries, RtoRule, Tunables};
use fullpipe_units::{Duration, Rate, draw};

/// Returns tunables that `seed` selects, each from its whole range.
pub(crate) fn any_tunables(seed: u64) -> Tunables {
    let pick = |what: u64, least: u64, most: u64| least + draw(seed, 6, what) % (most - least + 1);
    let ms = |what: u64, least: u64, most: u64| Duration::from_millis(pick(what, least, most));
    let us = |what: u64, least: u64, most: u64| Duration::from_micros(pick(what, least, most));
    let count = |what: u64, least: u64, most: u64| pick(what, least, most) as u32;
    let either = |what: u64| pick(what, 0, 1) == 1;
    let floor = ms(0, 10, 1_000);
    let tunables = Tunables {
        rto: match either(1) {
            true => RtoRule::Slack { floor },
            false => RtoRule::Rfc6298 { floor, granularity: ms(2, 1, 100) },
        },
        rto_prompt: either(42).then(|| ms(43, 50, 1_000)),
        rto_max: ms(3, 1_000, 120_000),
        rto_linear: count(4, 0, 2),
        loss_window: count(5, 1, 10),
        least_window: if either(40) { count(41, 0, 60) } else { 0 },
        probe_timeout: ProbeTimeout {
            srtt_percent: count(6, 100, 200),
            floor: either(7).then(|| ms(8, 0, 200)),
            ack_delay: ms(9, 5, 200),
        },
        reo_wnd: ReoWnd { share: count(10, 1, 64), on_evidence: either(11) },
        syn_ack_early: either(12).then(|| ms(13, 100, 1_000)),
        copies: Repair { second_copy: either(44), tail_copies: count(45, 0, 2) },
        retries: Retries {
            syn: count(14, 1, 10),
            syn_ack: count(15, 1, 10),
            data: count(16, 3, 15),
            orphan: count(17, 1, 15),
        },
        lost_retransmission_reduces: either(18),
        app_limited_without_write: either(19),
        tso_deferral: either(20),
        bursts: match either(21) {
            true => Bursts::Linux,
            false => Bursts::Limited { length: us(22, 50, 2_000), missed: us(23, 0, 5_000) },
        },
    };
    tunables.check().expect("within the ranges");
    tunables
}

/// Returns a launch that `seed` selects, or `None` for a quarter of the seeds.
pub(crate) fn any_launch(seed: u64) -> Option<Launch> {
    let pick = |what: u64, least: u64, most: u64| least + draw(seed, 7, what) % (most - least + 1);
    let rate = Rate::from_bps(pick(0, 1_000_000, 200_000_000));
    (pick(1, 0, 3) > 0).then(|| Launch { window: pick(2, 10, 160) as u32, rate })
}
