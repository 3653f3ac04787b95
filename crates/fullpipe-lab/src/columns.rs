//! Tables of columns: one definition, from which the writer, the reader and the reference page of a table are
//! derived.
//!
//! ```text
//!   source value ──columns!──► record ──cells──► a row of any format
//!                     └──────► [Column] ──► header, schema, required columns, page in docs/reference
//! ```
//!
//! Values are in base units, and the name of a column ends in its unit. The tables are
//! [`trace::COLUMNS`](crate::trace::COLUMNS) and [`results::RUN_COLUMNS`](crate::results::RUN_COLUMNS).

use std::borrow::Cow;

/// String value of a column, which a writer can borrow without an allocation.
pub type Text = Cow<'static, str>;

/// Description of one column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name of the column.
    pub name: &'static str,
    /// Unit of the column's values; empty for plain numbers, words and flags.
    pub unit: &'static str,
    /// Type of the column's values.
    pub kind: Kind,
    /// Whether cells of the column may be empty. When a table is read, an optional column may be missing, but
    /// any other column is required.
    pub optional: bool,
    /// Meaning of the column's values, in one sentence.
    pub meaning: &'static str,
    /// Source of the column's values, such as `the sending socket`.
    pub source: &'static str,
}

/// Data type of the values in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Unsigned integer of 32 bits.
    U32,
    /// Unsigned integer of 64 bits.
    U64,
    /// Floating-point number of 64 bits.
    F64,
    /// Boolean value, written as `true` or `false`.
    Bool,
    /// String, usually one word.
    Text,
}

impl Kind {
    /// Returns the name of the type, as in reference pages: `u32`, `u64`, `f64`, `bool` or `text`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F64 => "f64",
            Self::Bool => "bool",
            Self::Text => "text",
        }
    }
}

/// Value of one column in one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// No value, in a column that is optional.
    Null,
    /// Value of a column of [`Kind::U32`].
    U32(u32),
    /// Value of a column of [`Kind::U64`].
    U64(u64),
    /// Value of a column of [`Kind::F64`].
    F64(f64),
    /// Value of a column of [`Kind::Bool`].
    Bool(bool),
    /// Value of a column of [`Kind::Text`].
    Text(Text),
}

/// Maps a Rust type to the type of a column.
pub(crate) trait ColumnType: Sized {
    const KIND: Kind;
    const OPTIONAL: bool = false;

    /// Returns the value as a cell.
    fn cell(self) -> Cell;
}

impl ColumnType for u32 {
    const KIND: Kind = Kind::U32;

    fn cell(self) -> Cell {
        Cell::U32(self)
    }
}

impl ColumnType for u64 {
    const KIND: Kind = Kind::U64;

    fn cell(self) -> Cell {
        Cell::U64(self)
    }
}

impl ColumnType for f64 {
    const KIND: Kind = Kind::F64;

    fn cell(self) -> Cell {
        Cell::F64(self)
    }
}

impl ColumnType for bool {
    const KIND: Kind = Kind::Bool;

    fn cell(self) -> Cell {
        Cell::Bool(self)
    }
}

impl ColumnType for Text {
    const KIND: Kind = Kind::Text;

    fn cell(self) -> Cell {
        Cell::Text(self)
    }
}

impl<T: ColumnType> ColumnType for Option<T> {
    const KIND: Kind = T::KIND;
    const OPTIONAL: bool = true;

    fn cell(self) -> Cell {
        self.map_or(Cell::Null, T::cell)
    }
}

/// Generates the record of a table, its list of columns, the conversion from a source value, and the bounds
/// check.
///
/// Each column is declared by a doc comment with its meaning, followed by `name: type, unit [<= bound],
/// value;`. The value expression uses the parts of the source value that the pattern binds. Columns are
/// grouped by source.
macro_rules! columns {
    (
        $(#[$record_doc:meta])* $record:ident,
        $(#[$list_doc:meta])* $list:ident,
        $row:pat => $row_type:ty;
        $( $source:literal {
            $( #[doc = $meaning:literal] $name:ident: $type:ty, $unit:literal $(<= $most:ident)?, $value:expr; )*
        } )*
    ) => {
        $(#[$record_doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $record { $($(
            #[doc = $meaning]
            pub $name: $type,
        )*)* }

        $(#[$list_doc])*
        pub const $list: &[$crate::columns::Column] = &[ $($(
            $crate::columns::Column {
                name: stringify!($name),
                unit: $unit,
                kind: <$type as $crate::columns::ColumnType>::KIND,
                optional: <$type as $crate::columns::ColumnType>::OPTIONAL,
                meaning: $meaning.trim_ascii(),
                source: $source,
            },
        )*)* ];

        impl From<&$row_type> for $record {
            fn from(row: &$row_type) -> Self {
                let $row = row;
                Self { $($( $name: $value, )*)* }
            }
        }

        impl $record {
            /// Returns the values of the row, in the order of the columns.
            pub fn cells(self) -> impl Iterator<Item = $crate::columns::Cell> {
                [$($( $crate::columns::ColumnType::cell(self.$name), )*)*].into_iter()
            }

            /// Returns the first column whose value exceeds its bound, together with that value.
            #[allow(dead_code, reason = "a table that is only written has no bounds")]
            pub(crate) fn out_of_bounds(&self) -> Option<(&'static str, u64)> {
                $($($(
                    if let Some(value) = Option::<u64>::from(self.$name).filter(|value| *value > $most) {
                        return Some((stringify!($name), value));
                    }
                )?)*)*
                None
            }
        }
    };
}

pub(crate) use columns;

#[cfg(test)]
pub(crate) mod tests {
    use std::fmt::Write;
    use std::fs;
    use std::path::Path;

    use snapbox::assert::DEFAULT_ACTION_ENV;
    use snapbox::data::DataFormat;
    use snapbox::{Assert, Data};

    use super::*;

    const BEGIN: &str = "<!-- begin of the columns -->\n";
    const END: &str = "<!-- end of the columns -->\n";

    /// Compares the tables of a page in `docs/reference` with `columns`.
    pub(crate) fn page_has(page: &str, columns: &[Column]) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(page);
        let text = fs::read_to_string(&path).expect("a page");
        let (before, rest) = text.split_once(BEGIN).expect("where the columns begin");
        let (_, after) = rest.split_once(END).expect("where they end");
        let current = format!("{before}{BEGIN}{}{END}{after}", table(columns));
        let expected = Data::read_from(&path, Some(DataFormat::Text)).raw();
        Assert::new().action_env(DEFAULT_ACTION_ENV).eq(current, expected);
    }

    /// Returns the tables of `columns` for a reference page, one table per source.
    fn table(columns: &[Column]) -> String {
        let mut table = String::new();
        for (number, column) in columns.iter().enumerate() {
            let Column { name, unit, kind, optional, meaning, source } = column;
            if number == 0 || columns[number - 1].source != *source {
                let _ = write!(
                    table,
                    "\n### From {source}\n\n| column | unit | type | meaning |\n|---|---|---|---|\n"
                );
            }
            let unit = if unit.is_empty() { "-" } else { unit };
            let (kind, optional) = (kind.name(), if *optional { ", optional" } else { "" });
            let meaning = meaning.trim_end_matches('.');
            let _ = writeln!(table, "| `{name}` | {unit} | {kind}{optional} | {meaning} |");
        }
        table + "\n"
    }

    /// Checks that the name of each column ends in the unit of its values, so that the table can be read without
    /// documentation. The names of counts contain no unit.
    pub(crate) fn names_end_in_their_unit(columns: &[Column]) {
        for Column { name, unit, .. } in columns {
            let end = match *unit {
                "bytes" => "_bytes",
                "s" => "_s",
                "ms" => "_ms",
                "bit/s" => "_bps",
                "%" => "_percent",
                "" | "packets" | "segments" => continue,
                other => panic!("{name} is in {other}"),
            };
            assert!(name.ends_with(end), "{name} is in {unit}");
        }
    }
}
