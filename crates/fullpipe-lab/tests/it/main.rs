//! Tests of the lab through its public interface: throughput models of simple paths, and determinism.

mod counting;
mod determinism;
mod laws;
mod laws_changes;
mod laws_sharing;
mod null_races;
mod path_memory;
mod profiles;
mod recovery;
mod reference;
mod request;
mod rig;
mod stack_work;
mod work;
mod workload;
