//! Writes the packets of a run to a pcapng file, for Wireshark and similar tools.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullpipe_lab::capture::{Capture, CapturedPacket, SNAPLEN, Verdict, Wire};
use fullpipe_lab::experiment::Experiment;
use fullpipe_lab::scenario::Scenario;
use fullpipe_lab::sim;
use fullpipe_lab::trace::NoTrace;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};

use crate::Error;
use crate::files::{self, AtomicFile};
use crate::run::Observer;

/// Value of `if_tsresol`: timestamps are in units of 10^-9 seconds.
const NANOSECONDS: u8 = 9;
/// Values of `epb_flags` for the direction of a packet.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// A pcapng file that is being written under a temporary name. Once the file is complete, it gets its final
/// name.
pub(crate) struct PcapNg {
    path: PathBuf,
    writer: PcapNgWriter<AtomicFile>,
    packets: u64,
    /// First write error; after an error, nothing more is written to the file.
    failed: Option<PcapError>,
}

impl PcapNg {
    /// Creates the temporary file for `path`, so that a missing permission is reported before any run starts.
    pub(crate) fn begin(path: &Path) -> Result<Self, Error> {
        let refused = |e| cannot_write(path, &e);
        let file = AtomicFile::create(path).map_err(|e| refused(PcapError::IoError(e)))?;
        let section = SectionHeaderBlock {
            // The byte order is fixed, so that the same run gives the same file on every machine.
            endianness: Endianness::Little,
            options: vec![SectionHeaderOption::UserApplication(
                concat!("fullpipe ", env!("CARGO_PKG_VERSION")).into(),
            )],
            ..SectionHeaderBlock::default()
        };
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::RAW,
            snaplen: SNAPLEN as u32,
            options: vec![
                InterfaceDescriptionOption::IfName("sender".into()),
                InterfaceDescriptionOption::IfDescription(
                    "captured at the sending host's end of the path; time zero is the start of the run"
                        .into(),
                ),
                InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
            ],
        };
        let mut writer = PcapNgWriter::with_section_header(file, section).map_err(refused)?;
        writer.write_pcapng_block(interface).map_err(refused)?;
        Ok(Self { path: path.to_owned(), writer, packets: 0, failed: None })
    }

    /// Renames the temporary file to its final name, and reports which run the capture contains.
    pub(crate) fn finish(self, experiment: &Experiment, observer: &impl Observer) -> Result<(), Error> {
        let Self { path, writer, packets, failed } = self;
        let done = failed
            .map_or(Ok(()), Err)
            .and_then(|()| writer.into_inner().commit().map_err(PcapError::IoError));
        done.map_err(|e| cannot_write(&path, &e))?;
        let (point, seed) = (experiment.points().first(), experiment.seeds().first().copied());
        if let (Some(point), Some(seed)) = (point, seed) {
            let (file, label) = (path.display(), &point.label);
            observer
                .note(&format!("{file} contains the {packets} packets of run '{label}' with seed {seed}"));
        }
        Ok(())
    }

    /// Repeats the first run in the simulator in order to capture its packets; the repeated run is identical
    /// to the first one.
    pub(crate) fn simulate(&mut self, experiment: &Experiment) {
        if let (Some(point), Some(&seed)) = (experiment.points().first(), experiment.seeds().first()) {
            let scenario = Scenario { seed, ..point.scenario.clone() };
            sim::run_tapped(&scenario, &mut NoTrace, &mut Wire(self));
        }
    }

    fn write(&mut self, packet: &CapturedPacket<'_>) -> Result<(), PcapError> {
        let direction = if packet.outbound { OUTBOUND } else { INBOUND };
        let fate = fate(packet.verdict).map(|fate| EnhancedPacketOption::Comment(fate.into()));
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(packet.at.as_nanos()),
            original_len: packet.len,
            data: Cow::Borrowed(packet.headers),
            options: fate.into_iter().chain([EnhancedPacketOption::Flags(direction)]).collect(),
        })?;
        self.packets += 1;
        Ok(())
    }
}

impl Capture for PcapNg {
    fn packet(&mut self, packet: &CapturedPacket<'_>) {
        if self.failed.is_none() {
            self.failed = self.write(packet).err();
        }
    }
}

fn fate(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Accepted => None,
        Verdict::Lost => Some("dropped by the path: random loss"),
        Verdict::Policed => Some("dropped by the path: policer"),
        Verdict::QueueFull => Some("dropped by the path: queue full"),
        Verdict::Managed => Some("dropped by the path: active queue management"),
        Verdict::Thinned => Some("dropped by the path: ACK decimation"),
    }
}

fn cannot_write(path: &Path, error: &PcapError) -> Error {
    const HINT: &str = "pass a writable path to --pcapng";
    match error {
        PcapError::IoError(error) => files::cannot_write(path, error, HINT),
        other => Error::new(format!("cannot write {}: {other}", path.display()), HINT),
    }
}
