//! Messages of the guest's init to the path, sent as UDP datagrams through the sending host's device.
//!
//! The path is outside the guest, and the guest's devices are the only connection between the two. No flow
//! uses the port.

use fullpipe_lab::capture::RECEIVER;
use std::net::SocketAddrV4;

use super::link::ipv4;

/// UDP port of the messages, which is below the ports of all flows.
const PORT: u16 = 1;
/// First bytes of a message.
const MAGIC: [u8; 8] = *b"fullpipe";

const UDP: u8 = 17;

/// Message to the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// The run starts in `lead` nanoseconds.
    Start { lead: u64 },
    /// The run has ended, and the path writes its report.
    End,
}

impl Control {
    /// Address to which the guest's init sends messages, from the sending host.
    pub(super) const ADDRESS: SocketAddrV4 = SocketAddrV4::new(RECEIVER, PORT);

    /// Returns the content of the datagram.
    pub(super) fn datagram(self) -> Vec<u8> {
        let lead = match self {
            Self::Start { lead } => lead,
            Self::End => u64::MAX,
        };
        [MAGIC, lead.to_be_bytes()].concat()
    }

    /// Returns the message in an Ethernet frame; `None` for any other frame.
    pub(super) fn of(frame: &[u8]) -> Option<Self> {
        let packet = ipv4(frame).filter(|packet| packet[9] == UDP)?;
        let udp = packet.get(usize::from(packet[0] & 15) * 4..)?;
        let (header, content) = udp.split_first_chunk::<8>()?;
        let (magic, lead) = content.split_first_chunk::<8>()?;
        if header[2..4] != PORT.to_be_bytes() || *magic != MAGIC {
            return None;
        }
        Some(match u64::from_be_bytes(*lead.first_chunk()?) {
            u64::MAX => Self::End,
            lead => Self::Start { lead },
        })
    }

    /// Returns the message as an Ethernet frame.
    #[cfg(test)]
    pub(super) fn frame(self) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 44, 0, 0, 0, 0, 64, UDP, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2]);
        frame.extend([0, PORT as u8, 0, PORT as u8, 0, 24, 0, 0]);
        frame.extend(self.datagram());
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_recognised_and_nothing_else() {
        for control in [Control::Start { lead: 30_000_000 }, Control::End] {
            let frame = control.frame();
            assert_eq!(Control::of(&frame), Some(control));
            for (index, other) in [(23, 6), (37, 9), (42, b'F')] {
                let mut frame = frame.clone();
                frame[index] = other;
                assert_eq!(Control::of(&frame), None, "byte {index}");
            }
            assert_eq!(Control::of(&frame[..frame.len() - 1]), None);
        }
    }
}
