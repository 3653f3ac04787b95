//! Findings.
use super::spans::Verdict;
use super::window::Flow;
use crate::explain::Finding;
pub(super) fn findings(_: &Flow<'_>, _: &[Verdict]) -> Vec<Finding> { Vec::new() }
pub(super) fn notes(_: &Flow<'_>) -> Vec<String> { Vec::new() }
