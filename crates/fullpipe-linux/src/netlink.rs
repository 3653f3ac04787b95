//! Configures devices, addresses and routes over a netlink socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, Nla, NlasIterator,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption, TcStats2};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

use crate::error::{Doing, Error};

/// Maximum length of a transmit queue, in packets, that every kernel accepts. Stable releases of 2026 refuse
/// longer queues.
const LONGEST_QUEUE: u32 = i16::MAX as u32;

/// A netlink socket, which belongs to the network namespace in which it was created.
pub(crate) struct Netlink {
    socket: Socket,
}

/// Drop counters of a network device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeviceCounts {
    /// Number of packets to the device that the kernel dropped (`tx_dropped`).
    pub(crate) tx_dropped: u64,
    /// Number of packets from the device that the kernel dropped (`rx_dropped`).
    pub(crate) rx_dropped: u64,
}

/// Queueing discipline at the root of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct RootQdisc {
    /// Kind of the discipline, for example `tbf`.
    pub(crate) kind: String,
    /// Numbers and values of the discipline's options (`TCA_OPTIONS`).
    pub(crate) options: Vec<(u16, Vec<u8>)>,
}

impl RootQdisc {
    fn new(attributes: Vec<TcAttribute>) -> Self {
        let mut found = Self::default();
        for attribute in attributes {
            match attribute {
                TcAttribute::Kind(kind) => found.kind = kind,
                TcAttribute::Options(options) => found.options = options.iter().flat_map(nested).collect(),
                _ => {}
            }
        }
        found
    }
}

/// Returns the attributes within the options of a discipline that the library does not know. It stores them as one
/// value.
fn nested(options: &TcOption) -> Vec<(u16, Vec<u8>)> {
    let TcOption::Other(options) = options else { return Vec::new() };
    let mut value = vec![0; options.value_len()];
    options.emit_value(&mut value);
    NlasIterator::new(&value[..]).flatten().map(|nla| (nla.kind(), nla.value().to_vec())).collect()
}

impl Netlink {
    pub(crate) fn new() -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            io::Result::Ok(Self { socket })
        };
        open().doing("open a netlink socket")
    }

    /// Returns the index of the device `name`.
    pub(crate) fn index(&self, name: &str) -> Result<u32, Error> {
        Ok(self.device(name)?.header.index)
    }

    pub(crate) fn counts(&self, name: &str) -> Result<DeviceCounts, Error> {
        let device = self.device(name)?;
        let counts = device.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => {
                Some(DeviceCounts { tx_dropped: stats.tx_dropped, rx_dropped: stats.rx_dropped })
            }
            _ => None,
        });
        Ok(counts.unwrap_or_default())
    }

    fn device(&self, name: &str) -> Result<LinkMessage, Error> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        let get = || match self.ask(RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            _ => Err(io::Error::other("no answer")),
        };
        get().doing(format_args!("query the device {name}"))
    }

    /// Brings a device up. For a TUN device, also sets the MTU and the transmit queue length.
    pub(crate) fn up(&self, index: u32, tun: Option<(u32, u32)>) -> Result<(), Error> {
        let up = |tun: Option<(u32, u32)>| {
            let mut message = LinkMessage::default();
            message.header.index = index;
            message.header.flags = LinkFlags::Up;
            message.header.change_mask = LinkFlags::Up;
            if let Some((mtu, queue)) = tun {
                message.attributes.push(LinkAttribute::Mtu(mtu));
                message.attributes.push(LinkAttribute::TxQueueLen(queue));
            }
            self.change(RouteNetlinkMessage::SetLink(message), 0)
        };
        let done = match (up(tun), tun) {
            (Err(error), Some((mtu, queue)))
                if error.raw_os_error() == Some(libc::ERANGE) && queue > LONGEST_QUEUE =>
            {
                up(Some((mtu, LONGEST_QUEUE)))
            }
            (done, _) => done,
        };
        done.doing("bring a device up")
    }

    /// Sets the MTU of a device, in bytes.
    pub(crate) fn set_mtu(&self, index: u32, mtu: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.change(RouteNetlinkMessage::SetLink(message), 0).doing("set the MTU of a device")
    }

    /// Moves a device to another network namespace.
    pub(crate) fn move_device(&self, index: u32, to: BorrowedFd<'_>) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(LinkAttribute::NetNsFd(to.as_raw_fd()));
        self.change(RouteNetlinkMessage::SetLink(message), 0).doing("move a device to a network namespace")
    }

    /// Disables address resolution on an Ethernet device that is down; packets are then sent with the
    /// device's own address as their destination.
    pub(crate) fn disable_arp(&self, index: u32) -> Result<(), Error> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.flags = LinkFlags::Noarp;
        message.header.change_mask = LinkFlags::Noarp;
        self.change(RouteNetlinkMessage::SetLink(message), 0).doing("disable ARP")
    }

    pub(crate) fn add_address(&self, index: u32, address: IpAddr, prefix_len: u8) -> Result<(), Error> {
        let mut message = AddressMessage::default();
        message.header.family = match address {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        // No other host can have this address, so duplicate address detection is disabled (IPv6).
        message.header.flags = AddressHeaderFlags::Nodad;
        message.header.prefix_len = prefix_len;
        message.header.index = index;
        message.attributes.push(AddressAttribute::Local(address));
        message.attributes.push(AddressAttribute::Address(address));
        let change = self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL);
        change.doing(format_args!("add the address {address}"))
    }

    /// Adds or replaces the route to `host` through a device. Connections over this route get an initial
    /// congestion window of `initcwnd` segments (`RTAX_INITCWND`); zero selects the kernel's default.
    pub(crate) fn set_host_route(&self, index: u32, host: Ipv4Addr, initcwnd: u32) -> Result<(), Error> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.destination_prefix_length = Ipv4Addr::BITS as u8;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Link;
        message.header.kind = RouteType::Unicast;
        message.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(host)));
        message.attributes.push(RouteAttribute::Oif(index));
        message.attributes.push(RouteAttribute::Metrics(vec![RouteMetric::InitCwnd(initcwnd)]));
        let change = self.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE);
        change.doing(format_args!("add a route to {host}"))
    }

    /// Returns the routing table entry for `destination` (`RTM_F_FIB_MATCH`, Linux 4.13) instead of a route
    /// resolved for one packet. Its next hops are in the order in which they were set.
    pub(crate) fn route_to(&self, destination: IpAddr) -> Result<RouteMessage, Error> {
        let mut message = RouteMessage::default();
        let (family, address, len) = match destination {
            IpAddr::V4(v4) => (AddressFamily::Inet, RouteAddress::Inet(v4), Ipv4Addr::BITS),
            IpAddr::V6(v6) => (AddressFamily::Inet6, RouteAddress::Inet6(v6), Ipv6Addr::BITS),
        };
        message.header.address_family = family;
        message.header.destination_prefix_length = len as u8;
        message.header.flags = RouteFlags::FibMatch;
        message.attributes.push(RouteAttribute::Destination(address));
        let get = || match self.ask(RouteNetlinkMessage::GetRoute(message), NLM_F_REQUEST)? {
            Some(RouteNetlinkMessage::NewRoute(route)) => Ok(route),
            _ => Err(io::Error::other("no answer")),
        };
        let order = |route| if destination.is_ipv6() { self.in_order(route) } else { Ok(route) };
        get().and_then(order).doing(format_args!("find the route to {destination}"))
    }

    /// Returns an IPv6 `route` with its next hops in the order of the routing table. The kernel reports the next hop first
    /// that it selects for the destination, by a hash with a random key.
    fn in_order(&self, mut route: RouteMessage) -> io::Result<RouteMessage> {
        let is_multipath = |attribute: &RouteAttribute| matches!(attribute, RouteAttribute::MultiPath(_));
        if !route.attributes.iter().any(is_multipath) {
            return Ok(route);
        }
        // The priority is part of the key: two routes to the same destination may differ only in it.
        let key = |route: &RouteMessage| {
            let key = |attribute: &&RouteAttribute| {
                matches!(
                    attribute,
                    RouteAttribute::Destination(_) | RouteAttribute::Table(_) | RouteAttribute::Priority(_)
                )
            };
            let attributes: Vec<_> = route.attributes.iter().filter(key).cloned().collect();
            (route.header.destination_prefix_length, route.header.table, attributes)
        };
        let mut request = RouteMessage::default();
        request.header.address_family = AddressFamily::Inet6;
        let wanted = key(&route);
        let found =
            self.dump(RouteNetlinkMessage::GetRoute(request))?.into_iter().find_map(|answer| match answer {
                RouteNetlinkMessage::NewRoute(found) if key(&found) == wanted => {
                    found.attributes.into_iter().find(is_multipath)
                }
                _ => None,
            });
        for attribute in &mut route.attributes {
            if let (RouteAttribute::MultiPath(_), Some(found)) = (&attribute, &found) {
                attribute.clone_from(found);
            }
        }
        Ok(route)
    }

    /// Adds a route. With `replace`, the new route replaces an existing route to the same destination.
    pub(crate) fn put_route(&self, route: RouteMessage, replace: bool) -> Result<(), Error> {
        let flags = if replace { NLM_F_CREATE | NLM_F_REPLACE } else { NLM_F_CREATE | NLM_F_EXCL };
        self.change(RouteNetlinkMessage::NewRoute(route), flags).doing("change a route")
    }

    /// Removes a route from the routing table.
    pub(crate) fn delete_route(&self, route: RouteMessage) -> Result<(), Error> {
        self.change(RouteNetlinkMessage::DelRoute(route), 0).doing("remove a route")
    }

    /// Returns the index and name of every network device.
    pub(crate) fn devices(&self) -> Result<Vec<(u32, String)>, Error> {
        let answers = self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()));
        let named = |answer| match answer {
            RouteNetlinkMessage::NewLink(link) => {
                let name = link.attributes.into_iter().find_map(|attribute| match attribute {
                    LinkAttribute::IfName(name) => Some(name),
                    _ => None,
                });
                Some((link.header.index, name?))
            }
            _ => None,
        };
        Ok(answers.doing("list the devices")?.into_iter().filter_map(named).collect())
    }

    /// Returns the device index and kind of every queueing discipline.
    pub(crate) fn qdiscs(&self) -> Result<Vec<(u32, String)>, Error> {
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let of_device = |answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(qdisc) => {
                let kind = qdisc.attributes.into_iter().find_map(|attribute| match attribute {
                    TcAttribute::Kind(kind) => Some(kind),
                    _ => None,
                });
                Some((u32::try_from(qdisc.header.index).ok()?, kind?))
            }
            _ => None,
        };
        let answers = self.dump(request).doing("list the queueing disciplines")?;
        Ok(answers.into_iter().filter_map(of_device).collect())
    }

    /// Returns the queueing discipline at the root of a device; `None` if the device has none.
    pub(crate) fn root_qdisc(&self, index: u32) -> Result<Option<RootQdisc>, Error> {
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let answers = self.dump(request).doing("list the queueing disciplines")?;
        let mut of_device = answers.into_iter().filter_map(|answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(qdisc)
                if qdisc.header.parent == TcHandle::ROOT
                    && u32::try_from(qdisc.header.index) == Ok(index) =>
            {
                Some(RootQdisc::new(qdisc.attributes))
            }
            _ => None,
        });
        Ok(of_device.next())
    }

    /// Returns the device index and the number of dropped packets of every queueing discipline at the root of
    /// a device. The counter of a root discipline includes the drops of its children.
    pub(crate) fn queue_drops(&self) -> Result<Vec<(u32, u32)>, Error> {
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let of_device = |answer| match answer {
            RouteNetlinkMessage::NewQueueDiscipline(qdisc) if qdisc.header.parent == TcHandle::ROOT => {
                let drops = qdisc.attributes.into_iter().find_map(|attribute| match attribute {
                    TcAttribute::Stats2(stats) => stats.into_iter().find_map(|stats| match stats {
                        TcStats2::Queue(queue) => Some(queue.drops),
                        _ => None,
                    }),
                    _ => None,
                });
                Some((u32::try_from(qdisc.header.index).ok()?, drops?))
            }
            _ => None,
        };
        let answers = self.dump(request).doing("list the queueing disciplines")?;
        Ok(answers.into_iter().filter_map(of_device).collect())
    }

    /// Requests all kernel objects of a type (`NLM_F_DUMP`).
    pub(crate) fn dump(&self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.send(message, NLM_F_REQUEST | NLM_F_DUMP)?;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let Answers { found, done } = messages(&bytes)?;
            answers.extend(found);
            if done {
                return Ok(answers);
            }
        }
    }

    /// Requests a change, and waits for the acknowledgement.
    pub(crate) fn change(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.ask(message, NLM_F_REQUEST | NLM_F_ACK | flags).map(drop)
    }

    /// Sends one netlink message and reads one reply: an acknowledgement (`None`), an error, or a
    /// message.
    fn ask(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Option<RouteNetlinkMessage>> {
        self.send(message, flags)?;
        let (answer, _) = self.socket.recv_from_full()?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer).map_err(io::Error::other)?;
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
            NetlinkPayload::Error(error) if error.code.is_some() => Err(refused(&error)),
            _ => Ok(None),
        }
    }

    fn send(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }
}

/// Messages of a reply to a dump request.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) found: Vec<RouteNetlinkMessage>,
    /// Whether the dump is complete.
    done: bool,
}

/// The error of an answer. Its number is negative on the wire; `ErrorMessage::to_io` overflows for the least `i32`.
fn refused(error: &ErrorMessage) -> io::Error {
    io::Error::from_raw_os_error(error.raw_code().wrapping_neg())
}

/// Splits a reply to a dump request into its messages.
pub(crate) fn messages(bytes: &[u8]) -> io::Result<Answers> {
    let mut answers = Answers::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
        // Each message is padded to a multiple of four bytes.
        let len = (answer.header.length as usize).next_multiple_of(4).max(4);
        rest = rest.get(len..).unwrap_or_default();
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => answers.found.push(message),
            NetlinkPayload::Error(error) if error.code.is_some() => return Err(refused(&error)),
            NetlinkPayload::Done(_) => {
                answers.done = true;
                return Ok(answers);
            }
            _ => {}
        }
    }
    Ok(answers)
}
