//! Reads journal files, including damaged ones, so that all changes that are intact in a file can still be
//! reverted.
//!
//! ```text
//!   bytes ── valid document? ──► generation
//!               └─ no ─► fields by line, changes by object ─► generation with its damage
//! ```
//!
//! An editor, a failing disk or a restored backup can damage a file; fullpipe itself replaces files
//! atomically. A damaged field gets a value with which a trial ends at the earliest possible time,
//! or with which confirmed changes stay in effect until the user reverts them.

use serde::de::DeserializeOwned;

use super::journal::{Generation, Phase, SCHEMA, Setting};

/// Maximum size of a journal file in bytes; the files that fullpipe writes have a size of a few kilobytes.
pub(super) const MOST_BYTES: usize = 4 << 20;
/// Replacement character for bytes that are not UTF-8.
const NOT_TEXT: char = '\u{fffd}';

/// Damage of a journal file that is only partly readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    /// Reason why the journal file cannot be parsed, with line and column.
    pub(super) why: String,
    /// Contents of the damaged journal file.
    pub(super) original: Vec<u8>,
    /// Keys and former values of settings whose other fields are damaged.
    pub(super) formers: Vec<(String, String)>,
}

/// Reads the journal file of generation `number`.
pub(super) fn generation(number: u64, bytes: &[u8]) -> Generation {
    let text = String::from_utf8_lossy(bytes);
    let whole = serde_json::from_str::<Generation>(&text).map_err(|error| error.to_string());
    let whole = whole.and_then(|found| {
        if text.contains(NOT_TEXT) || !found.settings.iter().all(Setting::is_plausible) {
            return Err("a value is not text".into());
        }
        if found.number == number {
            Ok(found)
        } else {
            Err("the number in the journal differs from the \
            number in the file name"
                .into())
        }
    });
    whole.unwrap_or_else(|why| {
        salvaged(number, &text, Damage { why, original: bytes.to_vec(), formers: Vec::new() })
    })
}

/// Returns the number of changes in a journal file, and whether it is damaged.
pub(crate) fn summary(bytes: &[u8]) -> (usize, bool) {
    let read = generation(1, bytes);
    // The settings file is written from all changes that can be read.
    let _ = super::apply::file_text(std::slice::from_ref(&read));
    let routes = read.routes.iter().filter(|route| route.is_readable()).count();
    (read.settings.len() + routes, read.damage.is_some())
}

fn salvaged(number: u64, text: &str, damage: Damage) -> Generation {
    let settings: Vec<Setting> = objects(text).into_iter().filter(Setting::is_plausible).collect();
    let mut formers = formers(text);
    formers.retain(|(key, _)| !settings.iter().any(|setting| setting.key == *key));
    let deadline: Option<Option<u64>> = field(text, "deadline_boottime_ns");
    let phase = field(text, "phase").unwrap_or(match deadline {
        Some(Some(_)) => Phase::Trial,
        // Confirmed changes are reverted only if the user requests it.
        _ => Phase::Confirmed,
    });
    Generation {
        schema: SCHEMA.into(),
        number,
        phase,
        began_unix_s: field(text, "began_unix_s").unwrap_or(0),
        boot_id: field(text, "boot_id").unwrap_or_default(),
        namespace: field(text, "namespace").unwrap_or(0),
        // A trial without a readable deadline ends immediately.
        deadline_boottime_ns: match phase {
            Phase::Trial => deadline.flatten().or(Some(0)),
            _ => deadline.flatten(),
        },
        settings,
        routes: objects(text),
        former_file: None,
        damage: Some(Damage { formers, ..damage }),
    }
}

/// Returns the value of a field that is alone on its line.
fn field<T: DeserializeOwned>(text: &str, name: &str) -> Option<T> {
    text.lines().find_map(|line| value_of(line, name))
}

fn value_of<T: DeserializeOwned>(line: &str, name: &str) -> Option<T> {
    let value = line.trim().strip_prefix('"')?.strip_prefix(name)?.strip_prefix("\":")?;
    serde_json::from_str(value.trim().trim_end_matches(',')).ok()
}

/// Returns all intact JSON objects of one type, wherever they are in the file.
fn objects<T: DeserializeOwned>(text: &str) -> Vec<T> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('{') {
        rest = &rest[start..];
        // The object of the whole file contains the other objects, and is not of this type.
        let end = rest[1..].find(['{', '}']).map_or(rest.len(), |end| end + 2);
        match serde_json::from_str(&rest[..end]) {
            Ok(object) if !rest[..end].contains(NOT_TEXT) => {
                found.push(object);
                rest = &rest[end..];
            }
            _ => rest = &rest[1..],
        }
    }
    found
}

/// Returns the key and the former value of each setting for which both are on the lines where fullpipe
/// writes them.
fn formers(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let pair = |pair: &[&str]| {
        let key = value_of::<String>(pair[0], "key")?;
        let former = value_of::<String>(pair[1], "former")?;
        let setting = Setting { key, former, value: String::new() };
        (setting.is_plausible() && !setting.former.contains(NOT_TEXT))
            .then_some((setting.key, setting.former))
    };
    lines.windows(2).filter_map(pair).collect()
}

impl Setting {
    /// Returns whether the key can be the name of a kernel setting. A damaged key must not become a path
    /// outside the folder of settings.
    fn is_plausible(&self) -> bool {
        let known = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        !self.key.is_empty()
            && self.key.chars().all(known)
            && !self.key.contains("..")
            && !self.key.starts_with('/')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> String {
        let setting = |key: &str| Setting {
            key: key.into(),
            former: "4096\t16384\t262144\n".into(),
            value: "4096 16384 503808".into(),
        };
        let whole = Generation {
            schema: SCHEMA.into(),
            number: 3,
            phase: Phase::Trial,
            began_unix_s: 1_700_000_000,
            boot_id: "b".into(),
            namespace: 7,
            deadline_boottime_ns: Some(99),
            settings: vec![setting("net.ipv4.tcp_wmem"), setting("net.ipv4.tcp_rmem")],
            routes: Vec::new(),
            former_file: Some("# a { file } \"of\" settings\n".into()),
            damage: None,
        };
        serde_json::to_string_pretty(&whole).unwrap() + "\n"
    }

    fn keys(generation: &Generation) -> Vec<&str> {
        generation.settings.iter().map(|setting| setting.key.as_str()).collect()
    }

    #[test]
    fn an_intact_file_has_no_damage() {
        let read = generation(3, document().as_bytes());
        assert_eq!((read.damage.as_ref(), keys(&read).len()), (None, 2));
        assert_eq!(serde_json::to_string_pretty(&read).unwrap() + "\n", document());
        assert!(generation(4, document().as_bytes()).damage.is_some(), "a file under another number");
    }

    /// Wherever a journal file is truncated, the changes before the cut are read, and a trial still ends.
    #[test]
    fn a_truncated_file_keeps_what_precedes_the_cut() {
        let text = document();
        for cut in 0..text.len() {
            let read = generation(3, &text.as_bytes()[..cut]);
            // In the list of settings, each object ends with a brace on a separate line.
            assert_eq!(keys(&read).len(), text[..cut].matches("\n    }").count(), "{cut}");
            if text[..cut].contains("\"began") {
                assert_eq!(read.phase, Phase::Trial, "{cut}");
                assert!(read.deadline_boottime_ns.is_some(), "{cut}");
            }
        }
        assert_eq!(generation(3, b"").phase, Phase::Confirmed);
    }

    /// Damage to a line does not affect the settings on other lines. If the key and the former value of the
    /// damaged setting are intact, that setting is also recovered.
    #[test]
    fn a_damaged_line_costs_no_other_line() {
        let text = document();
        let lines: Vec<&str> = text.lines().collect();
        for damaged in 0..lines.len() {
            for with in [&b"\xff\xfe\x00"[..], b"", b"\"ke", b"}{"] {
                let mut bytes = Vec::new();
                for (number, line) in lines.iter().enumerate() {
                    bytes.extend(if number == damaged { with } else { line.as_bytes() });
                    bytes.push(b'\n');
                }
                let read = generation(3, &bytes);
                let mut known = keys(&read);
                let formers =
                    read.damage.iter().flat_map(|damage| &damage.formers).map(|(key, _)| key.as_str());
                known.extend(formers);
                let about = ["\"key\"", "\"former\":"].iter().any(|name| lines[damaged].contains(name));
                assert_eq!(known.len(), if about { 1 } else { 2 }, "line {damaged}: {known:?}");
            }
        }
    }

    /// A key that would lead out of the folder of settings is treated as damaged.
    #[test]
    fn a_damaged_key_is_no_path() {
        for bad in ["../../etc/passwd", "/etc/passwd", "net/../../x", "", "net ipv4"] {
            let read = generation(3, document().replace("net.ipv4.tcp_wmem", bad).as_bytes());
            assert_eq!(keys(&read), ["net.ipv4.tcp_rmem"], "{bad}");
        }
    }
}
