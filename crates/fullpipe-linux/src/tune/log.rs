//! Log for processes without a terminal. It uses syslog if the host has syslog.

use std::os::unix::net::UnixDatagram;

use super::place::Target;

/// Path of the socket of syslog, or of systemd's journal.
const SOCKET: &str = "dev/log";
/// Priority of the log lines: facility `daemon` (3) and severity `warning` (4), combined as in RFC 3164
/// section 4.1.1.
const DAEMON_WARNING: u8 = 3 * 8 + 4;

/// Sends one line to syslog. If syslog is missing or busy, the line is dropped.
pub(super) fn warn(place: &Target, text: &str) {
    let text = text.replace(char::is_control, " ");
    let line = format!("<{DAEMON_WARNING}>fullpipe[{}]: {text}", std::process::id());
    let Ok(socket) = UnixDatagram::unbound() else { return };
    if socket.set_nonblocking(true).is_ok() {
        let _ = socket.send_to(line.as_bytes(), place.below_root(SOCKET));
    }
}
