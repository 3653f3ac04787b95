//! What a connection is told before it begins.

use fullpipe_units::{Bytes, Duration, Rate};

use super::KeepAlive;
use crate::Tunables;
use crate::buffers::{Buffer, KernelVersion, WindowRule};
use crate::cc::{Algorithm, INITIAL_SEGMENTS, SlowStart};
use crate::wire::IpChoices;

/// Version of the Internet protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4 (RFC 791).
    #[default]
    V4,
    /// IPv6 (RFC 8200).
    V6,
}

impl IpVersion {
    /// Bytes of an IP and a TCP header without options.
    pub const fn headers(self) -> u64 {
        match self {
            Self::V4 => 40,
            Self::V6 => 60,
        }
    }

    /// What a peer takes that does not say (RFC 9293 MUST-15).
    pub(super) const fn default_mss(self) -> u16 {
        match self {
            Self::V4 => 536,
            Self::V6 => 1220,
        }
    }
}

/// What a connection is told before it begins.
#[derive(Clone, Debug)]
pub struct Config {
    /// Largest packet, IP header included, in bytes.
    pub mtu: u64,
    /// What carries the segments: headers take 40 or 60 bytes of a packet.
    pub ip: IpVersion,
    /// What else is chosen of the IP header (`IP_TTL`, `IP_TOS`): a [`Stack`](crate::stack::Stack) writes it.
    pub ip_choices: IpChoices,
    /// Segments become smaller after three timeouts in a row, in case a router drops what is too big and says nothing
    /// (`net.ipv4.tcp_mtu_probing = 1`, without its search upwards).
    pub mtu_probing: bool,
    /// Congestion control of the sending half.
    pub cc: Algorithm,
    /// What watches its slow start, if not its own.
    pub slow_start: Option<SlowStart>,
    /// Initial window in segments, as a route sets it (`ip route ... initcwnd`); RFC 6928's ten when `None`.
    pub initcwnd: Option<u32>,
    /// A pause shrinks the window (`net.ipv4.tcp_slow_start_after_idle`, RFC 5681 section 4.1): by half for each RTO of it, down
    /// to the initial window. Algorithms that are rate-based do not ask.
    pub slow_start_after_idle: bool,
    /// Unsent data above which the socket takes no more (`TCP_NOTSENT_LOWAT`, `net.ipv4.tcp_notsent_lowat`); only the send
    /// buffer bounds it when `None`.
    pub notsent_lowat: Option<Bytes>,
    /// Send buffer.
    pub sndbuf: Buffer,
    /// Receive buffer.
    pub rcvbuf: Buffer,
    /// How receive-buffer memory becomes window.
    pub window_rule: WindowRule,
    /// Upper bound of the advertised window (`TCP_WINDOW_CLAMP`).
    pub window_clamp: Option<Bytes>,
    /// The host paces unpaced algorithms too (the `fq` queueing discipline).
    pub fair_queue: bool,
    /// Most that the socket may be paced at (`SO_MAX_PACING_RATE`); it paces every algorithm.
    pub max_pacing_rate: Option<Rate>,
    /// The active side asks for ECN (`net.ipv4.tcp_ecn = 1`); the passive side agrees to it in any case, as Linux does.
    pub ecn: bool,
    /// Offers selective acknowledgement (`net.ipv4.tcp_sack`); it takes both ends.
    pub sack: bool,
    /// A short segment leaves although another one is under way (`TCP_NODELAY`).
    pub nodelay: bool,
    /// Probes of an idle connection; off unless asked for (RFC 9293 MUST-25).
    pub keep_alive: Option<KeepAlive>,
    /// Most time that what was written may wait for the peer, in the network or for its window (`TCP_USER_TIMEOUT`; RFC 5482
    /// without its option). Without it the number of retransmissions decides.
    pub user_timeout: Option<Duration>,
    /// What stacks differ in.
    pub tunables: Tunables,
    /// Seed of the initial sequence number and of the controller's draws.
    pub seed: u64,
}

impl Config {
    /// The initial window in bytes.
    pub(super) fn initial_window(&self, mss: u64) -> u64 {
        self.initcwnd.map_or(INITIAL_SEGMENTS, u64::from) * mss
    }
}

impl Default for Config {
    /// A Linux 6.18 host with a gigabyte of memory or more as it is installed: `tcp_wmem[2]` of 4 MiB and `tcp_rmem[2]` of
    /// 32 MiB, CUBIC, an Ethernet path.
    fn default() -> Self {
        Self {
            mtu: 1500,
            ip: IpVersion::V4,
            ip_choices: IpChoices::DEFAULT,
            mtu_probing: false,
            cc: Algorithm::Cubic,
            slow_start: None,
            initcwnd: None,
            slow_start_after_idle: true,
            notsent_lowat: None,
            sndbuf: Buffer::Auto { max: Bytes::from_mib(4) },
            rcvbuf: Buffer::Auto { max: Bytes::from_mib(32) },
            window_rule: WindowRule::of(KernelVersion::new(6, 18), None),
            window_clamp: None,
            fair_queue: false,
            max_pacing_rate: None,
            ecn: false,
            sack: true,
            nodelay: false,
            keep_alive: None,
            user_timeout: None,
            tunables: Tunables::LINUX,
            seed: 1,
        }
    }
}
