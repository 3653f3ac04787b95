//! The name that was probably meant by a misspelt one.

/// Returns the name that is fewest typing errors away from `typed`; returns `None` if too many letters
/// differ.
pub fn nearest_name<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Letters that are missing, added, replaced, or swapped with their neighbour.
    let (errors, name) = names.map(|name| (strsim::osa_distance(typed, name), name)).min()?;
    // A third of the letters may be wrong, but at least one letter of a short word must be right.
    (errors <= (name.len() / 3).max(1) && errors < typed.len()).then_some(name)
}
