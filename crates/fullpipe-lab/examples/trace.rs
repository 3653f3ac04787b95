//! Prints the trace of the first point of an experiment: `cargo run --example trace FILE [POINT]`.

use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::sim;

fn main() {
    let mut args = std::env::args().skip(1);
    let file = args.next().expect("an experiment file");
    let point: usize = args.next().map_or(0, |n| n.parse().expect("the number of a point"));
    let experiment = Experiment::from_toml(&std::fs::read_to_string(file).expect("a readable file"))
        .expect("an experiment");
    let mut rows = Vec::new();
    let mut scenario = experiment.points()[point].scenario.clone();
    scenario.seed = args.next().map_or(1, |n| n.parse().expect("a seed"));
    let outcome = sim::run_traced(&scenario, &mut rows);
    for row in &rows {
        let s = &row.sender;
        println!(
            "{:8.3} cwnd {:9} ssth {:9} infl {:9} rwnd {:9} queued {:9} pace {:6.1} srtt {:6.1} min {:6.1} rcvd {:10} lost {:8} retx {:6} to {:3} q {:8} {} {:?}",
            row.at.as_secs_f64(),
            s.cwnd,
            if s.ssthresh > 1 << 40 { 0 } else { s.ssthresh },
            s.inflight,
            s.rwnd,
            s.queued,
            s.pacing_rate.map_or(0.0, |r| r.as_mbps_f64()),
            s.srtt.map_or(0.0, |t| t.as_millis_f64()),
            s.min_rtt.map_or(0.0, |t| t.as_millis_f64()),
            row.received.get(),
            s.lost,
            s.stats.retransmits,
            s.stats.timeouts,
            row.queue.get(),
            s.limit,
            s.status,
        );
    }
    println!("{outcome:#?}");
}
