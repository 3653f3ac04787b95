//! Tests through the public interface: what theory says of simple paths, and that runs repeat.

mod determinism;
mod laws;
mod laws_changes;
mod laws_sharing;
mod recovery;
mod rig;
mod work;
mod workload;
