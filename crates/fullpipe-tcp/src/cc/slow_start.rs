//! Slow start: growth, and when to leave it.
