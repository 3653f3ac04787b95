//! Compressed inputs: gzip is decompressed while it is read; for other formats, an error names the format and
//! the command that decompresses it.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use crate::Error;

/// Maximum size of a decompressed input in bytes. Ten kilobytes of gzip can hold ten megabytes of zeros, so a
/// small file could keep the reader busy for hours.
const LARGEST: u64 = 4 << 30;

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// First bytes of the unsupported formats, with their names and the commands that convert `FILE`.
const OTHERS: [(&[u8], &str, &str); 8] = [
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd", "zstd -dc FILE | fullpipe diagnose -"),
    (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz", "xz -dc FILE | fullpipe diagnose -"),
    (b"BZh", "bzip2", "bzip2 -dc FILE | fullpipe diagnose -"),
    (&[0x04, 0x22, 0x4d, 0x18], "lz4", "lz4 -dc FILE | fullpipe diagnose -"),
    (b"PK\x03\x04", "zip", "unzip -p FILE | fullpipe diagnose -"),
    (&[b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c], "7z", "7z e -so FILE | fullpipe diagnose -"),
    (&[0x1f, 0x9d], "compress", "uncompress -c FILE | fullpipe diagnose -"),
    (b"snoop\0\0\0", "snoop", "editcap -F pcap FILE OUT.pcap; then fullpipe diagnose OUT.pcap"),
];

/// Returns `source`, decompressed if it is gzip. If gzip data is truncated, the data before the truncation is
/// returned.
///
/// # Errors
/// Returns an error if the source cannot be read, or if it is in another compressed format.
pub(crate) fn unpacked<'a>(
    name: &str,
    mut source: Box<dyn BufRead + 'a>,
) -> Result<Box<dyn BufRead + 'a>, Error> {
    let beginning = source.fill_buf().map_err(|e| unreadable(name, &e))?;
    if beginning.starts_with(&GZIP) {
        return Ok(Box::new(BufReader::new(Bounded { source: MultiGzDecoder::new(source), left: LARGEST })));
    }
    match OTHERS.iter().find(|(magic, ..)| beginning.starts_with(magic)) {
        Some((_, format, command)) => Err(Error::new(
            format!("{name} is in {format} format, which fullpipe does not read"),
            format!("convert the file: {command}"),
        )),
        None => Ok(source),
    }
}

/// Creates the error for an input that cannot be read.
pub(crate) fn unreadable(name: &str, error: &io::Error) -> Error {
    let packed = error.get_ref().and_then(|inner| inner.downcast_ref::<UnpackError>());
    let hint = packed.map_or("pass the path of a file, or - for standard input", UnpackError::hint);
    Error::new(format!("cannot read {name}: {error}"), hint)
}

/// Reason why gzip data cannot be decompressed.
#[derive(Debug)]
enum UnpackError {
    Damaged,
    TooLarge,
}

impl UnpackError {
    fn hint(&self) -> &'static str {
        match self {
            Self::Damaged => "copy the file again, and check it with gzip -t FILE",
            Self::TooLarge => "pass a part of the file: editcap -c 1000000 FILE PART splits a capture",
        }
    }
}

impl fmt::Display for UnpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged => f.write_str("the gzip data is damaged"),
            Self::TooLarge => {
                write!(f, "the file contains more than {} GiB of decompressed data", LARGEST >> 30)
            }
        }
    }
}

impl std::error::Error for UnpackError {}

/// Decompressed data up to a limit.
struct Bounded<R> {
    source: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.source.read(buffer) {
            Ok(read) => {
                let left = self.left.checked_sub(read as u64);
                self.left = left.ok_or_else(|| io::Error::other(UnpackError::TooLarge))?;
                Ok(read)
            }
            // The file was copied before it was complete, so its data ends here.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) =>
            {
                Err(io::Error::other(UnpackError::Damaged))
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).expect("a Vec takes all");
        encoder.finish().expect("a Vec takes all")
    }

    fn read(bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let mut text = Vec::new();
        let read = unpacked("F", Box::new(bytes))?.read_to_end(&mut text);
        read.map(|_| text).map_err(|e| unreadable("F", &e))
    }

    fn lines() -> Vec<u8> {
        (0..20_000u32).flat_map(|n| format!("{}\n", n.wrapping_mul(2_654_435_761)).into_bytes()).collect()
    }

    #[test]
    fn gzip_is_read_like_its_content() {
        let text = lines();
        assert_eq!(read(&text).unwrap(), text);
        assert_eq!(read(&gzip(&text)).unwrap(), text);
        // gzip files may be concatenated.
        let (first, second) = text.split_at(777);
        assert_eq!(read(&[gzip(first), gzip(second)].concat()).unwrap(), text);
    }

    /// A compressed log and a compressed capture are recognised.
    #[test]
    fn inputs_are_decompressed() {
        let text = std::fs::read("../../examples/iperf3/tcp.json").unwrap();
        let choice = crate::input::trace::Choice::default();
        let plain = crate::Input::from_bytes("log", &text, &choice).unwrap();
        let packed = crate::Input::from_bytes("log", &gzip(&text), &choice).unwrap();
        assert_eq!(packed.measurement.transfer(), plain.measurement.transfer());
        let mut capture = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        capture.resize(24, 0);
        let error = crate::Input::from_bytes("capture", &gzip(&capture), &choice).unwrap_err();
        assert!(error.message.contains("this capture of 0 packets"), "{error}");
    }

    #[test]
    fn a_truncated_file_gives_its_beginning() {
        let (text, packed) = (lines(), gzip(&lines()));
        for end in [2, 9, packed.len() / 2, packed.len() - 1] {
            let part = read(&packed[..end]).unwrap();
            assert!(text.starts_with(&part), "{end}");
        }
        assert!(read(&packed[..packed.len() / 2]).unwrap().len() > 1000);
    }

    #[test]
    fn damage_and_bombs_are_refused_with_a_hint() {
        let mut packed = gzip(&lines());
        let middle = packed.len() / 2;
        packed[middle..middle + 64].fill(0xff);
        let error = read(&packed).expect_err("damage");
        assert!(error.message.contains("damaged") && error.hint.contains("gzip -t"), "{error:?}");
        let mut bomb = Bounded { source: io::repeat(0), left: 1000 };
        let error = io::copy(&mut bomb, &mut io::sink()).expect_err("a bound");
        assert!(unreadable("F", &error).message.contains("more than 4 GiB"));
    }

    #[test]
    fn other_formats_are_named_with_a_command() {
        for (magic, format, command) in OTHERS {
            let error = read(&[magic, &[0; 20]].concat()).expect_err("another format");
            assert!(error.message.contains(format) && error.hint.contains(command), "{error:?}");
        }
    }
}
