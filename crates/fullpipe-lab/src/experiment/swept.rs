//! Fields that may be one value, a list or a range, and the selection of one experiment point from their
//! combinations.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::ExperimentError;
use super::number::Number;
use super::value::Value;

/// Separator between error message and hint in the single string that a `serde` error carries.
pub(super) const HINT: &str = "\nhint: ";

/// Converts `problem` into a deserializer error; the deserializer adds the position in the file.
pub(super) fn refuse<E: de::Error>(problem: &ExperimentError) -> E {
    E::custom(format!("{}{HINT}{}", problem.message, problem.hint))
}

/// All values of one swept field, both as written and as parsed.
#[derive(Clone, Debug)]
pub(super) struct Sweep<T> {
    values: Vec<(String, T)>,
    /// Whether the value differs between points. The labels of the points contain such values.
    varied: bool,
}

impl<T> Sweep<T> {
    /// Returns all values of the field, in the order of the file.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter().map(|(_, value)| value)
    }
}

impl<T: Clone> Sweep<T> {
    /// Returns the same values, flagged as set by a `[[point]]`.
    pub(super) fn varied(&self) -> Self {
        Self { values: self.values.clone(), varied: true }
    }
}

/// Picks one value of each field. Counting through all positions yields every combination of values.
///
/// The fields are picked in a fixed order; the last field varies fastest. A row of a table of points replaces
/// the values of the fields that the table has.
#[derive(Debug)]
pub(super) struct Picker<'r> {
    /// When counting: the number of combinations so far. When picking: the number of combinations of the
    /// fields that have not been picked yet.
    stride: u64,
    /// When picking: the index of the wanted combination among the remaining combinations. `None` when
    /// counting.
    position: Option<u64>,
    /// Row of a table of points, as names of fields and values.
    row: Row<'r>,
    /// Error for the first value of the row that its field does not accept.
    pub(super) refused: Option<ExperimentError>,
    /// Values picked so far, in the order of picking.
    pub(super) chosen: Vec<Choice>,
}

/// Value picked for one field at one experiment point.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) key: String,
    pub(super) text: String,
    pub(super) number: Option<Number>,
    pub(super) swept: bool,
    pub(super) varied: bool,
}

/// Row of a table of points: the names of the fields, and their values as strings.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Row<'r> {
    pub(super) names: &'r [String],
    pub(super) values: &'r [String],
}

impl<'r> Row<'r> {
    fn value(self, key: &str) -> Option<&'r str> {
        let at = self.names.iter().position(|name| name == key)?;
        self.values.get(at).map(String::as_str)
    }
}

impl<'r> Picker<'r> {
    /// Creates a picker that picks the first value of each field and counts the combinations.
    pub(super) fn counting(row: Row<'r>) -> Self {
        Self { stride: 1, position: None, row, refused: None, chosen: Vec::new() }
    }

    /// Creates a picker for combination `position` of `count`.
    pub(super) fn at(position: u64, count: u64, row: Row<'r>) -> Self {
        Self { stride: count, position: Some(position), row, refused: None, chosen: Vec::new() }
    }

    /// Returns the number of combinations counted so far.
    pub(super) fn count(&self) -> u64 {
        self.stride
    }

    /// Returns the value of `field` at this point; returns `None` if neither the row nor the file sets the
    /// field.
    pub(super) fn pick<T: Value>(&mut self, key: &str, field: Option<&Sweep<T>>) -> Option<T> {
        if let Some(text) = self.row.value(key) {
            match T::read(text) {
                Ok(value) => {
                    let (text, number) = (text.split_whitespace().collect(), value.number());
                    let choice = Choice { key: key.into(), text, number, swept: true, varied: true };
                    self.chosen.push(choice);
                    return Some(value);
                }
                Err(error) => {
                    let message = format!("column '{key}': {}", error.message);
                    self.refused.get_or_insert(ExperimentError { message, ..error });
                }
            }
        }
        let field = field?;
        let len = field.values.len() as u64;
        let digit = match &mut self.position {
            None => {
                self.stride = self.stride.saturating_mul(len);
                0
            }
            Some(position) => {
                self.stride /= len;
                let digit = *position / self.stride;
                *position %= self.stride;
                digit
            }
        };
        let (text, value) = &field.values[digit as usize];
        let text = text.split_whitespace().collect();
        let (number, varied) = (value.number(), field.varied);
        self.chosen.push(Choice { key: key.into(), text, number, swept: len > 1, varied });
        Some(value.clone())
    }
}

/// A scalar value of any TOML type, kept as written.
#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub(super) text: String,
    is_text: bool,
}

impl Scalar {
    fn text(text: String) -> Self {
        Self { text, is_text: true }
    }

    fn read<T: Value>(self) -> Result<(String, T), ExperimentError> {
        if T::TEXT_ONLY && !self.is_text {
            let message = format!("'{}' is a number, but text is expected", self.text);
            return Err(ExperimentError::new(message, T::EXAMPLE));
        }
        let value = T::read(&self.text)?;
        Ok((self.text, value))
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WrittenVisitor;
        impl<'de> Visitor<'de> for WrittenVisitor {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or a number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar { text: text.trim().into(), is_text: true })
            }
            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar { text: value.to_string(), is_text: false })
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar { text: value.to_string(), is_text: false })
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar { text: value.to_string(), is_text: false })
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
                match map.next_entry::<String, Self::Value>()? {
                    Some((key, written)) if key == "fixed" && written.is_text => {
                        Ok(Scalar { text: format!("fixed:{}", written.text), is_text: true })
                    }
                    _ => Err(de::Error::invalid_type(de::Unexpected::Map, &self)),
                }
            }
        }
        deserializer.deserialize_any(WrittenVisitor)
    }
}

/// Value of a field as written in the experiment file, independent of the Rust type of the field.
///
/// A separate visitor for each of two dozen types would take half of the crate's compile time.
enum FieldValue {
    One(Scalar),
    List(Vec<Self>),
    Table(BTreeMap<String, Scalar>),
}

/// Deserializes the value of a field and validates each scalar immediately, so that an error carries its
/// position in the file.
#[derive(Clone, Copy)]
struct ValueReader(fn(&Scalar) -> Result<(), ExperimentError>);

impl ValueReader {
    fn one<E: de::Error>(self, written: Scalar) -> Result<FieldValue, E> {
        (self.0)(&written).map_err(|problem| refuse(&problem))?;
        Ok(FieldValue::One(written))
    }
}

impl<'de> DeserializeSeed<'de> for ValueReader {
    type Value = FieldValue;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FieldValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueReader {
    type Value = FieldValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list of values or a range")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<FieldValue, E> {
        self.one(Scalar::text(text.trim().into()))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<FieldValue, E> {
        self.one(Scalar { text: value.to_string(), is_text: false })
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<FieldValue, E> {
        self.one(Scalar { text: value.to_string(), is_text: false })
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<FieldValue, E> {
        self.one(Scalar { text: value.to_string(), is_text: false })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<FieldValue, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element_seed(self)? {
            elements.push(element);
        }
        Ok(FieldValue::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldValue, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some((key, written)) = map.next_entry::<String, Scalar>()? {
            entries.insert(key, written);
        }
        Ok(FieldValue::Table(entries))
    }
}

/// One scalar value or one range, as an element of a swept field.
enum Piece {
    One(Scalar),
    Range { from: Scalar, to: Scalar, steps: String },
}

/// Notations that the type of a field allows, copied from the constants of [`Value`].
struct Form {
    example: &'static str,
    fixed: bool,
    table: Option<[&'static str; 2]>,
    keys: &'static [&'static str],
}

impl Form {
    const fn of<T: Value>() -> Self {
        Self { example: T::EXAMPLE, fixed: T::FIXED, table: T::TABLE, keys: T::KEYS }
    }

    fn pieces(&self, said: FieldValue) -> Result<Vec<Piece>, ExperimentError> {
        let elements = match said {
            FieldValue::List(elements) if elements.is_empty() => {
                return Err(ExperimentError::new("an empty list defines no point", self.example));
            }
            FieldValue::List(elements) => elements,
            other => vec![other],
        };
        let piece = |element| match element {
            FieldValue::One(written) => Ok(Piece::One(written)),
            FieldValue::Table(entries) => self.of_table(entries),
            FieldValue::List(_) => Err(ExperimentError::new("lists cannot be nested", self.example)),
        };
        elements.into_iter().map(piece).collect()
    }

    fn of_table(&self, mut entries: BTreeMap<String, Scalar>) -> Result<Piece, ExperimentError> {
        if self.fixed
            && entries.len() == 1
            && let Some(size) = entries.remove("fixed")
        {
            return Ok(Piece::One(Scalar { text: format!("fixed:{}", size.text), ..size }));
        }
        let ranged = entries.keys().any(|key| ["from", "steps", "to"].contains(&key.as_str()));
        if !self.keys.is_empty() && !ranged {
            let fields =
                self.keys.iter().filter_map(|key| entries.remove(*key).map(|w| format!("{key}={}", w.text)));
            let text = fields.collect::<Vec<_>>().join(",");
            if let Some(key) = entries.keys().next() {
                let hint = format!("allowed here: {}", self.keys.join(", "));
                return Err(ExperimentError::new(format!("unknown key '{key}'"), hint));
            }
            return Ok(Piece::One(Scalar::text(text)));
        }
        let keys: Vec<_> = entries.keys().map(String::as_str).collect();
        if let Some(others) = self.table
            && let Some(other) = others.into_iter().find(|other| keys.len() == 2 && keys.contains(other))
            && let Some(rate) = entries.get("rate")
        {
            let words = entries.get(other).map_or("", |written| &written.text);
            return Ok(Piece::One(Scalar::text(format!("{}:{other}={words}", rate.text))));
        }
        if let (3, Some(from), Some(to), Some(steps)) =
            (entries.len(), entries.remove("from"), entries.remove("to"), entries.remove("steps"))
        {
            return Ok(Piece::Range { from, to, steps: steps.text });
        }
        let range = "a range is { from = …, to = …, steps = … }";
        let other = self.fixed || self.table.is_some();
        let hint = if other { format!("{range}; {}", self.example) } else { range.into() };
        Err(ExperimentError::new("this table is not a range", hint))
    }
}

impl<T: Value> Sweep<T> {
    fn of(said: FieldValue) -> Result<Self, ExperimentError> {
        let mut values = Vec::new();
        for piece in Form::of::<T>().pieces(said)? {
            match piece {
                Piece::One(written) => values.push(written.read()?),
                Piece::Range { from, to, steps } => values.extend(range(from.read()?, to.read()?, &steps)?),
            }
        }
        Ok(Self { varied: values.len() > 1, values })
    }
}

impl<'de, T: Value> Deserialize<'de> for Sweep<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let said = ValueReader(|written| written.clone().read::<T>().map(drop)).deserialize(deserializer)?;
        Self::of(said).map_err(|problem| refuse(&problem))
    }
}

/// Returns `steps` equally spaced values from `from` to `to`, including both ends.
fn range<T: Value>(
    from: (String, T),
    to: (String, T),
    steps: &str,
) -> Result<Vec<(String, T)>, ExperimentError> {
    let count: u64 = steps.parse().ok().filter(|count| (2..=1000).contains(count)).ok_or_else(|| {
        ExperimentError::new(
            format!("a range cannot have '{steps}' steps"),
            "allowed: 2 to 1000, both ends included",
        )
    })?;
    let last = count - 1;
    let step = |step: u64| {
        T::between(&from.1, &to.1, step, last).ok_or_else(|| {
            ExperimentError::new("this field does not accept a range", "write a list of values")
        })
    };
    step(0)?;
    let mut values = vec![from.clone()];
    for at in 1..last {
        let text = step(at)?;
        let value = T::read(&text)?;
        values.push((text, value));
    }
    // The first and the last value keep the notation of the file.
    values.push(to);
    Ok(values)
}
