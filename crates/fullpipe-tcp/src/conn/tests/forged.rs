//! Forged segments: the attacker knows addresses and ports, and guesses the rest.
//!
//! Each connection below receives segments with every combination of flags. The sequence numbers, ACK numbers
//! and timestamps of these segments are correct, within the window, old or random. [`permitted`] returns what
//! RFC 9293 section 3.10.7, RFC 5961 and RFC 7323 section 5.3 let such a segment change; nothing else may
//! change. The function uses only values that both ends have seen on the wire ([`Wire`]).
//!
//! Where Linux accepts slightly more than the RFCs, `permitted` follows Linux and a comment says so.

use std::fmt::Debug;

use fullpipe_units::Draws;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

use super::*;
use crate::recovery::LossRecovery;

/// Parts of a connection that a segment may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Effects {
    /// Whether the connection sends an ACK in reply.
    answer: bool,
    /// Change of the peer timestamp that is echoed and compared.
    timestamp: bool,
    /// Change of the outstanding data, and therefore of loss recovery and congestion control.
    acknowledged: bool,
    /// Change of the peer's window, and of the segment size that depends on it.
    window: bool,
    /// Change of the received data, including the end of the stream.
    data: bool,
    /// Change of the connection state: the connection is established or ends.
    state: bool,
}

const NOTHING: Effects = Effects {
    answer: false,
    timestamp: false,
    acknowledged: false,
    window: false,
    data: false,
    state: false,
};
/// Effects of a valid reset: all state is dropped, and a passive connection in SYN-RECEIVED returns to
/// LISTEN.
const RESET: Effects =
    Effects { answer: false, timestamp: true, acknowledged: true, window: true, data: true, state: true };
/// Effects of a segment that causes only a challenge ACK.
const ANSWER: Effects = Effects { answer: true, ..NOTHING };

/// Sequence numbers and timestamps that both ends have seen on the wire.
#[derive(Clone, Debug)]
struct Wire {
    state: State,
    /// `RCV.NXT`, the highest ACK sent, and the right edge of the advertised window.
    rcv_nxt: SeqNum,
    last_ack_sent: SeqNum,
    edge: SeqNum,
    snd_una: SeqNum,
    snd_nxt: SeqNum,
    max_snd_wnd: u64,
    /// `TS.Recent`; `None` if timestamps were not negotiated.
    ts_recent: Option<u32>,
    /// Timestamp of our SYN-ACK, in SYN-RECEIVED.
    syn_ack: Option<u32>,
    /// End of a SACKed range above a hole.
    reported: Option<SeqNum>,
}

/// Returns true if `a` precedes `b` (RFC 9293 section 3.4).
fn before(a: SeqNum, b: SeqNum) -> bool {
    a.distance_from(b) < 0
}

/// Returns the largest set of effects that `segment` may have, in the order of RFC 9293 section 3.10.7.4.
fn permitted(wire: &Wire, segment: &Segment) -> Effects {
    let Segment { seq, ack, flags, .. } = *segment;
    let end = seq.plus(segment.seq_len());
    let pure_ack = flags.has(Flags::ACK) && segment.seq_len() == 0;
    let older = |value: u32, recent: u32| (value.wrapping_sub(recent) as i32) < 0;
    let timestamps = segment.timestamps.zip(wire.ts_recent).map(|(stamps, recent)| (stamps.value, recent));
    // RFC 7323, rule R1: an old timestamp makes any segment but a reset unacceptable.
    if !flags.has(Flags::RST) && timestamps.is_some_and(|(value, recent)| older(value, recent)) {
        // Linux still uses the SACK blocks of a duplicate ACK that newer segments have overtaken.
        let overtaken = pure_ack && seq == wire.rcv_nxt && ack == wire.snd_una;
        return Effects { acknowledged: overtaken, ..ANSWER };
    }
    // First check: the sequence number. Linux accepts a segment that ends at or after the last ACK sent, or
    // begins at the right edge of the window.
    let acceptable = !before(end, wire.last_ack_sent) && !before(wire.edge, seq);
    // Second check: RST (RFC 5961 section 3.2). Linux also accepts a reset at the end of a SACKed range or at
    // the peer's FIN.
    if flags.has(Flags::RST) {
        let at_fin = matches!(wire.state, State::CloseWait | State::Closing | State::LastAck)
            && seq.plus(1) == wire.rcv_nxt;
        return match () {
            () if seq == wire.rcv_nxt || Some(seq) == wire.reported || at_fin => RESET,
            () if acceptable && wire.state != State::TimeWait => ANSWER,
            () => NOTHING,
        };
    }
    // Fourth check: SYN (RFC 5961 section 4.2). In SYN-RECEIVED, our SYN-ACK may have been lost.
    if !acceptable || flags.has(Flags::SYN) {
        return ANSWER;
    }
    // In SYN-RECEIVED, an echo older than the SYN-ACK shows that the segment belongs to another connection.
    let echoes_another =
        |stamps: Timestamps| stamps.echo != 0 && wire.syn_ack.is_some_and(|sent| older(stamps.echo, sent));
    if segment.timestamps.is_some_and(echoes_another) {
        return if flags.has(Flags::ACK) { ANSWER } else { NOTHING };
    }
    // Fifth check: ACK (RFC 5961 section 5.2).
    if !flags.has(Flags::ACK) {
        return NOTHING;
    }
    if wire.state == State::TimeWait {
        return Effects { timestamp: true, ..ANSWER };
    }
    let oldest = SeqNum(wire.snd_una.0.wrapping_sub(wire.max_snd_wnd as u32));
    let oldest = if wire.state == State::SynReceived { wire.snd_nxt } else { oldest };
    if before(ack, oldest) || before(wire.snd_nxt, ack) {
        return ANSWER;
    }
    let at_left_edge = !before(wire.last_ack_sent, seq);
    Effects {
        answer: true,
        // RFC 7323, rule R3: conditions under which the connection stores the timestamp.
        timestamp: at_left_edge && timestamps.is_some_and(|(value, recent)| !older(value, recent)),
        acknowledged: true,
        window: !before(ack, wire.snd_una),
        // Eighth check: FIN, which occupies one octet.
        data: segment.seq_len() > 0,
        // Data that the application will never read causes a reset. An ACK completes the handshake, or ends a
        // state that waits for an ACK.
        state: true,
    }
}

/// The parts of a connection as strings; a comparison with earlier strings shows which parts have changed.
#[derive(Clone, Debug)]
struct Parts {
    timestamp: String,
    acknowledged: String,
    window: String,
    data: String,
    state: String,
}

fn text(part: &dyn Debug) -> String {
    format!("{part:?}")
}

impl Parts {
    fn of(conn: &Connection) -> Self {
        let LossRecovery { board, rack, newreno, rto, probe, prr, undo, phase, .. } = &conn.sender.recovery;
        let (rtt, rate, control) = (&conn.sender.rtt, &conn.sender.rate, &conn.sender.decision.control);
        let received = &conn.receiver.reassembly;
        let in_time_wait =
            conn.lifecycle.time_wait.as_ref().and_then(|wait| wait.acknowledgement(START).timestamps);
        let echoed = in_time_wait.map_or(conn.receiver.ts_recent, |timestamps| timestamps.echo);
        // Linux restarts TIME-WAIT for each segment that it answers.
        let timer = conn.sender.timer.filter(|_| conn.lifecycle.time_wait.is_none());
        Self {
            timestamp: text(&(echoed, conn.receiver.ts_recent_at)),
            acknowledged: text(&(
                (
                    conn.sender.snd_una,
                    conn.sender.snd_nxt(),
                    conn.lifecycle.finished,
                    conn.sender.probes.unanswered(),
                    conn.sender.heard_at,
                ),
                (board, rack, newreno, rto, probe, prr, undo, phase, rtt, rate, control),
                (timer, &conn.sender.stats),
            )),
            window: text(&(
                conn.sender.peer.wnd,
                conn.sender.peer.max,
                conn.sender.peer.wl1,
                conn.sender.mss,
            )),
            data: text(&(
                (received.rcv_nxt(), received.held_bytes(), received.highest(), received.recent()),
                (
                    conn.receiver.fin_at,
                    conn.receiver.rcv_mss.get(),
                    conn.receiver.copied,
                    conn.receiver.window.edge(),
                    conn.receiver.window.rtt(),
                ),
            )),
            state: text(&(conn.state(), conn.lifecycle.over)),
        }
    }

    fn changed_to(&self, after: &Self, answer: bool) -> Effects {
        Effects {
            answer,
            timestamp: self.timestamp != after.timestamp,
            acknowledged: self.acknowledged != after.acknowledged,
            window: self.window != after.window,
            data: self.data != after.data,
            state: self.state != after.state,
        }
    }
}

impl Effects {
    fn within(self, most: Self) -> bool {
        let pairs = [
            (self.answer, most.answer),
            (self.timestamp, most.timestamp),
            (self.acknowledged, most.acknowledged),
            (self.window, most.window),
            (self.data, most.data),
            (self.state, most.state),
        ];
        pairs.iter().all(|&(is, may)| may || !is)
    }
}

/// State of the connection under attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// Nothing is in flight, so data would take the fast path.
    Idle,
    /// Data has arrived, and its ACK is delayed.
    Delaying,
    /// Data is in flight, so an ACK would take the fast path.
    Sending,
    /// Data is in flight, and part of it is lost.
    Recovering,
    /// Data has arrived above a hole.
    Hole,
    /// Timestamps were not negotiated, so no segment takes the fast path.
    Plain,
    SynReceived,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
}

const SCENES: [Scene; 13] = [
    Scene::Idle,
    Scene::Delaying,
    Scene::Sending,
    Scene::Recovering,
    Scene::Hole,
    Scene::Plain,
    Scene::SynReceived,
    Scene::FinWait1,
    Scene::FinWait2,
    Scene::CloseWait,
    Scene::Closing,
    Scene::LastAck,
    Scene::TimeWait,
];

/// Number of bytes that the peer has sent in order. `WINDOW_KIB` is the peer's window in KiB.
const RECEIVED: u64 = 30 * 100;
const WINDOW_KIB: u16 = 64;

impl Scene {
    fn connection(self) -> Script {
        if self == Self::SynReceived {
            return Self::syn_received();
        }
        let mut script = Script::new(Connection::client(config(Algorithm::Reno)));
        script.conn.open();
        script.flush();
        script.now = START;
        let answer = script.syn_ack(Some(10), Some(1460), true, self != Self::Plain);
        script.inject(&answer);
        script.window = WINDOW_KIB;
        // Both sides have sent data, and the initial quick ACKs are over.
        for i in 0..RECEIVED / 100 {
            script.data(10 + 60 * i, 100 * i, 100);
        }
        script.conn.read(script.now, u64::MAX);
        script.write(8 * MSS);
        script.run(2_000);
        script.peer_sent = RECEIVED;
        script.ack(2_000, 8 * MSS, &[]);
        let una = 8 * MSS;
        let fin = |script: &mut Script, ack: u64| {
            let segment = script.segment(RECEIVED, 0, ack);
            script.inject(&Segment { flags: Flags::FIN.with(Flags::ACK), ..segment });
        };
        match self {
            Self::Idle | Self::Plain | Self::SynReceived => {}
            Self::Delaying => script.data(2_100, RECEIVED, 100),
            Self::Sending => script.write(8 * MSS),
            Self::Recovering => {
                script.write(8 * MSS);
                script.ack(2_100, una, &[(una + 2 * MSS, una + 6 * MSS)]);
            }
            Self::Hole => script.data(2_100, RECEIVED + 1000, 500),
            Self::FinWait1 | Self::FinWait2 | Self::Closing | Self::TimeWait => {
                script.conn.close();
                script.flush();
                if matches!(self, Self::FinWait2 | Self::TimeWait) {
                    script.ack(2_050, una + 1, &[]);
                }
                script.run(2_100);
                match self {
                    Self::Closing => fin(&mut script, una),
                    Self::TimeWait => fin(&mut script, una + 1),
                    _ => {}
                }
            }
            Self::CloseWait | Self::LastAck => {
                fin(&mut script, una);
                // Let the delayed ACK of the FIN leave, so that the next segment is checked after the FIN is
                // acknowledged.
                script.run(script.elapsed().as_millis() + 50);
                if self == Self::LastAck {
                    script.conn.close();
                    script.flush();
                }
            }
        }
        script.run(script.elapsed().as_millis() + 3);
        script
    }

    fn syn_received() -> Script {
        let mut script = Script::new(Connection::server(config(Algorithm::Reno)));
        script.now = START;
        let syn = Segment { flags: Flags::SYN, ..script.syn_ack(Some(10), Some(1460), true, true) };
        script.inject(&syn);
        script.window = WINDOW_KIB;
        script.run(3);
        script
    }

    fn wire(self, script: &Script) -> Wire {
        let mut wire = Wire {
            state: script.conn.state(),
            rcv_nxt: PEER_ISS.plus(1),
            last_ack_sent: PEER_ISS.plus(1),
            edge: PEER_ISS.plus(1),
            snd_una: script.conn.sender.iss,
            snd_nxt: script.conn.sender.iss,
            max_snd_wnd: u64::from(WINDOW_KIB) << 10,
            ts_recent: None,
            syn_ack: None,
            reported: (self == Self::Hole).then(|| PEER_ISS.plus(1 + RECEIVED + 1500)),
        };
        for (_, sent) in &script.segments {
            let end = sent.seq.plus(sent.seq_len());
            if before(wire.snd_nxt, end) {
                wire.snd_nxt = end;
            }
            if sent.flags.has(Flags::ACK) {
                let shift = if sent.flags.has(Flags::SYN) { 0 } else { script.conn.receiver.window.scale() };
                wire.last_ack_sent = sent.ack;
                wire.edge = sent.ack.plus(u64::from(sent.window) << shift);
                wire.ts_recent = sent.timestamps.map(|stamps| stamps.echo);
            }
            if sent.flags.has(Flags::SYN) && self == Self::SynReceived {
                wire.syn_ack = sent.timestamps.map(|stamps| stamps.value);
            }
        }
        let (data, fin) = match self {
            Self::SynReceived => (0, 0),
            Self::Delaying => (RECEIVED + 100, 0),
            Self::Closing | Self::TimeWait | Self::CloseWait | Self::LastAck => (RECEIVED, 1),
            _ => (RECEIVED, 0),
        };
        wire.rcv_nxt = PEER_ISS.plus(1 + data + fin);
        if self != Self::SynReceived {
            let fin = u64::from(matches!(self, Self::FinWait2 | Self::TimeWait));
            wire.snd_una = script.conn.sender.iss.plus(1 + 8 * MSS + fin);
        }
        // The most recent data has not been acknowledged yet.
        if self == Self::Delaying {
            wire.ts_recent = Some(clock(START + ms(2_100)));
        }
        wire
    }
}

/// Accuracy with which the attacker guesses a sequence number or timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guess {
    Right,
    InWindow,
    Old,
    Random,
    /// The segment has no timestamps. (Sequence numbers cannot be absent.)
    Absent,
}

const GUESSES: [Guess; 4] = [Guess::Right, Guess::InWindow, Guess::Old, Guess::Random];
const STAMPS: [Guess; 5] = [Guess::Right, Guess::InWindow, Guess::Old, Guess::Random, Guess::Absent];

/// Header fields that the attacker chooses.
#[derive(Clone, Copy, Debug)]
struct Forgery {
    seq: Guess,
    ack: Guess,
    stamp: Guess,
    /// FIN, SYN, RST, PSH, ACK and URG flags, in the order of the TCP header.
    flags: u8,
    /// Seed that selects each number within its class of guesses.
    seed: u64,
}

impl Forgery {
    fn segment(self, wire: &Wire, now: Instant) -> Segment {
        let draws = Draws::new(self.seed, u64::from(self.flags));
        let draw = |ordinal: u64, below: u64| draws.at(ordinal) % below.max(1);
        let span = |from: SeqNum, to: SeqNum| u64::from(to.0.wrapping_sub(from.0));
        // Old numbers close to the current one are the most dangerous, so half of the old numbers are within
        // a few segments of it.
        let back = |ordinal: u64| match draw(ordinal, 2) {
            0 => 1 + draw(ordinal + 1, 3_000),
            _ => 1 + draw(ordinal + 1, 1 << 31),
        };
        let earlier = |number: SeqNum, distance: u64| SeqNum(number.0.wrapping_sub(distance as u32));
        let seq = match self.seq {
            Guess::InWindow => wire.rcv_nxt.plus(1 + draw(0, span(wire.rcv_nxt, wire.edge))),
            Guess::Old => earlier(wire.rcv_nxt, back(1)),
            Guess::Random => SeqNum(draw(3, 1 << 32) as u32),
            Guess::Right | Guess::Absent => wire.rcv_nxt,
        };
        let ack = match self.ack {
            Guess::InWindow => wire.snd_una.plus(draw(4, 1 + span(wire.snd_una, wire.snd_nxt))),
            Guess::Old => earlier(wire.snd_una, back(5)),
            Guess::Random => SeqNum(draw(7, 1 << 32) as u32),
            Guess::Right | Guess::Absent => wire.snd_nxt,
        };
        let recent = wire.ts_recent.unwrap_or(1_000);
        let value = match self.stamp {
            Guess::Right => Some(clock(now)),
            Guess::InWindow => Some(recent.wrapping_add(draw(8, 1 << 31) as u32)),
            Guess::Old => Some(recent.wrapping_sub(back(9) as u32)),
            Guess::Random => Some(draw(11, 1 << 32) as u32),
            Guess::Absent => None,
        };
        let echo = match wire.syn_ack {
            Some(echo) if self.stamp == Guess::Right || draw(15, 2) == 0 => echo,
            _ => clock(now) - 100,
        };
        let len = [0, 1, 100, MSS as u32, 0, 1, 100, 3_000][draw(12, 8) as usize];
        Segment {
            seq,
            ack,
            len,
            window: [0, 1, 3, WINDOW_KIB, 1_000, 65_535][draw(13, 6) as usize],
            flags: Flags::from_bits(self.flags | [0, 0, 0x40, 0x80][draw(14, 4) as usize]),
            timestamps: value.map(|value| Timestamps { value, echo }),
            syn: None,
            sack: SackBlocks::default(),
            ecn: Ecn::NotEct,
        }
    }
}

/// Handles `segment` and returns the parts of the connection that it has changed.
fn effects(script: &mut Script, before: &Parts, segment: &Segment) -> Effects {
    script.clear();
    script.conn.handle_segment(script.now, segment);
    let after = Parts::of(&script.conn);
    script.flush();
    before.changed_to(&after, !script.segments.is_empty())
}

/// Each connection receives segments with every combination of guesses and flags (T1, T2, CH-1, CH-2, CH-4,
/// CH-7, PAWS-1, PAWS-6).
#[test]
fn a_forged_segment_changes_only_what_its_class_may() {
    let mut seen = [0; 4];
    for (number, scene) in SCENES.into_iter().enumerate() {
        let mut script = scene.connection();
        let wire = scene.wire(&script);
        let before = Parts::of(&script.conn);
        for (i, case) in (0..4 * 4 * 5 * 64u64).enumerate() {
            let forgery = Forgery {
                seq: GUESSES[i % 4],
                ack: GUESSES[i / 4 % 4],
                stamp: STAMPS[i / 16 % 5],
                flags: (i / 80) as u8,
                seed: case + ((number as u64) << 32),
            };
            let segment = forgery.segment(&wire, script.now);
            let most = permitted(&wire, &segment);
            let changed = effects(&mut script, &before, &segment);
            assert!(
                changed.within(most),
                "{scene:?}, {forgery:?}: {segment:?}\n{wire:?}\nmay change {most:?}\nhas changed {changed:?}\n{before:#?}\n{:#?}",
                Parts::of(&script.conn)
            );
            let class = [changed == NOTHING, changed == ANSWER, changed.data, changed.state];
            for (count, hit) in seen.iter_mut().zip(class) {
                *count += u64::from(hit);
            }
            if changed != NOTHING {
                script = scene.connection();
            }
        }
    }
    // Counts of segments that change nothing, cause a challenge ACK, add data or reset the connection.
    // Without these counts, even a connection that drops everything would pass.
    assert!(seen[0] > 10_000 && seen[1] > 1_000 && seen[2] > 100 && seen[3] > 100, "{seen:?}");
}

/// A segment with correct sequence numbers takes effect.
#[test]
fn a_segment_whose_numbers_are_right_is_taken() {
    for scene in SCENES {
        let answers = |flags: Flags, len: u32| {
            let mut script = scene.connection();
            let (wire, before) = (scene.wire(&script), Parts::of(&script.conn));
            let right =
                Forgery { seq: Guess::Right, ack: Guess::Right, stamp: Guess::Right, flags: 0, seed: 1 };
            let segment = Segment { flags, len, window: 1_000, ..right.segment(&wire, script.now) };
            effects(&mut script, &before, &segment)
        };
        let reset = answers(Flags::RST, 0);
        assert!(reset.state, "{scene:?}: a reset at RCV.NXT");
        let ack = answers(Flags::ACK, 0);
        let data = answers(Flags::ACK, 100);
        let fin = answers(Flags::ACK.with(Flags::FIN), 0);
        let open = !matches!(scene, Scene::CloseWait | Scene::Closing | Scene::LastAck | Scene::TimeWait);
        assert_eq!((data.data, fin.data), (open, open), "{scene:?}: data and FIN");
        assert!(ack.acknowledged || scene == Scene::TimeWait, "{scene:?}: an ACK");
        // Above a hole, a newer segment has already updated the window.
        assert!(ack.window || matches!(scene, Scene::Hole | Scene::TimeWait), "{scene:?}: a window");
        assert!(
            scene == Scene::Plain || ack.timestamp || scene == Scene::Delaying,
            "{scene:?}: its timestamp"
        );
    }
}

/// TCP options that were not negotiated are ignored (TS-3).
#[test]
fn options_that_were_not_agreed_on_mean_nothing() {
    let mut script = Scene::Plain.connection();
    let wire = Scene::Plain.wire(&script);
    let forgery = Forgery { seq: Guess::Right, ack: Guess::Right, stamp: Guess::Random, flags: 0, seed: 3 };
    for value in [1 << 30, 1, 1 << 31, u32::MAX] {
        let before = Parts::of(&script.conn);
        let stamped = Some(Timestamps { value, echo: 77 });
        let ack =
            Segment { flags: Flags::ACK, len: 0, timestamps: stamped, ..forgery.segment(&wire, script.now) };
        let changed = effects(&mut script, &before, &ack);
        assert!(!changed.timestamp, "{value}");
    }
    script.data(2_500, RECEIVED, 100);
    assert_eq!(script.conn.received(), RECEIVED + 100);

    let mut script = Script::client(Config { sack: false, ..config(Algorithm::Reno) });
    script.write(8 * MSS);
    script.ack(100, 0, &[(4 * MSS, 8 * MSS)]);
    assert_eq!(script.conn.sender.recovery.board.sacked_segments(), 0);
}

fn forgeries() -> impl Strategy<Value = Vec<Forgery>> {
    let forgery = (
        select(GUESSES.to_vec()),
        select(GUESSES.to_vec()),
        select(STAMPS.to_vec()),
        0u8..64,
        any::<u64>().no_shrink(),
    );
    let forgery = forgery.prop_map(|(seq, ack, stamp, flags, seed)| Forgery { seq, ack, stamp, flags, seed });
    prop::collection::vec(forgery, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, rng_seed: RngSeed::Fixed(14), failure_persistence: None, ..ProptestConfig::default() })]

    /// After any number of forged segments that must change nothing, the connection still accepts the peer's
    /// next segment and processes its ACK (T1).
    #[test]
    fn a_forger_cannot_cut_the_peer_off(scene in select(SCENES[..6].to_vec()), forged in forgeries()) {
        let mut script = scene.connection();
        let wire = scene.wire(&script);
        for forgery in forged {
            let segment = forgery.segment(&wire, script.now);
            if permitted(&wire, &segment).within(ANSWER) {
                script.inject(&segment);
            }
        }
        let received = script.conn.received();
        let una = script.conn.sender.snd_una;
        script.run(script.elapsed().as_millis() + 20);
        let segment = Segment {
            seq: wire.rcv_nxt,
            ack: wire.snd_nxt,
            ..script.segment(0, 100, 0)
        };
        script.inject(&segment);
        prop_assert_eq!(script.conn.received(), received + 100);
        prop_assert_eq!(script.conn.sender.snd_una - una, u64::from(wire.snd_nxt.0.wrapping_sub(wire.snd_una.0)));
        prop_assert!(script.conn.state() == State::Established);
    }
}
