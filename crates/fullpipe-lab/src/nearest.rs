//! Finds the known name that a misspelt name probably means.

/// Returns the name with the smallest edit distance from `typed`; returns `None` if this distance is too
/// large.
pub fn nearest_name<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Missing, additional and replaced letters count as errors, and so do swapped neighbours.
    let (errors, name) = names.map(|name| (strsim::osa_distance(typed, name), name)).min()?;
    // At most a third of the letters may be wrong, or one letter of a short name. At least one typed letter
    // must be right.
    (errors <= (name.len() / 3).max(1) && errors < typed.len()).then_some(name)
}
