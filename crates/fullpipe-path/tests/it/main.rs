//! Integration tests of the public interface.

mod elements;
mod path;
