//! Command lines of running processes, from `/proc`.

use std::fs;

/// Returns the arguments of a process, the first of which is its program. Returns an empty list if the
/// process has ended, or if the caller is not permitted to read its arguments.
pub fn command_line(process: u32) -> Vec<String> {
    let text = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    // The kernel writes a zero byte after each argument.
    let arguments = text.split_inclusive(|byte| *byte == 0);
    let text = |argument: &[u8]| String::from_utf8_lossy(argument).trim_end_matches('\0').to_owned();
    arguments.map(text).collect()
}

/// Returns the process ID of a process's parent; `None` if the process has ended or has no parent in this PID
/// namespace.
pub fn parent(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok().filter(|parent| *parent != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_command_line_and_a_parent() {
        let own = std::process::id();
        assert_eq!(command_line(own), std::env::args().collect::<Vec<String>>());
        assert_eq!(parent(own), Some(std::os::unix::process::parent_id()));
        assert_eq!((command_line(u32::MAX), parent(u32::MAX)), (Vec::new(), None));
    }
}
