//! Files that are loaded after the file of fullpipe and set the same keys to other values.

use schemars::JsonSchema;
use serde::Serialize;

use fullpipe_measurement::input::sysctl::key_value;

/// A setting in another file that overrides a setting of fullpipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Override {
    /// Path of the file.
    pub file: String,
    /// Key of the setting, with dots.
    pub key: String,
    /// Value that the file sets.
    pub value: String,
}

/// Returns the settings in `files` (path and text, in any order) that override `ours` (key and value) in the
/// file `own`. A setting overrides one of `ours` if its file is loaded after `own` and its value differs.
/// Files are loaded in the order of their names, regardless of their directories (sysctl.d(5));
/// `/etc/sysctl.conf` is loaded last, as by procps.
pub fn overrides(own: &str, files: &[(String, String)], ours: &[(String, String)]) -> Vec<Override> {
    let order = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        (name == "sysctl.conf", name)
    };
    let mut later: Vec<_> =
        files.iter().filter(|(path, _)| path != own && order(path) > order(own)).collect();
    later.sort_by_key(|(path, _)| order(path));
    let of_file = |(path, text): &(String, String)| -> Vec<Override> {
        text.lines()
            .filter_map(key_value)
            .map(|(key, value)| (key.replace('/', "."), value))
            .filter(|(key, value)| ours.iter().any(|(ours, set)| ours == key && !same(set, value)))
            .map(|(key, value)| Override { file: path.clone(), key, value: value.into() })
            .collect()
    };
    later.into_iter().flat_map(of_file).collect()
}

/// Returns whether two values are equal except for whitespace.
fn same(a: &str, b: &str) -> bool {
    a.split_whitespace().eq(b.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which `sysctl --system` loads files determines the value after the next boot.
    #[test]
    fn only_files_that_come_later_override() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let own = "/etc/sysctl.d/90-fullpipe.conf";
        let files = [
            file(own, "net.ipv4.tcp_wmem = 1 2 3"),
            file("/etc/sysctl.d/10-early.conf", "net.ipv4.tcp_wmem = 4 5 6"),
            file(
                "/usr/lib/sysctl.d/95-late.conf",
                "# net.ipv4.tcp_wmem = 0 0 0\nnet/ipv4/tcp_wmem = 7 8 9\nfs.x = 1",
            ),
            file("/run/sysctl.d/97-agrees.conf", "net.ipv4.tcp_wmem = 1\t2 3"),
            file("/etc/sysctl.conf", "net.ipv4.tcp_wmem=4096 16384 4194304"),
        ];
        let found = overrides(own, &files, &[("net.ipv4.tcp_wmem".into(), "1 2 3".into())]);
        let seen: Vec<_> = found.iter().map(|o| (o.file.as_str(), o.value.as_str())).collect();
        assert_eq!(
            seen,
            [("/usr/lib/sysctl.d/95-late.conf", "7 8 9"), ("/etc/sysctl.conf", "4096 16384 4194304")]
        );
    }
}
