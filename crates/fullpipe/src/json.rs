//! Serialises values as JSON documents and as JSON lines, and generates the JSON schemas of fullpipe's
//! documents.

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
pub use serde::Serialize;
use serde_json::Value;

use crate::Error;

/// Serialises `value` as a JSON document that ends with a newline.
///
/// # Errors
/// Returns an error if the value cannot be represented in JSON.
pub fn document(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(cannot)
}

/// Serialises `value` as one line of JSON, including the final newline.
///
/// # Errors
/// Returns the same error as [`document`].
pub fn line(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map(|text| text + "\n").map_err(cannot)
}

/// Generates the JSON schema (draft 2020-12) for documents of the type `T`.
///
/// # Errors
/// Returns the same error as [`document`].
pub fn schema<T: JsonSchema>() -> Result<String, Error> {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(RecursiveTransform(plain));
    document(&settings.into_generator().into_root_schema_for::<T>())
}

/// Simplifies a JSON schema for readers. Descriptions are put on one line without rustdoc links. Defaults are
/// removed, because they concern only keys that documents of older versions lack.
fn plain(schema: &mut Schema) {
    schema.remove("default");
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace("[`", "`").replace("`]", "`").replace('\n', " ");
    }
}

fn cannot(error: serde_json::Error) -> Error {
    Error::new(format!("cannot write JSON: {error}"), "")
}
