//! Two connections, and a path on which the test decides whether each segment arrives.

use super::driver::{self, InFlight};
use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// Fate of a segment on the simulated path.
pub(super) enum Fate {
    Arrives,
    Lost,
    Late(u64),
}

type Path = Box<dyn FnMut(Side, &Segment, u64) -> Fate>;

/// A client and a server with a one-way delay of half an [`RTT`] between them. Both applications read data as
/// soon as it arrives.
pub(super) struct Pair {
    pub(super) client: Connection,
    pub(super) server: Connection,
    pub(super) now: Instant,
    pub(super) events: Vec<(Side, Event)>,
    /// Log of every segment sent, with its time in ms.
    pub(super) log: Vec<(u64, Side, Segment)>,
    pub(super) server_reads: bool,
    /// Whether segments may take the fast path ([`prediction`](super::super::prediction)).
    pub(super) predicts: bool,
    in_flight: InFlight<(Side, Segment)>,
    /// Number of data segments sent by each side. The path identifies segments by this number.
    ordinals: [u64; 2],
    fate: Path,
}

impl Pair {
    pub(super) fn new(client: Config, server: Config) -> Self {
        Self::on(client, server, |_, _, _| Fate::Arrives)
    }

    /// Creates a pair of connections on a path that calls `fate` for each segment. The number passed to
    /// `fate` counts the data segments of that side from zero.
    pub(super) fn on(
        client: Config,
        server: Config,
        fate: impl FnMut(Side, &Segment, u64) -> Fate + 'static,
    ) -> Self {
        Self {
            client: Connection::client(client),
            server: Connection::server(server),
            now: Instant::ZERO,
            events: Vec::new(),
            log: Vec::new(),
            server_reads: true,
            predicts: true,
            in_flight: InFlight::new(),
            ordinals: [0; 2],
            fate: Box::new(fate),
        }
    }

    pub(super) fn write(&mut self, side: Side, len: u64) {
        let conn = if side == Side::Client { &mut self.client } else { &mut self.server };
        assert_eq!(conn.write(len), len, "the buffer takes it all");
        self.flush();
    }

    /// Runs the simulation until time `until` in ms, or until no event is left.
    pub(super) fn run(&mut self, until: u64) {
        let until = Instant::ZERO + ms(until);
        self.flush();
        let mut steps = 0;
        loop {
            let next = self.in_flight.next().min(self.client.poll_timeout()).min(self.server.poll_timeout());
            if next > until {
                self.now = until;
                return;
            }
            driver::jump(&mut self.now, next);
            if let Some((from, segment)) = self.in_flight.take(self.now) {
                let conn = if from == Side::Client { &mut self.server } else { &mut self.client };
                if self.predicts {
                    conn.handle_segment(self.now, &segment);
                } else {
                    conn.handle_any(self.now, &segment);
                }
            }
            driver::fire(&mut self.client, self.now);
            driver::fire(&mut self.server, self.now);
            driver::recount(&self.client, steps);
            driver::recount(&self.server, steps);
            self.flush();
            steps += 1;
            assert!(steps < 10_000_000, "no end at {}", self.now.saturating_since(Instant::ZERO));
        }
    }

    fn flush(&mut self) {
        for side in [Side::Client, Side::Server] {
            loop {
                let conn = if side == Side::Client { &mut self.client } else { &mut self.server };
                let Some(event) = conn.poll_event() else { break };
                if event == Event::Readable && (side == Side::Client || self.server_reads) {
                    conn.read(self.now, u64::MAX);
                }
                self.events.push((side, event));
            }
        }
        for side in [Side::Client, Side::Server] {
            self.transmit(side);
        }
    }

    fn transmit(&mut self, side: Side) {
        let conn = if side == Side::Client { &mut self.client } else { &mut self.server };
        for segment in driver::segments(conn, self.now) {
            let ordinal = self.ordinals[side as usize];
            self.ordinals[side as usize] += u64::from(segment.len > 0);
            let late = match (self.fate)(side, &segment, ordinal) {
                Fate::Arrives => Some(0),
                Fate::Late(late) => Some(late),
                Fate::Lost => None,
            };
            self.log.push((self.now.saturating_since(Instant::ZERO).as_millis(), side, segment.clone()));
            if let Some(late) = late {
                self.in_flight.put(self.now + ms(RTT / 2 + late), (side, segment));
            }
        }
    }

    /// Returns the transmission times and offsets of the data segments sent by `side`.
    pub(super) fn data(&self, side: Side) -> Vec<(u64, u64)> {
        let conn = if side == Side::Client { &self.client } else { &self.server };
        self.log
            .iter()
            .filter(|(_, from, segment)| *from == side && segment.len > 0)
            .map(|(at, _, segment)| (*at, segment.seq.distance_from(conn.sender.iss.plus(1)) as u64))
            .collect()
    }

    /// Returns the number of data segments sent by the client in each [`RTT`], starting with its first data
    /// segment.
    pub(super) fn segments_per_round(&self) -> Vec<u64> {
        let data = self.data(Side::Client);
        let Some(&(start, _)) = data.first() else { return Vec::new() };
        let mut rounds = Vec::new();
        for (at, _) in data {
            let round = ((at - start) / RTT) as usize;
            rounds.resize(rounds.len().max(round + 1), 0);
            rounds[round] += 1;
        }
        rounds
    }
}
