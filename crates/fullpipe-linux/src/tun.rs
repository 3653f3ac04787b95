//! TUN devices, through which a process reads and writes the IP packets of a network namespace.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{Errno, read};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::error::{Doing, Error};
use crate::netlink::Netlink;
use crate::sys;

/// Form in which packets enter and leave the kernel: single packets or super-packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Datapath {
    /// Single packets of at most the MTU, one per call; this form serves as the reference.
    #[default]
    Plain,
    /// Super-packets of up to 64 KiB, each preceded by a `virtio_net_hdr`. The emulated path splits
    /// super-packets into wire segments at its entry and merges them again at its exit. Segments of one
    /// super-packet are merged if they are due within 50 us, or on short paths within 1 % of the path delay.
    /// The first segment waits until that time has passed.
    Offload,
}

impl Datapath {
    /// Returns the name of the datapath in options and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Offload => "offload",
        }
    }

    /// Length in bytes of the header that precedes each packet.
    pub(crate) const fn header_len(self) -> usize {
        match self {
            Self::Plain => 0,
            Self::Offload => VIRTIO_HEADER,
        }
    }
}

/// Size in bytes of `struct virtio_net_hdr` without the field for the number of merged buffers.
pub(crate) const VIRTIO_HEADER: usize = 10;

/// Send buffer size of a socket pair in bytes. The buffer is larger than a TCP window, like the transmit
/// queue of a device.
const PAIR_BUFFER: libc::c_int = 64 << 20;

/// Settings of a new TUN device.
#[derive(Clone, Copy, Debug)]
pub struct TunConfig<'a> {
    /// Name of the device, 1 to 15 bytes.
    pub name: &'a str,
    /// Form in which packets enter and leave the kernel through the device.
    pub datapath: Datapath,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// Transmit queue length of the device: maximum number of packets that the kernel queues until they are
    /// read.
    pub queue: u32,
    /// The kernel's IP address on the device.
    pub address: IpAddr,
    /// Prefix length of the kernel's address. The kernel routes the other addresses of the prefix to the
    /// device.
    pub prefix_len: u8,
}

/// A TUN device. The device exists as long as this handle or one of its clones exists.
#[derive(Clone, Debug)]
pub struct Tun {
    fd: Arc<OwnedFd>,
    pub(crate) datapath: Datapath,
}

impl Tun {
    /// Creates a TUN device in the network namespace of the calling thread, and brings it up.
    ///
    /// # Errors
    /// Returns an error if the name is empty or too long, if the process lacks the privileges, or if a system
    /// call fails.
    pub fn new(config: &TunConfig<'_>) -> Result<Self, Error> {
        let TunConfig { name, datapath, mtu, queue, address, prefix_len } = *config;
        let (tun, netlink, index) = Self::up(name, datapath, mtu, queue)?;
        netlink.add_address(index, address, prefix_len)?;
        Ok(tun)
    }

    /// Creates a TUN device without an address in the network namespace of the calling thread, and brings it
    /// up. The kernel routes nothing to the device, so another mechanism must forward packets to it.
    ///
    /// # Errors
    /// Returns the same errors as [`Tun::new`].
    pub fn without_address(name: &str, datapath: Datapath, mtu: u32, queue: u32) -> Result<Self, Error> {
        Self::up(name, datapath, mtu, queue).map(|(tun, _, _)| tun)
    }

    /// Creates a handle for a TUN device that another process has created with `datapath` and whose
    /// descriptor it has passed to this process.
    pub fn inherited(fd: OwnedFd, datapath: Datapath) -> Self {
        Self { fd: Arc::new(fd), datapath }
    }

    /// Reads the next packet without waiting; returns `None` if there is no packet. If the packet is longer
    /// than `room`, the rest of it is lost.
    pub fn next_packet<'r>(&self, room: &'r mut [u8]) -> Option<&'r [u8]> {
        let len = rustix::io::read(self, &mut *room).ok()?;
        room.get(self.datapath.header_len()..len)
    }

    fn up(name: &str, datapath: Datapath, mtu: u32, queue: u32) -> Result<(Self, Netlink, u32), Error> {
        if !(1..libc::IFNAMSIZ).contains(&name.len()) {
            return Err(Error::settings(
                format!("'{name}' is not a valid device name"),
                "choose a name of 1 to 15 bytes",
            ));
        }
        let tun = Self::create(name, datapath)?;
        let netlink = Netlink::new()?;
        let index = netlink.index(name)?;
        netlink.up(index, Some((mtu, queue)))?;
        Ok((tun, netlink, index))
    }

    fn create(name: &str, datapath: Datapath) -> Result<Self, Error> {
        let fd: OwnedFd =
            File::options().read(true).write(true).open("/dev/net/tun").doing("open /dev/net/tun")?.into();
        let vnet_hdr = if datapath == Datapath::Offload { libc::IFF_VNET_HDR } else { 0 };
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | vnet_hdr;
        sys::tun_set_interface(fd.as_fd(), name, flags).doing("create a TUN device")?;
        // The offloads are set in any case, because a persistent device keeps the offloads that an earlier
        // process has set.
        let features = match datapath {
            Datapath::Plain => 0,
            Datapath::Offload => libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN,
        };
        sys::tun_set_offload(fd.as_fd(), features).doing("set the offloads of a TUN device")?;
        if datapath == Datapath::Offload {
            sys::tun_set_header_len(fd.as_fd(), VIRTIO_HEADER as i32).doing("set the TUN header's length")?;
        }
        fcntl_setfl(&fd, OFlags::NONBLOCK).doing("make a TUN device non-blocking")?;
        Ok(Self { fd: Arc::new(fd), datapath })
    }

    /// Discards all packets that wait to be read.
    pub(crate) fn discard_packets(&self) -> Result<(), Error> {
        // A read returns one packet, and a buffer that is too small truncates it.
        let mut packet = [0; VIRTIO_HEADER];
        loop {
            match read(self, &mut packet) {
                Ok(0) | Err(Errno::AGAIN) => return Ok(()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(Error::system("read from a TUN device", error)),
            }
        }
    }

    /// Creates a pair of connected ports without a device: a packet that is written to one end, with its
    /// header, is read from the other end. The kernel does not process these packets. The kernel refuses a
    /// write if the buffer is full.
    pub(crate) fn pair(datapath: Datapath) -> Result<[Self; 2], Error> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .doing("create a pair of sockets")?;
        Ok([near, far].map(|fd| {
            // Only the host's root user may exceed wmem_max. For other users the buffer is smaller, which
            // causes packet losses.
            let set = |option| sys::set_socket_option(fd.as_fd(), libc::SOL_SOCKET, option, PAIR_BUFFER);
            let _ = set(libc::SO_SNDBUFFORCE).or_else(|_| set(libc::SO_SNDBUF));
            Self { fd: Arc::new(fd), datapath }
        }))
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
