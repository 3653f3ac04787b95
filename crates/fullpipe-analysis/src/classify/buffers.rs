//! Whether a buffer grows by itself, is at its limit, or was set.
//!
//! An autotuned buffer grows with what it has to hold and never shrinks, up to a kernel setting; one that was set
//! with `SO_SNDBUF` or `SO_RCVBUF` keeps its size for life. A size that never changes is either.

use fullpipe_units::Bytes;

/// What a buffer's sizes over time tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferState {
    /// It grew and may grow further.
    Growing,
    /// It is at the setting that limits autotuning.
    AtLimit,
    /// It never changed, and the setting would let it grow: it was set.
    Locked,
    /// It never changed, or no longer does, and the setting is not known.
    Still,
}

impl BufferState {
    /// Of the sizes in order of time; `limit` is what autotuning may grow to, if known.
    pub(super) fn of(sizes: impl Iterator<Item = Bytes> + Clone, limit: Option<Bytes>) -> Option<Self> {
        let (first, last) = (sizes.clone().next()?, sizes.clone().last()?);
        let count = sizes.clone().count();
        let still = sizes.skip(count / 2).all(|size| size == last);
        Some(match limit {
            Some(limit) if last >= limit => Self::AtLimit,
            Some(_) if first == last => Self::Locked,
            None if still => Self::Still,
            _ => Self::Growing,
        })
    }

    /// A sentence, or the question that is left. `who` is the buffer, `setting` what limits autotuning, `set`
    /// what a program sets it with.
    pub(super) fn words(self, who: &str, size: Bytes, setting: &str, set: &str) -> Result<String, String> {
        match self {
            Self::Growing => Ok(format!("the {who} grows by itself, to {size} so far")),
            Self::AtLimit => Ok(format!("the {who} of {size} is at its limit, {setting}")),
            Self::Locked => Ok(format!(
                "the {who} stays at {size}, below {setting}: a program set it ({set}), so it does not grow by itself"
            )),
            Self::Still => Err(format!(
                "whether the {who} of {size} was set by a program ({set}) or is at its limit, {setting}: the \
                 settings of its host are not known"
            )),
        }
    }
}
