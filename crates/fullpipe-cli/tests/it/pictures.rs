//! Tests of the pictures in README: they show what the program prints.
//!
//! `scripts/ladder-picture` draws the ladder again.

use std::fs;

use fullpipe::units::Rate;
use serde_json::Value;

use crate::process::fullpipe;
use crate::process::pages::{read, root};

/// Returns the values of an attribute of the elements `element` in an SVG file, in order.
fn attributes<'s>(svg: &'s str, element: &str, attribute: &str) -> Vec<&'s str> {
    let elements =
        svg.split('<').filter_map(|part| part.strip_prefix(element)).filter(|part| part.starts_with(' '));
    let name = format!(" {attribute}=\"");
    elements.filter_map(|part| part.split_once(&name)?.1.split('"').next()).collect()
}

/// Returns the texts of an SVG file, separated by spaces.
fn text(svg: &str) -> String {
    let texts = svg.split("<text").skip(1).filter_map(|part| part.split_once('>')?.1.split('<').next());
    texts.collect::<Vec<_>>().join(" ").replace('\u{a0}', " ")
}

/// Returns the rate of a rung in bit/s: the steady-state rate if there is one.
fn rate(rung: &Value) -> u64 {
    rung["steady_bps"].as_u64().or(rung["bps"].as_u64()).expect("a rate")
}

#[test]
fn the_picture_of_the_ladder_shows_what_the_program_prints() {
    let (code, stdout, stderr) = fullpipe(&["diagnose", "--example", "--json"]);
    assert_eq!(code, 0, "{stderr}");
    let document: Value = serde_json::from_str(&stdout).expect("JSON");
    let ladder = document["ladder"].as_array().expect("a ladder");
    let (link, rungs) = ladder.split_last().expect("rungs");
    for name in ["light", "dark"] {
        let svg = read(format!("docs/pictures/ladder-{name}.svg"));
        let drawn: Vec<u64> =
            attributes(&svg, "rect", "data-bps").iter().map(|bps| bps.parse().expect("a number")).collect();
        assert_eq!(
            drawn,
            rungs.iter().map(rate).collect::<Vec<_>>(),
            "scripts/ladder-picture draws it again"
        );
        assert_eq!(attributes(&svg, "text", "data-bps"), [rate(link).to_string()]);
        let text = text(&svg);
        for rung in ladder {
            let what = rung["what"].as_str().expect("a limit");
            let rate = Rate::from_bps(rate(rung)).to_string();
            let remedy = rung["remedy"].as_str().unwrap_or_default();
            let short = remedy.split(" (").next().unwrap_or_default();
            for shown in [what, rate.as_str(), short] {
                assert!(text.contains(shown), "ladder-{name}.svg does not show '{shown}': {text}");
            }
        }
        // The heights of the bars have the ratios of the rates.
        let heights: Vec<f64> = attributes(&svg, "rect", "height")
            .iter()
            .map(|height| height.parse().expect("a number"))
            .collect();
        assert_eq!(heights.len(), rungs.len());
        for (height, rung) in heights.iter().zip(rungs) {
            let expected = heights[0] * rate(rung) as f64 / rate(&rungs[0]) as f64;
            assert!((height - expected).abs() < 1.0, "{height} instead of {expected}");
        }
    }
}

#[test]
fn every_picture_is_on_a_page_in_both_languages() {
    let (english, chinese) = (read("README.md"), read("README.zh-CN.md"));
    for entry in fs::read_dir(root().join("docs/pictures")).expect("a folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        for page in [&english, &chinese] {
            assert!(page.contains(&format!("docs/pictures/{name}")), "no README shows {name}");
        }
    }
}
