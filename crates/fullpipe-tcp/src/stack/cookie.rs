//! SYN cookies: the listener answers a SYN without keeping state. The initial sequence number of the SYN-ACK
//! encodes the state.
//!
//! ```text
//!   cookie = H1(sockets) + peer's ISN + (minute << 24) + ((H2(sockets, minute) + index of the MSS) mod 2^24)
//!   low six bits of the SYN-ACK's timestamp:   ECN | SACK | window scale (15: none)
//! ```
//!
//! The format is that of Linux (RFC 4987 section 3.6, `net/ipv4/syncookies.c`; proposed by Bernstein in
//! 1996). A cookie cannot hold all options: the MSS is rounded down to one of four values, and without
//! timestamps the connection has no window scaling, SACK or ECN.

use fullpipe_units::{Duration, Instant};

use super::isn::{Purpose, hash};
use super::siphash::Key;
use super::{FourTuple, Owner, Stack};
use crate::conn::Connection;
use crate::wire::{Flags, Segment, SeqNum, SynOptions};

/// Tick of the SYN cookie clock, in nanoseconds.
const MINUTE_NANOS: u64 = 60_000_000_000;
/// Age, in ticks, at which a SYN cookie expires: one to two minutes after it was sent.
const MAX_AGE: u32 = 2;
/// Longest time since the SYN-ACK left, with the 64 ms by which its timestamp is late.
const LONGEST: Duration = Duration::from_nanos(MAX_AGE as u64 * MINUTE_NANOS + 64_000_000);
const COUNT_SHIFT: u32 = 24;
const LOW_BITS: u32 = (1 << COUNT_SHIFT) - 1;

/// MSS values that a SYN cookie can encode, in ascending order.
const MSS_V4: [u16; 4] = [536, 1_300, 1_440, 1_460];
const MSS_V6: [u16; 4] = [1_220, 1_420, 1_440, 8_940];

/// Bit fields in the low six bits of the SYN-ACK timestamp.
const SCALE_BITS: u32 = 0xf;
const NO_SCALE: u32 = 0xf;
const SACK_BIT: u32 = 1 << 4;
const ECN_BIT: u32 = 1 << 5;
const OPTION_BITS: u32 = (1 << 6) - 1;

fn table(tuple: &FourTuple) -> &'static [u16; 4] {
    if tuple.local.is_ipv4() { &MSS_V4 } else { &MSS_V6 }
}

fn minute(now: Instant) -> u32 {
    // 2^32 minutes are eight thousand years, so the truncation to 32 bits is harmless.
    (now.as_nanos() / MINUTE_NANOS) as u32
}

/// Reduces the SYN of a peer to the options that [`decode`] can restore from a cookie.
pub(super) fn reduced(tuple: &FourTuple, syn: &Segment) -> Segment {
    let options = syn.syn.unwrap_or(SynOptions { mss: 0, window_scale: None, sack_permitted: false });
    // If the SYN has no MSS option, the protocol default applies, which is the lowest value in the table.
    let mss = table(tuple).iter().rev().find(|&&mss| mss <= options.mss).unwrap_or(&table(tuple)[0]);
    let has_timestamps = syn.timestamps.is_some();
    let options = SynOptions {
        mss: *mss,
        window_scale: options.window_scale.filter(|_| has_timestamps).map(|shift| shift.min(14)),
        sack_permitted: options.sack_permitted && has_timestamps,
    };
    let ecn = Flags::ECE.with(Flags::CWR);
    let asks_for_ecn = syn.flags.has(ecn) && has_timestamps;
    let flags = if asks_for_ecn { Flags::SYN.with(ecn) } else { Flags::SYN };
    Segment { syn: Some(options), flags, len: 0, ..syn.clone() }
}

/// Returns the SYN cookie for a SYN that [`reduced`] has simplified.
pub(super) fn encode(key: Key, now: Instant, tuple: &FourTuple, syn: &Segment) -> SeqNum {
    let mss = syn.syn.map_or(0, |options| options.mss);
    let index = table(tuple).iter().rposition(|&known| known <= mss).unwrap_or(0) as u32;
    let minute = minute(now);
    let low = hash(key, tuple, Purpose::CookieCount, minute).wrapping_add(index) & LOW_BITS;
    let cookie = hash(key, tuple, Purpose::Cookie, 0)
        .wrapping_add(syn.seq.0)
        .wrapping_add(minute << COUNT_SHIFT)
        .wrapping_add(low);
    SeqNum(cookie)
}

/// Returns the timestamp of the SYN-ACK, which carries the negotiated options in its low bits. The timestamp
/// is at most 64 ticks behind `clock`.
pub(super) fn stamp(clock: u32, syn: &Segment) -> u32 {
    let options = syn.syn.unwrap_or(SynOptions { mss: 0, window_scale: None, sack_permitted: false });
    let mut bits = options.window_scale.map_or(NO_SCALE, u32::from);
    bits |= if options.sack_permitted { SACK_BIT } else { 0 };
    bits |= if syn.flags.has(Flags::ECE) { ECN_BIT } else { 0 };
    let stamp = clock & !OPTION_BITS | bits;
    if stamp > clock { stamp.wrapping_sub(OPTION_BITS + 1) } else { stamp }
}

/// Restores the SYN from `answer`, the ACK that answers a SYN-ACK with a cookie. Returns `None` if the cookie
/// is invalid or has expired.
pub(super) fn decode(key: Key, now: Instant, tuple: &FourTuple, answer: &Segment) -> Option<Segment> {
    let irs = SeqNum(answer.seq.0.wrapping_sub(1));
    let cookie = answer.ack.0.wrapping_sub(1);
    let rest = cookie.wrapping_sub(hash(key, tuple, Purpose::Cookie, 0)).wrapping_sub(irs.0);
    let now = minute(now);
    // The cookie contains the low eight bits of the minute count.
    let age = now.wrapping_sub(rest >> COUNT_SHIFT) & (u32::MAX >> COUNT_SHIFT);
    if age >= MAX_AGE {
        return None;
    }
    let low = hash(key, tuple, Purpose::CookieCount, now.wrapping_sub(age));
    let index = rest.wrapping_sub(low) & LOW_BITS;
    let mss = *table(tuple).get(index as usize)?;
    let echo = answer.timestamps.map(|timestamps| timestamps.echo);
    let scale = echo.map(|echo| echo & SCALE_BITS).filter(|&scale| scale != NO_SCALE);
    let has = |bit| echo.is_some_and(|echo| echo & bit != 0);
    let ecn = if has(ECN_BIT) { Flags::ECE.with(Flags::CWR) } else { Flags::default() };
    Some(Segment {
        seq: irs,
        ack: SeqNum::default(),
        len: 0,
        flags: Flags::SYN.with(ecn),
        syn: Some(SynOptions {
            mss,
            // The shift is at most 14, so it fits into eight bits.
            window_scale: scale.map(|scale| scale as u8),
            sack_permitted: has(SACK_BIT),
        }),
        sack: Default::default(),
        ..answer.clone()
    })
}

impl Stack {
    /// Replies to a SYN with a cookie, and keeps no state.
    pub(super) fn answer_with_cookie(&mut self, now: Instant, tuple: FourTuple, syn: &Segment) {
        let Some(listener) = self.listeners.get_mut(&tuple.local) else { return };
        listener.cookie_sent(now);
        let config = listener.config_of(tuple.remote.ip());
        let syn = reduced(&tuple, syn);
        let seed = self.seed(&config, &tuple);
        let mut connection = Connection::server_with(config, seed);
        connection.start_at(encode(self.config.key, now, &tuple, &syn));
        connection.handle_segment(now, &syn);
        let Some(transmit) = connection.poll_transmit(now) else { return };
        let mut answer = transmit.segment().clone();
        if let Some(timestamps) = &mut answer.timestamps {
            timestamps.value = stamp(timestamps.value, &syn);
        }
        self.counters.cookies_sent += 1;
        self.reply(tuple, answer);
    }

    /// Creates a connection from a returned SYN cookie, as if the stack had kept the state of the SYN.
    pub(super) fn resume(
        &mut self,
        now: Instant,
        tuple: FourTuple,
        syn: &Segment,
        answer: &Segment,
        payload: &[u8],
    ) {
        let Some(listener) = self.listeners.get_mut(&tuple.local) else { return };
        let config = listener.config_of(tuple.remote.ip());
        let iss = SeqNum(answer.ack.0.wrapping_sub(1));
        let seed = self.seed(&config, &tuple);
        let times = [now.saturating_sub(LONGEST), now];
        let connection = Connection::resumed(config, seed, times, iss, syn);
        let Some(slot) = self.insert(tuple, connection, Owner::HalfOpen) else { return };
        if let Some(listener) = self.listeners.get_mut(&tuple.local) {
            listener.half_open += 1;
        }
        self.counters.cookies_accepted += 1;
        self.deliver(now, slot, answer, payload);
    }
}
