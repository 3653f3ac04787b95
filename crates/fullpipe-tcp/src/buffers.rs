//! Conversion between socket buffer sizes and windows, by kernel version.
//!
//! The receive window, the send buffer, the explainer and the advisor all use this module. The size of a
//! socket buffer is an amount of *memory*, whereas the window is an amount of *payload*. The difference is
//! the skb overhead:
//!
//! ```text
//!   tcp_rmem[2] ──(window rule)──► largest window the receiver can offer
//!   tcp_wmem[2] ──(send overhead)─► largest payload the sender can hold until it is acknowledged
//! ```

use core::fmt;
use core::str::FromStr;

use fullpipe_units::Bytes;

/// Linux kernel release (`major.minor`), which determines the accounting of socket buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelVersion {
    /// Major version of the kernel release.
    pub major: u16,
    /// Minor version of the kernel release.
    pub minor: u16,
}

impl KernelVersion {
    /// Returns the kernel release `major.minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// First Linux release that derives the receive window from the measured payload-to-memory ratio of each
    /// socket and ignores `tcp_adv_win_scale`.
    pub const PER_SOCKET_RATIO: Self = Self::new(6, 6);
    /// First Linux release with BBR.
    pub const BBR: Self = Self::new(4, 9);
    /// First Linux release with TCP-internal pacing; earlier releases need the `fq` queueing discipline for
    /// BBR.
    pub const INTERNAL_PACING: Self = Self::new(4, 13);
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Error for a kernel release that does not begin with `major.minor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseKernelError(String);

impl fmt::Display for ParseKernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel version '{}' does not begin with major.minor, for example 6.8", self.0)
    }
}

impl std::error::Error for ParseKernelError {}

impl FromStr for KernelVersion {
    type Err = ParseKernelError;

    /// Parses a kernel release such as `"6.8"` or `"4.15.0-213-generic"`.
    fn from_str(text: &str) -> Result<Self, ParseKernelError> {
        let mut parts = text.trim().split(['.', '-', '+']);
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        match (number(), number()) {
            (Some(major), Some(minor)) => Ok(Self { major, minor }),
            _ => Err(ParseKernelError(text.into())),
        }
    }
}

/// Rule by which the kernel converts receive-buffer memory into a receive window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowRule {
    /// Value `s` of `tcp_adv_win_scale`, for kernels before 6.6. A positive `s` reserves `1/2^s` of the
    /// buffer for overhead; with any other `s`, the window is `1/2^-s` of the buffer.
    AdvWinScale(i8),
    /// Receive window as a share of the buffer, in 256ths, for kernels since 6.6. The kernel derives the
    /// share from the payload and memory of arriving packets.
    ScalingRatio(u16),
}

impl WindowRule {
    /// Returns the window rule of the kernel release `kernel`. `adv_win_scale` is the host's
    /// `tcp_adv_win_scale`; `None` means the kernel default of 1 (since 2012).
    pub const fn of(kernel: KernelVersion, adv_win_scale: Option<i8>) -> Self {
        if kernel.major > 6 || (kernel.major == 6 && kernel.minor >= 6) {
            Self::ScalingRatio(MEASURED_RATIO)
        } else {
            Self::AdvWinScale(match adv_win_scale {
                Some(scale) => scale,
                None => 1,
            })
        }
    }

    /// Returns this rule adjusted for segments that carry at most `len` bytes of payload instead of `mss`.
    /// The skb size does not change, so the window is then a smaller share of the memory. `mss` must not be
    /// zero.
    pub const fn with_segments(self, len: u64, mss: u64) -> Self {
        match self {
            Self::ScalingRatio(ratio @ 1..) if len < mss => {
                let memory = (mss << 8) / ratio as u64 / MEMORY_STEP * MEMORY_STEP;
                // With a ratio of zero, the window would stay closed forever.
                Self::ScalingRatio(match (len << 8).checked_div(memory) {
                    Some(part @ 1..) => part as u16,
                    Some(0) => 1,
                    None => ratio,
                })
            }
            rule => rule,
        }
    }

    /// Returns the rule that applies before the first segment has been measured. Under this rule, the window
    /// is at most half of the memory.
    pub const fn unmeasured(self) -> Self {
        match self {
            Self::ScalingRatio(ratio) if ratio > UNMEASURED_RATIO => Self::ScalingRatio(UNMEASURED_RATIO),
            rule => rule,
        }
    }

    /// Returns the receive window that a receive buffer of `space` bytes allows.
    pub const fn window(self, space: Bytes) -> Bytes {
        let space = space.get();
        Bytes::new(match self {
            Self::AdvWinScale(scale) if scale > 0 => space - shifted(space, scale.unsigned_abs()),
            Self::AdvWinScale(scale) => shifted(space, scale.unsigned_abs()),
            // This form is exact for every buffer below 2^48 bytes, and avoids a 128-bit multiplication per
            // packet.
            Self::ScalingRatio(ratio) => (space >> 8) * ratio as u64 + (((space & 255) * ratio as u64) >> 8),
        })
    }

    /// Returns the size of the smallest receive buffer that allows a window of `window` bytes, rounded up.
    pub const fn space(self, window: Bytes) -> Bytes {
        if window.is_zero() {
            return Bytes::ZERO;
        }
        if let Self::ScalingRatio(ratio @ 1..) = self
            && window.get() >> 56 == 0
        {
            // This function runs for every arriving segment, so it avoids a 128-bit division where 64 bits
            // suffice.
            return Bytes::new((window.get() << 8).div_ceil(ratio as u64));
        }
        let window = window.get() as u128;
        let space = match self {
            Self::AdvWinScale(scale) if scale > 0 => {
                let whole = 1u128 << clamp_shift(scale.unsigned_abs());
                (window * whole).div_ceil(whole - 1)
            }
            Self::AdvWinScale(scale) => window << clamp_shift(scale.unsigned_abs()),
            Self::ScalingRatio(ratio) => (window * 256).div_ceil(if ratio == 0 { 1 } else { ratio as u128 }),
        };
        Bytes::new(if space > u64::MAX as u128 { u64::MAX } else { space as u64 })
    }
}

/// Rule by which the kernel grows an autotuned receive buffer with the rate at which the application reads
/// (dynamic right-sizing, `tcp_rcv_space_adjust`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DrsRule {
    /// Until Linux 6.15: the buffer holds twice the data that the application read in a round trip, plus 16
    /// segments. Data above a hole counts only once it is read. The RTT estimate adopts a smaller sample at
    /// once, as in the stable releases since 2025 (for example 6.1.176 and 6.12.117). Linux 6.1 itself
    /// averages all samples.
    Until615,
    /// Since Linux 6.16: the buffer holds twice the data that the application read in a round trip, without
    /// additional segments. Data that the application has left unread does not count, but data above a hole
    /// does.
    Since616,
}

impl DrsRule {
    /// Returns the rule of the kernel release `kernel`.
    pub const fn of(kernel: KernelVersion) -> Self {
        let is_older = kernel.major < 6 || (kernel.major == 6 && kernel.minor < 16);
        if is_older { Self::Until615 } else { Self::Since616 }
    }

    /// Returns the memory that the receive buffer needs for a window of `window` bytes, with segments of `mss`
    /// bytes.
    ///
    /// Before Linux 6.6, the kernel sizes the buffer in whole segments and rounds the memory of a segment up
    /// in steps of 128 bytes.
    pub(crate) const fn space(self, rule: WindowRule, window: Bytes, mss: u64) -> Bytes {
        match (self, rule) {
            (Self::Until615, WindowRule::AdvWinScale(_)) if mss > 0 => {
                let mut memory = mss + SEGMENT_OVERHEAD;
                while rule.window(Bytes::new(memory)).get() < mss {
                    memory += 128;
                }
                Bytes::new((window.get() / mss).saturating_mul(memory))
            }
            _ => rule.space(window),
        }
    }
}

/// Memory of a received segment beyond its payload, in bytes, as kernels before Linux 6.6 estimate it: room
/// for headers (256), the descriptor (256) and the shared info (320). Kernels with wireless drivers reserve
/// 64 bytes more for headers.
const SEGMENT_OVERHEAD: u64 = 832;

impl fmt::Display for WindowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AdvWinScale(scale) => write!(f, "tcp_adv_win_scale {scale}"),
            Self::ScalingRatio(ratio) => write!(f, "scaling ratio {ratio}/256"),
        }
    }
}

/// Payload-to-memory ratio of a 1448-byte segment in its own 2304-byte skb, in 256ths: 0.625, measured on
/// Linux 6.18. With a network card that fills whole pages, the ratio is 219/256. The kernel measures the
/// ratio for each socket.
pub const MEASURED_RATIO: u16 = 160;

/// Payload-to-memory ratio of a new connection before measurement, in 256ths (`TCP_DEFAULT_SCALING_RATIO`).
const UNMEASURED_RATIO: u16 = 128;
/// Granularity of skb memory, in bytes.
const MEMORY_STEP: u64 = 256;

const fn clamp_shift(bits: u8) -> u8 {
    if bits > 31 { 31 } else { bits }
}

const fn shifted(space: u64, bits: u8) -> u64 {
    space >> clamp_shift(bits)
}

/// Size limit of a socket buffer, autotuned or fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// Buffer that the kernel autotunes, up to `max` bytes of memory (`tcp_rmem[2]` or `tcp_wmem[2]`).
    Auto {
        /// Upper limit of autotuning, in bytes of memory.
        max: Bytes,
    },
    /// Buffer set with `SO_RCVBUF` or `SO_SNDBUF`, in bytes of memory; the kernel does not autotune it.
    Fixed(Bytes),
}

impl Buffer {
    /// Returns the maximum memory of this socket buffer.
    pub const fn limit(self) -> Bytes {
        match self {
            Self::Auto { max } => max,
            Self::Fixed(size) => size,
        }
    }
}

/// Memory that the kernel reserves per segment when it sizes an autotuned send buffer, in bytes: the skb of a
/// full-sized segment, rounded up to a power of two, plus its descriptor.
const AUTOTUNE_SEGMENT_MEMORY: u64 = 4_352;

/// Returns the autotuned send buffer size for a congestion window of `cwnd` bytes: the skb memory of `factor`
/// windows (3 for BBR, otherwise 2). The result does not include the `tcp_wmem[2]` limit.
pub const fn autotuned_sndbuf(cwnd: u64, mss: u64, factor: u64) -> Bytes {
    Bytes::new(cwnd.div_ceil(mss).saturating_mul(AUTOTUNE_SEGMENT_MEMORY).saturating_mul(factor))
}

/// Memory of an skb in the send queue beyond its payload, in bytes: the descriptor, the shared info and the
/// header buffer. Measured on Linux 6.18 (x86-64): one skb with 65 160 bytes of payload takes 65 992 bytes.
pub(crate) const PACKET_BUFFER_MEMORY: u64 = 832;

/// Returns the payload capacity of a send buffer of `sndbuf` bytes. Linux stores queued data in skbs of up to
/// 64 KiB with little overhead: in a measurement, 3.93 MB of payload took 3.99 MB of memory.
pub const fn sendable(sndbuf: Bytes) -> Bytes {
    sndbuf.mul_div(64, 65)
}

/// Returns the smallest send buffer that keeps `window` bytes of payload in flight at all times, rounded up.
/// Linux wakes a blocked writer when a third of the buffer is free (`sk_stream_is_writeable`), so the
/// application keeps only two thirds of the buffer filled at all times. The result saturates instead of
/// overflowing.
pub const fn sndbuf_for(window: Bytes) -> Bytes {
    let payload = window.get().saturating_add(window.get().div_ceil(2));
    Bytes::new(payload.saturating_add(payload.div_ceil(64)))
}

/// Default `tcp_wmem[2]` of all kernels, on hosts with enough memory.
pub const DEFAULT_WMEM: Bytes = Bytes::from_mib(4);
/// Default `tcp_rmem[2]` of kernels from 2012 to Linux 6.15, on hosts with enough memory.
pub const OLDER_DEFAULT_RMEM: Bytes = Bytes::from_mib(6);

/// Returns the default `tcp_rmem[2]` of `kernel` on hosts with enough memory. Linux 6.16 raised this default.
pub fn default_rmem(kernel: KernelVersion) -> Bytes {
    if kernel >= KernelVersion::new(6, 16) { Bytes::from_mib(32) } else { OLDER_DEFAULT_RMEM }
}
