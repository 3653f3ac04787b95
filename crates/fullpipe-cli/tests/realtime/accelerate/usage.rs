//! Measures CPU time and memory of processes and of the whole host.

use std::fs;

/// Clock ticks per second in `/proc/PID/stat` (`USER_HZ`).
const TICKS: f64 = 100.0;

/// Returns the CPU time that a process has used, in seconds.
pub(super) fn cpu(process: u64) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).expect("a process");
    let (_, fields) = text.rsplit_once(") ").expect("a name");
    let fields: Vec<f64> = fields.split(' ').map(|field| field.parse().unwrap_or_default()).collect();
    // User and system time are fields 14 and 15 of the line.
    (fields[11] + fields[12]) / TICKS
}

/// Returns the CPU time that the whole host has used, in seconds.
pub(super) fn cpu_of_host() -> f64 {
    let text = fs::read_to_string("/proc/stat").expect("a host");
    let fields: Vec<f64> = text.lines().next().map_or_else(Vec::new, |line| {
        line.split_whitespace().skip(1).map(|field| field.parse().unwrap_or_default()).collect()
    });
    // The sum contains user, nice, system, interrupt and software-interrupt time, but neither idle
    // time nor I/O wait.
    [0, 1, 2, 5, 6].iter().map(|field| fields[*field]).sum::<f64>() / TICKS
}

/// Returns the resident memory of a process, in bytes.
pub(super) fn resident(process: u64) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).expect("a process");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4_096
}

/// Returns the memory of the kernel's own data structures, for all programs, in bytes.
pub(super) fn kernel_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("a host");
    let slab = text.lines().find_map(|line| line.strip_prefix("Slab:")).expect("a line");
    slab.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// Returns the load average of the host over one minute: the mean number of runnable processes.
pub(super) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").expect("a host");
    text.split(' ').next().expect("a number").to_owned()
}
