//! Tells whether a buffer is autotuned, is at its limit, or was set.
//!
//! An autotuned buffer grows with the data that it has to hold and never shrinks, up to a kernel setting. A
//! buffer that was set with `SO_SNDBUF` or `SO_RCVBUF` keeps its size for life. A size that never changes may
//! be either.

use fullpipe_units::Bytes;

/// State of a buffer, inferred from its sizes over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferState {
    /// The buffer grew and may grow further.
    Growing,
    /// The buffer has reached the setting that limits autotuning.
    AtLimit,
    /// The size never changed although the setting would let it grow: a program set it.
    Locked,
    /// The size did not change in the later half of the time, and the setting is not known.
    Still,
}

impl BufferState {
    /// Returns the state from the sizes in order of time, or `None` without sizes. `limit` is the maximum of
    /// autotuning, if known.
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

    /// Returns a sentence as evidence, or as an error the question that stays open. `who` names the buffer,
    /// `setting` the limit of autotuning, and `set` the socket option that sets its size.
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
