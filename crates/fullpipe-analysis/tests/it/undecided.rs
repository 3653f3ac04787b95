//! Logs that do not determine the cause: the report names candidates, one of which is the cause, and a test
//! that decides between them.

use fullpipe_analysis::classify::{Confidence, SocketFacts, classify};
use fullpipe_analysis::{Diagnosis, Limit, render_text};
use fullpipe_units::Duration;

use crate::case::Case;
use crate::simulated_log::Transferred;

const PATH: &str = "rate = '1gbit'\nrtt = '40ms'\nqueue = '1bdp'";
const MIB64: &str = "sndbuf = '64MiB'\nrcvbuf = '64MiB'";

fn explained(run: &Transferred, cc: Option<&str>) -> Diagnosis {
    let log = cc.map_or_else(|| run.text(), |cc| run.json(cc));
    let case = Case::of(&log).link("1gbit".parse().ok()).rtt(Some(Duration::from_millis(40)));
    case.explained().expect("an explanation")
}

/// Asserts that a diagnosis either names `truth` with high confidence, or lists it among two or three
/// candidates with a test.
#[track_caller]
fn is_honest(diagnosis: &Diagnosis, truth: &[Limit]) {
    let first = &diagnosis.findings[0];
    let Some(undecided) = &diagnosis.undecided else {
        assert!(
            first.confidence >= Confidence::High && truth.contains(&first.limit),
            "{:#?}",
            diagnosis.findings
        );
        return;
    };
    let said = format!("{undecided:?}");
    assert!((2..=3).contains(&undecided.candidates.len()) && !undecided.test.is_empty(), "{said}");
    let mut limits = undecided.candidates.iter().flat_map(|one| &one.limits);
    assert!(limits.any(|limit| truth.contains(limit)), "{truth:?}: {said}");
    let text = render_text(diagnosis, 80);
    let headline = text.lines().next().unwrap_or_default();
    assert!(headline.contains("not decided: ") && headline.chars().count() <= 80, "{headline}");
    assert!(text.contains("To decide: "), "{text}");
}

/// In a text log without retransmissions, and with a Cwnd far above the data in flight, the limit may be an
/// application, a window, a buffer or a pacing rate as well as a cap. BBR's Cwnd is constant with any limit.
#[test]
fn a_constant_cwnd_names_no_policer() {
    let app = "app = { write = '25mbit' }";
    let cases = [
        (MIB64, format!("cc = 'cubic'\n{app}"), "cubic", Limit::App),
        (MIB64, format!("cc = 'bbr1'\n{app}"), "bbr", Limit::App),
        ("sndbuf = '64MiB'\nwindow = '1280KiB'", "cc = 'bbr1'".into(), "bbr", Limit::Rwnd),
        ("sndbuf = '64MiB'\nwindow = '1280KiB'", "cc = 'cubic'".into(), "cubic", Limit::Rwnd),
        ("sndbuf = '1MiB'\nrcvbuf = '64MiB'", "cc = 'bbr1'".into(), "bbr", Limit::Sndbuf),
        (MIB64, "cc = 'bbr1'\nmax_pacing = '60mbit'".into(), "bbr", Limit::Pacing),
    ];
    for (host, flow, cc, truth) in cases {
        let run = Transferred::of(PATH, host, &flow, 1);
        for cc in [None, Some(cc)] {
            let diagnosis = explained(&run, cc);
            println!("{flow} {cc:?}: {:?}", diagnosis.undecided.as_ref().map(ToString::to_string));
            is_honest(&diagnosis, &[truth]);
            let first = &diagnosis.findings[0];
            assert!(!matches!(first.limit, Limit::Policer | Limit::Cap), "{flow} {cc:?}: {first:#?}");
        }
    }
}

/// The policer of `experiments/situations/policer.toml`: for the JSON log of a loss-based sender, the report
/// names it, or states that the log leaves open whether the cause is a policer or loss. Random loss at the
/// same mean rate is not mistaken for a policer.
#[test]
fn a_policer_is_not_taken_for_random_loss() {
    let explained = |path: &str, cc: &str| {
        let path = format!("rate = '100mbit'\nrtt = '100ms'\nqueue = '1bdp'\n{path}");
        let run = Transferred::of(&path, MIB64, &format!("cc = '{cc}'"), 1);
        let case = Case::of(&run.json(cc)).link("100mbit".parse().ok());
        case.rtt(Some(Duration::from_millis(100))).explained().expect("an explanation")
    };
    let policed = explained("policer = { rate = '20mbit', burst = '128KiB', per_flow = true }", "cubic");
    println!("{:#?}", policed.findings);
    is_honest(&policed, &[Limit::Policer]);
    let random = explained("loss = '0.05%'", "cubic");
    assert_eq!((random.findings[0].limit, &random.undecided), (Limit::Cwnd, &None), "{:#?}", random.findings);
}

/// A constant Cwnd excludes link and policer only for a loss-based sender, which would otherwise increase
/// Cwnd until a queue overflows. A constant Cwnd never excludes application, send buffer, pacing, cap and
/// CPU.
#[test]
fn only_a_loss_based_sender_excludes_a_queue() {
    let app = "app = { write = '25mbit' }";
    let excluded = |cc: &str, named: &str| {
        let run = Transferred::of(PATH, MIB64, &format!("cc = '{cc}'\n{app}"), 1);
        let diagnosis = explained(&run, Some(named));
        diagnosis.excluded.iter().map(|one| one.limit).collect::<Vec<_>>()
    };
    let by_cubic = excluded("cubic", "cubic");
    assert!(by_cubic.contains(&Limit::Link) && by_cubic.contains(&Limit::Policer), "{by_cubic:?}");
    let by_bbr = excluded("bbr1", "bbr");
    assert!(!by_bbr.contains(&Limit::Link) && !by_bbr.contains(&Limit::Policer), "{by_bbr:?}");
    let never = [Limit::App, Limit::Sndbuf, Limit::Pacing, Limit::Cap, Limit::Cpu];
    assert!(by_cubic.iter().chain(&by_bbr).all(|limit| !never.contains(limit)), "{by_cubic:?} {by_bbr:?}");
}

/// BBR at 2 % loss with buffers of twice the BDP: data behind lost segments fills the window, although much
/// less than a window arrives per round trip. Larger buffers lift this limit.
#[test]
fn holes_in_the_receive_window_are_its_limit() {
    for (rate, rtt, mib) in [(200, 210, 10), (50, 600, 8), (500, 100, 12)] {
        let path = format!("rate = '{rate}mbit'\nrtt = '{rtt}ms'\nqueue = '1bdp'\nloss = '2%'");
        let host = format!("sndbuf = '64MiB'\nrcvbuf = '{mib}MiB'");
        let run = Transferred::of(&path, &host, "cc = 'bbr1'", 1);
        let case = |log| {
            Case::of(&log).link(format!("{rate}mbit").parse().ok()).rtt(Some(Duration::from_millis(rtt)))
        };
        let diagnosis = case(run.json("bbr")).explained().expect("an explanation");
        let first = &diagnosis.findings[0];
        println!("{path}: {:?} {:?} {:?}", first.limit, first.confidence, first.evidence);
        assert_eq!((first.limit, first.confidence), (Limit::Rwnd, Confidence::High), "{path}: {first:#?}");
        assert!(
            first.what.starts_with("data behind lost segments fills the receive window"),
            "{}",
            first.what
        );
        assert!(diagnosis.excluded.iter().all(|one| one.limit != Limit::Rwnd), "{:#?}", diagnosis.excluded);
        let text = case(run.text()).explained().expect("an explanation");
        is_honest(&text, &[Limit::Rwnd]);
        // Rows of the socket, ten a second.
        let rows = Transferred::sampled(&path, &host, "cc = 'bbr1'", 1, "100ms").observed();
        let found = classify(
            &rows,
            &SocketFacts { link: format!("{rate}mbit").parse().ok(), ..SocketFacts::default() },
        );
        let first = &found.findings[0];
        println!("rows: {:?} {:?} {:.2} {}", first.limit, first.confidence, first.share, first.what);
        assert_eq!(first.limit, Limit::Rwnd, "{path}: {:#?}", found.findings);
        assert!(
            first.what.starts_with("data behind lost segments fills the receive window"),
            "{}",
            first.what
        );
    }
}

/// After an early loss, BBR starts slowly. It fills the link at the end, but its mean rate after the ramp is
/// a little below the link rate. The link is therefore a candidate, and holes in the window are not certain.
#[test]
fn a_rate_near_that_of_the_link_leaves_the_link_open() {
    let path = "rate = '200mbit'\nrtt = '120ms'\nqueue = '1bdp'\nloss = '1%'";
    let host = "sndbuf = '16MiB'\nrcvbuf = '16MiB'";
    let run = Transferred::of(path, host, "cc = 'bbr1'", 1);
    for log in [run.json("bbr"), run.text()] {
        // The payload rate of the link is a tenth above the mean rate of the log, as after a slow start.
        let link = log.transfer().mean_rate().mul_div(116, 100);
        let case = Case::of(&log).link(Some(link)).rtt(Some(Duration::from_millis(120)));
        is_honest(&case.explained().expect("an explanation"), &[Limit::Link]);
    }
}
