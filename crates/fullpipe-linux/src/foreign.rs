//! Parsers of bytes that this process has not written, exported for the fuzz targets. They are not part of
//! the public interface.

use crate::{netlink, sock_diag, tune};

/// Parses the kernel's reply to a query for sockets; returns the number of sockets in the reply.
pub fn sockets(answer: &[u8]) -> usize {
    let mut seen = Vec::new();
    // An error is a valid result for invalid bytes, so it is ignored.
    let _ = sock_diag::answered(answer, &mut seen);
    seen.len()
}

/// Parses a reply of the kernel about devices, queueing disciplines or routes, and formats each route as
/// text; returns the length of the text.
pub fn routes(answer: &[u8]) -> usize {
    let found = netlink::messages(answer).map_or_else(|_| Vec::new(), |answers| answers.found);
    found.into_iter().map(|message| tune::route_text(message).len()).sum()
}

/// Parses a journal of `tune`; returns the number of changes in the journal, and whether it is damaged.
pub fn journal(bytes: &[u8]) -> (usize, bool) {
    tune::journal_summary(bytes)
}
