//! Two stacks without a path between them. The test passes the packets from one stack to the other.

use std::net::{IpAddr, SocketAddr};

use fullpipe_tcp::stack::siphash::Key;
use fullpipe_tcp::stack::{Cut, IsnClock, Stack, StackConfig};
use fullpipe_tcp::wire::Checksums;
use fullpipe_units::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Two stacks with one address each.
pub(crate) struct Pair {
    pub(crate) ends: [Stack; 2],
    pub(crate) addresses: [SocketAddr; 2],
    pub(crate) now: Instant,
}

impl Pair {
    pub(crate) fn new(v6: bool) -> Self {
        let address = |host: u8| -> IpAddr {
            if v6 { [0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()].into() } else { [198, 18, 0, host].into() }
        };
        let addresses = [SocketAddr::new(address(1), 40_000), SocketAddr::new(address(2), 80)];
        let ends = addresses.map(|address| {
            let mut stack = Stack::new(StackConfig {
                key: Key::new([7; 16]),
                isn_clock: IsnClock::Linux,
                max_connections: 10,
                cut: Cut::Segments,
            });
            stack.add_address(address.ip());
            stack
        });
        Self { ends, addresses, now: Instant::ZERO + MS }
    }

    /// Returns the packets that stack `end` has ready to send.
    pub(crate) fn sent(&mut self, end: usize) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while let Some(packet) = self.ends[end].poll_packet(self.now) {
            packets.push([packet.headers.as_bytes(), packet.payload[0], packet.payload[1]].concat());
        }
        packets
    }

    pub(crate) fn exchange(&mut self) {
        for end in [0, 1, 0, 1] {
            for packet in self.sent(end) {
                self.ends[1 - end].handle_packet(self.now, &packet, Checksums::Verify);
            }
        }
    }
}
