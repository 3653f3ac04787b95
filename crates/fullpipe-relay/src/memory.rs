//! Memory of this process.

use std::fs;

use fullpipe_units::Bytes;

/// Returns the resident memory of this process; zero if the kernel does not report it.
pub(crate) fn resident() -> Bytes {
    status("VmRSS:")
}

/// Returns the largest resident memory of this process so far.
pub(crate) fn most_resident() -> Bytes {
    status("VmHWM:")
}

/// Returns the size in the line `name` of `/proc/self/status`, which reports sizes in KiB.
fn status(name: &str) -> Bytes {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let size = text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    Bytes::from_kib(size.unwrap_or(0))
}

/// Returns the size in bytes in the field with the index `field` of a kernel file.
pub(crate) fn kernel_limit(path: &str, field: usize) -> Option<Bytes> {
    fs::read_to_string(path).ok()?.split_whitespace().nth(field)?.parse().ok().map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reports_the_memory_of_this_process() {
        // Other tests allocate memory between the two readings, and the kernel counts in batches per thread.
        let now = resident();
        assert!(now > Bytes::from_mib(1) && most_resident() + Bytes::from_mib(1) >= now);
        assert!(
            kernel_limit("/proc/sys/net/ipv4/tcp_wmem", 2) > kernel_limit("/proc/sys/net/ipv4/tcp_wmem", 0)
        );
        assert_eq!(kernel_limit("/proc/sys/net/ipv4/no-such-limit", 0), None);
    }
}
