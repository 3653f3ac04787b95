//! The tables `[profile.NAME]` of an experiment file, or of a file that contains only profiles.

use std::collections::BTreeMap;

use toml::{Spanned, Table};

use super::ExperimentError;
use super::error::Source;
use crate::profile::{Profile, ProfileName, Profiles};

/// A file that contains only profiles.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfilesFile {
    #[serde(default)]
    profile: BTreeMap<String, Spanned<Table>>,
}

/// Parses a file that contains only tables `[profile.NAME]`.
///
/// # Errors
/// If a profile is invalid, or if there is none, returns an error with a one-line message and a hint.
pub fn read_profiles(text: &str) -> Result<Profiles, ExperimentError> {
    let source = Source(text);
    let file: ProfilesFile = toml::from_str(text).map_err(|error| source.explain(&error))?;
    if file.profile.is_empty() {
        return Err(ExperimentError::new("the file has no profile", "add a table [profile.web]"));
    }
    resolved(&file.profile, &source)
}

/// Reads the profiles of a file.
pub(super) fn resolved(
    tables: &BTreeMap<String, Spanned<Table>>,
    source: &Source<'_>,
) -> Result<Profiles, ExperimentError> {
    let positioned = |(name, table): (&String, &Spanned<Table>)| {
        read(name, table.get_ref()).map_err(|error| source.at(table.span().start, error))
    };
    tables.iter().map(positioned).collect()
}

fn read(name: &str, table: &Table) -> Result<(ProfileName, Profile), ExperimentError> {
    let name: ProfileName = name.parse()?;
    Ok((name, Profile::read(name, table)?))
}

/// Returns the error for a name that no profile has.
pub fn missing_profile(name: ProfileName) -> ExperimentError {
    ExperimentError::new(
        format!("there is no profile '{name}'"),
        format!("add a table [profile.{name}] to the experiment, or to the file of --profiles"),
    )
}
