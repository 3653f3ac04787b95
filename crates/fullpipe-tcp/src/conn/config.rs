//! Configuration of a TCP connection.

use fullpipe_units::{Bytes, Duration, Probability, Rate};

use super::KeepAlive;
use crate::Tunables;
use crate::buffers::{Buffer, DrsRule, KernelVersion, WindowRule};
use crate::cc::{Algorithm, INITIAL_SEGMENTS, Launch, SlowStart};
use crate::wire::IpChoices;

/// IP version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IpVersion {
    /// IPv4 (RFC 791).
    #[default]
    V4,
    /// IPv6 (RFC 8200).
    V6,
}

impl IpVersion {
    /// Returns the total size of the IP and TCP headers without options, in bytes.
    pub const fn headers(self) -> u64 {
        match self {
            Self::V4 => 40,
            Self::V6 => 60,
        }
    }

    /// Returns the MSS assumed if the peer sends no MSS option (RFC 9293 MUST-15).
    pub(super) const fn default_mss(self) -> u16 {
        match self {
            Self::V4 => 536,
            Self::V6 => 1220,
        }
    }
}

/// Configuration of a TCP connection, fixed when the connection is created.
#[derive(Clone, Debug)]
pub struct Config {
    /// MTU in bytes: the length of the largest packet, including the IP header.
    pub mtu: u64,
    /// IP version of the path. The IP and TCP headers take 40 bytes (IPv4) or 60 bytes (IPv6) of each packet.
    pub ip: IpVersion,
    /// Hop limit and DSCP of the IP header (`IP_TTL`, `IP_TOS`); a [`Stack`](crate::stack::Stack) writes
    /// them.
    pub ip_choices: IpChoices,
    /// Whether the segment size shrinks after three consecutive timeouts, in case a router drops large
    /// packets without an ICMP message (`net.ipv4.tcp_mtu_probing = 1`, without its upward search).
    pub mtu_probing: bool,
    /// Congestion control algorithm of the sending half.
    pub cc: Algorithm,
    /// Exit rule of slow start before a loss; `None` selects the default of the congestion control algorithm.
    pub slow_start: Option<SlowStart>,
    /// Initial congestion window in segments, as set on a route (`ip route ... initcwnd`); `None` means 10
    /// segments (RFC 6928).
    pub initcwnd: Option<u32>,
    /// Window and pacing rate of the first flight, in place of `initcwnd`. After the loss of a SYN or
    /// SYN-ACK, which may be a sign of congestion, `initcwnd` applies instead. If neither field is set, the
    /// congestion control algorithm determines the first flight ([`Algorithm::launch`]).
    pub launch: Option<Launch>,
    /// Whether an idle period shrinks the congestion window (`net.ipv4.tcp_slow_start_after_idle`, RFC 5681
    /// section 4.1): the window is halved once per RTO of idle time, down to the initial window. Rate-based
    /// algorithms ignore this setting.
    pub slow_start_after_idle: bool,
    /// Limit on unsent data at which the socket accepts no more data (`TCP_NOTSENT_LOWAT`,
    /// `net.ipv4.tcp_notsent_lowat`). With `None`, only the send buffer limits unsent data.
    pub notsent_lowat: Option<Bytes>,
    /// Send buffer of the socket.
    pub sndbuf: Buffer,
    /// Receive buffer of the socket.
    pub rcvbuf: Buffer,
    /// Rule by which the kernel converts receive-buffer memory into a receive window.
    pub window_rule: WindowRule,
    /// Rule by which the kernel grows the receive buffer.
    pub drs_rule: DrsRule,
    /// Upper bound of the advertised receive window (`TCP_WINDOW_CLAMP`).
    pub window_clamp: Option<Bytes>,
    /// Whether the host also paces algorithms that do not set a pacing rate, as a host with the `fq` queueing
    /// discipline does.
    pub fair_queue: bool,
    /// Upper bound of the pacing rate (`SO_MAX_PACING_RATE`); setting it enables pacing for every algorithm.
    pub max_pacing_rate: Option<Rate>,
    /// Whether the active side requests ECN (`net.ipv4.tcp_ecn = 1`). The passive side always accepts ECN, as
    /// in Linux.
    pub ecn: bool,
    /// Whether to offer selective acknowledgement (`net.ipv4.tcp_sack`); SACK is used only if both ends offer
    /// it.
    pub sack: bool,
    /// Whether a short segment may be sent while another short segment is unacknowledged (`TCP_NODELAY`).
    pub nodelay: bool,
    /// Keep-alive settings for an idle connection; `None`, the default, disables keep-alive (RFC 9293
    /// MUST-25).
    pub keep_alive: Option<KeepAlive>,
    /// User timeout: longest time that written data may wait for an ACK or for the peer's window
    /// (`TCP_USER_TIMEOUT`; RFC 5482 without its TCP option). With `None`, the number of retransmissions
    /// decides when the connection gives up.
    pub user_timeout: Option<Duration>,
    /// Random loss that earlier connections have measured on this path ([`memory`](crate::memory)); zero if it
    /// is not known.
    pub known_loss: Probability,
    /// Behaviour that differs between TCP stacks.
    pub tunables: Tunables,
    /// Seed of the initial sequence number and of the congestion controller's random numbers.
    pub seed: u64,
}

impl Config {
    /// Returns the window and pacing rate of the first flight on a path with the given RTT, or `None` if only the initial
    /// congestion window limits it.
    pub(super) fn launch(&self, mss: u64, rtt: Option<Duration>) -> Option<Launch> {
        let own = self.cc.launch();
        let launch = self.launch.or(own.filter(|_| self.initcwnd.is_none()))?;
        // Other algorithms launch exactly what a profile states.
        Some(if own.is_some() { launch.within(mss, rtt) } else { launch })
    }

    /// Returns the floor of the retransmission timeout for a peer that acknowledges promptly; `None` if the floor is the
    /// same for all peers.
    pub(super) fn rto_prompt(&self) -> Option<Duration> {
        self.tunables.rto_prompt.or(self.cc.rto_prompt())
    }

    /// Returns the initial congestion window, in bytes.
    pub(super) fn initial_window(&self, mss: u64) -> u64 {
        self.initcwnd.map_or(INITIAL_SEGMENTS, u64::from) * mss
    }
}

impl Default for Config {
    /// Defaults of Linux 6.18 on a host with at least 1 GB of memory: `tcp_wmem[2]` of 4 MiB, `tcp_rmem[2]`
    /// of 32 MiB, CUBIC, and an Ethernet MTU.
    fn default() -> Self {
        Self {
            mtu: 1500,
            ip: IpVersion::V4,
            ip_choices: IpChoices::DEFAULT,
            mtu_probing: false,
            cc: Algorithm::Cubic,
            slow_start: None,
            initcwnd: None,
            launch: None,
            slow_start_after_idle: true,
            notsent_lowat: None,
            sndbuf: Buffer::Auto { max: Bytes::from_mib(4) },
            rcvbuf: Buffer::Auto { max: Bytes::from_mib(32) },
            window_rule: WindowRule::of(KernelVersion::new(6, 18), None),
            drs_rule: DrsRule::Since616,
            window_clamp: None,
            fair_queue: false,
            max_pacing_rate: None,
            ecn: false,
            sack: true,
            nodelay: false,
            keep_alive: None,
            user_timeout: None,
            known_loss: Probability::ZERO,
            tunables: Tunables::LINUX,
            seed: 1,
        }
    }
}
