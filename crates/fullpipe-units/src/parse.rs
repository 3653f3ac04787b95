//! Reading and writing numbers with units, exactly.

use core::fmt;

/// Why a text is not a rate, time, size or probability, and what to write instead.
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

    pub(crate) fn out_of_range(quantity: &'static str, text: &str) -> Self {
        Self::new(quantity, text, "is out of range", String::new())
    }

    fn not_a_number(quantity: &'static str, text: &str) -> Self {
        Self::new(quantity, text, "does not start with a number", String::new())
    }

    fn new(quantity: &'static str, text: &str, problem: &'static str, hint: String) -> Self {
        Self { quantity, text: text.into(), problem, hint }
    }

    /// What to write instead; empty where there is nothing to suggest.
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

/// A non-negative decimal number, kept exactly as written.
#[derive(Clone, Copy)]
pub(crate) struct Decimal {
    digits: u128,
    /// Ten to the number of digits after the point.
    denominator: u128,
}

impl Decimal {
    /// This number times `unit`, rounded to the nearest integer.
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

/// Splits `text` into its number and its unit.
pub(crate) fn split<'t>(quantity: &'static str, text: &'t str) -> Result<(Decimal, &'t str), ParseUnitError> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits_only = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits_only(whole) || !digits_only(fraction) {
        return Err(ParseUnitError::not_a_number(quantity, text));
    }
    // Nineteen digits fill a u64; with nine after the point the product with any unit fits a u128.
    if whole.len() > 19 || fraction.len() > 9 {
        return Err(ParseUnitError::out_of_range(quantity, text));
    }
    let denominator = 10u128.pow(fraction.len() as u32);
    let parsed = |part: &str| part.parse::<u128>().unwrap_or(0);
    Ok((Decimal { digits: parsed(whole) * denominator + parsed(fraction), denominator }, unit.trim_start()))
}

/// Powers of 1000 by lower-case prefix.
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

/// Powers of 1024 by IEC prefix.
pub(crate) fn binary_prefix(prefix: &str) -> Option<u64> {
    Some(match prefix {
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    })
}

/// Three significant digits and no trailing zeros: enough to compare, short enough to read.
pub(crate) fn write_scaled(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    let text = format!("{value:.decimals$}");
    let text = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    f.pad(&format!("{text}{unit}"))
}
