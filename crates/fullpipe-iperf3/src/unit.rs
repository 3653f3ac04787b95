//! Parsing and formatting of amounts and rates in iperf3's notation.
//!
//! Rates use powers of 1000 and amounts use powers of 1024, although the letters are the same: `-b 10M` is 10
//! 000 000 bit/s, and `-n 10M` is 10 485 760 bytes. In iperf3's output, "MBytes" are MiB.

use std::str::FromStr;

use fullpipe_units::{Bytes, Rate};

/// Unit in which rates are printed (`-f`). Amounts of data are always printed in a unit that depends on their
/// size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateFormat {
    /// Bits per second, in a unit that depends on the size of the rate.
    #[default]
    Adaptive,
    /// Bits per second, in units of this power of 1000: `k`, `m`, `g`, `t`.
    Bits(u32),
    /// Bytes per second, in units of this power of 1024: `K`, `M`, `G`, `T`.
    Bytes(u32),
}

impl FromStr for RateFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const LETTERS: &str = "kmgt";
        let mut letters = text.chars();
        let power = |letter: char| LETTERS.find(letter.to_ascii_lowercase()).map(|at| at as u32 + 1);
        match (letters.next(), letters.next()) {
            (Some('a'), None) => Ok(Self::Adaptive),
            (Some(letter), None) => match power(letter) {
                Some(power) if letter.is_ascii_lowercase() => Ok(Self::Bits(power)),
                Some(power) => Ok(Self::Bytes(power)),
                None => Err(format!(
                    "'{text}' is not a rate unit: use k, m, g or t for bits, K, M, G or T for bytes"
                )),
            },
            _ => Err(format!("'{text}' is not a rate unit: use one letter of kmgtKMGT")),
        }
    }
}

const BITS: [&str; 5] = ["bits", "Kbits", "Mbits", "Gbits", "Tbits"];
const BYTES: [&str; 5] = ["Bytes", "KBytes", "MBytes", "GBytes", "TBytes"];

/// Formats an amount of data, such as `1.22 MBytes`.
pub fn amount(bytes: Bytes) -> String {
    adaptive(bytes.get() as f64, 1024.0, &BYTES)
}

/// Formats a rate, such as `10.2 Mbits/sec`.
pub fn rate(rate: Rate, format: RateFormat) -> String {
    let bits = rate.as_bps() as f64;
    let fixed = |value: f64, base: f64, power: u32, units: &[&str]| {
        let unit = units.get(power as usize).copied().unwrap_or_default();
        format!("{} {unit}", number(value / base.powi(power as i32)))
    };
    let text = match format {
        RateFormat::Adaptive => adaptive(bits, 1000.0, &BITS),
        RateFormat::Bits(power) => fixed(bits, 1000.0, power, &BITS),
        RateFormat::Bytes(power) => fixed(bits / 8.0, 1024.0, power, &BYTES),
    };
    text + "/sec"
}

fn adaptive(mut value: f64, base: f64, units: &[&str; 5]) -> String {
    let mut unit = 0;
    while value >= base && unit + 1 < units.len() {
        (value, unit) = (value / base, unit + 1);
    }
    format!("{} {}", number(value), units[unit])
}

/// Formats a number with three significant digits, four characters wide.
fn number(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:4.2}"),
        v if v < 99.95 => format!("{v:4.1}"),
        v => format!("{v:4.0}"),
    }
}

/// Formats a percentage with two significant digits: `0`, `0.045`, `7.7`, `12`, `100`.
pub fn percent(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".into();
    }
    let digits = (1 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// Parses an amount of data in the notation of `-n`, `-l` and `-w`: `128K` is 131 072 bytes.
///
/// # Errors
/// Returns an error if `text` is not an amount in this notation.
pub fn parse_amount(text: &str) -> Result<Bytes, String> {
    parse(text, 1024.0)
        .map(Bytes::new)
        .ok_or_else(|| format!("'{text}' is not an amount: write 1000000, 128K or 1.5G"))
}

/// Parses a rate in the notation of `-b` and `--fq-rate`, in bits per second: `10M` is 10 000 000 bit/s.
///
/// # Errors
/// Returns an error if `text` is not a rate in this notation.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    parse(text, 1000.0)
        .map(Rate::from_bps)
        .ok_or_else(|| format!("'{text}' is not a rate in bit/s: write 1000000, 10M or 1.5G"))
}

fn parse(text: &str, base: f64) -> Option<u64> {
    let (number, power) = match text.char_indices().next_back() {
        Some((at, letter)) if letter.is_ascii_alphabetic() => {
            (&text[..at], "kmgt".find(letter.to_ascii_lowercase())? as i32 + 1)
        }
        _ => (text, 0),
    };
    let plain = |c: char| c.is_ascii_digit() || c == '.';
    if number.is_empty() || !number.chars().all(plain) {
        return None;
    }
    let value = number.parse::<f64>().ok()? * base.powi(power);
    // Above this value, an `f64` cannot represent every integer. No network is that fast.
    (value < 9e15).then_some(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formatted amounts and rates are identical to those of iperf3 3.12.
    #[test]
    fn amounts_and_rates_have_three_digits() {
        let amounts = [
            (0, "0.00 Bytes"),
            (131_072, " 128 KBytes"),
            (1_277_952, "1.22 MBytes"),
            (1 << 40, "1.00 TBytes"),
        ];
        for (bytes, words) in amounts {
            assert_eq!(amount(Bytes::new(bytes)), words);
        }
        let in_format = |bits, format: &str| rate(Rate::from_bps(bits), format.parse().expect("a format"));
        assert_eq!(in_format(1_048_576, "a"), "1.05 Mbits/sec");
        assert_eq!(in_format(892_000, "a"), " 892 Kbits/sec");
        assert_eq!(in_format(23_300_000_000, "m"), "23300 Mbits/sec");
        assert_eq!(in_format(8 * 1_048_576, "K"), "1024 KBytes/sec");
        assert!("x".parse::<RateFormat>().is_err() && "".parse::<RateFormat>().is_err());
        assert!("kk".parse::<RateFormat>().is_err());
    }

    #[test]
    fn letters_are_powers_of_1024_in_amounts_and_of_1000_in_rates() {
        assert_eq!(parse_amount("128K"), Ok(Bytes::from_kib(128)));
        assert_eq!(parse_amount("1.5m"), Ok(Bytes::new(1_572_864)));
        assert_eq!(parse_rate("10M"), Ok(Rate::from_bps(10_000_000)));
        assert_eq!(parse_rate("0"), Ok(Rate::ZERO));
        for wrong in ["", "K", "-1", "1e3", "10X", "nan", "inf", "1.2.3", "99999T", "\u{e9}", "1\u{e9}"] {
            assert!(parse_amount(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn percentages_have_two_digits() {
        let cases = [(0.0, "0"), (0.0451, "0.045"), (7.69, "7.7"), (12.34, "12"), (100.0, "100"), (5.0, "5")];
        for (value, words) in cases {
            assert_eq!(percent(value), words);
        }
    }
}
