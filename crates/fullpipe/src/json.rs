//! Values as JSON documents and lines.

pub use serde::Serialize;

use crate::Error;

/// `value` as a document that ends with a newline.
///
/// # Errors
/// The value cannot be written as JSON.
pub fn document(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(cannot)
}

/// `value` on one line, with the newline that ends it.
///
/// # Errors
/// As [`document`].
pub fn line(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map(|text| text + "\n").map_err(cannot)
}

fn cannot(error: serde_json::Error) -> Error {
    Error::new(format!("cannot write JSON: {error}"), "")
}
