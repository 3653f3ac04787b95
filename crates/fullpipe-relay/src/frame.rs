//! Frames of the copy protocol: a fixed header, followed by a JSON message, a block of a file, or a whole file.
//!
//! ```text
//!   0      1      2          4                8                          16                         24
//!   | kind | flags| reserved | length (bytes) | stream                   | offset                   |
//! ```
//!
//! Numbers are big-endian. In a control frame, the stream and the offset are zero; the content of a whole file begins
//! with its hash. A reader checks the header before it reads or allocates anything, so a message takes at most 64 KiB,
//! and a block or a file at most 1 MiB. `docs/reference/copy-protocol.md` describes the exchange of messages.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engine::BLOCK;
use crate::hex::Hex;
use crate::name::{LinkContent, PathText, RelativePath, StreamName};

/// Version of the protocol that this program speaks.
pub const VERSION: u32 = 1;
/// Length of a frame's header in bytes.
pub const HEADER: usize = 24;
/// Maximum length in bytes of the JSON text of a control frame.
pub const MOST_JSON: usize = 64 << 10;
/// Maximum number of connections of a transfer.
pub const MOST_CONNECTIONS: u32 = 16;
/// Length in bytes of the hash with which the content of a whole file begins.
pub const HASH: usize = 32;

const CONTROL: u8 = 1;
const DATA: u8 = 2;
const WHOLE: u8 = 3;

const SPARSE: u8 = 1;
const HOLE: u8 = 2;

/// Header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Header of a JSON message of `length` bytes.
    Control {
        /// Length of the JSON text in bytes.
        length: usize,
    },
    /// Header of a block.
    Data(DataHeader),
    /// Header of a whole file of at most 1 MiB: its BLAKE3 hash, followed by its content.
    Whole {
        /// Stream of the file.
        stream: u64,
        /// Length of hash and content in bytes.
        length: usize,
        /// Whether parts of the file are holes in the source; pages that contain only zeros are then not written.
        sparse: bool,
    },
}

/// How a block is stored in the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// The whole block is stored.
    Full,
    /// Parts of the block are holes; pages that contain only zeros are not written.
    Sparse,
    /// The whole block is a hole. Its zeros are neither sent nor written.
    Hole,
}

/// Position and length of the block that follows a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// Stream to which the block belongs.
    pub stream: u64,
    /// Offset of the block in the file in bytes, a multiple of 1 MiB.
    pub offset: u64,
    /// Length of the block in bytes, 1 to 1 MiB.
    pub length: usize,
    /// How the block is stored in the source.
    pub storage: Storage,
}

impl DataHeader {
    /// Returns the number of bytes that follow the header.
    pub fn carried(&self) -> usize {
        if self.storage == Storage::Hole { 0 } else { self.length }
    }
}

/// Error for a frame that the protocol does not permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameError(String);

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FrameError {}

fn refused(message: impl Into<String>) -> FrameError {
    FrameError(message.into())
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// Returns an error if the kind is unknown, if a length exceeds its limit, or if a field that must be zero is not.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Self, FrameError> {
        let [kind, flags, r0, r1, l0, l1, l2, l3, numbers @ ..] = *bytes;
        let storage = match (kind, flags) {
            (_, 0) => Storage::Full,
            (DATA | WHOLE, SPARSE) => Storage::Sparse,
            (DATA, HOLE) => Storage::Hole,
            _ => return Err(refused("the header of a frame has unknown flags")),
        };
        if (r0, r1) != (0, 0) {
            return Err(refused("the header of a frame is not valid"));
        }
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        let (stream, offset) = numbers.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
        let (stream, offset) = (number(stream), number(offset));
        match kind {
            CONTROL if length > MOST_JSON => Err(refused(format!(
                "the peer announced a message of {length} bytes; the limit is {MOST_JSON}"
            ))),
            CONTROL if length == 0 || (stream, offset) != (0, 0) => {
                Err(refused("the header of a message is not valid"))
            }
            CONTROL => Ok(Self::Control { length }),
            DATA if length == 0 || length as u64 > BLOCK => {
                Err(refused(format!("the peer announced a block of {length} bytes; the limit is {BLOCK}")))
            }
            DATA if !offset.is_multiple_of(BLOCK) || offset.checked_add(BLOCK).is_none() => {
                Err(refused(format!("the offset of a block is not valid: {offset}")))
            }
            DATA => Ok(Self::Data(DataHeader { stream, offset, length, storage })),
            WHOLE if length < HASH || length as u64 > BLOCK + HASH as u64 => {
                Err(refused(format!("the peer announced a file of {length} bytes; the limit is {BLOCK}")))
            }
            WHOLE if offset != 0 => Err(refused("the header of a file is not valid")),
            WHOLE => Ok(Self::Whole { stream, length, sparse: storage == Storage::Sparse }),
            kind => Err(refused(format!("the peer sent a frame of unknown type {kind}"))),
        }
    }

    /// Writes a header.
    pub fn encode(self) -> [u8; HEADER] {
        let (kind, flags, length, stream, offset) = match self {
            Self::Control { length } => (CONTROL, 0, length, 0, 0),
            Self::Data(DataHeader { stream, offset, length, storage }) => {
                let flags = match storage {
                    Storage::Full => 0,
                    Storage::Sparse => SPARSE,
                    Storage::Hole => HOLE,
                };
                (DATA, flags, length, stream, offset)
            }
            Self::Whole { stream, length, sparse } => (WHOLE, u8::from(sparse) * SPARSE, length, stream, 0),
        };
        // The length of a frame has 21 bits.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let mut bytes = [0; HEADER];
        bytes[0] = kind;
        bytes[1] = flags;
        bytes[4..8].copy_from_slice(&length.to_be_bytes());
        bytes[8..16].copy_from_slice(&stream.to_be_bytes());
        bytes[16..].copy_from_slice(&offset.to_be_bytes());
        bytes
    }
}

/// Facts by which the receiver recognises a source file after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Number of the inode.
    pub inode: u64,
}

/// Files that a client asks a relay to send. The two ends then swap roles: the relay announces files, and the client
/// replies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// Paths of files and folders, each with the name that it gets at the client.
    pub sources: Vec<(PathText, PathText)>,
    /// Whether the sender compares hashes instead of trusting size and modification time, and the receiver reads
    /// written files back from the disk.
    #[serde(default)]
    pub verify: bool,
    /// Range from which the relay chooses the number of connections. The relay asks for each connection except
    /// connection 0 with `connect`. If this field is absent, the client opens the connections that it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choose: Option<ChooseConnections>,
    /// Rate of the slowest link of the path in bit/s, if the client knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bps: Option<u64>,
    /// Highest rate of the payload over all connections, in bit/s. The relay paces its connections so that they do not
    /// exceed this rate together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bps: Option<u64>,
    /// Maximum memory in bytes that the sockets of the relay may use for the transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Largest size in bytes of the receive buffers of the client's sockets, if the client knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rcvbuf_bytes: Option<u64>,
}

/// Limits of the relay's sockets, from which a client predicts rates. A field is absent if the relay does not know the
/// limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketLimits {
    /// Largest size of a send buffer in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sndbuf_bytes: Option<u64>,
    /// Largest size of a receive buffer in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rcvbuf_bytes: Option<u64>,
    /// Congestion control of the connection, by its name in the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cc: Option<String>,
}

/// Range from which a relay that sends chooses the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChooseConnections {
    /// Minimum number of connections.
    pub least: u32,
    /// Maximum number of connections, at most 16.
    pub most: u32,
}

/// Announcement that a source is a pipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeSource {
    /// Name of the stream. A later transfer with the same stream name and the same target continues the stream.
    pub name: StreamName,
    /// Number of bytes that the receiver makes durable together.
    pub group: u64,
    /// Whether the sender still has every byte that was not reported durable. Otherwise, the sender continues at the
    /// first gap, and the receiver discards the blocks beyond it.
    #[serde(default)]
    pub holds: bool,
    /// Whether the receiver must remember, after the end of the transfer, that the stream is complete.
    #[serde(default)]
    pub remember: bool,
}

/// Size and hash of a pipe whose file has been placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedPipe {
    /// Size in bytes.
    pub size: u64,
    /// BLAKE3 hash of the whole content.
    pub blake3: Hex<32>,
}

/// Message from the end that sends files. `Hello` always comes from the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// First message of each connection.
    Hello {
        /// Versions of the protocol that the sender speaks.
        versions: Vec<u32>,
        /// Random identifier of the transfer, the same on all its connections.
        transfer: Hex<16>,
        /// Number of the connection; connection 0 carries the messages.
        connection: u32,
        /// Files that the client asks for. Permitted only on connection 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fetch: Option<Fetch>,
        /// Congestion control that the receiver of this message sets for its socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cc: Option<String>,
    },
    /// Announces a file.
    Open {
        /// Stream of the file's blocks; each stream of a transfer is used once.
        stream: u64,
        /// Path of the target below the root.
        target: RelativePath,
        /// Facts about the source.
        source: Source,
        /// Permission bits of the target.
        mode: u32,
        /// User ID and group ID of the source. A receiver that runs as root gives the target this owner.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<(u32, u32)>,
        /// Whether to compare hashes instead of trusting size and modification time, and to read the written file back
        /// from the disk.
        #[serde(default)]
        verify: bool,
        /// Whether to receive the file even if the target has the same size and modification time.
        #[serde(default)]
        replace: bool,
        /// Description of the source if it is a pipe; `finish` then states its size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pipe: Option<PipeSource>,
    },
    /// Creates a symbolic link, which may replace a file. The relay replies as for a file.
    Link {
        /// Stream to which the reply belongs.
        stream: u64,
        /// Path of the link below the root.
        target: RelativePath,
        /// Target of the link, as stored in the link.
        to: LinkContent,
    },
    /// Creates a folder, if it does not exist. The relay replies as for a file.
    Folder {
        /// Stream to which the reply belongs.
        stream: u64,
        /// Path of the folder below the root.
        target: RelativePath,
        /// Permission bits of a new folder. The receiver chooses them if this field is absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        /// User ID and group ID of the source. A receiver that runs as root gives a new folder this owner.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<(u32, u32)>,
    },
    /// States the hash of a pipe, or of a file of more than 1 MiB. Blocks may still arrive on other connections.
    Finish {
        /// Stream of the file.
        stream: u64,
        /// BLAKE3 hash of the file; if `from` is not zero, a BLAKE3 hash over the chaining values of the blocks from
        /// block `from` on.
        blake3: Hex<32>,
        /// Size of a pipe in bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        /// Number of the first block of a pipe that this sender has read. An earlier process sent the blocks before it.
        #[serde(default)]
        from: u64,
    },
    /// Asks the client to open another connection; only a relay that sends uses this message.
    Connect {
        /// Number of the connection.
        connection: u32,
    },
    /// Reports the limit of the connections of a relay that sends, before `bye`.
    Limited {
        /// Name of the limit that applied for the longest time.
        limit: String,
        /// Percentage of the time in which this limit applied.
        percent: u32,
    },
    /// Reports a failure of a relay that sends; the failure ends the transfer.
    Failed {
        /// One-line message.
        message: String,
        /// Hint that suggests a remedy; may be empty.
        hint: String,
    },
    /// Ends the transfer.
    Bye,
}

/// Message from the end that receives files. `Welcome` always comes from the relay, as does a `Failed` that refuses a
/// connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Reply {
    /// Accepts a connection.
    Welcome {
        /// Version of the protocol to use.
        version: u32,
        /// One-line notes for the user of the client.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<String>,
        /// Limits of the relay's sockets; absent on connections other than connection 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limits: Option<SocketLimits>,
    },
    /// Requests the blocks of a file that the receiver does not have yet.
    Opened {
        /// Stream of the file.
        stream: u64,
        /// Half-open ranges of the numbers of the blocks that an earlier transfer made durable.
        durable: Vec<(u64, u64)>,
        /// Whether an earlier transfer was discarded because the source has changed since.
        restarted: bool,
    },
    /// Reports that the target already has the size and the modification time of the source.
    Same {
        /// Stream of the file.
        stream: u64,
    },
    /// Reports the hash of a target that has the size and the modification time of the source. The stream ends; if the
    /// hash of the source differs, the sender announces the file again.
    Exists {
        /// Stream of the file.
        stream: u64,
        /// BLAKE3 hash of the target.
        blake3: Hex<32>,
    },
    /// Reports blocks that would survive a crash.
    Durable {
        /// Stream of the file.
        stream: u64,
        /// Half-open ranges of block numbers.
        blocks: Vec<(u64, u64)>,
    },
    /// Reports that a file or folder has been placed under its name, and survives a crash.
    Placed {
        /// Stream of the file or folder.
        stream: u64,
        /// Size and hash of a pipe. It is set in the reply to `open` if an earlier transfer has completed the pipe.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pipe: Option<PlacedPipe>,
    },
    /// Reports a failure of the receiver; the failure ends the transfer.
    Failed {
        /// One-line message.
        message: String,
        /// Hint that suggests a remedy; may be empty.
        hint: String,
        /// Whether the same transfer may succeed a few seconds later.
        #[serde(default)]
        temporary: bool,
    },
}

/// Writes a message as a frame.
///
/// # Errors
/// Returns an error if the JSON text is longer than [`MOST_JSON`].
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let text = serde_json::to_vec(message).map_err(|error| refused(error.to_string()))?;
    if text.len() > MOST_JSON {
        return Err(refused(format!("a message has {} bytes; the limit is {MOST_JSON}", text.len())));
    }
    Ok([&Header::Control { length: text.len() }.encode()[..], &text].concat())
}

/// Reads the message in the JSON text of a control frame. Unknown fields are ignored.
///
/// # Errors
/// Returns an error if the text is not a message of the expected kind.
pub fn decode<T: DeserializeOwned>(text: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(text)
        .map_err(|error| refused(format!("the peer sent an invalid message: {error}")))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use fullpipe_units::draw;

    use super::*;

    #[test]
    fn headers_are_read_as_they_are_written() {
        let data = DataHeader { stream: 7, offset: 5 * BLOCK, length: 4097, storage: Storage::Full };
        let last = DataHeader {
            stream: u64::MAX,
            offset: u64::MAX - 2 * BLOCK + 1,
            length: BLOCK as usize,
            storage: Storage::Sparse,
        };
        let hole = DataHeader { storage: Storage::Hole, ..data };
        assert_eq!((data.carried(), hole.carried()), (4097, 0));
        let whole = |length| Header::Whole { stream: 9, length, sparse: length > HASH };
        let blocks =
            [Header::Control { length: MOST_JSON }].into_iter().chain([data, last, hole].map(Header::Data));
        for header in blocks.chain([HASH, HASH + BLOCK as usize].map(whole)) {
            assert_eq!(Header::parse(&header.encode()), Ok(header));
        }
        for length in [0, HASH - 1, HASH + BLOCK as usize + 1] {
            assert!(Header::parse(&whole(length).encode()).is_err(), "{length}");
        }
        assert_eq!(Header::Data(data).encode()[..8], [2, 0, 0, 0, 0, 0, 0x10, 1]);
    }

    #[test]
    fn headers_beyond_the_limits_are_refused() {
        let changed = |header: Header, at: usize, byte: u8| {
            let mut bytes = header.encode();
            bytes[at] = byte;
            Header::parse(&bytes)
        };
        let data = DataHeader { stream: 1, offset: BLOCK, length: 1, storage: Storage::Full };
        let (control, block) = (Header::Control { length: 2 }, Header::Data(data));
        assert!(changed(control, 0, 1).is_ok() && changed(block, 0, 2).is_ok());
        for (at, byte) in [(0, 0), (0, 4), (1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (7, 0), (15, 1), (23, 1)] {
            assert!(changed(control, at, byte).is_err(), "control, byte {at}");
        }
        for (at, byte) in [(0, 9), (1, 3), (2, 1), (3, 1), (4, 1), (5, 0x11), (7, 0), (22, 1), (23, 1)] {
            assert!(changed(block, at, byte).is_err(), "data, byte {at}");
        }
        let end = Header::Data(DataHeader { stream: 0, offset: u64::MAX - BLOCK + 1, ..data });
        assert!(Header::parse(&end.encode()).is_err(), "the block would end beyond the largest offset");
    }

    /// Whatever a header contains, the parsed lengths stay within the limits, and writing the parsed header gives the
    /// same bytes.
    #[test]
    fn random_headers_stay_within_the_limits() {
        let mut accepted = 0;
        for n in 0..20_000_u64 {
            let mut bytes = [0; HEADER];
            bytes[0] = (draw(5, 0, n) % 4) as u8;
            let shown = (draw(5, 1, n) % 24) as usize;
            for (at, byte) in bytes.iter_mut().enumerate().skip(4).take(shown) {
                *byte = (draw(5, 2, n * 24 + at as u64) >> 13) as u8 & 0x11;
            }
            let Ok(header) = Header::parse(&bytes) else { continue };
            accepted += 1;
            assert_eq!(header.encode(), bytes);
            match header {
                Header::Control { length } => assert!((1..=MOST_JSON).contains(&length)),
                Header::Data(data) => assert!((1..=BLOCK as usize).contains(&data.length)),
                Header::Whole { length, .. } => assert!((HASH..=HASH + BLOCK as usize).contains(&length)),
            }
        }
        assert!(accepted > 100, "{accepted}");
    }

    #[test]
    fn messages_are_read_as_they_are_written() {
        let target = RelativePath::new(Path::new("dir/a%b")).expect("a path");
        let source = Source { size: 1 << 40, mtime_ns: -1, inode: u64::MAX };
        let open = Request::Open {
            stream: 3,
            target,
            source,
            mode: 0o644,
            owner: Some((0, 100)),
            verify: true,
            replace: false,
            pipe: None,
        };
        let frame = encode(&open).expect("short");
        let header = frame.first_chunk().map(Header::parse);
        assert_eq!(header, Some(Ok(Header::Control { length: frame.len() - HEADER })));
        assert_eq!(decode(&frame[HEADER..]), Ok(open));
        let link = br#"{"type":"link","stream":4,"target":"a","to":"../%ff"}"#;
        let (target, to) =
            (RelativePath::new(Path::new("a")), LinkContent::new(OsStr::from_bytes(b"../\xff")));
        let read = Request::Link { stream: 4, target: target.expect("a path"), to: to.expect("a link") };
        assert_eq!(decode(link), Ok(read));
        let folder = br#"{"type":"folder","stream":4,"target":"dir"}"#;
        let target = RelativePath::new(Path::new("dir")).expect("a path");
        assert_eq!(decode(folder), Ok(Request::Folder { stream: 4, target, mode: None, owner: None }));
        let welcome = |limits| Ok(Reply::Welcome { version: 1, notes: Vec::new(), limits });
        let newer = br#"{"type":"welcome","version":1,"colour":"blue"}"#;
        assert_eq!(decode(newer), welcome(None), "unknown fields are ignored");
        let limited = br#"{"type":"welcome","version":1,"limits":{"rcvbuf_bytes":6291456,"colour":"blue"}}"#;
        let limits = SocketLimits { rcvbuf_bytes: Some(6 << 20), ..SocketLimits::default() };
        assert_eq!(decode(limited), welcome(Some(limits)));
    }

    #[test]
    fn hostile_messages_are_refused() {
        for text in [
            "",
            "{}",
            "[]",
            "{\"type\":\"open\"}",
            "{\"type\":\"dance\"}",
            "{\"type\":\"finish\",\"stream\":-1,\"blake3\":\"00\"}",
            "{\"type\":\"finish\",\"stream\":1,\"blake3\":\"00\"}",
            &format!(
                "{{\"type\":\"open\",\"stream\":1,\"target\":\"../x\",\"mode\":0,\"source\":{}}}",
                "{\"size\":1,\"mtime_ns\":0,\"inode\":1}"
            ),
            &"[".repeat(60_000),
        ] {
            assert!(decode::<Request>(text.as_bytes()).is_err(), "{text}");
        }
        let long = Reply::Failed { message: "x".repeat(MOST_JSON), hint: String::new(), temporary: false };
        assert!(encode(&long).is_err());
    }
}
