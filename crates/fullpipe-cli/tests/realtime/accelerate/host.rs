//! A host whose server listens on its public address and on a loopback address, and a client of it.

use std::net::{SocketAddr, TcpStream};

use super::peers::{self, Server};
use super::scene::{Scene, Service, can_run};

/// Port of the public address.
pub(super) const PORT: u16 = 9_000;
/// Loopback address of the server.
pub(super) const UPSTREAM: &str = "127.0.0.1:9001";

/// A host with a server, and a client.
pub(super) struct Host {
    pub(super) scene: Scene,
    /// Public address of the server.
    pub(super) listen: SocketAddr,
    /// Server at the loopback address, to which the service connects.
    pub(super) server: Server,
    /// Server at the public address, to which the kernel connects clients.
    pub(super) fallback: Server,
}

impl Host {
    /// Returns a host with IPv4 or IPv6 addresses; `None` if this process cannot run the service, so that the test is
    /// skipped.
    pub(super) fn new(name: &str, v6: bool) -> Option<Self> {
        can_run().then(|| Self::of(Scene::new(name, v6)))
    }

    /// Starts the servers of a scene.
    pub(super) fn of(scene: Scene) -> Self {
        let listen = SocketAddr::new(scene.address(), PORT);
        let fallback = Server::new(&scene.server, &listen.to_string());
        let server = Server::new(&scene.server, UPSTREAM);
        Self { scene, listen, server, fallback }
    }

    pub(super) fn accelerate(&self) -> Service {
        self.scene.accelerate(PORT, UPSTREAM, "hidden")
    }

    /// Starts the service with additional settings: `top` above the section `[[listen]]`, and `section` in
    /// it.
    pub(super) fn accelerate_with(&self, top: &str, section: &str) -> Service {
        let section = format!("client_address = \"hidden\"\n{section}");
        self.scene.accelerate_with(top, PORT, UPSTREAM, &section)
    }

    /// Returns whether the service handles a new connection. The connection must succeed with its first SYN.
    pub(super) fn is_ours(&self) -> bool {
        match peers::way(&self.scene.client, self.listen) {
            seen if seen == self.scene.client_address().to_string() => false,
            seen if seen.starts_with("127.") => true,
            seen => panic!("{seen}"),
        }
    }

    pub(super) fn echo(&self) -> TcpStream {
        peers::echo(&self.scene.client, self.listen)
    }
}
