//! Proportional rate reduction (RFC 9937), which sets the congestion window during fast recovery.
//!
//! If the sender halved its window at once, it would send nothing for half a round trip. PRR spreads the
//! reduction: while more than `ssthresh` is in flight, PRR sends `ssthresh / RecoverFS` bytes for each byte
//! delivered. When losses have reduced the flight below `ssthresh`, PRR sends about as much as an ACK
//! delivers, plus one segment if the ACK makes progress without a new loss, until the flight reaches
//! `ssthresh` again.

/// Variables of PRR, with the names of RFC 9937.
#[derive(Clone, Debug, Default)]
pub struct Prr {
    /// Congestion window at the start of recovery; Linux uses it for `RecoverFS`.
    recover_fs: u64,
    prr_delivered: u64,
    prr_out: u64,
    cwnd: u64,
}

impl Prr {
    /// Starts recovery with a congestion window of `cwnd`.
    pub fn enter(&mut self, cwnd: u64) {
        *self = Self { recover_fs: cwnd.max(1), prr_delivered: 0, prr_out: 0, cwnd };
    }

    /// Records that `len` bytes were sent.
    pub fn on_send(&mut self, len: u64) {
        self.prr_out += len;
    }

    /// Handles an ACK that delivered `delivered` bytes. `inflight` already reflects this ACK and the losses
    /// that it revealed.
    pub fn on_ack(
        &mut self,
        delivered: u64,
        inflight: u64,
        ssthresh: u64,
        mss: u64,
        progress_without_loss: bool,
    ) {
        if delivered == 0 {
            return;
        }
        self.prr_delivered += delivered;
        let mut sndcnt = if inflight > ssthresh {
            let share = self.prr_delivered as u128 * ssthresh as u128 / mss as u128;
            let whole = share.div_ceil(self.recover_fs as u128) as u64 * mss;
            whole.saturating_sub(self.prr_out)
        } else {
            let mut limit = self.prr_delivered.saturating_sub(self.prr_out).max(delivered);
            if progress_without_loss {
                limit += mss;
            }
            limit.min(ssthresh - inflight)
        };
        // PRR always allows the first retransmission.
        if self.prr_out == 0 {
            sndcnt = sndcnt.max(mss);
        }
        self.cwnd = inflight + sndcnt;
    }

    /// Returns the congestion window that PRR currently allows.
    pub fn cwnd(&self) -> u64 {
        self.cwnd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of segments sent per SACK for a flight of 20 whose first segment is lost. The SACKs
    /// arrive one at a time, and the count starts when the third SACK reveals the loss.
    fn sends_per_sack(ssthresh: u64) -> Vec<u64> {
        let mut prr = Prr::default();
        // Limited transmit has raised the number of sent segments to 22. The third SACK detects the loss.
        let (mut inflight, mut sends) = (20u64, Vec::new());
        prr.enter(20);
        inflight -= 1; // the first is marked lost, three are SACKed, and two new segments were sent
        inflight -= 1;
        for sack in 0..17 {
            if sack > 0 {
                inflight -= 1;
            }
            prr.on_ack(1, inflight, ssthresh, 1, false);
            let sent = prr.cwnd().saturating_sub(inflight);
            prr.on_send(sent);
            inflight += sent;
            sends.push(sent);
        }
        sends
    }

    /// With Reno's factor of 0.5, every other SACK releases a segment, eight in total (RFC 9937; PRR-1). In
    /// the end, the flight size is `ssthresh`.
    #[test]
    fn reno_releases_every_other() {
        let sends = sends_per_sack(10);
        assert_eq!(sends[..8], [1, 0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(sends.iter().sum::<u64>(), 8);
    }

    /// With CUBIC's factor of 0.7, twelve of seventeen SACKs release a segment (RFC 9937; PRR-2).
    #[test]
    fn cubic_releases_seven_of_ten() {
        assert_eq!(sends_per_sack(14), [1, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1]);
    }

    /// After 7 of 20 segments have been delivered, with `ssthresh` = 14, ceil(4.9) = 5 segments may have been
    /// sent (RFC 9937; PRR-3).
    #[test]
    fn the_share_is_rounded_up() {
        let mut prr = Prr::default();
        prr.enter(20);
        prr.on_ack(7, 18, 14, 1, false);
        assert_eq!(prr.cwnd() - 18, 5);
    }

    /// Under heavy loss, no ACK releases more than it delivered plus one segment (RFC 9937; PRR-4).
    #[test]
    fn heavy_loss_releases_what_is_delivered() {
        let mut prr = Prr::default();
        prr.enter(20);
        let mut inflight = 2;
        for _ in 0..3 {
            prr.on_ack(1, inflight, 14, 1, true);
            let sent = prr.cwnd() - inflight;
            assert!(sent <= 2, "{sent}");
            prr.on_send(sent);
            inflight += sent - 1;
        }
        // An ACK that delivers nothing has no effect (RFC 9937; PRR-6).
        let before = prr.cwnd();
        prr.on_ack(0, inflight, 14, 1, true);
        assert_eq!(prr.cwnd(), before);
    }
}
