//! A segment's headers as bytes: IPv4 (RFC 791) and TCP (RFC 9293), options in the order in which Linux writes them.
//!
//! ```text
//!   SYN      MSS | SACK permitted, timestamps | NOP, window scale
//!   others   NOP, NOP, timestamps | NOP, NOP, SACK blocks
//! ```

use std::net::SocketAddrV4;

use super::checksum::{fold, sum};
use super::{Flags, Segment};

const IP_HEADER: usize = 20;
/// The data offset has four bits, which count words.
const MOST_TCP: usize = 60;
const MOST: usize = IP_HEADER + MOST_TCP;

const VERSION_AND_LENGTH: u8 = 0x45;
const DONT_FRAGMENT: u8 = 0x40;
/// Initial time to live (RFC 1700, and Linux).
const TIME_TO_LIVE: u8 = 64;
const TCP: u8 = 6;

const NOP: u8 = 1;
const MSS: [u8; 2] = [2, 4];
const WINDOW_SCALE: [u8; 3] = [NOP, 3, 3];
const SACK_PERMITTED: [u8; 2] = [4, 2];
const SACK: u8 = 5;
const TIMESTAMPS: [u8; 2] = [8, 10];

/// IPv4 and TCP header of one segment.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    bytes: [u8; MOST],
    len: usize,
}

impl Headers {
    /// The headers of `segment` on its way between two sockets.
    ///
    /// Both checksums are right for a payload of zeros. The identification is zero, which a packet that must not be
    /// fragmented may have (RFC 6864). SACK blocks for which the options have no room are left out.
    pub fn of(segment: &Segment, from: SocketAddrV4, to: SocketAddrV4) -> Self {
        let mut headers = Self { bytes: [0; MOST], len: 0 };
        headers.ipv4(segment, from, to);
        headers.tcp(segment, from, to);
        headers.finish(segment.len);
        headers
    }

    /// The bytes, IP header first.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn ipv4(&mut self, segment: &Segment, from: SocketAddrV4, to: SocketAddrV4) {
        let ecn = segment.ecn.bits();
        self.put(&[VERSION_AND_LENGTH, ecn, 0, 0, 0, 0, DONT_FRAGMENT, 0, TIME_TO_LIVE, TCP, 0, 0]);
        self.put(&from.ip().octets());
        self.put(&to.ip().octets());
    }

    fn tcp(&mut self, segment: &Segment, from: SocketAddrV4, to: SocketAddrV4) {
        self.put(&from.port().to_be_bytes());
        self.put(&to.port().to_be_bytes());
        self.put(&segment.seq.0.to_be_bytes());
        // Nothing is acknowledged by a first SYN, whatever the field says.
        let ack = if segment.flags.has(Flags::ACK) { segment.ack.0 } else { 0 };
        self.put(&ack.to_be_bytes());
        self.put(&[0, segment.flags.bits()]);
        self.put(&segment.window.to_be_bytes());
        self.put(&[0; 4]);
        self.options(segment);
    }

    fn options(&mut self, segment: &Segment) {
        if let Some(syn) = segment.syn {
            self.put(&MSS);
            self.put(&syn.mss.to_be_bytes());
        }
        let sack_permitted = segment.syn.is_some_and(|syn| syn.sack_permitted);
        if sack_permitted || segment.timestamps.is_some() {
            self.put(if sack_permitted { &SACK_PERMITTED } else { &[NOP, NOP] });
        }
        match segment.timestamps {
            Some(timestamps) => {
                self.put(&TIMESTAMPS);
                self.put(&timestamps.value.to_be_bytes());
                self.put(&timestamps.echo.to_be_bytes());
            }
            None if sack_permitted => self.put(&[NOP, NOP]),
            None => {}
        }
        if let Some(shift) = segment.syn.and_then(|syn| syn.window_scale) {
            self.put(&WINDOW_SCALE);
            self.put(&[shift]);
        }
        let room = (MOST - self.len).saturating_sub(4) / 8;
        let blocks = segment.sack.len().min(room);
        if blocks > 0 {
            self.put(&[NOP, NOP, SACK, 2 + 8 * blocks as u8]);
            for (start, end) in segment.sack.iter().take(blocks) {
                self.put(&start.0.to_be_bytes());
                self.put(&end.0.to_be_bytes());
            }
        }
    }

    /// Lengths and checksums, which are known last.
    fn finish(&mut self, payload: u32) {
        let Self { bytes, len } = self;
        let (ip, tcp) = bytes[..*len].split_at_mut(IP_HEADER);
        let total = (*len + payload as usize).min(usize::from(u16::MAX));
        ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        let checksum = !fold(sum(ip));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        tcp[12] = (tcp.len() as u8 / 4) << 4;
        let pseudo = sum(&ip[12..20]) + u64::from(TCP) + (total - IP_HEADER) as u64;
        let checksum = !fold(pseudo + sum(tcp));
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}
