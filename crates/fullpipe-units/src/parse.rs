//! Exact parsing and printing of numbers with units.

use core::fmt;

/// Error for a string that is not a valid rate, time, size or probability, with a hint that shows what to
/// write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseUnitError {
    quantity: &'static str,
    text: String,
    problem: &'static str,
    hint: String,
}

impl ParseUnitError {
    pub(crate) fn no_unit(quantity: &'static str, text: &str, hint: &str) -> Self {
        Self::new(quantity, text, "has no unit", hint.into())
    }

    pub(crate) fn unknown_unit(quantity: &'static str, text: &str, hint: &str) -> Self {
        Self::new(quantity, text, "has an unknown unit", hint.into())
    }

    pub(crate) fn ambiguous(quantity: &'static str, text: &str, hint: String) -> Self {
        Self::new(quantity, text, "has an ambiguous unit", hint)
    }

    pub(crate) fn out_of_range(quantity: &'static str, text: &str, hint: &str) -> Self {
        Self::new(quantity, text, "is out of range", hint.into())
    }

    fn not_a_number(quantity: &'static str, text: &str) -> Self {
        Self::new(quantity, text, "does not start with a number", String::new())
    }

    fn new(quantity: &'static str, text: &str, problem: &'static str, hint: String) -> Self {
        Self { quantity, text: text.into(), problem, hint }
    }

    /// Returns a hint that shows what to write instead; empty if there is no suggestion.
    pub fn hint(&self) -> &str {
        &self.hint
    }
}

impl fmt::Display for ParseUnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} '{}' {}", self.quantity, self.text, self.problem)
    }
}

impl std::error::Error for ParseUnitError {}

/// Non-negative decimal number, stored exactly as written.
#[derive(Clone, Copy)]
pub(crate) struct Decimal {
    digits: u128,
    /// Power of ten by which the stored integer is divided: 10 to the number of decimal places.
    denominator: u128,
}

impl Decimal {
    /// Returns this number times `unit`, rounded to the nearest integer, or `None` on overflow.
    pub(crate) fn scaled(self, unit: u64) -> Option<u64> {
        self.scaled_wide(unit.into()).and_then(|n| u64::try_from(n).ok())
    }

    pub(crate) fn scaled_wide(self, unit: u128) -> Option<u128> {
        let product = self.digits.checked_mul(unit)?;
        product.checked_add(self.denominator / 2).map(|n| n / self.denominator)
    }

    pub(crate) fn is_zero(self) -> bool {
        self.digits == 0
    }

    pub(crate) fn exceeds(self, whole: u128) -> bool {
        self.digits > whole * self.denominator
    }

    pub(crate) fn equals(self, whole: u128) -> bool {
        self.digits == whole * self.denominator
    }
}

/// Splits the string of a quantity into its number and its unit.
pub(crate) fn split<'t>(quantity: &'static str, text: &'t str) -> Result<(Decimal, &'t str), ParseUnitError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits_only = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits_only(whole) || !digits_only(fraction) {
        return Err(ParseUnitError::not_a_number(quantity, text));
    }
    // Nineteen digits fit into a u64; with nine decimal places, the product with any unit fits into a u128.
    if whole.len() > 19 || fraction.len() > 9 {
        return Err(ParseUnitError::out_of_range(quantity, text, ""));
    }
    let denominator = 10u128.pow(fraction.len() as u32);
    let parsed = |part: &str| part.parse::<u128>().unwrap_or(0);
    Ok((Decimal { digits: parsed(whole) * denominator + parsed(fraction), denominator }, unit.trim_start()))
}

/// Returns the power of 1000 for a lower-case SI prefix.
pub(crate) fn decimal_prefix(prefix: &str) -> Option<u64> {
    Some(match prefix {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        _ => return None,
    })
}

/// Returns the power of 1024 for an IEC binary prefix.
pub(crate) fn binary_prefix(prefix: &str) -> Option<u64> {
    Some(match prefix {
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    })
}

/// Writes `value` with three significant digits and no trailing zeros, followed by `unit`.
pub(crate) fn write_scaled(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let mut text = Short::default();
    if !text.fixed(value, decimals) {
        return f.pad(&format!("{}{unit}", trimmed(&format!("{value:.decimals$}"), decimals)));
    }
    text.len = trimmed(text.as_str(), decimals).len();
    text.push(unit.as_bytes());
    f.pad(text.as_str())
}

fn trimmed(text: &str, decimals: usize) -> &str {
    if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Short ASCII string on the stack. It avoids an allocation per number, because sampling many sockets writes
/// thousands of numbers per second.
#[derive(Default)]
struct Short {
    bytes: [u8; 32],
    len: usize,
}

impl Short {
    /// Writes `value` with `decimals` decimal places, as `{:.N}` does. Returns `false` and writes nothing if
    /// the value is negative or at least 1e8, or if it is so close to the midpoint between two decimals that
    /// the rounding could differ from that of the standard formatter.
    fn fixed(&mut self, value: f64, decimals: usize) -> bool {
        const LARGEST: f64 = 1e8;
        const TOO_NEAR: f64 = 1e-5;
        const POWERS: [u32; 3] = [1, 10, 100];
        let Some(power) = POWERS.get(decimals).copied() else { return false };
        if !(0.0..LARGEST).contains(&value) || value.is_sign_negative() {
            return false;
        }
        let scaled = value * f64::from(power);
        if (scaled.fract() - 0.5).abs() < TOO_NEAR {
            return false;
        }
        let scaled = scaled.round() as u64;
        let (mut whole, mut part) = (scaled / u64::from(power), scaled % u64::from(power));
        // The digits are written from the last to the first. There are at most eleven digits and a decimal
        // point.
        let mut digits = [b'0'; 16];
        let mut begin = digits.len();
        let mut put = |byte: u8| {
            begin -= 1;
            digits[begin] = byte;
        };
        for _ in 0..decimals {
            put(b'0' + (part % 10) as u8);
            part /= 10;
        }
        if decimals > 0 {
            put(b'.');
        }
        loop {
            put(b'0' + (whole % 10) as u8);
            whole /= 10;
            if whole == 0 {
                break;
            }
        }
        self.push(&digits[begin..]);
        true
    }

    /// Appends as many of `bytes` as fit into the string.
    fn push(&mut self, bytes: &[u8]) {
        let room = &mut self.bytes[self.len..];
        let taken = bytes.len().min(room.len());
        room[..taken].copy_from_slice(&bytes[..taken]);
        self.len += taken;
    }

    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output equals that of the standard float formatter. The test covers multiples of 1/1000 and their
    /// neighbouring floats, multiples of 1/1024, and many random numbers.
    #[test]
    fn short_numbers_are_written_as_the_formatter_writes_them() {
        let mut quick = 0;
        let mut same = |value: f64, decimals: usize| {
            let mut text = Short::default();
            if text.fixed(value, decimals) {
                quick += 1;
                assert_eq!(text.as_str(), format!("{value:.decimals$}"), "{value:?}");
            }
        };
        for decimals in 0..3 {
            for n in 0..100_000_u32 {
                let value = f64::from(n) / 1e3;
                for value in [value, value.next_up(), value.next_down(), f64::from(n) / 1024.0] {
                    same(value, decimals);
                }
            }
            for n in 0..100_000 {
                same((crate::draw(7, 1, n) >> (n % 64)) as f64 / 1024.0, decimals);
            }
        }
        assert!(quick > 1_000_000, "{quick} of 1.5 million: the rest is near a middle, or large");
        for odd in [-1.0, -0.0, f64::NAN, f64::INFINITY, 1e8, 0.5, 2.5] {
            assert!(!Short::default().fixed(odd, 0), "{odd}");
        }
    }
}
