//! Records the data of a running test, for the diagnosis at the end of the test.

use std::collections::BTreeMap;

use fullpipe_analysis::classify::{Confidence, SocketFacts};
use fullpipe_analysis::live::{ConcurrentFlows, Live, SharedTime};
use fullpipe_analysis::{HostSettings, Latency, Limit};
use fullpipe_iperf3::document::{Document, Interval, SocketReading, Start, SumReading};
use fullpipe_lab::trace::{ReceiverSample, Row, TcpInfo};
use fullpipe_linux::iperf3::client::Watch;
use fullpipe_units::{Duration, Instant, Rate};

use super::samples::Samples;

/// Maximum number of samples that are stored for the diagnosis of a test. One hour of one stream at twenty
/// samples per second takes less than 50 MB.
pub const ROWS: usize = 72_000;

/// Records the document of a test and the samples of the test's sockets.
#[derive(Debug)]
pub struct Recorder {
    /// Document of the test, as far as it is complete.
    pub document: Document,
    /// Samples of the sending sockets, excluding the warm-up.
    pub rows: Samples<Row>,
    /// Samples of the receiving sockets, excluding the warm-up.
    pub received: Samples<ReceiverSample>,
    flows: BTreeMap<i32, Live>,
    /// Time for which the shared link limits the sending sockets together.
    shared: SharedTime,
    host: SocketFacts,
    adds_limits: bool,
    loaded: LoadedRtt,
    last_report: Instant,
    last_row: Instant,
}

/// Statistics of the smoothed RTT while data was flowing.
#[derive(Debug, Default)]
struct LoadedRtt {
    sum: f64,
    samples: u64,
    longest: Duration,
}

impl Recorder {
    /// Creates a recorder that stores at most `most` samples. If `adds_limits` is set, each interval report
    /// states the limit of its streams. `settings` are the kernel settings of this host.
    pub fn new(adds_limits: bool, most: usize, link: Option<Rate>, settings: Option<&HostSettings>) -> Self {
        let wmem = settings.and_then(|settings| settings.tcp_wmem).map(|wmem| wmem[2]);
        Self {
            document: Document::default(),
            rows: Samples::new(most),
            received: Samples::new(most),
            flows: BTreeMap::new(),
            shared: SharedTime::default(),
            host: SocketFacts { link, wmem, ..SocketFacts::default() },
            adds_limits,
            loaded: LoadedRtt::default(),
            last_report: Instant::ZERO,
            last_row: Instant::ZERO,
        }
    }

    /// Returns the RTT before the test (`idle`) together with the RTT during the test.
    pub fn latency(&self, idle: Option<Duration>) -> Latency {
        let LoadedRtt { sum, samples, longest } = self.loaded;
        let mean = (samples > 0).then(|| Duration::from_secs_f64(sum / samples as f64));
        Latency { idle, loaded: mean, longest: mean.map(|_| longest), samples }
    }

    /// Returns, for each limit by name, the number of seconds for which the limit stopped the sender until
    /// the last report, as a mean over all streams. If streams together fill a given link, the link counts
    /// as their limit.
    pub fn limit_seconds(&self) -> BTreeMap<&'static str, f64> {
        let mut seconds = BTreeMap::new();
        for times in self.flows.values().map(Live::times) {
            for (limit, time) in times {
                *seconds.entry(limit.name()).or_insert(0.0) += time.as_secs_f64() / self.flows.len() as f64;
            }
        }
        seconds
    }

    /// Determines the limits of the streams together, up to their last rows.
    fn judge_together(&mut self) {
        self.shared.judge(&mut self.flows.values_mut().collect::<Vec<_>>());
    }

    /// Adds the state and the limit of each sending stream to a report, and the limit of their sum.
    fn add_readings(&self, interval: &mut Interval) {
        let flows = ConcurrentFlows::since(self.flows.values(), self.last_report);
        let mut limits = Vec::new();
        for stream in interval.streams.iter_mut().filter(|stream| stream.tcp.is_some()) {
            let Some(live) = self.flows.get(&stream.socket) else { continue };
            let held = flows.limit_of(live, live.held_since(self.last_report));
            let limit = held.map(|held| (held.limit, held.confidence));
            stream.fullpipe = live.last().map(|row| reading(&row.sender, limit));
            limits.push((live, limit));
        }
        if limits.len() > 1
            && let Some(sum) = interval.sum.as_mut().filter(|sum| sum.sender)
        {
            let (limit, confidence) = names(flows.limit_of_sum(limits.into_iter()));
            sum.fullpipe = Some(SumReading { limit, confidence });
        }
    }
}

fn reading(last: &TcpInfo, limit: Option<(Limit, Confidence)>) -> SocketReading {
    let (limit, confidence) = names(limit);
    SocketReading {
        min_rtt: last.min_rtt,
        srtt: last.srtt,
        rwnd: last.rwnd,
        inflight: last.inflight,
        delivery_rate: last.delivery_rate,
        notsent: last.notsent,
        sndbuf: last.sndbuf,
        sndbuf_used: last.sndbuf_used,
        limit,
        confidence,
    }
}

/// Returns the names that documents use for a limit and its confidence.
fn names(limit: Option<(Limit, Confidence)>) -> (Option<String>, Option<String>) {
    let name = |(limit, confidence): (Limit, Confidence)| {
        (limit.name().to_owned(), format!("{confidence:?}").to_lowercase())
    };
    limit.map(name).unzip()
}

impl Watch for Recorder {
    fn start(&mut self, start: &Start) {
        self.document.start = start.clone();
    }

    fn row(&mut self, socket: i32, row: &Row, omitted: bool) {
        let host = self.host;
        self.flows.entry(socket).or_insert_with(|| Live::new(host)).push(row);
        self.last_row = row.at;
        if self.shared.is_due(row.at) {
            self.judge_together();
        }
        if omitted {
            return;
        }
        if let Some(srtt) = row.sender.srtt.filter(|_| !row.sender.delivered.is_zero()) {
            self.loaded.sum += srtt.as_secs_f64();
            self.loaded.samples += 1;
            self.loaded.longest = self.loaded.longest.max(srtt);
        }
        self.rows.push(socket, row);
    }

    fn received(&mut self, socket: i32, sample: &ReceiverSample, omitted: bool) {
        if !omitted {
            self.received.push(socket, sample);
        }
    }

    fn interval(&mut self, mut interval: Interval) {
        self.judge_together();
        if self.adds_limits {
            self.add_readings(&mut interval);
        }
        self.last_report = self.last_row;
        self.document.intervals.push(interval);
    }
}

#[cfg(test)]
mod tests {
    use fullpipe_iperf3::document::{Amount, StreamInterval, TcpInterval};
    use fullpipe_lab::experiment::Experiment;
    use fullpipe_lab::sim;

    use super::*;

    /// Returns the recorder of a test with two CUBIC streams on a path of 50 Mbit/s. `link` is the link rate
    /// that the recorder is given.
    fn recorded(link: Option<Rate>) -> Recorder {
        let text = "name = 'x'\nduration = '6s'\n[path]\nrate = '50mbit'\nrtt = '20ms'\nqueue = '1bdp'\n[[flow]]\n\
                    cc = 'cubic'\ncount = 2\n[[sample]]\nevery = '50ms'\n";
        let experiment = Experiment::from_toml(text).expect("a valid experiment");
        let mut rows: Vec<Row> = Vec::new();
        sim::run_traced(&experiment.points()[0].scenario, &mut rows);
        let stream = |socket| StreamInterval {
            socket,
            amount: Amount::default(),
            tcp: Some(TcpInterval::default()),
            udp: None,
            omitted: false,
            sender: true,
            fullpipe: None,
        };
        let mut recorder = Recorder::new(true, 0, link, None);
        let mut end = Instant::ZERO + Duration::from_secs(1);
        for row in &rows {
            if row.at > end {
                recorder.interval(Interval::of(vec![stream(0), stream(1)]));
                end += Duration::from_secs(1);
            }
            recorder.row(row.flow as i32, &row.observed(), false);
        }
        recorder
    }

    fn last_report(link: Option<Rate>) -> Interval {
        recorded(link).document.intervals.pop().expect("a report")
    }

    /// If streams together fill a given link, the link is the limit of each stream and of their sum. A stream
    /// judged alone does not have the link as its limit.
    #[test]
    fn streams_that_fill_the_link_together_share_it() {
        let limits = |report: &Interval| -> Vec<Option<String>> {
            let of_each = report.streams.iter().map(|stream| stream.fullpipe.as_ref().expect("a reading"));
            of_each.map(|reading| reading.limit.clone()).collect()
        };
        let full = last_report(Some(Rate::from_bps(50_000_000)));
        assert_eq!(limits(&full), [Some("link".to_owned()), Some("link".to_owned())]);
        let sum = full.sum.as_ref().and_then(|sum| sum.fullpipe.clone());
        let link = SumReading { limit: Some("link".into()), confidence: Some("certain".into()) };
        assert_eq!(sum, Some(link.clone()));
        // The same streams fill half of a link of 100 Mbit/s.
        let half = last_report(Some(Rate::from_bps(100_000_000)));
        assert_ne!(half.sum.as_ref().and_then(|sum| sum.fullpipe.clone()), Some(link));
    }

    /// Streams that share a given link are limited by it for most of the time; the sum over all limits does not
    /// depend on whether the link is given.
    #[test]
    fn the_time_of_a_full_link_is_counted_for_all_streams() {
        let seconds =
            |link: Option<u64>| recorded(link.map(|link| Rate::from_bps(link * 1_000_000))).limit_seconds();
        let sum = |seconds: &BTreeMap<&str, f64>| seconds.values().sum::<f64>();
        let (full, unknown) = (seconds(Some(50)), seconds(None));
        assert!(full["link"] > 0.7 * sum(&full), "{full:?}");
        assert!((sum(&full) - sum(&unknown)).abs() < 1e-6, "{full:?} instead of {unknown:?}");
    }
}
