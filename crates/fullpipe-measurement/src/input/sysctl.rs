//! Kernel settings of a host, from `sysctl -a`, a part of it, or a `sysctl.conf`.

use fullpipe_tcp::buffers::{KernelVersion, WindowRule};
use fullpipe_units::Bytes;

use super::{InputError, quote};

/// Settings of one host that affect a TCP transfer. `None` means that the setting is missing from the dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// `kernel.osrelease`, which a complete `sysctl -a` contains.
    pub kernel: Option<KernelVersion>,
    /// `net.core.rmem_max`: maximum for `SO_RCVBUF`, not for autotuning.
    pub core_rmem_max: Option<Bytes>,
    /// `net.core.wmem_max`: maximum for `SO_SNDBUF`, not for autotuning.
    pub core_wmem_max: Option<Bytes>,
    /// `net.ipv4.tcp_rmem`: minimum, initial and maximum receive buffer, in bytes of memory.
    pub tcp_rmem: Option<[Bytes; 3]>,
    /// `net.ipv4.tcp_wmem`: minimum, initial and maximum send buffer, in bytes of memory.
    pub tcp_wmem: Option<[Bytes; 3]>,
    /// `net.ipv4.tcp_mem`: memory limits for all TCP sockets together, in *pages*.
    pub tcp_mem_pages: Option<[u64; 3]>,
    /// `net.ipv4.tcp_adv_win_scale`, -31 to 31; ignored by kernels since 6.6.
    pub adv_win_scale: Option<i8>,
    /// `net.ipv4.tcp_moderate_rcvbuf`: whether the kernel autotunes the receive buffer.
    pub moderate_rcvbuf: Option<bool>,
    /// `net.ipv4.tcp_window_scaling`: without it no window exceeds 64 KiB.
    pub window_scaling: Option<bool>,
    /// `net.ipv4.tcp_congestion_control`: default for new sockets.
    pub congestion_control: Option<String>,
    /// `net.ipv4.tcp_available_congestion_control`; empty if the dump lacks it.
    pub available_congestion_control: Vec<String>,
    /// `net.ipv4.tcp_allowed_congestion_control`: algorithms that unprivileged processes may select; empty if
    /// the dump lacks it.
    pub allowed_congestion_control: Vec<String>,
    /// `net.core.default_qdisc`: default queueing discipline of new devices.
    pub default_qdisc: Option<String>,
    /// `net.ipv4.tcp_notsent_lowat`: amount of unsent data above which a socket is not writable; 2^32 - 1
    /// means no limit.
    pub notsent_lowat: Option<Bytes>,
    /// `net.ipv4.tcp_slow_start_after_idle`: whether the congestion window decays while the connection is
    /// idle.
    pub slow_start_after_idle: Option<bool>,
}

impl HostSettings {
    /// Reads a dump. Prompts, comments and irrelevant keys are skipped; if a key occurs twice, the last value
    /// counts, as when sysctl loads a file.
    ///
    /// # Errors
    /// Returns an error if the dump contains no known key, or if a known key has an invalid value.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        let mut host = Self::default();
        let mut known = false;
        for (key, value) in text.lines().filter_map(key_value) {
            known |= host.set(&key.replace('/', "."), value)?;
        }
        if known {
            Ok(host)
        } else {
            Err(InputError::new(
                "the sysctl dump contains no TCP settings",
                "give the output of: sysctl -a | grep -E 'net.core|net.ipv4.tcp|kernel.osrelease'",
            ))
        }
    }

    /// Returns whether the dump lists the available congestion controls and `name` is missing from the list.
    pub fn lacks_congestion_control(&self, name: &str) -> bool {
        let list = &self.available_congestion_control;
        !list.is_empty() && !list.iter().any(|listed| listed == name)
    }

    /// Returns the rule that converts receive memory to a window on this host, for release `kernel` or else
    /// the release in the dump; `None` if neither the release nor `tcp_adv_win_scale` is known. If only
    /// `tcp_adv_win_scale` is known, this setting is assumed to apply.
    pub fn window_rule(&self, kernel: Option<KernelVersion>) -> Option<WindowRule> {
        match (kernel.or(self.kernel), self.adv_win_scale) {
            (Some(kernel), scale) => Some(WindowRule::of(kernel, scale)),
            (None, Some(scale)) => Some(WindowRule::AdvWinScale(scale)),
            (None, None) => None,
        }
    }

    /// Stores one setting; returns false for an irrelevant key.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, InputError> {
        let bad = || {
            InputError::new(
                format!("{key} = '{}' in the sysctl dump is not valid", quote(value)),
                "use the unedited output of sysctl -a",
            )
        };
        let words = || value.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let number = || value.parse::<u64>().map_err(|_| bad());
        let flag = || number().map(|n| n != 0);
        match key {
            "kernel.osrelease" => self.kernel = value.parse().ok(),
            "net.core.rmem_max" => self.core_rmem_max = Some(Bytes::new(number()?)),
            "net.core.wmem_max" => self.core_wmem_max = Some(Bytes::new(number()?)),
            "net.ipv4.tcp_rmem" => self.tcp_rmem = Some(triple(value).ok_or_else(bad)?.map(Bytes::new)),
            "net.ipv4.tcp_wmem" => self.tcp_wmem = Some(triple(value).ok_or_else(bad)?.map(Bytes::new)),
            "net.ipv4.tcp_mem" => self.tcp_mem_pages = Some(triple(value).ok_or_else(bad)?),
            "net.ipv4.tcp_adv_win_scale" => {
                let scale = value.parse().ok().filter(|scale: &i8| scale.unsigned_abs() <= 31);
                self.adv_win_scale = Some(scale.ok_or_else(bad)?);
            }
            "net.ipv4.tcp_moderate_rcvbuf" => self.moderate_rcvbuf = Some(flag()?),
            "net.ipv4.tcp_window_scaling" => self.window_scaling = Some(flag()?),
            "net.ipv4.tcp_congestion_control" => self.congestion_control = words().into_iter().next(),
            "net.ipv4.tcp_available_congestion_control" => self.available_congestion_control = words(),
            "net.ipv4.tcp_allowed_congestion_control" => self.allowed_congestion_control = words(),
            "net.ipv4.tcp_notsent_lowat" => self.notsent_lowat = Some(Bytes::new(number()?)),
            "net.ipv4.tcp_slow_start_after_idle" => self.slow_start_after_idle = Some(flag()?),
            "net.core.default_qdisc" => self.default_qdisc = words().into_iter().next(),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parses three sizes in ascending order. Returns `None` for any other text, and if the largest size is zero,
/// because no host can work with that value.
fn triple(value: &str) -> Option<[u64; 3]> {
    let numbers: Vec<u64> = value.split_whitespace().map(|n| n.parse().ok()).collect::<Option<_>>()?;
    let triple: [u64; 3] = numbers.try_into().ok()?;
    (triple[2] > 0 && triple.is_sorted()).then_some(triple)
}

/// Returns the key and the value in a line `key = value`, or `sysctl -w key="value"` after a prompt; `None`
/// for any other line.
pub fn key_value(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return None;
    }
    let (key, value) = line.split_once('=')?;
    let key = key.split_whitespace().next_back()?.trim_start_matches(['"', '\'', '-']);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '-');
    let is_key = key.contains(['.', '/']) && key.chars().all(plain);
    is_key.then(|| (key, value.trim().trim_matches(['"', '\'']).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_with_prompts_and_here_documents_is_read() {
        let text = "[lhop@localhost ~]$ cat <<EOF>> /etc/sysctl.conf\r\nnet.core.wmem_max = 26214400\r\n\
                    net.ipv4.tcp_wmem = 4096\t87380 26214400\r\nEOF\r\nsysctl -p\r\n";
        let host = HostSettings::parse(text).unwrap();
        assert_eq!(host.core_wmem_max, Some(Bytes::new(26_214_400)));
        assert_eq!(host.tcp_wmem.map(|w| w[2]), Some(Bytes::new(26_214_400)));
        assert_eq!(host.tcp_rmem, None);
    }

    #[test]
    fn all_spellings_of_a_setting_are_taken_and_the_last_counts() {
        let text = "# net.ipv4.tcp_rmem = 1 2 3\n$ sudo sysctl -w net.ipv4.tcp_rmem=\"4096 131072 6291456\"\n\
                    net/ipv4/tcp_adv_win_scale=-2\nnet.ipv4.tcp_adv_win_scale = 1\nkernel.osrelease = 5.15.0-91-generic\n\
                    net.ipv4.tcp_available_congestion_control = reno cubic\nfs.file-max = 12";
        let host = HostSettings::parse(text).unwrap();
        assert_eq!(host.tcp_rmem.map(|r| r[2]), Some(Bytes::from_mib(6)));
        assert_eq!(host.adv_win_scale, Some(1));
        assert_eq!(host.kernel, Some(KernelVersion::new(5, 15)));
        assert_eq!(host.window_rule(None), Some(WindowRule::AdvWinScale(1)));
        assert!(host.lacks_congestion_control("bbr"));
        assert!(!host.lacks_congestion_control("cubic"));
        assert!(!HostSettings::default().lacks_congestion_control("bbr"));
    }

    #[test]
    fn nonsense_is_refused_with_a_hint_and_never_a_panic() {
        for text in [
            "",
            "\0\u{fffd}=\u{fffd}",
            "hello = world",
            "net.unknown.key = 4",
            "net.ipv4.tcp_rmem = 4096 87380",
            "net.ipv4.tcp_rmem = 4096 87380 -1",
            "net.ipv4.tcp_wmem = 1 2 99999999999999999999999",
            "net.ipv4.tcp_wmem = 0 0 0",
            "net.ipv4.tcp_rmem = 6291456 131072 4096",
            "net.ipv4.tcp_mem = 1 3 2",
            "net.ipv4.tcp_adv_win_scale = 400",
            "net.ipv4.tcp_adv_win_scale = -128",
            "net.core.rmem_max = lots",
            "=====",
            "net.ipv4.tcp_wmem",
        ] {
            let error = HostSettings::parse(text).unwrap_err();
            assert!(!error.hint.is_empty() && !error.message.contains('\n'), "{text:?}");
        }
    }
}
