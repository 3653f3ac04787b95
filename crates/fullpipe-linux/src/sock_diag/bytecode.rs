//! The filter program that the kernel runs for each socket (`inet_diag_bc_op` in `linux/inet_diag.h`).
//!
//! ```text
//!   peer 1?  ─yes─► jump to the end ──────────────────────┐
//!      └─no─► peer 2?  ─yes─► jump to the end ────────────┤ accepted
//!                └─no─► last peer?  ─yes─► the end ───────┘
//!                              └─no─► beyond the end: rejected
//! ```
//!
//! A jump target is a byte offset from the start of the operation that jumps. A jump to 4 bytes past the end
//! of the program rejects the socket.

use std::net::IpAddr;

use super::Peer;

const INET_DIAG_BC_JMP: u8 = 1;
const INET_DIAG_BC_S_COND: u8 = 7;
const INET_DIAG_BC_D_COND: u8 = 8;
/// Size of a filter operation, and of `struct inet_diag_hostcond` without its address, in bytes.
const OP: usize = 4;
const CONDITION: usize = 8;
/// Port number in a filter condition that matches every port.
const ANY_PORT: i32 = -1;

/// Builds the filter program that accepts sockets connected to any of `peers`. If `peers` is empty, the
/// program is empty and accepts all sockets.
pub(super) fn of(peers: &[Peer]) -> Vec<u8> {
    let tests: Vec<Vec<u8>> = peers.iter().map(condition).collect();
    let jumps = tests.len().saturating_sub(1);
    let total: usize = tests.iter().map(|test| OP + test.len()).sum::<usize>() + jumps * OP;
    let mut program = Vec::with_capacity(total);
    for (i, test) in tests.iter().enumerate() {
        let (length, last) = (OP + test.len(), i == jumps);
        let no = if last { total - program.len() + OP } else { length + OP };
        program.extend(operation(INET_DIAG_BC_D_COND, length, no));
        program.extend(test);
        if !last {
            program.extend(operation(INET_DIAG_BC_JMP, OP, total - program.len()));
        }
    }
    program
}

/// Builds the filter program that accepts the sockets whose local port is `port`.
pub(super) fn of_local_port(port: u16) -> Vec<u8> {
    let test = condition(&Peer { address: None, port: Some(port) });
    let length = OP + test.len();
    let mut program = operation(INET_DIAG_BC_S_COND, length, length + OP).to_vec();
    program.extend(test);
    program
}

/// Encodes a filter operation with its jump offsets for a true and a false condition. The condition of the
/// operation `jump` is never true.
fn operation(code: u8, yes: usize, no: usize) -> [u8; OP] {
    let no = (no as u16).to_ne_bytes();
    [code, yes as u8, no[0], no[1]]
}

/// Encodes `struct inet_diag_hostcond`: address family, prefix length, port and address.
fn condition(peer: &Peer) -> Vec<u8> {
    let (family, address) = match peer.address {
        None => (libc::AF_UNSPEC, Vec::new()),
        Some(IpAddr::V4(address)) => (libc::AF_INET, address.octets().to_vec()),
        Some(IpAddr::V6(address)) => (libc::AF_INET6, address.octets().to_vec()),
    };
    let port = peer.port.map_or(ANY_PORT, i32::from);
    let mut bytes = Vec::with_capacity(CONDITION + address.len());
    bytes.extend([family as u8, (8 * address.len()) as u8, 0, 0]);
    bytes.extend(port.to_ne_bytes());
    bytes.extend(address);
    bytes
}
