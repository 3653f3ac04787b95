//! The route from a host with known settings to its peer.

use fullpipe_lab::host::Route;

use super::{Host, HostCase};

impl HostCase<'_> {
    /// Returns the route to the peer, if this host is the sender.
    pub(crate) fn route(&self) -> Option<&Route> {
        self.local.facts.route.as_ref().filter(|_| self.here(Host::Sender))
    }

    /// Returns the commands that set these metrics of the route to the peer, with their undo.
    pub(crate) fn route_commands(&self, congctl: Option<&str>, initcwnd: Option<u32>) -> (String, String) {
        let Some(route) = self.route() else { return Default::default() };
        let Route { destination, way, hops, present, exact, .. } = route;
        let mut run = format!("ip route replace {destination} {way}");
        let mut undo = format!("ip route del {destination} {way}");
        if let Some(name) = congctl {
            run += &format!(" congctl {name}");
        }
        if let Some(segments) = initcwnd {
            run += &format!(" initcwnd {segments}");
        }
        for command in [&mut run, &mut undo].into_iter().filter(|_| !hops.is_empty()) {
            command.push(' ');
            command.push_str(hops);
        }
        if *exact {
            undo = format!("ip route replace {present}");
        }
        (run, undo)
    }
}
