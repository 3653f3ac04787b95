//! The extension module `fullpipe._fullpipe`, which the Python package `fullpipe` calls.
//!
//! ```text
//!   fullpipe (Python: arguments, dicts, exceptions) ─► fullpipe._fullpipe (Rust) ─► fullpipe, fullpipe-cli
//! ```
//!
//! The functions of this module take strings and return documents as JSON strings; the Python sources convert
//! them into values. Each operation that may take more than a few milliseconds runs on a separate thread,
//! without the GIL, while the calling thread handles signals ([`work`]).
#![deny(unsafe_code)]

mod arrow;
mod arrow_read;
mod charts;
mod command;
mod convert;
mod dataset;
mod diagnose;
mod errors;
mod run;
mod table;
mod work;

use pyo3::prelude::*;

#[pymodule]
mod _fullpipe {
    #[pymodule_export]
    use crate::charts::{Charts, experiment_charts};
    #[pymodule_export]
    use crate::command::{command, version};
    #[pymodule_export]
    use crate::convert::toml_of_json;
    #[pymodule_export]
    use crate::dataset::{Dataset, check_dataset};
    #[pymodule_export]
    use crate::diagnose::{Answer, diagnose, trace_csv, whatif};
    #[pymodule_export]
    use crate::run::simulate;
    #[pymodule_export]
    use crate::table::Table;
}
