//! The documents that fullpipe, a guest's init and the preloaded library exchange in the folder of a run.

use std::path::Path;

use fullpipe_lab::pair::PacketRecord;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::trace::Row;
use fullpipe_path::Counters;

use super::codec::{Encoded, decode, encode};
use crate::link::PathSample;
use crate::outcome::FlowEnd;

/// Name of the file with the [`Order`] in the folder of a run.
pub(super) const ORDER: &str = "order";
/// Name of the file with the [`GuestReport`].
pub(super) const GUEST_REPORT: &str = "guest";
/// Name of the file in which the guest's init explains why it failed.
pub(super) const GUEST_FAILURE: &str = "failure";
/// Name of the file with the captured packets.
pub(super) const CAPTURE: &str = "capture";
/// Name of the file with the [`PathReport`].
pub(super) const PATH_REPORT: &str = "path";

/// Instructions for a guest: the scenario to run, and the packets to record.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) scenario: Scenario,
    /// Whether to record every packet that enters the path.
    pub(super) logged: bool,
    /// Whether to write the packets at the sending host to a file.
    pub(super) captured: bool,
}

/// Report of the guest's init at the end of a run.
#[derive(Clone, Debug)]
pub(super) struct GuestReport {
    /// Release of the guest's kernel.
    pub(super) release: String,
    /// Frequency of the guest kernel's timer interrupt (`CONFIG_HZ`).
    pub(super) hz: u64,
    /// Trace rows without the state of the path, sorted by time, then by flow.
    pub(super) rows: Vec<Row>,
    /// Ends of the flows, in the order of the flow numbers.
    pub(super) ends: Vec<FlowEnd>,
}

/// Report of the preloaded library at the end of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct PathReport {
    /// Samples of the data direction at the sampling times of the trace.
    pub(super) samples: Vec<PathSample>,
    pub(super) forward: Counters,
    pub(super) backward: Counters,
    /// Packets in the order in which they entered the path; empty unless the order asks for them.
    pub(super) packets: Vec<PacketRecord>,
}

/// Writes a document to the file `name` in the folder `dir`.
pub(super) fn write(dir: &Path, name: &str, document: &impl Encoded) -> std::io::Result<()> {
    std::fs::write(dir.join(name), encode(document))
}

/// Reads a document from the file `name` in the folder `dir`; returns `None` if the file does not exist or is
/// incomplete.
pub(super) fn read<T: Encoded>(dir: &Path, name: &str) -> Option<T> {
    decode(&std::fs::read(dir.join(name)).ok()?)
}
