//! Tests through the public interface.

mod elements;
mod path;
