//! Captured packets at the sending host of a guest. The preloaded library writes them to a file of the run, and
//! the launcher passes them to a capture after the run.
//!
//! A record consists of the time in nanoseconds (8 bytes), the length of the packet (4), direction and verdict
//! (1), the number of captured bytes (1), and these bytes. Integers are little-endian.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use fullpipe_lab::capture::{Capture, CapturedPacket, SNAPLEN, Verdict};
use fullpipe_units::Instant;

use super::exchange::CAPTURE;

/// Length of a record without the captured bytes.
const HEAD: usize = 14;
const VERDICTS: [Verdict; 6] = [
    Verdict::Accepted,
    Verdict::Lost,
    Verdict::Policed,
    Verdict::QueueFull,
    Verdict::Managed,
    Verdict::Thinned,
];

/// Writes the packets of a run. After an error, the file is incomplete, and the reader detects this.
pub(super) struct CaptureWriter(BufWriter<File>);

impl CaptureWriter {
    pub(super) fn create(dir: &Path) -> io::Result<Self> {
        Ok(Self(BufWriter::with_capacity(1 << 20, File::create(dir.join(CAPTURE))?)))
    }

    pub(super) fn add(&mut self, at: Instant, outbound: bool, packet: &[u8], verdict: Verdict) {
        let kept = &packet[..packet.len().min(SNAPLEN)];
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&at.as_nanos().to_le_bytes());
        head[8..12].copy_from_slice(&(packet.len() as u32).to_le_bytes());
        head[12] = (verdict as u8) << 1 | u8::from(outbound);
        head[13] = kept.len() as u8;
        // The last record is empty; its absence shows that a write has failed.
        let _ = self.0.write_all(&head).and_then(|()| self.0.write_all(kept));
    }

    /// Ends the file with an empty record.
    pub(super) fn finish(mut self) {
        let _ = self.0.write_all(&[0; HEAD]).and_then(|()| self.0.flush());
    }
}

/// Passes the packets of the run in the folder `dir` to `capture`.
///
/// # Errors
/// Returns an error if the file cannot be read or is incomplete.
pub(super) fn replay(dir: &Path, capture: &mut impl Capture) -> io::Result<()> {
    let mut file = BufReader::with_capacity(1 << 20, File::open(dir.join(CAPTURE))?);
    let mut bytes = [0; 256];
    loop {
        let mut head = [0; HEAD];
        file.read_exact(&mut head)?;
        let [.., flags, kept] = head;
        if kept == 0 {
            return Ok(());
        }
        let kept = &mut bytes[..usize::from(kept)];
        file.read_exact(kept)?;
        let (at, len) = (head[..8].try_into(), head[8..12].try_into());
        let verdict = VERDICTS.get(usize::from(flags >> 1));
        let (Ok(at), Ok(len), Some(&verdict)) = (at, len, verdict) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        capture.packet(&CapturedPacket {
            at: Instant::from_nanos(u64::from_le_bytes(at)),
            outbound: flags & 1 == 1,
            headers: kept,
            len: u32::from_le_bytes(len),
            verdict,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Kept(Vec<(u64, bool, Vec<u8>, u32, Verdict)>);

    impl Capture for Kept {
        fn packet(&mut self, packet: &CapturedPacket<'_>) {
            let CapturedPacket { at, outbound, headers, len, verdict } = *packet;
            self.0.push((at.as_nanos(), outbound, headers.to_vec(), len, verdict));
        }
    }

    #[test]
    fn packets_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut writer = CaptureWriter::create(dir.path()).expect("a file");
        let mut wanted = Vec::new();
        for (number, verdict) in VERDICTS.into_iter().enumerate() {
            let packet = vec![number as u8 + 1; 40 * (number + 1)];
            writer.add(Instant::from_nanos(7 << number), number % 2 == 0, &packet, verdict);
            let kept = packet[..packet.len().min(SNAPLEN)].to_vec();
            wanted.push((7 << number, number % 2 == 0, kept, packet.len() as u32, verdict));
        }
        writer.finish();
        let mut kept = Kept::default();
        replay(dir.path(), &mut kept).expect("a whole file");
        assert_eq!(kept.0, wanted);

        let whole = std::fs::read(dir.path().join(CAPTURE)).expect("a file");
        std::fs::write(dir.path().join(CAPTURE), &whole[..whole.len() - 1]).expect("written");
        assert!(replay(dir.path(), &mut Kept::default()).is_err(), "the end is missing");
    }
}
