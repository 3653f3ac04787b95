//! Stub for systems other than Linux: a guest in virtual time requires Linux.

use fullpipe_analysis::ladder::Rung;
use fullpipe_tcp::buffers::KernelVersion;

use crate::Error;
use crate::run::{Observer, UmlOptions};

/// A type without values, because a guest requires Linux.
#[derive(Clone, Debug)]
pub enum Prover {}

impl Prover {
    /// Returns an error, because a guest requires Linux.
    ///
    /// # Errors
    /// Returns an error on every system other than Linux.
    pub fn find(_: &UmlOptions) -> Result<Self, Error> {
        Err(Error::new("--prove requires Linux on x86_64", "remove --prove"))
    }

    /// This method cannot be called, because the type has no values.
    pub fn version(&self) -> Option<KernelVersion> {
        match *self {}
    }

    /// This method cannot be called, because the type has no values.
    ///
    /// # Errors
    /// No error can occur.
    pub fn prove(&self, _: &mut [Rung], _: &impl Observer) -> Result<(), Error> {
        match *self {}
    }
}
