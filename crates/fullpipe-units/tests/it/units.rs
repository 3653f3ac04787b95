//! Tests that common spellings are parsed exactly, that ambiguous spellings are rejected, and that random
//! draws are reproducible.

use fullpipe_units::{Bytes, Draws, Duration, Probability, Rate, draw};

#[test]
fn rates_take_every_spelling_in_use() {
    for text in ["1gbit", "1Gbit/s", "1G", "1000mbit", "1 Gbits/sec", "125MB/s", "1.0gbit"] {
        assert_eq!(text.parse::<Rate>().unwrap(), Rate::from_bps(1_000_000_000), "{text}");
    }
    assert_eq!("94.4 Mbits/sec".parse::<Rate>().unwrap(), Rate::from_bps(94_400_000));
    assert_eq!("892 Kbits/sec".parse::<Rate>().unwrap(), Rate::from_bps(892_000));
}

#[test]
fn ambiguous_units_are_refused_with_a_hint() {
    let error = "100mbps".parse::<Rate>().unwrap_err();
    assert_eq!(error.to_string(), "rate '100mbps' has an ambiguous unit");
    assert_eq!(error.hint(), "write mbit/s for bits or mB/s for bytes");
    assert_eq!(
        "4M".parse::<Bytes>().unwrap_err().hint(),
        "write MiB (powers of 1024) or MB (powers of 1000)"
    );
    for text in ["", "fast", "-1gbit", "1..2gbit", "1gbit/h", "1e9bit", "100", "1xbit", "MB/s"] {
        assert!(text.parse::<Rate>().is_err(), "{text:?} was taken for a rate");
    }
}

#[test]
fn times_sizes_and_probabilities_are_exact() {
    assert_eq!("210ms".parse::<Duration>().unwrap(), Duration::from_millis(210));
    assert_eq!("1.5us".parse::<Duration>().unwrap(), Duration::from_nanos(1_500));
    assert_eq!("4MiB".parse::<Bytes>().unwrap(), Bytes::new(4_194_304));
    assert_eq!("1040".parse::<Bytes>().unwrap(), Bytes::new(1_040));
    assert_eq!("250MB".parse::<Bytes>().unwrap(), Bytes::new(250_000_000));
    assert_eq!("100%".parse::<Probability>().unwrap(), Probability::ONE);
    assert_eq!("0".parse::<Probability>().unwrap(), Probability::ZERO);
    assert!((("20ppm".parse::<Probability>().unwrap().as_f64()) - 20e-6).abs() < 1e-15);
    for text in ["101%", "0.5", "1000001ppm"] {
        assert!(text.parse::<Probability>().is_err(), "{text}");
    }
}

#[test]
fn numbers_at_the_edges_never_panic() {
    for text in ["18446744073709551615", "99999999999999999999", "0.0000000001", "18446744073709551615Gi"] {
        let _ = (text.parse::<Bytes>(), text.parse::<Duration>(), text.parse::<Rate>());
        let _ = (format!("{text}s").parse::<Duration>(), format!("{text}tbit").parse::<Rate>());
    }
    assert_eq!(Rate::MAX * Duration::MAX, Bytes::MAX);
    assert_eq!(Rate::ZERO.time_for(Bytes::new(1)), Duration::MAX);
}

#[test]
fn what_is_printed_reads_back() {
    assert_eq!(Rate::from_bps(69_600_000).to_string(), "69.6 Mbit/s");
    assert_eq!(Duration::from_millis(210).to_string(), "210ms");
    assert_eq!(Bytes::from_mib(4).to_string(), "4 MiB");
    assert_eq!(Probability::from_ppm(20).to_string(), "20 ppm");
    assert_eq!(Probability::from_ppm(15_000).to_string(), "1.5 %");
    for rate in [1, 999, 1_000, 123_000, 94_400_000, 1_000_000_000] {
        let rate = Rate::from_bps(rate);
        assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
    }
}

#[test]
fn serialisation_time_is_exact_for_packets() {
    // At 10 Mbit/s, 1500 bytes take 1.2 ms to send.
    assert_eq!(Rate::from_bps(10_000_000).time_for(Bytes::new(1500)), Duration::from_micros(1200));
    assert_eq!(Rate::of(Bytes::new(26_250_000), Duration::from_millis(210)), Rate::from_bps(1_000_000_000));
    assert_eq!(Rate::from_bps(1_000_000_000) * Duration::from_millis(210), Bytes::new(26_250_000));
}

/// Gaps between losses are geometrically distributed in every random stream.
#[test]
fn draws_are_uniform_and_independent_between_streams() {
    let p = Probability::from_ppm(10_000);
    for stream in 0..4 {
        let draws = Draws::new(7, stream);
        let n = 1_000_000;
        let hits = (0..n).filter(|&i| p.hits(draws.at(i))).count() as f64;
        // The count lies within five standard deviations of the mean of a binomial distribution.
        assert!(
            (hits - 10_000.0).abs() < 5.0 * (10_000.0f64 * 0.99).sqrt(),
            "{hits} hits in stream {stream}"
        );
    }
    let both = (0..1_000_000).filter(|&i| p.hits(draw(7, 0, i)) && p.hits(draw(7, 1, i))).count();
    assert!((50..=150).contains(&both), "{both} coincidences, expected about 100");
    assert_ne!(draw(1, 0, 0), draw(2, 0, 0));
}
