//! Integration tests of the public interface: scripts, wire formats, pairs of endpoints, and misbehaving
//! peers.

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
mod settings;
mod walls;
mod wire;
