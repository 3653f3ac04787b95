//! Stub for builds without the feature `pcapng`: creating a capture returns an error.

use std::path::Path;

use fullpipe_lab::capture::{Capture, CapturedPacket};
use fullpipe_lab::experiment::Experiment;

use crate::Error;
use crate::run::Observer;

/// Capture file in a build without the feature `pcapng`: a type without values, because no capture can be
/// created.
pub(crate) enum PcapNg {}

impl PcapNg {
    pub(crate) fn begin(path: &Path) -> Result<Self, Error> {
        let message =
            format!("cannot write {}: fullpipe was built without the feature pcapng", path.display());
        Err(Error::new(message, "build it with --features pcapng"))
    }

    pub(crate) fn simulate(&mut self, _: &Experiment) {
        match *self {}
    }

    pub(crate) fn finish(self, _: &Experiment, _: &impl Observer) -> Result<(), Error> {
        match self {}
    }
}

impl Capture for PcapNg {
    fn packet(&mut self, _: &CapturedPacket<'_>) {
        match *self {}
    }
}
