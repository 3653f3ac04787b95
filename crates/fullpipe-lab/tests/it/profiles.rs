//! Tests of profiles: the table of their keys in the documentation, their schema, and their effect on a
//! download.
//!
//! `SNAPSHOTS=overwrite cargo test -p fullpipe-lab --test it profiles::` writes the table.

use std::fs;
use std::path::Path;

use fullpipe_lab::experiment::{Experiment, read_profiles};
use fullpipe_lab::profile::{KEYS, Key};
use fullpipe_lab::sim;
use snapbox::assert::DEFAULT_ACTION_ENV;
use snapbox::data::DataFormat;
use snapbox::{Assert, Data};

fn row(key: &Key) -> String {
    let Key { name, meaning, range: [least, most], lab: [lab_least, lab_most], tcpa, .. } = key;
    let lab = if key.range == key.lab { String::new() } else { format!("{lab_least} to {lab_most}") };
    let tcpa: Vec<String> = tcpa.iter().map(|name| format!("`{name}`")).collect();
    let (kind, default, tcpa) = (key.kind(), key.example(), tcpa.join(", "));
    format!("| `{name}` | {kind} | `{default}` | {least} to {most} | {lab} | {meaning} | {tcpa} |\n")
}

#[test]
fn the_page_on_profiles_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/profiles.md");
    let page = fs::read_to_string(&path).expect("a page");
    let [begin, end] = ["begin", "end"].map(|mark| format!("<!-- {mark} of KEYS -->"));
    let (before, rest) = page.split_once(&begin).expect("the begin of the table");
    let (_, after) = rest.split_once(&end).expect("the end of the table");
    let head =
        "| key | type | default | range | with `lab` | meaning | in TCPA |\n|---|---|---|---|---|---|---|\n";
    let rows: String = KEYS.iter().map(row).collect();
    let kept = Data::read_from(&path, Some(DataFormat::Text)).raw();
    let current = format!("{before}{begin}\n{head}{rows}{end}{after}");
    Assert::new().action_env(DEFAULT_ACTION_ENV).eq(current, kept);
}

/// A file for `race --profiles` must contain at least one profile and nothing else.
#[test]
fn a_file_of_profiles_is_read() {
    let profiles = read_profiles("[profile.web]\n[profile.slow]\nlaunch.window = 10\n").expect("valid");
    let windows: Vec<_> =
        profiles.iter().map(|(name, profile)| (name.as_str(), profile.launch.window)).collect();
    assert_eq!(windows, [("slow", 10), ("web", 44)]);
    for (text, message) in [
        ("", "the file has no profile"),
        ("name = 'x'\n", "line 1, column 1: unknown key 'name'"),
        ("[profile.Web]\n", "'Web' cannot be the name of a profile"),
        ("[profile.web]\nlaunch.window = 9\n", "[profile.web]: launch.window '9' is out of range"),
    ] {
        let error = read_profiles(text).expect_err(text);
        assert!(error.message.ends_with(message), "{text}: {error}");
        assert!(!error.hint.is_empty(), "{text}");
    }
}

/// A profile applies to the sender of a flow that names it. A flow that names an unknown profile is rejected.
#[test]
fn a_flow_has_the_settings_of_its_profile() {
    let text = |name: &str| {
        format!(
            "name = 'x'\nduration = '20s'\n[path]\nrate = '100mbit'\nrtt = '100ms'\n\
             [profile.web]\nlaunch = {{ window = 30, rate = '10mbit' }}\n\
             [[flow]]\ncc = ['cubic', 'bbr1', 'bbr3']\nbytes = '40kB'\napp = {{ request = '200B' }}\n{name}\n"
        )
    };
    let of = |name: &str| Experiment::from_toml(&text(name)).unwrap_or_else(|e| panic!("{e}"));
    let (plain, web) = (of(""), of("profile = 'web'"));
    for (plain, web) in plain.points().iter().zip(web.points()) {
        let config = |side| sim::connection(&web.scenario, &web.scenario.flows[0], 0, side);
        assert_eq!(config(0).launch.map(|launch| launch.window), Some(30));
        assert_eq!(config(1).launch, None, "the receiver");
        let time = |scenario| {
            let outcome = sim::run(scenario);
            assert_eq!(outcome.flows[0].retransmits, 0);
            outcome.flows[0].response.expect("complete").from_syn.as_secs_f64()
        };
        // 28 segments are sent in one flight: after the handshake and the request, they take one round trip,
        // plus a quarter of a round trip for pacing. With an initial window of ten segments, they take two
        // round trips.
        let (plain, web) = (time(&plain.scenario), time(&web.scenario));
        assert!(plain > 0.3 && (0.2..0.24).contains(&web), "{plain} s, with a launch {web} s");
    }
    let error = Experiment::from_toml(&text("profile = 'wob'")).expect_err("no such profile");
    assert!(error.message.ends_with("there is no profile 'wob'"), "{error}");
}
