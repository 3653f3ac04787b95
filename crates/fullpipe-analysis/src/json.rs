//! What the JSON documents of this crate share: the schema that one writes and another reads, and rates as
//! numbers in bits per second.

use fullpipe_units::Rate;
use serde::{Serialize, Serializer};

/// Schema of a diagnosis; keys are added under the same number, never changed or removed.
pub(crate) const DIAGNOSIS: &str = "fullpipe.diagnose/1";

pub(crate) fn bps<S: Serializer>(rate: &Rate, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(rate.as_bps())
}

pub(crate) fn optional_bps<S: Serializer>(rate: &Option<Rate>, serializer: S) -> Result<S::Ok, S::Error> {
    rate.map(Rate::as_bps).serialize(serializer)
}
