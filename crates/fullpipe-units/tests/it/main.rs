//! Tests through the public interface.

mod units;
