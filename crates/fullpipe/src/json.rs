//! Values as JSON documents and lines, and the schemas of those that are ours.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
pub use serde::Serialize;
use serde_json::Value;

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

/// The JSON schema (draft 2020-12) of the documents that a `T` is written as.
///
/// # Errors
/// As [`document`].
pub fn schema<T: JsonSchema>() -> Result<String, Error> {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(RecursiveTransform(plain));
    document(&settings.into_generator().into_root_schema_for::<T>())
}

/// Leaves what readers of a schema want: descriptions without the links of rustdoc, on one line, and no defaults, which stand
/// for keys that only documents by older versions lack.
fn plain(schema: &mut Schema) {
    schema.remove("default");
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace("[`", "`").replace("`]", "`").replace('\n', " ");
    }
}

fn cannot(error: serde_json::Error) -> Error {
    Error::new(format!("cannot write JSON: {error}"), "")
}
