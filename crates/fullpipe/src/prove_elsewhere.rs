//! Stub for systems other than Linux: a guest in virtual time requires Linux.

use fullpipe_analysis::ladder::Rung;
use fullpipe_tcp::buffers::KernelVersion;

use crate::Error;
use crate::run::{Observer, UmlOptions};

/// Never exists.
#[derive(Clone, Debug)]
pub enum Prover {}

impl Prover {
    /// Fails.
    ///
    /// # Errors
    /// Returns an error on every system other than Linux.
    pub fn find(_: &UmlOptions) -> Result<Self, Error> {
        Err(Error::new("--prove requires Linux on x86_64", "remove --prove"))
    }

    /// Never called.
    pub fn version(&self) -> Option<KernelVersion> {
        match *self {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn prove(&self, _: &mut [Rung], _: &impl Observer) -> Result<(), Error> {
        match *self {}
    }
}
