//! Tests through the public interface: scripts, wire formats, connections against each other and against rude peers.

mod conformance;
mod corpus;
mod driver;
mod headers;
mod hostile;
mod icmp;
mod model;
mod pair;
mod rfc9293;
mod scripts;
mod walls;
mod wire;
