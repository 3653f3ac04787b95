//! Suggestion for an unknown command: the command that was probably meant.

use std::path::Path;

use clap::{Command, CommandFactory};
pub(crate) use fullpipe::lab::nearest::nearest_name;

use crate::args::Args;
use crate::output::quoted;

/// Command names of other tools, each with the corresponding command of fullpipe.
const OTHER_WORDS: [(&str, &str); 25] = [
    ("analyse", "diagnose"),
    ("analyze", "diagnose"),
    ("capture", "emu"),
    ("check", "diagnose"),
    ("client", "iperf3"),
    ("compare", "race"),
    ("emulate", "emu"),
    ("experiment", "run"),
    ("explain", "diagnose"),
    ("iperf", "iperf3"),
    ("measure", "iperf3"),
    ("metrics", "exporter"),
    ("netem", "emu"),
    ("optimise", "tune"),
    ("optimize", "tune"),
    ("pid", "diagnose --pid"),
    ("prometheus", "exporter"),
    ("rsync", "copy"),
    ("scp", "copy"),
    ("server", "iperf3 -s"),
    ("simulate", "run"),
    ("sysctl", "tune show"),
    ("transfer", "copy"),
    ("undo", "tune rollback"),
    ("watch", "diagnose --watch"),
];

/// Extension of experiment files; any other file is an input of `diagnose`.
const EXPERIMENT: &str = "toml";

/// Returns the hint for the command `typed`, which is one of `arguments`. The command is unknown, or it follows
/// options that must come after it.
pub(crate) fn for_command(typed: &str, arguments: &[String]) -> String {
    let root = Args::command();
    let mut path = vec![root.get_name().to_owned()];
    let mut command = &root;
    for argument in arguments.iter().take_while(|argument| *argument != typed) {
        if let Some(inner) = command.find_subcommand(argument) {
            path.push(argument.clone());
            command = inner;
        }
    }
    if command.find_subcommand(typed).is_some() {
        let (before, after) =
            arguments.split_at(arguments.iter().position(|argument| argument == typed).unwrap_or(0));
        let options = before.iter().filter(|argument| !path.contains(argument)).chain(after.iter().skip(1));
        let options: String = options.map(|argument| format!(" {}", quoted(argument))).collect();
        return format!("try: {} {typed}{options}", path.join(" "));
    }
    let path = path.join(" ");
    let is_root = path == root.get_name();
    let after = arguments.iter().skip_while(|argument| *argument != typed).skip(1);
    let after: String = after.map(|argument| format!(" {}", quoted(argument))).collect();
    if is_root && is_file(typed) {
        let is_experiment = Path::new(typed).extension().is_some_and(|found| found == EXPERIMENT);
        let command = if is_experiment { "run" } else { "diagnose" };
        return format!("try: {path} {command} {}{after}", quoted(typed));
    }
    let other = OTHER_WORDS.iter().find(|(word, _)| is_root && word.eq_ignore_ascii_case(typed));
    match other.map(|(_, command)| *command).or_else(|| nearest(typed, command)) {
        Some(command) => format!("try: {path} {command}{after}"),
        None => format!("see {path} --help"),
    }
}

/// Returns whether an argument names a file: the file exists, or the argument looks like a path.
fn is_file(typed: &str) -> bool {
    typed == "-" || typed.contains(['/', '.']) || Path::new(typed).is_file()
}

/// Returns the subcommand that `typed` abbreviates, or the one with the smallest edit distance from `typed`.
fn nearest<'a>(typed: &str, command: &'a Command) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase().replace(['-', '_'], "");
    let names = || command.get_subcommands().filter(|inner| !inner.is_hide_set()).map(Command::get_name);
    let mut abbreviated = names().filter(|name| typed.len() >= 2 && name.starts_with(&typed));
    if let (Some(name), None) = (abbreviated.next(), abbreviated.next()) {
        return Some(name);
    }
    nearest_name(&typed, names())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(line: &str) -> String {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let typed = arguments.iter().find(|word| !["tune", "never", "--color"].contains(&word.as_str()));
        for_command(typed.expect("a word"), &arguments)
    }

    /// The parser's own suggestion is based on common letters, so it would suggest `tune` for misspellings of
    /// `run`.
    #[test]
    fn the_command_that_was_meant_is_suggested() {
        for (line, expected) in [
            ("diagnos log.txt --link 1gbit", "try: fullpipe diagnose log.txt --link 1gbit"),
            ("dignose", "try: fullpipe diagnose"),
            ("diag log.txt", "try: fullpipe diagnose log.txt"),
            ("rnu e.toml", "try: fullpipe run e.toml"),
            ("rum", "try: fullpipe run"),
            ("tun", "try: fullpipe tune"),
            ("rcae --full", "try: fullpipe race --full"),
            ("compare", "try: fullpipe race"),
            ("rsync a relay://h/b", "try: fullpipe copy a relay://h/b"),
            ("what-if --link 1gbit", "try: fullpipe whatif --link 1gbit"),
            ("Whatif", "try: fullpipe whatif"),
            ("iperf -c h", "try: fullpipe iperf3 -c h"),
            ("export", "try: fullpipe exporter"),
            ("watch", "try: fullpipe diagnose --watch"),
            ("completion bash", "try: fullpipe completions bash"),
            ("tune confrm", "try: fullpipe tune confirm"),
            ("--color never diagnos", "try: fullpipe diagnose"),
            ("xyzzy", "see fullpipe --help"),
            ("zz", "see fullpipe --help"),
            ("tune xyzzy", "see fullpipe tune --help"),
        ] {
            assert_eq!(hint(line), expected, "{line}");
        }
    }

    #[test]
    fn options_follow_the_command() {
        let arguments = ["tune", "--netns", "blue", "status", "--json"].map(str::to_owned);
        assert_eq!(for_command("status", &arguments), "try: fullpipe tune status --netns blue --json");
    }

    #[test]
    fn a_file_is_an_input() {
        assert_eq!(hint("log.txt --link 1gbit"), "try: fullpipe diagnose log.txt --link 1gbit");
        assert_eq!(hint("./log"), "try: fullpipe diagnose ./log");
        assert_eq!(hint("-"), "try: fullpipe diagnose -");
        assert_eq!(hint("Cargo.toml"), "try: fullpipe run Cargo.toml");
        assert_eq!(for_command("my log.txt", &["my log.txt".into()]), "try: fullpipe diagnose 'my log.txt'");
    }
}
