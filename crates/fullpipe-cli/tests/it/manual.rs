//! Tests of shell completions, of manual pages, and of the parts that all help texts must have.

use std::fs;

use crate::process::{folder, fullpipe, refusal};

const COMMANDS: [&str; 15] = [
    "diagnose",
    "whatif",
    "run",
    "dataset",
    "race",
    "pair",
    "emu",
    "iperf3",
    "exporter",
    "tune",
    "accelerate",
    "copy",
    "relay",
    "completions",
    "man",
];

fn said(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = fullpipe(arguments);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    stdout
}

#[test]
fn every_help_has_an_example_and_the_exit_codes() {
    for command in COMMANDS {
        let help = said(&[command, "--help"]);
        let example = format!("\n  fullpipe {command} ");
        assert!(help.contains("Example") && help.contains(&example), "{help}");
        let codes = match command {
            // `fullpipe emu` exits with the exit code of the command that it runs.
            "emu" => "\nExit codes:\n  the exit code of ",
            // The exporter runs until it is stopped, so exit code 0 is not listed.
            "exporter" => "\nExit codes:\n  1  ",
            _ => "\nExit codes:\n  0  done\n",
        };
        assert!(help.contains(codes), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    }
}

#[test]
fn shells_learn_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = said(&["completions", shell]);
        for word in COMMANDS.into_iter().chain(["buffers", "sysctl"]) {
            assert!(script.contains(word), "{shell} lacks {word}");
        }
    }
    let (error, hint) = refusal(2, fullpipe(&["completions", "dos"]));
    assert!(
        error.contains("'dos'") && hint.contains("bash, elvish, fish, powershell, zsh"),
        "{error}: {hint}"
    );
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = folder("man");
    assert_eq!(said(&["man", "--out", dir.to_str().expect("UTF-8")]), "");
    assert_eq!(fs::read_dir(&dir).expect("a folder").count(), 1 + COMMANDS.len());
    let page = |name: &str| fs::read_to_string(dir.join(name)).expect(name);
    assert_eq!(page("fullpipe.1"), said(&["man"]));
    for command in COMMANDS {
        let text = page(&format!("fullpipe-{command}.1"));
        assert_eq!(text, said(&["man", command]));
        assert!(text.contains(&format!(".TH fullpipe-{command} 1 ")), "{text}");
        assert!(text.contains(&format!("fullpipe {command}")) && text.contains("Exit codes"), "{text}");
    }
    let (error, hint) = refusal(1, fullpipe(&["man", "walk"]));
    assert_eq!((error.as_str(), hint.contains("diagnose")), ("there is no command 'walk'", true));
}
