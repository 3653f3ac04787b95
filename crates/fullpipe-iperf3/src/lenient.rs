//! Reads JSON of any iperf3 version without storing it: a value of the wrong type is treated as absent, and
//! unknown keys are skipped.
//!
//! A JSON tree can take a hundred times as much memory as its text. These readers extract only the wanted
//! values, directly from the text.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Bound just below 2^63: iperf3 before 3.13 prints negative numbers as unsigned numbers above this bound.
const BEYOND: f64 = 9.2e18;

/// A JSON value of any type; only numbers, Booleans and strings keep their content.
enum Scalar<'de> {
    Bool(bool),
    Number(f64),
    Text(Cow<'de, str>),
    Null,
    List,
    Object,
}

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Scalar<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON value")
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
                Ok(Scalar::Bool(value))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
                Ok(Scalar::Number(value as f64))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
                Ok(Scalar::Number(value as f64))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
                Ok(Scalar::Number(value))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
                Ok(Scalar::Text(Cow::Owned(value.to_owned())))
            }

            fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
                Ok(Scalar::Text(Cow::Borrowed(value)))
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(Scalar::Null)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                IgnoredAny.visit_seq(seq).map(|_| Scalar::List)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                IgnoredAny.visit_map(map).map(|_| Scalar::Object)
            }
        }

        deserializer.deserialize_any(Any)
    }
}

impl Scalar<'_> {
    fn number(&self) -> Option<f64> {
        match self {
            Self::Number(value) if value.is_finite() => Some(*value),
            _ => None,
        }
    }
}

/// Reads a count or a size; `None` for -1, which iperf3 prints for unknown values, even if it is printed as
/// the unsigned number 2^64 - 1.
pub(crate) fn count<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<u64>, A::Error> {
    let value = map.next_value::<Scalar<'_>>()?.number();
    Ok(value.filter(|value| (0.0..BEYOND).contains(value)).map(|value| value as u64))
}

/// Reads a count that may be negative.
pub(crate) fn signed<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<i64>, A::Error> {
    let value = map.next_value::<Scalar<'_>>()?.number();
    Ok(value.filter(|value| value.abs() < BEYOND).map(|value| value as i64))
}

/// Reads a number that is not negative.
pub(crate) fn number<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<f64>, A::Error> {
    Ok(map.next_value::<Scalar<'_>>()?.number().filter(|value| *value >= 0.0))
}

/// Reads a Boolean.
pub(crate) fn flag<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<bool>, A::Error> {
    Ok(match map.next_value()? {
        Scalar::Bool(value) => Some(value),
        _ => None,
    })
}

/// Reads a Boolean that some versions print as 0 or 1.
pub(crate) fn switch<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<bool>, A::Error> {
    Ok(match map.next_value()? {
        Scalar::Bool(value) => Some(value),
        Scalar::Number(value) => Some(value > 0.0),
        _ => None,
    })
}

/// Reads a string.
pub(crate) fn text<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<String>, A::Error> {
    Ok(match map.next_value()? {
        Scalar::Text(value) => Some(value.into_owned()),
        _ => None,
    })
}

/// Reads a value of any type as a string; `None` for null. Arrays and objects become `[...]` and `{...}`.
pub(crate) fn present<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<String>, A::Error> {
    Ok(match map.next_value()? {
        Scalar::Text(value) => Some(value.into_owned()),
        Scalar::Bool(value) => Some(value.to_string()),
        Scalar::Number(value) => Some(value.to_string()),
        Scalar::List => Some("[...]".into()),
        Scalar::Object => Some("{...}".into()),
        Scalar::Null => None,
    })
}

/// Reads a value with the `Deserialize` implementation of its type, which must be lenient itself.
pub(crate) fn nested<'de, A: MapAccess<'de>, T: Deserialize<'de>>(map: &mut A) -> Result<T, A::Error> {
    map.next_value()
}

/// Reads an object; `None` for any other value.
pub(crate) fn maybe<'de, A: MapAccess<'de>, T: Object<'de>>(map: &mut A) -> Result<Option<T>, A::Error> {
    map.next_value::<Maybe<T>>().map(|read| read.0)
}

/// Reads the items of an array one by one; any other value is treated as an empty array.
pub(crate) fn array<'de, A, C>(map: &mut A) -> Result<C, A::Error>
where
    A: MapAccess<'de>,
    C: Collect,
    C::Item: Deserialize<'de>,
{
    map.next_value::<Array<C>>().map(|read| read.0.unwrap_or_default())
}

/// An object whose fields are set key by key.
pub(crate) trait Object<'de>: Default {
    /// Takes the value of `key` from `map`, or returns `false` if the key is not wanted.
    fn take<A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error>;
}

/// A collection that receives items one by one, and may reject them.
pub(crate) trait Collect: Default {
    /// Type of the items.
    type Item;
    /// Adds an item, or returns an error message if there are too many items.
    fn collect(&mut self, item: Self::Item) -> Result<(), &'static str>;
}

/// An object, or `None` for any other value.
pub(crate) struct Maybe<T>(pub(crate) Option<T>);

/// Items of an array: empty for null; `None` for any other value that is not an array.
pub(crate) struct Array<C>(pub(crate) Option<C>);

/// Visitor methods that read a value of an unwanted type as `None`.
macro_rules! unwanted {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON value")
        }

        fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
            Ok(None)
        }
    };
}

impl<'de, T: Object<'de>> Deserialize<'de> for Maybe<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any<T>(PhantomData<T>);

        impl<'de, T: Object<'de>> Visitor<'de> for Any<T> {
            type Value = Option<T>;

            unwanted!();

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(None)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                IgnoredAny.visit_seq(seq).map(|_| None)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut object = T::default();
                while let Some(Key(key)) = map.next_key::<Key<'_>>()? {
                    if !object.take(&key, &mut map)? {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(Some(object))
            }
        }

        deserializer.deserialize_any(Any(PhantomData)).map(Self)
    }
}

impl<'de, C: Collect> Deserialize<'de> for Array<C>
where
    C::Item: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any<C>(PhantomData<C>);

        impl<'de, C: Collect> Visitor<'de> for Any<C>
        where
            C::Item: Deserialize<'de>,
        {
            type Value = Option<C>;

            unwanted!();

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(Some(C::default()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = C::default();
                while let Some(item) = seq.next_element()? {
                    items.collect(item).map_err(A::Error::custom)?;
                }
                Ok(Some(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                IgnoredAny.visit_map(map).map(|_| None)
            }
        }

        deserializer.deserialize_any(Any(PhantomData)).map(Self)
    }
}

/// Key of an object. Its text may contain escapes, so it cannot always be borrowed.
struct Key<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(value)))
            }

            fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(value.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// Implements [`Object`] and a lenient `Deserialize` for a type: the function named after each key reads its
/// value. A key that appears twice keeps its last value, as in a JSON tree.
macro_rules! lenient_object {
    ($name:ident $(<$generic:ident: $bound:path>)? { $($key:ident : $read:path),* $(,)? }) => {
        impl<'de $(, $generic: $bound)?> $crate::lenient::Object<'de> for $name $(<$generic>)? {
            fn take<A: serde::de::MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
                match key {
                    $(stringify!($key) => self.$key = $read(map)?,)*
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }

        impl<'de $(, $generic: $bound)?> serde::Deserialize<'de> for $name $(<$generic>)? {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let read = <$crate::lenient::Maybe<Self> as serde::Deserialize>::deserialize(deserializer)?;
                Ok(read.0.unwrap_or_default())
            }
        }
    };
}

pub(crate) use lenient_object;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Values {
        count: Option<u64>,
        signed: Option<i64>,
        number: Option<f64>,
        flag: Option<bool>,
        switch: Option<bool>,
        text: Option<String>,
    }

    lenient_object!(Values {
        count: count,
        signed: signed,
        number: number,
        flag: flag,
        switch: switch,
        text: text
    });

    fn read(text: &str) -> Values {
        serde_json::from_str(text).expect("JSON")
    }

    /// A reader must treat damaged or foreign values as absent, and must not fail.
    #[test]
    fn values_of_the_wrong_type_are_absent() {
        let nothing = Values::default();
        for text in ["7", "-7", "null", "true", "\"x\"", "[{\"count\":1}]", "{}", "0.5"] {
            assert_eq!(read(text), nothing, "{text}");
        }
        for value in ["null", "[1,[2]]", "{\"a\":{\"b\":[]}}"] {
            let keys = ["count", "signed", "number", "flag", "switch", "text", "other"];
            let all = keys.map(|key| format!("\"{key}\":{value}")).join(",");
            assert_eq!(read(&format!("{{{all}}}")), nothing, "{value}");
        }
    }

    /// Versions before 3.13 print an unknown value of -1 as 2^64 - 1.
    #[test]
    fn unknown_values_are_absent_in_either_notation() {
        assert_eq!(read("{\"count\":-1}").count, None);
        assert_eq!(read("{\"count\":18446744073709551615}").count, None);
        assert_eq!(read("{\"count\":9.3e18}").count, None);
        assert_eq!(read("{\"count\":7.0}").count, Some(7));
        assert_eq!(read("{\"signed\":-3,\"number\":-3}"), Values { signed: Some(-3), ..Values::default() });
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        assert_eq!(read("{\"c\\u006funt\":1,\"count\":2}").count, Some(2));
    }

    #[test]
    fn booleans_may_be_numbers_where_iperf3_prints_both() {
        assert_eq!(read("{\"flag\":1,\"switch\":1}"), Values { switch: Some(true), ..Values::default() });
        assert_eq!(read("{\"switch\":0}").switch, Some(false));
    }
}
