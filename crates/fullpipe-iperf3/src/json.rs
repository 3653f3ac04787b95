//! Typed access to JSON values. A value of the wrong type is treated as absent, as in iperf3 since 3.18.

use fullpipe_units::Duration;
use serde_json::Value;

/// 2^63, the smallest integer above the range of `i64`.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

/// Returns the integer under `key`. Values above 2^63 - 1 become -1, because iperf3 3.12 prints -1 as
/// 18446744073709551615 (2^64 - 1).
pub(crate) fn integer(of: &Value, key: &str) -> Option<i64> {
    let Value::Number(number) = of.get(key)? else { return None };
    if let Some(value) = number.as_i64() {
        return Some(value);
    }
    let value = number.as_f64()?;
    Some(if value >= BEYOND { -1 } else { value as i64 })
}

/// Returns the count under `key`; returns `None` if the number is negative.
pub(crate) fn count(of: &Value, key: &str) -> Option<u64> {
    integer(of, key).and_then(|value| u64::try_from(value).ok())
}

/// Returns the duration under `key`; the JSON number is in seconds and may have a fraction.
pub(crate) fn seconds(of: &Value, key: &str) -> Option<Duration> {
    real(of, key).map(Duration::from_secs_f64)
}

pub(crate) fn real(of: &Value, key: &str) -> Option<f64> {
    of.get(key)?.as_f64().filter(|value| value.is_finite())
}

/// Returns whether the value under `key` is present and true.
pub(crate) fn flag(of: &Value, key: &str) -> bool {
    of.get(key).and_then(Value::as_bool) == Some(true)
}

/// Returns whether the value under `key` is present and neither false nor zero. Some iperf3 versions send
/// options as booleans, others as numbers.
pub(crate) fn switch(of: &Value, key: &str) -> bool {
    flag(of, key) || integer(of, key).is_some_and(|value| value != 0)
}

pub(crate) fn text(of: &Value, key: &str) -> Option<String> {
    of.get(key)?.as_str().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_a_signed_word_are_minus_one() {
        let of: Value = serde_json::from_str(
            r#"{"a":18446744073709551615,"b":9223372036854775807,"c":9223372036854775808,"d":1e30,"e":-3,"f":2.9,
                "g":"7","h":null,"i":true,"j":-1e30}"#,
        )
        .expect("JSON");
        let of = |key| integer(&of, key);
        assert_eq!((of("a"), of("b"), of("c"), of("d")), (Some(-1), Some(i64::MAX), Some(-1), Some(-1)));
        assert_eq!((of("e"), of("f"), of("j")), (Some(-3), Some(2), Some(i64::MIN)));
        assert_eq!((of("g"), of("h"), of("i"), of("z")), (None, None, None, None));
    }

    #[test]
    fn what_is_no_object_has_no_values() {
        for text in ["[]", "1", "null", "\"tcp\"", "[{\"tcp\":true}]"] {
            let of: Value = serde_json::from_str(text).expect("JSON");
            assert!(integer(&of, "tcp").is_none() && !flag(&of, "tcp") && seconds(&of, "tcp").is_none());
        }
    }
}
