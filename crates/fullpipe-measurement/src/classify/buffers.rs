//! Infers whether a buffer is autotuned, has reached its limit, or was set by an application.
//!
//! An autotuned buffer grows with the amount of data that it holds, up to a kernel setting, and never
//! shrinks. A buffer that was set with `SO_SNDBUF` or `SO_RCVBUF` keeps its size. A constant size fits both
//! cases.

use fullpipe_units::Bytes;

/// State of a socket buffer, inferred from its sizes over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferState {
    /// The buffer grew and may grow further.
    Growing,
    /// The buffer has reached the setting that limits autotuning.
    AtLimit,
    /// The size never changed although the kernel setting would allow growth: an application set it.
    Locked,
    /// The size was constant in the second half of the samples, and the kernel setting is unknown.
    Still,
}

impl BufferState {
    /// Infers the state from the buffer sizes in chronological order; `None` if there are no sizes. `limit`
    /// is the autotuning maximum, if known.
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

    /// Returns the evidence as a sentence, or the open question as an error. `who` names the buffer,
    /// `setting` names the kernel setting that limits autotuning, and `set` names the socket option that
    /// fixes the size.
    pub(super) fn words(self, who: &str, size: Bytes, setting: &str, set: &str) -> Result<String, String> {
        match self {
            Self::Growing => Ok(format!("the {who} is autotuned, and has grown to {size} so far")),
            Self::AtLimit => Ok(format!("the {who} of {size} is at its limit, {setting}")),
            Self::Locked => Ok(format!(
                "the {who} stays at {size}, below {setting}, because a program has set its size ({set}), \
                 which turns autotuning off"
            )),
            Self::Still => Err(format!(
                "whether a program set the {who} of {size} ({set}), or the buffer is at its limit, \
                 {setting}, because the settings of its host are not known"
            )),
        }
    }
}
