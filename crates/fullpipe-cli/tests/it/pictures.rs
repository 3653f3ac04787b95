//! Tests that the pictures in README show the output of the program. Another test keeps the snapshot of this output
//! current.
//!
//! The script `scripts/ladder-picture` redraws the ladder.

use std::fs;

use fullpipe::units::Rate;

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

/// A rung as the program prints it.
struct Printed {
    rate: String,
    limit: String,
    remedy: String,
}

/// Returns the rungs of a ladder from the text of a diagnosis; each line with a bar starts a rung.
fn rungs(text: &str) -> Vec<Printed> {
    let (_, ladder) = text.split_once("\nLadder:").expect("a ladder");
    let (ladder, _) = ladder.split_once("\n\n").expect("text after the ladder");
    let mut rungs: Vec<(&str, String)> = Vec::new();
    for line in ladder.lines().skip(1) {
        match (line.split_once(" #"), rungs.last_mut()) {
            (Some((rate, rest)), _) => rungs.push((rate.trim(), rest.trim_start_matches('#').trim().into())),
            (None, Some((_, text))) => *text += &format!(" {}", line.trim()),
            (None, None) => panic!("{line}"),
        }
    }
    let amounts = |text: &str| text.split(" (").next().unwrap_or_default().to_owned();
    let printed = |(rate, text): &(&str, String)| Printed {
        rate: (*rate).into(),
        limit: amounts(
            text.split_once(": ").filter(|(key, _)| !key.contains(' ')).map_or(text, |(_, what)| what),
        ),
        remedy: text.split_once(" after: ").map_or_else(String::new, |(_, remedy)| amounts(remedy)),
    };
    rungs.iter().map(printed).collect()
}

#[test]
fn the_picture_of_the_ladder_shows_what_the_program_prints() {
    let ladder = rungs(&read("crates/fullpipe-cli/tests/snapshots/diagnose-cubic.txt"));
    assert!(ladder.len() > 2, "{} rungs", ladder.len());
    for name in ["light", "dark"] {
        let svg = read(format!("docs/pictures/ladder-{name}.svg"));
        let number = |bps: &str| bps.parse::<u64>().expect("a number");
        let bars: Vec<u64> = attributes(&svg, "rect", "data-bps").into_iter().map(number).collect();
        let link = attributes(&svg, "text", "data-bps").into_iter().map(number);
        let drawn: Vec<String> =
            bars.iter().copied().chain(link).map(|bps| Rate::from_bps(bps).to_string()).collect();
        let printed: Vec<&str> = ladder.iter().map(|rung| rung.rate.as_str()).collect();
        assert_eq!(drawn, printed, "scripts/ladder-picture draws it again");
        let text = text(&svg);
        for Printed { rate, limit, remedy } in &ladder {
            for shown in [limit, rate, remedy] {
                assert!(text.contains(shown), "ladder-{name}.svg does not show '{shown}': {text}");
            }
        }
        // The heights of the bars are proportional to the rates.
        let heights: Vec<f64> = attributes(&svg, "rect", "height")
            .iter()
            .map(|height| height.parse().expect("a number"))
            .collect();
        assert_eq!(heights.len(), bars.len());
        for (height, bps) in heights.iter().zip(&bars) {
            let expected = heights[0] * *bps as f64 / bars[0] as f64;
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
