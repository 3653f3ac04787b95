//! Integration tests of the public interface: scripts, wire formats, and connections between two endpoints or
//! with misbehaving peers.

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
