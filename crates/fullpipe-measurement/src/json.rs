//! JSON form of quantities: a number with its unit at the end of the key.
//!
//! ```text
//!   #[serde(rename = "mean_bps", with = "Bps")]
//!   mean: Rate
//! ```
//!
//! Each type here defines how a field is written, read and described in the schema.

use std::sync::Arc;

use fullpipe_units::{Bytes, Duration, Instant, Rate};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident: $of:ty = $number:ty, $number_of:expr, $of_number:expr;)+) => {$(
        $(#[$doc])*
        pub struct $name;

        impl $name {
            /// Serialises the quantity as a number.
            ///
            /// # Errors
            /// Returns the error of the serialiser.
            pub fn serialize<S: Serializer>(value: &$of, serializer: S) -> Result<S::Ok, S::Error> {
                $number_of(*value).serialize(serializer)
            }

            /// Reads the quantity from a number.
            ///
            /// # Errors
            /// Returns an error if the value is not a number in the type's range.
            pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<$of, D::Error> {
                <$number>::deserialize(deserializer).map($of_number)
            }
        }

        as_in_documents!($name, $number);
    )+};
}

/// Gives fields that `$name` serialises the JSON schema of `$number`.
macro_rules! as_in_documents {
    ($name:ident, $number:ty) => {
        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                <$number>::schema_name()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                <$number>::json_schema(generator)
            }
        }
    };
}

quantities! {
    /// A rate in bits per second.
    Bps: Rate = u64, Rate::as_bps, Rate::from_bps;
    /// A rate in bits per second, or null.
    OptionalBps: Option<Rate> = Option<u64>,
        |rate: Option<Rate>| rate.map(Rate::as_bps), |bps: Option<u64>| bps.map(Rate::from_bps);
    /// An amount in bytes.
    ByteCount: Bytes = u64, Bytes::get, Bytes::new;
    /// An amount in bytes, or null.
    OptionalByteCount: Option<Bytes> = Option<u64>,
        |bytes: Option<Bytes>| bytes.map(Bytes::get), |count: Option<u64>| count.map(Bytes::new);
    /// A time in milliseconds.
    Millis: Duration = f64, Duration::as_millis_f64, from_millis;
    /// A time in milliseconds, or null.
    OptionalMillis: Option<Duration> = Option<f64>,
        |time: Option<Duration>| time.map(Duration::as_millis_f64), |ms: Option<f64>| ms.map(from_millis);
    /// A time in seconds.
    Seconds: Duration = f64, Duration::as_secs_f64, Duration::from_secs_f64;
    /// A time in seconds, or null.
    OptionalSeconds: Option<Duration> = Option<f64>,
        |time: Option<Duration>| time.map(Duration::as_secs_f64),
        |s: Option<f64>| s.map(Duration::from_secs_f64);
    /// A point in time in seconds since the first sample.
    At: Instant = f64, Instant::as_secs_f64, |s: f64| Instant::ZERO + Duration::from_secs_f64(s);
}

fn from_millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}

/// Text that many documents share in memory.
pub struct SharedText;

impl SharedText {
    /// Serialises the text as a string.
    ///
    /// # Errors
    /// Returns the error of the serialiser.
    pub fn serialize<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    /// Reads the text from a string.
    ///
    /// # Errors
    /// Returns an error if the value is not a string.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(deserializer).map(Arc::from)
    }
}

as_in_documents!(SharedText, String);
