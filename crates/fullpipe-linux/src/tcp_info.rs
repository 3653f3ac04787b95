//! Converts the `TCP_INFO`, `SO_MEMINFO` and queue sizes of a kernel socket to trace rows.
//!
//! New kernel versions only append fields to `struct tcp_info`. An older kernel fills fewer fields, and the
//! missing fields are zero here. Segment counts are converted to bytes with the MSS of the socket. The
//! sockets of this process are read with `getsockopt`, and those of other processes through netlink
//! ([`crate::sock_diag`]); the structures are the same.

use std::io;
use std::os::fd::BorrowedFd;

use fullpipe_lab::trace::{BbrInfo, ReceiverInfo, ReceiverSample, TcpInfo};
use fullpipe_units::{Bytes, Duration, Instant, Rate};

use crate::sys;

/// Declares a kernel structure and its parser. Fields that the kernel does not fill are zero.
macro_rules! structure {
    ($(#[$what:meta])* $name:ident { $($(#[$about:meta])* $field:ident: $integer:ty,)* }) => {
        $(#[$what])*
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct $name { $($(#[$about])* $field: $integer,)* }

        impl $name {
            /// Total size of the parsed fields, in bytes.
            const LEN: usize = 0 $(+ size_of::<$integer>())*;

            /// Parses the structure from the bytes that the kernel returned, which may be fewer than `LEN`.
            pub(crate) fn read(bytes: &[u8]) -> Self {
                // The bytes are copied once, truncated to the known fields, so that the compiler knows the
                // offset of each field.
                let (mut whole, told) = ([0; Self::LEN], bytes.len().min(Self::LEN));
                whole[..told].copy_from_slice(&bytes[..told]);
                let mut rest = whole.as_slice();
                let read = Self { $($field: {
                    let (value, after) = rest.split_first_chunk().unwrap_or((&[0; size_of::<$integer>()], &[]));
                    rest = after;
                    <$integer>::from_ne_bytes(*value)
                },)* };
                let _ = rest;
                read
            }
        }
    };
}

structure! {
/// `struct tcp_info` up to the field `tcpi_rcv_wnd`, which was added in Linux 6.2.
#[expect(dead_code, reason = "fields between those that are read")]
Raw {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    wscale: u8,
    /// Flags of the structure; the lowest bit means that the delivery-rate sample was limited by the
    /// application.
    flags: u8,
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
    rcv_wnd: u32,
}
}

/// Value of `tcpi_snd_ssthresh` before the first reduction of the congestion window.
const TCP_INFINITE_SSTHRESH: u32 = 0x7fff_ffff;
/// Value of `tcpi_min_rtt` before the first sample.
const NO_MIN_RTT: u32 = u32::MAX;
/// Value of `tcpi_ca_state` in fast recovery; in loss recovery after a timeout, the value is higher by one.
const TCP_CA_RECOVERY: u8 = 3;

/// Returns the state of a sending socket. `paced` states whether the pacing rate that the kernel computes is
/// in effect.
pub(crate) fn sender(fd: BorrowedFd<'_>, paced: bool) -> io::Result<TcpInfo> {
    Ok(sender_of(&raw(fd)?, &memory(fd)?, paced))
}

/// Returns the state of a sending socket before its connection exists.
pub(crate) fn unconnected() -> TcpInfo {
    let raw = Raw { snd_ssthresh: TCP_INFINITE_SSTHRESH, ..Raw::default() };
    sender_of(&raw, &Memory::default(), false)
}

/// Converts raw kernel structures to the state of a sending socket; `paced` has the same meaning as for
/// [`sender`].
pub(crate) fn sender_of(raw: &Raw, memory: &Memory, paced: bool) -> TcpInfo {
    let mss = u64::from(raw.snd_mss);
    let segments = |count: u32| Bytes::new(u64::from(count) * mss);
    let rate = |bytes_per_second: u64| match bytes_per_second {
        0 | u64::MAX => None,
        rate => Some(Rate::from_bytes_per_sec(rate)),
    };
    let micros =
        |micros: u32| (micros != 0 && micros != NO_MIN_RTT).then(|| Duration::from_micros(micros.into()));
    // The formula for packets in flight is the same as in the kernel's tcp_packets_in_flight().
    let inflight =
        raw.unacked.saturating_add(raw.retrans).saturating_sub(raw.sacked.saturating_add(raw.lost));
    TcpInfo {
        cc: None,
        mss: Bytes::new(mss),
        cwnd: segments(raw.snd_cwnd),
        ssthresh: (raw.snd_ssthresh < TCP_INFINITE_SSTHRESH).then(|| segments(raw.snd_ssthresh)),
        inflight: segments(inflight),
        flight_size: segments(raw.unacked),
        rwnd: Bytes::new(raw.snd_wnd.into()),
        pacing_rate: rate(raw.pacing_rate).filter(|_| paced),
        max_pacing_rate: rate(raw.max_pacing_rate).filter(|rate| rate.as_bytes_per_sec() < NO_LIMIT - 1),
        delivery_rate: rate(raw.delivery_rate),
        app_limited: raw.flags & 1 != 0,
        srtt: micros(raw.rtt),
        min_rtt: micros(raw.min_rtt),
        // tcpi_delivered is not used, because it counts segments, which are only partly filled if the
        // application makes small writes.
        delivered: raw.acked() + segments(raw.sacked),
        retransmits: raw.total_retrans.into(),
        dsack_dups: raw.dsack_dups.into(),
        recovering: raw.ca_state >= TCP_CA_RECOVERY,
        notsent: Bytes::new(raw.notsent_bytes.into()),
        sndbuf: Bytes::new(memory.sndbuf.into()),
        sndbuf_used: Bytes::new(memory.wmem_queued.into()),
        bbr: None,
    }
}

structure! {
/// `struct tcp_bbr_info`, which a socket with BBR reports.
RawBbr {
    bw_lo: u32,
    bw_hi: u32,
    min_rtt: u32,
    pacing_gain: u32,
    cwnd_gain: u32,
}
}

/// Scale of the gains in the kernel: 256 means a gain of 1.
const BBR_UNIT: u64 = 256;

impl RawBbr {
    /// Converts BBR's path model to the form that traces use; returns `None` if the kernel reported no model.
    pub(crate) fn info(&self) -> Option<BbrInfo> {
        let percent = |gain: u32| (u64::from(gain) * 100 / BBR_UNIT) as u32;
        let known = self.pacing_gain != 0;
        known.then(|| BbrInfo {
            bw: Rate::from_bytes_per_sec(u64::from(self.bw_hi) << 32 | u64::from(self.bw_lo)),
            // Before the first RTT sample, all bits of the value are set.
            min_rtt: (self.min_rtt != 0 && self.min_rtt != u32::MAX)
                .then(|| Duration::from_micros(self.min_rtt.into())),
            pacing_gain_percent: percent(self.pacing_gain),
            cwnd_gain_percent: percent(self.cwnd_gain),
        })
    }
}

/// Returns the path model of a sending socket with BBR. The function must be called only for sockets that use
/// BBR, because other algorithms return other data for this socket option.
pub(crate) fn bbr(fd: BorrowedFd<'_>) -> io::Result<Option<BbrInfo>> {
    /// Number of the socket option, from `linux/tcp.h`.
    const TCP_CC_INFO: libc::c_int = 26;
    let mut bytes = [0; RawBbr::LEN];
    // SAFETY: every bit pattern is a valid byte array.
    let known = unsafe { sys::socket_option(fd, libc::IPPROTO_TCP, TCP_CC_INFO, &mut bytes) }?;
    Ok(RawBbr::read(&bytes[..known.min(RawBbr::LEN)]).info())
}

impl Raw {
    /// Returns whether the socket has a maximum pacing rate; setting this rate also enables pacing.
    pub(crate) const fn has_pacing_limit(&self) -> bool {
        self.max_pacing_rate != 0 && self.max_pacing_rate != u64::MAX
    }

    /// Returns the number of payload bytes that the peer has acknowledged. For a connecting socket,
    /// the kernel also counts the SYN.
    pub(crate) const fn acked(&self) -> Bytes {
        Bytes::new(self.bytes_acked)
    }
}

/// Values of a sending socket that iperf3 reports, but that a trace does not contain.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Details {
    /// RTT variation (rttvar).
    pub(crate) rttvar: Duration,
    /// Path MTU, IP header included.
    pub(crate) pmtu: Bytes,
    /// Number of reordering events that the sender has detected.
    pub(crate) reord_seen: u32,
}

/// Returns the values of a sending socket that iperf3 reports, but that [`sender`] does not return.
pub(crate) fn details(fd: BorrowedFd<'_>) -> io::Result<Details> {
    let raw = raw(fd)?;
    Ok(Details {
        rttvar: Duration::from_micros(raw.rttvar.into()),
        pmtu: Bytes::new(raw.pmtu.into()),
        reord_seen: raw.reord_seen,
    })
}

/// Returns the number of segments that the socket retransmitted, and the number of segments that its peer
/// reported as duplicates (D-SACK, RFC 2883).
pub(crate) fn repeats(fd: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    let raw = raw(fd)?;
    Ok((raw.total_retrans.into(), raw.dsack_dups.into()))
}

/// Value of `SO_MAX_PACING_RATE` for a socket that is paced without a limit. The maximum value would mean
/// "not paced".
pub(crate) const NO_LIMIT: u64 = u64::MAX - 1;

/// Kernel numbers of the TCP states after the peer has sent a FIN: TIME-WAIT, CLOSED, CLOSE-WAIT, LAST-ACK,
/// CLOSING.
const FIN_RECEIVED: [u8; 5] = [6, 7, 8, 9, 11];

/// Returns the state of a receiving socket, for a trace row.
pub(crate) fn receiver(fd: BorrowedFd<'_>) -> io::Result<ReceiverInfo> {
    // The number of unread bytes is queried first. Data that arrives between the two queries then counts as
    // received but not as unread, so the number of unread bytes never exceeds the number of received bytes.
    let unread = sys::unread(fd)?;
    Ok(receiver_of(&raw(fd)?, &memory(fd)?, Bytes::new(unread)))
}

/// Returns a sample of a receiving socket, for traces without the sender: state, window, RTT, out-of-order
/// packets and MSS.
pub(crate) fn received(fd: BorrowedFd<'_>, at: Instant, flow: u32) -> io::Result<ReceiverSample> {
    let unread = sys::unread(fd)?;
    let sample = received_of(&raw(fd)?, &memory(fd)?, Bytes::new(unread));
    Ok(ReceiverSample { at, flow, ..sample })
}

/// Converts raw structures to a sample of a receiving socket, without its time and flow number; `unread` is
/// the socket's `Recv-Q`.
pub(crate) fn received_of(raw: &Raw, memory: &Memory, unread: Bytes) -> ReceiverSample {
    ReceiverSample {
        at: Instant::ZERO,
        flow: 0,
        receiver: receiver_of(raw, memory, unread),
        window: Bytes::new(raw.rcv_wnd.into()),
        rtt: (raw.rcv_rtt != 0).then(|| Duration::from_micros(raw.rcv_rtt.into())),
        out_of_order: raw.rcv_ooopack.into(),
        mss: Bytes::new(raw.rcv_mss.into()),
    }
}

/// Converts raw structures to the state of a receiving socket; `unread` is the socket's `Recv-Q`.
fn receiver_of(raw: &Raw, memory: &Memory, unread: Bytes) -> ReceiverInfo {
    // A FIN occupies a sequence number, so the kernel counts it as a byte.
    let fin = u64::from(FIN_RECEIVED.contains(&raw.state));
    ReceiverInfo {
        received: Bytes::new(raw.bytes_received.saturating_sub(fin)),
        unread,
        rcvbuf: Bytes::new(memory.rcvbuf.into()),
    }
}

fn raw(fd: BorrowedFd<'_>) -> io::Result<Raw> {
    let mut bytes = [0; Raw::LEN];
    // SAFETY: every bit pattern is a valid byte array.
    let known = unsafe { sys::socket_option(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes) }?;
    Ok(Raw::read(&bytes[..known.min(Raw::LEN)]))
}

structure! {
/// The kernel's array `sk_meminfo`, which the socket option `SO_MEMINFO` returns.
#[expect(dead_code, reason = "fields between those that are read")]
Memory {
    rmem_alloc: u32,
    rcvbuf: u32,
    wmem_alloc: u32,
    sndbuf: u32,
    fwd_alloc: u32,
    wmem_queued: u32,
    optmem: u32,
    backlog: u32,
    drops: u32,
}
}

impl Memory {
    /// Returns the memory that the socket uses: for received data, for data to send or retransmit, and as a
    /// reserve.
    pub(crate) fn used(&self) -> Bytes {
        let parts = [self.rmem_alloc, self.wmem_queued, self.fwd_alloc, self.optmem, self.backlog];
        Bytes::new(parts.into_iter().map(u64::from).sum())
    }
}

fn memory(fd: BorrowedFd<'_>) -> io::Result<Memory> {
    let mut bytes = [0; Memory::LEN];
    // SAFETY: every bit pattern is a valid byte array.
    let known = unsafe { sys::socket_option(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut bytes) }?;
    Ok(Memory::read(&bytes[..known.min(Memory::LEN)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    /// BBR's path model of a connection is consistent with the kernel's `TCP_INFO`.
    #[test]
    fn bbr_tells_its_model() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (mut far, _) = listener.accept().expect("a connection");
        if socket2::SockRef::from(&near).set_tcp_congestion(b"bbr").is_err() {
            eprintln!("skipped: this kernel has no BBR");
            return;
        }
        let mut block = vec![0; 100_000];
        for _ in 0..50 {
            near.write_all(&block).expect("room");
            far.read_exact(&mut block).expect("data");
        }
        let (told, info) = (bbr(near.as_fd()).expect("info"), sender(near.as_fd(), true).expect("info"));
        let told = told.expect("BBR tells");
        assert!(told.bw.as_bps() > 1_000_000, "{told:?}");
        assert!(told.min_rtt.is_some_and(|rtt| rtt < Duration::from_secs(1)), "{told:?}, {info:?}");
        assert!((33..=289).contains(&told.pacing_gain_percent), "{told:?}");
        assert!((99..=290).contains(&told.cwnd_gain_percent), "{told:?}");
    }

    /// Each field has the value that follows from the actions of both ends; with shifted fields, the values
    /// would differ.
    #[test]
    fn a_connection_tells_what_was_done_with_it() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (mut far, _) = listener.accept().expect("a connection");
        near.write_all(&[7; 20_000]).expect("room");
        let mut read = [0; 5_000];
        far.read_exact(&mut read).expect("data");
        // The loopback device delivers immediately, but the last ACK may be delayed.
        while sender(near.as_fd(), false).expect("info").flight_size.get() > 0 {
            std::thread::yield_now();
        }
        let info = sender(near.as_fd(), true).expect("info");
        assert!((536..=65_535).contains(&info.mss.get()), "{info:?}");
        assert_eq!((info.ssthresh, info.retransmits, info.recovering), (None, 0, false), "{info:?}");
        assert!((info.mss.get()..=1 << 24).contains(&info.cwnd.get()), "{info:?}");
        assert!(info.rwnd.get() >= 16_384 && info.rwnd.get() < 1 << 30, "{info:?}");
        assert!(info.srtt.is_some_and(|rtt| rtt < Duration::from_secs(1)), "{info:?}");
        assert!(info.min_rtt <= info.srtt.map(|rtt| rtt + rtt), "{info:?}");
        assert!(info.sndbuf.get() >= 4_096 && info.sndbuf_used.get() == 0, "{info:?}");
        assert_eq!((info.notsent.get(), info.inflight.get()), (0, 0));
        let info = receiver(far.as_fd()).expect("info");
        assert_eq!((info.received.get(), info.unread.get()), (20_000, 15_000), "{info:?}");
        assert!(info.rcvbuf.get() >= 20_000, "{info:?}");
        // Kernels before 6.2 do not report the advertised window.
        let alone = received(far.as_fd(), Instant::ZERO, 3).expect("info");
        assert_eq!((alone.receiver, alone.flow, alone.out_of_order), (info, 3, 0));
        assert!(alone.window.is_zero() || alone.window.get() >= 16_384, "{alone:?}");
        assert!((536..=65_535).contains(&alone.mss.get()), "{alone:?}");
    }
}
