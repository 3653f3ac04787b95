//! Tests of a sender against misbehaving peers. The peers shrink windows, renege on SACKed data, acknowledge
//! in pieces or in bursts, and acknowledge data that never arrived. The peer is a minimal receiver, a byte
//! map without a TCP implementation.
//!
//! Unusual behaviour that the protocol permits must neither stall a transfer nor distort the sender's
//! windows. If a peer acknowledges data before it arrives, the sender must still send no more data than both
//! windows allow.
//!
//! Proptest generates the same cases on every machine, and reduces a failing case to the simplest peer that
//! causes the failure.

use fullpipe_tcp::buffers::{Buffer, WindowRule};
use fullpipe_tcp::cc::Algorithm;
use fullpipe_tcp::wire::{Flags, SackBlocks, Segment, SeqNum, SynOptions, Timestamps};
use fullpipe_tcp::{Config, Connection, Event, Snapshot, State, Tunables};
use fullpipe_units::{Bytes, Draws, Duration, Ecn, Instant};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;

use crate::driver::{self, InFlight, Transmission};
use crate::settings::{any_launch, any_tunables};

/// Pattern in which the simulated peer sends ACKs.
#[derive(Clone, Copy, Debug)]
enum Acks {
    Each,
    /// The peer sends one ACK after every n segments, and further ACKs at random in between.
    Every(u32),
    /// The peer acknowledges each range in n pieces, which may end within a segment.
    Pieces(u64),
}

/// Way in which the peer acknowledges data that has not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Optimism {
    None,
    /// The peer acknowledges data that was never sent; the sender must ignore the ACK.
    BeyondSent,
    /// The peer acknowledges data in flight, and then loses that data.
    UnderWay,
}

/// All parameters of a test case. The first choice of each parameter is harmless, and proptest reduces
/// failing cases towards it.
#[derive(Clone, Debug)]
struct Peer {
    seed: u64,
    cc: Algorithm,
    acks: Acks,
    /// Number of copies that the peer sends of each ACK.
    copies: u64,
    sack: bool,
    timestamps: bool,
    /// Upper limit of the random window in each ACK, in bytes; the lower limit is zero.
    moody_window: Option<u64>,
    /// Percentage of arrivals at which the peer drops all of its out-of-order data.
    renege: u64,
    /// Percentage of ACKs with a SACK block for data that has not arrived.
    lying_sacks: u64,
    optimism: Optimism,
    loss: u64,
    reorder: u64,
    delay_us: u64,
    bytes: u64,
}

fn peers() -> impl Strategy<Value = Peer> {
    let rude = (
        select(vec![Acks::Each, Acks::Every(2), Acks::Every(9), Acks::Pieces(2), Acks::Pieces(7)]),
        select(vec![1, 1, 2, 5]),
        select(vec![true, true, true, false]),
        select(vec![true, false]),
        select(vec![None, None, Some(60_000), Some(4_000)]),
        select(vec![0, 0, 2, 30]),
        select(vec![0, 0, 0, 5]),
        select(vec![
            Optimism::None,
            Optimism::None,
            Optimism::None,
            Optimism::BeyondSent,
            Optimism::UnderWay,
        ]),
    );
    let path = (
        select(vec![0, 0, 2, 15]),
        select(vec![0, 0, 5, 30]),
        select(vec![10_000, 100, 200_000]),
        select(vec![20_000, 1, 150_000, 400_000]),
    );
    (any::<u64>().no_shrink(), select(Algorithm::ALL.to_vec()), rude, path).prop_map(
        |(
            seed,
            cc,
            (acks, copies, sack, timestamps, moody_window, renege, lying_sacks, optimism),
            (loss, reorder, delay_us, bytes),
        )| Peer {
            seed,
            cc,
            acks,
            copies,
            sack,
            timestamps,
            moody_window,
            renege,
            lying_sacks,
            optimism,
            loss,
            reorder,
            delay_us,
            bytes,
        },
    )
}

impl Peer {
    /// Returns whether the peer is honest: it holds all data whose acknowledgement the sender accepts.
    fn is_honest(&self) -> bool {
        self.optimism != Optimism::UnderWay
    }

    /// Returns whether the sender sees the peer keep all data that it has SACKed. A peer that acknowledges in
    /// pieces is an exception on a lossy path with SACK, because it appears to have reneged if the last piece
    /// of an ACK is lost.
    fn keeps(&self) -> bool {
        let in_pieces = matches!(self.acks, Acks::Pieces(_)) && self.sack && self.loss > 0;
        self.is_honest() && self.renege == 0 && self.lying_sacks == 0 && !in_pieces
    }
}

const PEER_ISS: SeqNum = SeqNum(u32::MAX - 20_000);
const SHIFT: u8 = 2;
/// Maximum virtual duration of a run with an honest peer.
const LIMIT: Duration = Duration::from_secs(40_000);
/// Virtual duration of a run with a dishonest peer, whose outcome the test cannot predict.
const WITH_LIARS: Duration = Duration::from_secs(30);

struct World {
    peer: Peer,
    draws: Draws,
    ordinal: u64,
    now: Instant,
    conn: Connection,
    to_write: u64,
    finished: bool,
    iss: SeqNum,
    /// Offset of the highest octet that the sender has sent so far. `edge` is the highest right edge that the
    /// peer has advertised.
    sent_to: u64,
    edge: u64,
    /// For each octet of the stream, including the FIN, whether the peer holds it.
    have: Vec<bool>,
    got: u64,
    /// Total growth of the congestion window outside recovery.
    grown: u64,
    rcv_nxt: u64,
    /// Highest stream offset that the peer has acknowledged.
    told: u64,
    newest: (u64, u64),
    since_ack: u32,
    echo: u32,
    path: InFlight<(bool, Segment)>,
}

impl World {
    fn new(peer: Peer) -> Self {
        Self::with(peer, Config::default())
    }

    /// Creates a world in which the sender has random settings. The number of retransmissions is always that
    /// of Linux, because some of these peers answer so rarely that the connection would give up with a lower
    /// number.
    fn with_any_settings(peer: Peer) -> Self {
        let tunables = Tunables { retries: Tunables::LINUX.retries, ..any_tunables(peer.seed) };
        let launch = any_launch(peer.seed);
        Self::with(peer, Config { tunables, launch, ..Config::default() })
    }

    fn with(peer: Peer, config: Config) -> Self {
        let config = Config {
            cc: peer.cc,
            sndbuf: Buffer::Fixed(Bytes::from_mib(1)),
            rcvbuf: Buffer::Fixed(Bytes::from_mib(1)),
            window_rule: WindowRule::ScalingRatio(160),
            seed: peer.seed,
            ..config
        };
        let mut conn = Connection::client(config);
        conn.open();
        Self {
            draws: Draws::new(peer.seed, 77),
            ordinal: 0,
            now: Instant::ZERO,
            conn,
            to_write: peer.bytes,
            finished: false,
            iss: SeqNum(0),
            sent_to: 0,
            edge: 0,
            have: vec![false; peer.bytes as usize + 1],
            got: 0,
            grown: 0,
            rcv_nxt: 0,
            told: 0,
            newest: (0, 0),
            since_ack: 0,
            echo: 0,
            path: InFlight::new(),
            peer,
        }
    }

    fn draw(&mut self, n: u64) -> u64 {
        self.ordinal += 1;
        self.draws.at(self.ordinal) % n
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.draw(100) < percent
    }

    fn send(&mut self, to_peer: bool, segment: Segment) {
        if self.percent(self.peer.loss) {
            return;
        }
        let mut delay = self.peer.delay_us;
        if self.percent(self.peer.reorder) {
            delay += self.draw(2 * delay);
        }
        self.ordinal += 1;
        self.path.put(self.now + Duration::from_micros(delay), (to_peer, segment));
    }

    // Functions of the sender.

    fn application(&mut self) {
        while let Some(event) = self.conn.poll_event() {
            if event == Event::Finished {
                assert!(!self.finished, "finished twice");
                self.finished = true;
            }
        }
        if self.conn.state() == State::Established && self.to_write > 0 {
            self.to_write -= self.conn.write(self.to_write);
            if self.to_write == 0 {
                self.conn.close();
            }
        }
    }

    fn transmit(&mut self) {
        for Transmission { before, whole: segment, pieces } in driver::transmissions(&mut self.conn, self.now)
        {
            if segment.flags.has(Flags::SYN) {
                self.iss = segment.seq;
                self.send(true, segment);
                continue;
            }
            let offset = u64::from(segment.seq.0.wrapping_sub(self.iss.0).wrapping_sub(1));
            let end = offset + u64::from(segment.len);
            if segment.len > 0 && end > self.sent_to {
                // New data must stay within the congestion window and the peer's window, except for a probe
                // of one segment (INV-5).
                assert!(offset <= self.sent_to, "new data leaves a gap");
                assert!(end <= self.edge, "beyond every window: {end} of {}", self.edge);
                assert!(before.flight_size + segment.seq_len() <= before.rwnd, "beyond the present window");
                self.sent_to = end;
            }
            for piece in pieces {
                self.send(true, piece);
            }
        }
    }

    // Functions of the peer.

    fn arrives(&mut self, segment: &Segment) {
        if segment.flags.has(Flags::SYN) {
            let syn = SynOptions { mss: 1_460, window_scale: Some(SHIFT), sack_permitted: self.peer.sack };
            let answer = Segment { syn: Some(syn), ..self.segment(0, 65_535, segment.timestamps) };
            let flags = Flags::SYN.with(Flags::ACK);
            self.edge = 65_535;
            self.send(false, Segment { seq: PEER_ISS, flags, ..answer });
            return;
        }
        if let Some(timestamps) = segment.timestamps {
            self.echo = timestamps.value;
        }
        let offset = u64::from(segment.seq.0.wrapping_sub(self.iss.0).wrapping_sub(1));
        let end = offset + segment.seq_len();
        if self.percent(self.peer.renege) {
            self.have[self.rcv_nxt as usize..].fill(false);
        }
        // The sequence number of a window probe is one octet below the cumulative ACK.
        let is_probe = end == offset && offset.wrapping_add(1) == self.told & u64::from(u32::MAX);
        if end > offset && !is_probe {
            assert!(end <= self.have.len() as u64, "octets that were never written");
            let new = &mut self.have[offset as usize..end as usize];
            self.got += new.iter().filter(|had| !**had).count() as u64;
            new.fill(true);
            while self.have.get(self.rcv_nxt as usize) == Some(&true) {
                self.rcv_nxt += 1;
            }
            self.newest = (offset, end);
        }
        self.since_ack += 1;
        match self.peer.acks {
            Acks::Every(n) => {
                if self.since_ack >= n || end == offset || self.percent(60) {
                    self.acknowledge(self.rcv_nxt);
                }
            }
            Acks::Pieces(n) => {
                let (from, step) = (self.told, (self.rcv_nxt.saturating_sub(self.told) / n).max(1));
                for i in 1..n {
                    self.acknowledge((from + i * step).min(self.rcv_nxt));
                }
                self.acknowledge(self.rcv_nxt);
            }
            Acks::Each => self.acknowledge(self.rcv_nxt),
        }
    }

    fn acknowledge(&mut self, mut ack: u64) {
        self.since_ack = 0;
        match self.peer.optimism {
            Optimism::None => {}
            Optimism::BeyondSent => {
                if self.percent(20) {
                    ack = self.peer.bytes + 2 + self.draw(1 << 30);
                }
            }
            Optimism::UnderWay => {
                if self.percent(20) && self.sent_to > ack {
                    ack += self.draw(self.sent_to - ack);
                    self.rcv_nxt = self.rcv_nxt.max(ack);
                }
            }
        }
        self.told = self.told.max(ack.min(self.rcv_nxt));
        let window = self.peer.moody_window.map_or(200_000, |most| self.draw(most + 1));
        // With a fixed window, the right edge never moves left. With a random window, it may move left.
        let mut segment = self.segment(ack, (window >> SHIFT) as u16, self.peer.timestamps.then_some(ECHO));
        if ack <= self.rcv_nxt {
            self.edge = self.edge.max(ack + (u64::from(segment.window) << SHIFT));
        }
        if self.peer.sack {
            segment.sack = self.blocks();
        }
        for _ in 0..self.peer.copies {
            self.send(false, segment.clone());
        }
    }

    /// Returns SACK blocks for the out-of-order data around the newest arrival, or sometimes a false block.
    fn blocks(&mut self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        let has = |at: u64| self.have.get(at as usize) == Some(&true);
        let (mut start, mut end) = self.newest;
        if start > self.rcv_nxt && has(start) {
            while start > self.rcv_nxt && has(start - 1) {
                start -= 1;
            }
            while has(end) {
                end += 1;
            }
            blocks.push(self.iss.plus(1 + start), self.iss.plus(1 + end));
        }
        if self.percent(self.peer.lying_sacks) && self.sent_to > self.rcv_nxt + 2 {
            let room = self.sent_to - self.rcv_nxt - 1;
            let (a, b) = (self.draw(room), self.draw(room));
            let from = self.rcv_nxt + 1;
            blocks.push(self.iss.plus(1 + from + a.min(b)), self.iss.plus(1 + from + a.max(b)));
        }
        blocks
    }

    fn segment(&self, ack: u64, window: u16, timestamps: Option<Timestamps>) -> Segment {
        let value = (self.now.as_nanos() / 1_000_000) as u32 + 1;
        let echo = if timestamps == Some(ECHO) { self.echo } else { timestamps.map_or(0, |them| them.value) };
        Segment {
            seq: PEER_ISS.plus(1),
            ack: self.iss.plus(1 + ack),
            len: 0,
            window,
            flags: Flags::ACK,
            timestamps: self.peer.timestamps.then_some(Timestamps { value, echo }),
            syn: None,
            sack: SackBlocks::default(),
            ecn: Ecn::NotEct,
        }
    }

    // Functions that involve both the sender and the peer.

    fn hear(&mut self, segment: &Segment) {
        let before = self.conn.snapshot();
        self.conn.handle_segment(self.now, segment);
        let after = self.conn.snapshot();
        if segment.flags.has(Flags::SYN) || !self.peer.keeps() {
            return;
        }
        // Data that was retransmitted needlessly and reported as a duplicate also counts as delivered (UN-5).
        // Without SACK, the ACK of such a retransmission looks like the ACK of a segment above a hole, even
        // to the kernel.
        let again = after.stats.retransmits * after.mss;
        if self.peer.sack {
            assert!(after.delivered <= self.got + again, "more is delivered than the peer has");
        }
        if !before.recovering && !after.recovering {
            self.grown += after.cwnd.saturating_sub(before.cwnd);
        }
        // Windows must grow with the amount of delivered data, not with the number of ACKs. A few short
        // segments and the FIN count as whole segments.
        if !self.peer.cc.is_rate_based() && self.peer.moody_window.is_none() {
            let most = self.got + again + 4 * after.mss;
            assert!(self.grown <= most, "{} bytes grow the window by {}", self.got, self.grown);
        }
    }

    fn run(&mut self) {
        let limit = if self.peer.is_honest() { LIMIT } else { WITH_LIARS };
        let mut steps = 0u64;
        while !self.finished && self.conn.state() != State::Closed {
            self.application();
            self.transmit();
            if self.finished {
                break;
            }
            let next = self.path.next().min(self.conn.poll_timeout());
            driver::jump(&mut self.now, next);
            if self.now.saturating_since(Instant::ZERO) > limit {
                assert!(!self.peer.is_honest(), "takes for ever");
                return;
            }
            if let Some((to_peer, segment)) = self.path.take(self.now) {
                if to_peer { self.arrives(&segment) } else { self.hear(&segment) }
            }
            driver::fire(&mut self.conn, self.now);
            steps += 1;
            driver::recount(&self.conn, steps);
            assert!(steps < 2_000_000, "a busy loop");
        }
    }
}

impl World {
    /// Checks the outcome of a run.
    fn check(&self) -> Result<(), TestCaseError> {
        let Self { peer, conn, .. } = self;
        if peer.is_honest() {
            prop_assert_eq!(conn.state(), State::FinWait2, "gave up");
            prop_assert!(self.have.iter().all(|had| *had), "not everything came");
            prop_assert_eq!(conn.acknowledged(), peer.bytes);
        }
        if peer.keeps() {
            let Snapshot { delivered, stats, mss, .. } = conn.snapshot();
            let whole = peer.bytes + 1..=peer.bytes + 1 + stats.retransmits * mss;
            let counted = !peer.sack || whole.contains(&delivered);
            prop_assert!(counted, "{} are counted, {:?} should be", delivered, whole);
        }
        Ok(())
    }
}

/// Placeholder for the timestamp last received from the sender.
const ECHO: Timestamps = Timestamps { value: 0, echo: 0 };

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3_000,
        rng_seed: RngSeed::Fixed(9293),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Default::default()
    })]

    /// Every byte arrives at an honest peer, regardless of its other behaviour.
    #[test]
    fn no_peer_stalls_or_bends_the_sender(peer in peers()) {
        let mut world = World::new(peer);
        world.run();
        world.check()?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000,
        rng_seed: RngSeed::Fixed(8985),
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..Default::default()
    })]

    /// Every byte arrives at an honest peer, for any settings of the sender within their ranges.
    #[test]
    fn no_settings_let_a_peer_stall_or_bend_the_sender(peer in peers()) {
        let mut world = World::with_any_settings(peer);
        world.run();
        world.check()?;
    }
}
