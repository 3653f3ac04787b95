//! Results of a fullpipe test, besides its diagnosis, as text.

use super::Look;
use super::page::Page;
use crate::latency::Latency;
use crate::tcp_vs_udp::TcpVsUdp;

/// Renders RTTs before and during a test, wrapped between words at the width of `look`.
pub fn render_latency(latency: &Latency, look: impl Into<Look>) -> String {
    let mut page = Page::new(look.into());
    page.hanging("Latency: ", &latency.to_string());
    page.into_text()
}

/// Renders the TCP and UDP results for the same path as a table and a verdict.
pub fn render_tcp_vs_udp(both: &TcpVsUdp, look: impl Into<Look>) -> String {
    let mut page = Page::new(look.into());
    both.table().lines().for_each(|line| page.line(line));
    page.paragraph(0, &both.verdict());
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::{Duration, Rate};

    #[test]
    fn lines_stay_within_the_width() {
        let both = TcpVsUdp {
            tcp: Rate::from_bps(3_740_000),
            retransmits: Some(10),
            offered: Rate::from_bps(45_000_000),
            udp: Rate::from_bps(43_800_000),
            lost: 0.0053,
            jitter: Duration::from_micros(3),
        };
        let idle = Some(Duration::from_millis(100));
        let latency = Latency { idle, loaded: idle, longest: idle, samples: 100 };
        let text = render_tcp_vs_udp(&both, 80) + &render_latency(&latency, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("\nTCP ") && text.contains("grade A+"), "{text}");
    }
}
