//! Field values as numbers with units, for tables with typed columns.

use fullpipe_units::{Bytes, Duration, Probability, Rate};

use crate::columns::{Cell, Kind};

/// A field's value as a number, in the base unit of the field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// Unit as written at the end of a column name: `bps`, `ms`, `percent`, `bytes`, `fixed_bytes`, `bdp`, or
    /// empty.
    pub unit: &'static str,
    value: NumberValue,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum NumberValue {
    U64(u64),
    F64(f64),
    Bool(bool),
}

/// Units at the end of column names, each with the equivalent unit in an experiment file.
pub(super) const UNITS: [(&str, &str); 7] = [
    ("fixed_bytes", "B"),
    ("bytes", "B"),
    ("bps", "bit"),
    ("percent", "%"),
    ("bdp", "bdp"),
    ("ms", "ms"),
    ("s", "s"),
];

impl Number {
    pub(super) const fn rate(rate: Rate) -> Self {
        Self { unit: "bps", value: NumberValue::U64(rate.as_bps()) }
    }

    pub(super) fn time(time: Duration) -> Self {
        Self { unit: "ms", value: NumberValue::F64(time.as_millis_f64()) }
    }

    pub(super) const fn bytes(unit: &'static str, bytes: Bytes) -> Self {
        Self { unit, value: NumberValue::U64(bytes.get()) }
    }

    /// Creates a multiple of the BDP from millionths.
    pub(super) fn bdp(millionths: u64) -> Self {
        Self { unit: "bdp", value: NumberValue::F64(millionths as f64 / 1e6) }
    }

    /// Creates a number in percent, rounded to ten decimals. A probability is stored as a rounded threshold;
    /// with this rounding, 0.1 % becomes exactly the number 0.1.
    pub(super) fn probability(probability: Probability) -> Self {
        let percent = (probability.as_f64() * 1e12).round() / 1e10;
        Self { unit: "percent", value: NumberValue::F64(percent) }
    }

    pub(super) const fn count(count: u64) -> Self {
        Self { unit: "", value: NumberValue::U64(count) }
    }

    pub(super) const fn plain(number: f64) -> Self {
        Self { unit: "", value: NumberValue::F64(number) }
    }

    pub(super) const fn flag(flag: bool) -> Self {
        Self { unit: "", value: NumberValue::Bool(flag) }
    }

    /// Returns the type of the number.
    pub const fn kind(self) -> Kind {
        match self.value {
            NumberValue::U64(_) => Kind::U64,
            NumberValue::F64(_) => Kind::F64,
            NumberValue::Bool(_) => Kind::Bool,
        }
    }

    /// Returns the number as the value of a column.
    pub const fn cell(self) -> Cell {
        match self.value {
            NumberValue::U64(number) => Cell::U64(number),
            NumberValue::F64(number) => Cell::F64(number),
            NumberValue::Bool(flag) => Cell::Bool(flag),
        }
    }
}
