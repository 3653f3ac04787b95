//! Tests of the live view: pictures are computed from simulated trace rows and drawn to an in-memory
//! terminal.

use fullpipe::lab::experiment::Experiment;
use fullpipe::lab::sim;
use fullpipe::units::Rate;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

/// Returns a model with two flows: one is limited by the receive window, the other by the send buffer.
fn model() -> Model {
    rows_and_model().1
}

fn rows_and_model() -> (Row, Model) {
    let mut last = None;
    let mut model = Model::new(SocketFacts::default());
    for (number, host) in
        ["rcvbuf = { fixed = '512KiB' }", "sndbuf = { fixed = '384KiB' }"].iter().enumerate()
    {
        let text = format!(
            "name = 'x'\nduration = '8s'\n[path]\nrate = '100mbit'\nrtt = '100ms'\nqueue = '1bdp'\n[host]\n{host}\n\
             [[flow]]\ncc = 'cubic'\n[[sample]]\nevery = '50ms'\n"
        );
        let experiment = Experiment::from_toml(&text).expect("a valid experiment");
        let mut rows = Vec::new();
        sim::run_traced(&experiment.points()[0].scenario, &mut rows);
        last = last.or(rows.last().cloned());
        let name = format!("flow {number}");
        rows.iter().for_each(|row| model.push(number as i64, &name, true, &row.observed()));
    }
    (last.expect("rows"), model)
}

fn view(model: &Model) -> View {
    View {
        chosen: model.chosen,
        sockets: model.sockets.len(),
        frozen: model.frozen.is_some(),
        ended: false,
        colour: false,
    }
}

/// Draws the model on a terminal of the given size, and returns the lines of the terminal.
fn drawn(model: &Model, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    let picture = model.picture();
    terminal
        .draw(|frame| draw(picture.as_ref(), view(model), frame.area(), frame.buffer_mut()))
        .expect("memory");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

/// The picture highlights the bar of the current limit, and states this limit with its evidence.
#[test]
fn the_binding_bar_is_lit() {
    let mut model = model();
    for (name, limit) in
        [("rwnd", "rwnd: the receiver's window is full"), ("send buffer", "sndbuf: the send buffer")]
    {
        let lines = drawn(&model, 100, 24);
        let text = lines.join("\n");
        let lit: Vec<&String> = lines.iter().filter(|line| line.starts_with('►')).collect();
        assert_eq!(lit.len(), 1, "{text}");
        assert!(lit[0].starts_with(&format!("► {name} ")) && lit[0].contains('█'), "{text}");
        for part in ["Mbit/s", "cwnd", "RTT 1", "unsent", limit, "q quit"] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        assert!(!model.key(Key::Next));
    }
}

/// While the picture is frozen, new rows of the selected socket do not change it. After the picture is
/// unfrozen, it includes the new rows.
#[test]
fn freezing_keeps_the_picture() {
    let (last, mut model) = rows_and_model();
    model.key(Key::Character(' '));
    let before = model.picture().expect("rows");
    let mut row = last.clone();
    row.at += Duration::from_secs(1);
    model.push(0, "flow 0", true, &row);
    assert_eq!(model.picture(), Some(before.clone()));
    assert!(drawn(&model, 80, 20)[0].contains("FROZEN"));
    model.key(Key::Character('f'));
    assert!(model.picture().expect("rows").at > before.at);
}

#[test]
fn keys_that_end_the_view() {
    let mut model = Model::new(SocketFacts::default());
    for (key, ends) in [
        (Key::Character('q'), true),
        (Key::ControlC, true),
        (Key::Escape, true),
        (Key::Character('c'), false),
        (Key::Previous, false),
        (Key::Next, false),
    ] {
        assert_eq!(model.key(key), ends, "{key:?}");
    }
}

/// The live view can be drawn at any terminal size, and before the first trace row.
#[test]
fn any_size_is_drawn() {
    let (empty, full) = (Model::new(SocketFacts::default()), model());
    for (width, height) in [(1, 1), (10, 3), (40, 12), (300, 80)] {
        drawn(&empty, width, height);
        drawn(&full, width, height);
    }
    assert!(drawn(&empty, 60, 5)[0].starts_with("waiting"));
}

/// The line that is printed without a terminal has the same content as the picture.
#[test]
fn a_line_says_the_same() {
    let line = model().picture().expect("rows").line();
    for part in [
        " s  flow 0",
        "Mbit/s",
        "RTT 101ms (least 100ms)",
        "*rwnd ",
        "cwnd ",
        "rwnd: the receiver's window is full",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
}

/// Feeds a view with two simulated CUBIC flows on a link of 50 Mbit/s, which they fill together. `push` adds
/// each row.
fn with_two_flows_on_a_full_link(mut push: impl FnMut(&mut Model, &Row)) -> Model {
    let text = "name = 'x'\nduration = '6s'\n[path]\nrate = '50mbit'\nrtt = '20ms'\nqueue = '1bdp'\n[[flow]]\n\
                cc = 'cubic'\ncount = 2\n[[sample]]\nevery = '50ms'\n";
    let experiment = Experiment::from_toml(text).expect("a valid experiment");
    let mut rows: Vec<Row> = Vec::new();
    sim::run_traced(&experiment.points()[0].scenario, &mut rows);
    let link = Some(Rate::from_bps(50_000_000));
    let mut model = Model::new(SocketFacts { link, ..SocketFacts::default() });
    rows.iter().filter(|row| row.at.as_secs_f64() < 5.9).for_each(|row| push(&mut model, &row.observed()));
    model
}

/// If two flows fill the link together, the link is the limit of each, whether both flows are displayed or
/// one is only a companion. The bar of the link shows the sum of their rates.
#[test]
fn flows_that_fill_the_link_together_share_it() {
    let both = with_two_flows_on_a_full_link(|model, row| model.push(row.flow.into(), "a flow", true, row));
    let one = with_two_flows_on_a_full_link(|model, row| match row.flow {
        0 => model.push(0, "a flow", true, row),
        _ => model.push_companion(row),
    });
    for model in [both, one] {
        let picture = model.picture().expect("rows");
        assert_eq!(picture.limit(), "link: the link is full: 2 connections share it (certain)");
        let line = picture.bars.iter().find(|bar| bar.gauge == picture::Gauge::Link).expect("a bar");
        assert!(line.lit && line.share > 0.85, "{line:?}");
    }
}

/// A flow between two sockets of this host does not cross a link.
#[test]
fn flows_within_the_host_share_no_link() {
    let model = with_two_flows_on_a_full_link(|model, row| {
        model.push(row.flow.into(), "a flow", row.flow == 0, row);
    });
    for view in model.sockets.values() {
        let limit = view.picture(&model.on_link()).expect("rows").limit();
        assert!(!limit.contains("connections share"), "{limit}");
    }
}
