//! Whether a buffer grows by itself, is at its limit, or was set.
