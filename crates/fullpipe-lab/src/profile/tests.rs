//! Tests of the keys of profiles, and of the errors for invalid profiles.

use fullpipe_tcp::cc::Repair;

use super::*;

fn name() -> ProfileName {
    "web".parse().expect("a name")
}

fn read(text: &str) -> Result<Profile, ProfileError> {
    Profile::read(name(), &text.parse().expect("TOML"))
}

/// An empty table gives the defaults that the documentation states. Both ends of both ranges are valid, and
/// the wider range contains the normal range.
#[test]
fn every_key_has_a_default_and_ranges() {
    assert_eq!(read(""), Ok(Profile::default()));
    for key in &KEYS {
        let line = |value: &str| match key.quantity {
            Quantity::Whole | Quantity::Ratio | Quantity::Flag => format!("{} = {value}\n", key.name),
            _ => format!("{} = \"{value}\"\n", key.name),
        };
        assert_eq!(format!("{} = {}\n", key.name, key.example()), line(key.default));
        assert_eq!(read(&line(key.default)), Ok(Profile::default()), "{}: the default", key.name);
        let [least, most] =
            key.range.map(|end| read(&line(end)).unwrap_or_else(|e| panic!("{e}: {}", e.hint)));
        assert_ne!(least, most, "{}", key.name);
        for end in key.lab {
            let profile = read(&format!("lab = true\n{}", line(end))).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(profile.tunables.check(), Ok(()), "{} = {end}", key.name);
        }
        let [range, lab] = [key.range, key.lab].map(|ends| ends.map(|end| key.quantity.bound(end)));
        assert!(lab[0] <= range[0] && range[1] <= lab[1], "{}", key.name);
    }
}

/// TCPA's settings need the wider ranges; without them, a profile rejects each value that is out of the
/// normal range.
#[test]
fn the_built_in_profiles_are_valid() {
    for (name, text) in BUILT_IN {
        let name: ProfileName = name.parse().expect("a name");
        let profile = Profile::built_in(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(Profile::read(name, &text.parse().expect("TOML")), Ok(profile));
        assert!(profile.lab && profile.tunables.check().is_ok(), "{name}");
        let error = read(&text.replace("lab = true", "")).expect_err("refused");
        assert!(error.message.ends_with("requires lab = true"), "{error}");
    }
    let tcpa = Profile::built_in("tcpa".parse().expect("a name")).expect("built in");
    assert_eq!(tcpa.launch, Launch { window: 160, rate: Rate::from_bps(120_000_000) });
    assert_eq!((tcpa.tunables.least_window, tcpa.tunables.loss_window), (60, 10));
    assert_eq!(Profile::built_in(name()), None);
}

#[test]
fn a_profile_sets_the_sender() {
    let profile = read(
        "lab = true\nlaunch = { window = 160, rate = \"120mbit\" }\nbuffers.send = \"8MiB\"\ncontrol.least_window = 60\n\
         timeout = { least = \"50ms\", prompt = \"60ms\", most = \"1s\", linear = 1, window = 10 }\nloss.reordering = 0.125\n\
         probe = { tail = 1.5, floor = \"10ms\", ack_delay = \"30ms\" }\nhandshake.syn_ack = \"300ms\"\n\
         repair = { second_copy = false, tail_copies = 2 }\n",
    )
    .expect("a profile");
    let config = profile.applied(Config { mtu: 9_000, ..Config::default() });
    let ms = Duration::from_millis;
    assert_eq!(config.launch, Some(Launch { window: 160, rate: Rate::from_bps(120_000_000) }));
    assert_eq!((config.mtu, config.sndbuf), (9_000, Buffer::Auto { max: Bytes::from_mib(8) }));
    let expected = Tunables {
        rto: RtoRule::Slack { floor: ms(50) },
        rto_prompt: Some(ms(60)),
        rto_max: ms(1_000),
        rto_linear: 1,
        loss_window: 10,
        least_window: 60,
        probe_timeout: ProbeTimeout { srtt_percent: 150, floor: Some(ms(10)), ack_delay: ms(30) },
        reo_wnd: ReoWnd { share: 8, on_evidence: true },
        syn_ack_early: Some(ms(300)),
        copies: Repair { second_copy: false, tail_copies: 2 },
        ..Tunables::LINUX
    };
    assert_eq!(config.tunables, expected);
}

#[test]
fn mistakes_are_named_in_one_line() {
    for (text, message, hint) in [
        ("launch.windw = 44", "unknown key 'launch.windw'", "did you mean launch.window?"),
        ("tcp_init_cwnd = 120", "unknown key 'tcp_init_cwnd'", "did you mean launch.window?"),
        ("tcp_rto_min = 50", "unknown key 'tcp_rto_min'", "did you mean timeout.least?"),
        ("launch = {}", "unknown key 'launch'", "known: launch.window, launch.rate, "),
        ("lap = true", "unknown key 'lap'", "did you mean lab?"),
        (
            "wnd_extend = 1",
            "the key 'wnd_extend' is refused",
            "firewalls and slow receivers drop data beyond the receive window",
        ),
        ("file_thresh = 700000", "the key 'file_thresh' is refused", "a sender cannot know the size"),
        ("timeout.retries2 = 120", "the key 'timeout.retries2' is refused", "a connection gives up after 15"),
        (
            "launch.window = 9",
            "launch.window '9' is out of range",
            "allowed: 10 to 64; 10 to 160 with lab = true",
        ),
        ("launch.window = 161", "launch.window '161' is out of range", "allowed: 10 to 64; "),
        (
            "launch.window = 65",
            "launch.window '65' requires lab = true",
            "allowed: 10 to 64; lab = true is for",
        ),
        ("timeout.most = '2s'", "timeout.most '2s' requires lab = true", "allowed: 10s to 120s; "),
        (
            "lab = true\ntimeout.most = '0.9s'",
            "timeout.most '0.9s' is out of range",
            "allowed: 10s to 120s; 1s to",
        ),
        ("timeout.most = 60", "timeout.most '60' has no unit", "write 210ms or 0.21s"),
        (
            "launch.rate = '20mbps'",
            "launch.rate '20mbps' has an ambiguous unit",
            "write mbit/s for bits or mB/s",
        ),
        ("launch.window = 44.5", "launch.window '44.5' is not a whole number", "write launch.window = 44"),
        ("probe.tail = 'soon'", "probe.tail 'soon' is not a number", "write probe.tail = 1.25"),
        ("launch.rate = []", "launch.rate is not a single value", "write launch.rate = \"20mbit\""),
        (
            "repair.second_copy = 1",
            "repair.second_copy '1' is neither true nor false",
            "write repair.second_copy = true",
        ),
        ("launch.window = true", "launch.window 'true' is not a whole number", "write launch.window = 44"),
        ("tcp_mem = 5", "the key 'tcp_mem' is refused", "the key memory of fullpipe accelerate"),
        (
            "buffers.total = '1GiB'",
            "the key 'buffers.total' is refused",
            "the key memory of fullpipe accelerate",
        ),
        ("setpolicy = 1", "the key 'setpolicy' is refused", "a [[policy]] of fullpipe accelerate"),
        (
            "tcp_metrics_minrtt = 1",
            "the key 'tcp_metrics_minrtt' is refused",
            "path memory belongs to the host",
        ),
        ("lab = 1", "lab is neither true nor false", "write lab = true"),
    ] {
        let error = read(text).expect_err(text);
        assert_eq!(error.message, format!("[profile.web]: {message}"), "{text}");
        assert!(error.hint.starts_with(hint), "{text}: {}", error.hint);
        assert!(!error.hint.contains('\n') && !error.hint.contains("  "), "{text}: {}", error.hint);
    }
}

#[test]
fn names_are_short_and_plain() {
    for text in ["web", "a", "tcpa-2", "fifteen-letters"] {
        let name: ProfileName = text.parse().expect(text);
        assert_eq!(
            (name.as_str(), name.to_string().as_str(), format!("{name:?}").as_str()),
            (text, text, text)
        );
    }
    for text in ["", "iw", "Web", "2x", "-x", "a b", "sixteen-letters-", "ä"] {
        let error = text.parse::<ProfileName>().expect_err(text);
        assert_eq!(error.message, format!("'{text}' cannot be the name of a profile"));
    }
}
