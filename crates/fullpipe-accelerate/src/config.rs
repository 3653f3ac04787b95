//! Configuration of `fullpipe accelerate`: a TOML file whose values the command line can override.
//!
//! ```toml
//! user = "fullpipe"            # the worker runs as this user
//! memory = "1GiB"              # maximum size of the buffers of all connections
//! connections = 100000
//! syn_rate = 50000             # above this number per second, SYNs are left to the kernel
//! speed = "1gbit"              # speed of the device to the clients, if its driver does not report it
//! [[listen]]
//! address = "203.0.113.5:443"
//! upstream = "127.0.0.1:8443"  # or unix:/run/server.sock
//! client_address = "proxy-v2"  # or transparent, hidden
//! cc = "bbr1"
//! match = "ip saddr 198.51.100.0/24"
//! [paths]                      # measurements of earlier connections, for surge
//! remember = true
//! client_budget = "64KiB"
//! [[policy]]                   # clients with a profile of their own
//! client = "198.51.100.0/24"
//! profile = "careful"
//! [profile.careful]
//! launch.window = 10
//! ```
//!
//! Unknown keys are errors, because otherwise a misspelt limit would have no effect.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use fullpipe_lab::nearest::nearest_name;
use fullpipe_tcp::cc::Algorithm;
use fullpipe_tcp::memory::MemoryLimits;
use fullpipe_units::{Bytes, Probability, Rate};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::policies::Senders;
use crate::steering;

/// Default memory budget of all connections.
const MEMORY: Bytes = Bytes::from_mib(1 << 10);
/// Minimum memory budget, enough for one read in each direction and the buffers of a few connections.
const LEAST_MEMORY: Bytes = Bytes::from_mib(1);
/// Default maximum number of connections.
const CONNECTIONS: usize = 100_000;
/// Largest permitted values of `connections` and `syn_rate`. The keeper reads the shared table of this number of
/// connections, and as many in TIME-WAIT; nftables counts a tenth of this number of SYNs in 32 bits.
const MOST_CONNECTIONS: usize = 800_000;
const MOST_SYN_RATE: usize = 1_000_000_000;
/// Default maximum number of SYNs per second that are forwarded to the worker. The worker can answer far more
/// SYNs, but would then use CPU time that its connections need.
const SYN_RATE: usize = 50_000;

/// Address of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Upstream {
    /// TCP address and port.
    Tcp(SocketAddr),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Upstream {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        if let Some(path) = text.strip_prefix("unix:") {
            if !path.starts_with('/') {
                return Err(ConfigError::new(
                    format!("'{path}' is not an absolute path"),
                    "write unix:/run/server.sock",
                ));
            }
            return Ok(Self::Unix(path.into()));
        }
        let addresses = text.to_socket_addrs().map_err(|error| {
            ConfigError::new(
                format!("cannot use '{text}' as the server's address: {error}"),
                "write HOST:PORT",
            )
        })?;
        let first = { addresses }.next();
        first
            .map(Self::Tcp)
            .ok_or_else(|| ConfigError::new(format!("{text} has no address"), "write HOST:PORT"))
    }
}

/// How the server learns the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientAddress {
    /// A PROXY protocol header, version 2, precedes the bytes of the client.
    ProxyV2,
    /// The worker's sockets use the client's address, so the server sees the client as its peer.
    Transparent,
    /// The server sees only the worker's loopback address.
    Hidden,
}

impl ClientAddress {
    /// Names of all values, for hints.
    pub const KNOWN: &'static str = "known: proxy-v2, transparent, hidden";
}

impl FromStr for ClientAddress {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "proxy-v2" => Ok(Self::ProxyV2),
            "transparent" => Ok(Self::Transparent),
            "hidden" => Ok(Self::Hidden),
            _ => Err(ConfigError::new(format!("unknown client address mode '{text}'"), Self::KNOWN)),
        }
    }
}

/// Settings of the path memory: section `[paths]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Whether connections use measurements of earlier connections to the same network, and launch within the
    /// budgets in `limits`.
    pub remember: bool,
    /// Size of the path memory, and budgets of launches.
    pub limits: MemoryLimits,
}

impl Default for Paths {
    fn default() -> Self {
        Self { remember: true, limits: MemoryLimits::DEFAULT }
    }
}

impl Paths {
    fn read(table: Table) -> Result<Self, ConfigError> {
        let mut section = Section { name: "[paths]", table };
        let default = MemoryLimits::DEFAULT;
        let share: Option<Probability> = section.parsed("device_share")?;
        let permille = share.map(|share| (1_000.0 * share.as_f64()).round() as u32);
        let limits = MemoryLimits {
            prefixes: section.number("prefixes")?.unwrap_or(default.prefixes),
            client: section.parsed("client_budget")?.unwrap_or(default.client),
            prefix: section.parsed("prefix_budget")?.unwrap_or(default.prefix),
            device_permille: permille.unwrap_or(default.device_permille),
        };
        let remember = section.flag("remember")?.unwrap_or(true);
        section.finish(&["remember", "prefixes", "client_budget", "prefix_budget", "device_share"])?;
        limits.check().map_err(|error| {
            ConfigError::new(format!("[paths]: {error}"), format!("allowed: {}", error.allowed()))
        })?;
        Ok(Self { remember, limits })
    }
}

/// Error in the configuration, with a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// One-line message without a final period.
    pub message: String,
    /// Hint that suggests a remedy; may be empty.
    pub hint: String,
}

impl ConfigError {
    pub(crate) fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConfigError {}

/// Values from the command line or from the file; `None` for values that were not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Address and port whose connections are accelerated.
    pub listen: Option<SocketAddr>,
    /// The server.
    pub upstream: Option<Upstream>,
    /// How the server learns the client's address.
    pub client_address: Option<ClientAddress>,
    /// Congestion control.
    pub cc: Option<Algorithm>,
    /// nftables expression that selects clients.
    pub matching: Option<String>,
    /// User of the worker.
    pub user: Option<String>,
    /// Memory budget.
    pub memory: Option<Bytes>,
    /// Maximum number of connections.
    pub connections: Option<usize>,
    /// Maximum number of SYNs per second that are forwarded to the worker.
    pub syn_rate: Option<usize>,
    /// Speed of the device that leads to the clients.
    pub speed: Option<Rate>,
    /// Settings of the path memory.
    pub paths: Option<Paths>,
    /// Profiles and policies.
    pub senders: Option<Senders>,
}

/// Complete settings of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Address and port whose connections are accelerated.
    pub listen: SocketAddr,
    /// The server.
    pub upstream: Upstream,
    /// How the server learns the client's address.
    pub client_address: ClientAddress,
    /// Congestion control.
    pub cc: Algorithm,
    /// nftables expression that selects clients.
    pub matching: Option<String>,
    /// User of the worker; `None` selects `fullpipe` if that user exists, and `nobody` otherwise.
    pub user: Option<String>,
    /// Memory budget of all connections.
    pub memory: Bytes,
    /// Maximum number of connections.
    pub connections: usize,
    /// Maximum number of SYNs per second that are forwarded to the worker. New connections above this rate
    /// are left to the kernel.
    pub syn_rate: usize,
    /// Speed of the device that leads to the clients; `None` selects the speed that its driver or shaper
    /// reports.
    pub speed: Option<Rate>,
    /// Settings of the path memory.
    pub paths: Paths,
    /// Profiles and policies.
    pub senders: Senders,
}

impl Inputs {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// Returns an error if the text is not TOML, or if a key or value is unknown.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let mut table: Table =
            text.parse().map_err(|error: toml::de::Error| ConfigError::new(error.message(), ""))?;
        let [listen, paths, policies, profiles] =
            ["listen", "paths", "policy", "profile"].map(|key| table.remove(key));
        let mut top = Section { name: "the file", table };
        let mut found = Self {
            user: top.text("user")?,
            memory: top.parsed("memory")?,
            connections: top.number("connections")?,
            syn_rate: top.number("syn_rate")?,
            speed: top.parsed("speed")?,
            ..Self::default()
        };
        top.finish(&[
            "user",
            "memory",
            "connections",
            "syn_rate",
            "speed",
            "listen",
            "paths",
            "policy",
            "profile",
        ])?;
        found.paths = match paths {
            None => None,
            Some(Value::Table(table)) => Some(Paths::read(table)?),
            Some(_) => return Err(ConfigError::new("paths is not a table", "write [paths]")),
        };
        let mut profile = None;
        if let Some(listen) = listen {
            let mut sections = sections("listen", listen)?;
            let (Some(table), true) = (sections.pop(), sections.is_empty()) else {
                return Err(ConfigError::new(
                    "the file does not have exactly one [[listen]] section",
                    "start one fullpipe accelerate per port",
                ));
            };
            let mut section = Section { name: "[[listen]]", table };
            found.listen = section.parsed("address")?;
            found.upstream = section.parsed("upstream")?;
            found.client_address = section.parsed("client_address")?;
            found.cc = section.parsed("cc")?;
            found.matching = section.text("match")?;
            profile = section.text("profile")?;
            section.finish(&["address", "upstream", "client_address", "cc", "match", "profile"])?;
        }
        found.senders = Some(senders(profile.as_deref(), policies, profiles)?);
        Ok(found)
    }

    /// Returns these values, with missing values taken from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            upstream: self.upstream.or(other.upstream),
            client_address: self.client_address.or(other.client_address),
            cc: self.cc.or(other.cc),
            matching: self.matching.or(other.matching),
            user: self.user.or(other.user),
            memory: self.memory.or(other.memory),
            connections: self.connections.or(other.connections),
            syn_rate: self.syn_rate.or(other.syn_rate),
            speed: self.speed.or(other.speed),
            paths: self.paths.or(other.paths),
            senders: self.senders.or(other.senders),
        }
    }

    /// Completes the values with defaults and checks them.
    ///
    /// # Errors
    /// Returns an error if a required value is missing, or if the values contradict each other.
    pub fn complete(self) -> Result<Settings, ConfigError> {
        let missing = |what: &str, example: &str| ConfigError::new(format!("{what} is missing"), example);
        let listen = self.listen.ok_or_else(|| {
            missing("the address to listen on", "add --listen ADDRESS:PORT, for example 203.0.113.5:443")
        })?;
        let upstream = self.upstream.ok_or_else(|| {
            missing("the address of the server", "add --upstream HOST:PORT, for example 127.0.0.1:8443")
        })?;
        // There is no default, because a default could give clients access to a server that trusts
        // connections from 127.0.0.1.
        let client_address = self.client_address.ok_or_else(|| {
            missing(
                "--client-address",
                "add --client-address proxy-v2 if the server accepts the PROXY protocol, otherwise \
                 --client-address transparent or hidden",
            )
        })?;
        if listen.ip().is_unspecified() || listen.port() == 0 {
            return Err(ConfigError::new(
                format!("{listen} is not a specific address and port"),
                "start one fullpipe accelerate per address, for example with --listen 203.0.113.5:443",
            ));
        }
        if listen.ip().to_canonical().is_loopback() {
            return Err(ConfigError::new(
                format!("{listen} is a loopback address, so only this host can connect to it"),
                "pass the address to which the clients connect with --listen, for example 203.0.113.5:443",
            ));
        }
        if matches!(&upstream, Upstream::Tcp(server) if server.port() == 0) {
            return Err(ConfigError::new(
                format!("the address of the server, {upstream}, has no port"),
                "write the port of the server, for example 127.0.0.1:8443",
            ));
        }
        if upstream == Upstream::Tcp(listen) {
            return Err(ConfigError::new(
                format!("the address of the server, {upstream}, is the same as the address to listen on"),
                "let the server also listen on a loopback address, and pass that address with --upstream",
            ));
        }
        if client_address == ClientAddress::Transparent {
            // The server's answers must be routed back to the worker. Only a loopback address guarantees that
            // the answers belong to no other client.
            let local = matches!(&upstream, Upstream::Tcp(server)
                if server.ip().is_loopback() && server.is_ipv4() == listen.is_ipv4());
            if !local {
                let example = if listen.is_ipv4() { "127.0.0.1:8443" } else { "[::1]:8443" };
                return Err(ConfigError::new(
                    format!("--client-address transparent does not work with a server at {upstream}"),
                    format!(
                        "pass a loopback address of the same family with --upstream, for example {example}"
                    ),
                ));
            }
        }
        if let Some(matching) = &self.matching {
            steering::check_match(matching).map_err(|why| {
                ConfigError::new(
                    format!("the expression of --match is not valid: {why}"),
                    "write an nftables expression",
                )
            })?;
        }
        let memory = self.memory.unwrap_or(MEMORY);
        if memory < LEAST_MEMORY {
            return Err(ConfigError::new(
                format!("{memory} of memory is too little"),
                format!("write at least {LEAST_MEMORY}"),
            ));
        }
        let connections = within("connections", self.connections.unwrap_or(CONNECTIONS), MOST_CONNECTIONS)?;
        let syn_rate = within("syn_rate", self.syn_rate.unwrap_or(SYN_RATE), MOST_SYN_RATE)?;
        if self.speed.is_some_and(Rate::is_zero) {
            return Err(ConfigError::new("speed is 0", "write the speed of the device, for example 1gbit"));
        }
        Ok(Settings {
            listen,
            upstream,
            client_address,
            cc: self.cc.unwrap_or(Algorithm::Bbr1),
            matching: self.matching,
            user: self.user,
            memory,
            connections,
            syn_rate,
            speed: self.speed,
            paths: self.paths.unwrap_or_default(),
            senders: self.senders.unwrap_or_default(),
        })
    }
}

/// Checks that the value of `key` is at least 1 and at most `most`.
fn within(key: &str, value: usize, most: usize) -> Result<usize, ConfigError> {
    if (1..=most).contains(&value) {
        return Ok(value);
    }
    Err(ConfigError::new(format!("{key} is {value}"), format!("write a number from 1 to {most}")))
}

/// Returns the tables of an array of tables.
fn sections(name: &str, value: Value) -> Result<Vec<Table>, ConfigError> {
    let tables = match value {
        Value::Array(sections) => sections
            .into_iter()
            .map(|section| if let Value::Table(table) = section { Some(table) } else { None })
            .collect(),
        _ => None,
    };
    tables.ok_or_else(|| {
        ConfigError::new(format!("{name} is not an array of tables"), format!("write [[{name}]]"))
    })
}

/// Reads the sections `[[policy]]` and `[profile.NAME]`. `profile` is the profile of `[[listen]]`.
fn senders(
    profile: Option<&str>,
    policies: Option<Value>,
    profiles: Option<Value>,
) -> Result<Senders, ConfigError> {
    let policy = |table: Table| {
        let mut section = Section { name: "[[policy]]", table };
        let (client, profile) = (section.text("client")?, section.text("profile")?);
        section.finish(&["client", "profile"])?;
        let missing = |key: &str, example: &str| {
            ConfigError::new(
                format!("{key} is missing in [[policy]]"),
                format!("write {key} = \"{example}\""),
            )
        };
        Ok((
            client.ok_or_else(|| missing("client", "198.51.100.0/24"))?,
            profile.ok_or_else(|| missing("profile", "careful"))?,
        ))
    };
    let policies = policies.map_or_else(|| Ok(Vec::new()), |policies| sections("policy", policies))?;
    let policies = policies.into_iter().map(policy).collect::<Result<_, ConfigError>>()?;
    let tables = match profiles {
        None => Some(Vec::new()),
        Some(Value::Table(tables)) => {
            let table = |(name, table): (String, Value)| match table {
                Value::Table(table) => Some((name, table)),
                _ => None,
            };
            tables.into_iter().map(table).collect()
        }
        Some(_) => None,
    };
    let tables = tables.ok_or_else(|| ConfigError::new("profile is not a table", "write [profile.web]"))?;
    Senders::read(profile, policies, &tables)
}

/// A table of the file, from which each known key is removed when it is read.
struct Section {
    name: &'static str,
    table: Table,
}

impl Section {
    fn text(&mut self, key: &str) -> Result<Option<String>, ConfigError> {
        match self.table.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(ConfigError::new(
                format!("{key} in {} has the type {}, not string", self.name, other.type_str()),
                format!("write {key} = \"...\""),
            )),
        }
    }

    fn parsed<T: FromStr<Err: fmt::Display>>(&mut self, key: &str) -> Result<Option<T>, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        let parsed = text.parse::<T>().map_err(|error| {
            ConfigError::new(
                format!("{key} in {}: {error}", self.name),
                "see the examples in fullpipe accelerate --help",
            )
        });
        parsed.map(Some)
    }

    fn number(&mut self, key: &str) -> Result<Option<usize>, ConfigError> {
        match self.table.remove(key) {
            None => Ok(None),
            Some(Value::Integer(number)) => usize::try_from(number).map(Some).map_err(|_| {
                ConfigError::new(format!("{key} in {} is {number}", self.name), "write a positive number")
            }),
            Some(other) => Err(ConfigError::new(
                format!("{key} in {} has the type {}, not integer", self.name, other.type_str()),
                format!("write {key} = 1000"),
            )),
        }
    }

    fn flag(&mut self, key: &str) -> Result<Option<bool>, ConfigError> {
        match self.table.remove(key) {
            None => Ok(None),
            Some(Value::Boolean(flag)) => Ok(Some(flag)),
            Some(other) => Err(ConfigError::new(
                format!("{key} in {} has the type {}, not boolean", self.name, other.type_str()),
                format!("write {key} = true"),
            )),
        }
    }

    /// Returns an error for the keys that remain; the hint is the nearest of the `known` keys, or all of
    /// them.
    fn finish(self, known: &[&str]) -> Result<(), ConfigError> {
        let Some(unknown) = self.table.keys().next() else { return Ok(()) };
        let nearest = nearest_name(unknown, known.iter().copied());
        let hint = nearest
            .map_or_else(|| format!("known: {}", known.join(", ")), |name| format!("did you mean {name}?"));
        Err(ConfigError::new(format!("unknown key '{unknown}' in {}", self.name), hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        user = "web"
        memory = "64MiB"
        connections = 500
        syn_rate = 2000
        speed = "10gbit"
        [[listen]]
        address = "203.0.113.5:443"
        upstream = "127.0.0.1:8443"
        client_address = "proxy-v2"
        cc = "cubic"
        match = "ip saddr 198.51.100.0/24"
        profile = "web"
        [[policy]]
        client = "198.51.100.0/25"
        profile = "careful"
        [profile.web]
        launch = { window = 32, rate = "10mbit" }
        [profile.careful]
        launch.window = 10
        [paths]
        prefixes = 4096
        client_budget = "32KiB"
        prefix_budget = "128KiB"
        device_share = "2.5%"
    "#;

    fn senders() -> Senders {
        let table = |text: &str| text.parse().expect("TOML");
        let profiles = [
            ("web".into(), table("launch = { window = 32, rate = '10mbit' }")),
            ("careful".into(), table("launch.window = 10")),
        ];
        let policies = vec![("198.51.100.0/25".into(), "careful".into())];
        Senders::read(Some("web"), policies, &profiles).expect("valid")
    }

    fn error(text: &str) -> (String, String) {
        let error = Inputs::from_toml(text).and_then(Inputs::complete).expect_err("an error");
        (error.message, error.hint)
    }

    #[test]
    fn a_file_is_read_whole() {
        let settings = Inputs::from_toml(FILE).and_then(Inputs::complete).expect("a valid file");
        let expected = Settings {
            listen: SocketAddr::from(([203, 0, 113, 5], 443)),
            upstream: Upstream::Tcp(SocketAddr::from(([127, 0, 0, 1], 8_443))),
            client_address: ClientAddress::ProxyV2,
            cc: Algorithm::Cubic,
            matching: Some("ip saddr 198.51.100.0/24".into()),
            user: Some("web".into()),
            memory: Bytes::from_mib(64),
            connections: 500,
            syn_rate: 2_000,
            speed: Some(Rate::from_bps(10_000_000_000)),
            paths: Paths {
                remember: true,
                limits: MemoryLimits {
                    prefixes: 4_096,
                    client: Bytes::from_kib(32),
                    prefix: Bytes::from_kib(128),
                    device_permille: 25,
                },
            },
            senders: senders(),
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn the_command_line_comes_first() {
        let given = Inputs {
            upstream: Some("unix:/run/server.sock".parse().expect("a path")),
            cc: Some(Algorithm::Bbr3),
            ..Inputs::default()
        };
        let settings = given.or(Inputs::from_toml(FILE).expect("a valid file")).complete().expect("complete");
        assert_eq!(settings.upstream.to_string(), "unix:/run/server.sock");
        assert_eq!((settings.cc, settings.connections), (Algorithm::Bbr3, 500));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_one() {
        let (message, hint) = error("memmory = \"1GiB\"");
        assert_eq!(message, "unknown key 'memmory' in the file");
        assert_eq!(hint, "did you mean memory?");
        let (_, hint) = error("colour = \"red\"");
        assert_eq!(hint, "known: user, memory, connections, syn_rate, speed, listen, paths, policy, profile");
        let (message, hint) = error("[[listen]]\nadress = \"203.0.113.5:443\"");
        assert_eq!(message, "unknown key 'adress' in [[listen]]");
        assert_eq!(hint, "did you mean address?");
        let (message, hint) = error("[paths]\nclient_buget = \"64KiB\"");
        assert_eq!(message, "unknown key 'client_buget' in [paths]");
        assert_eq!(hint, "did you mean client_budget?");
    }

    #[test]
    fn wrong_values_are_named() {
        for (text, part) in [
            ("connections = \"many\"", "connections in the file has the type string, not integer"),
            ("connections = -1", "connections in the file is -1"),
            ("syn_rate = 0", "is missing"),
            ("memory = 5", "memory in the file has the type integer, not string"),
            ("memory = \"much\"", "memory in the file: "),
            ("listen = 5", "listen is not an array of tables"),
            ("paths = 5", "paths is not a table"),
            ("[paths]\nremember = 1", "remember in [paths] has the type integer, not boolean"),
            ("[paths]\nprefixes = 70000", "[paths]: prefixes 70000 is out of range"),
            ("[paths]\nclient_budget = \"1MiB\"", "[paths]: client_budget 1 MiB is out of range"),
            ("[paths]\ndevice_share = \"6%\"", "[paths]: device_share 6 is out of range"),
            ("[[listen]]\n[[listen]]", "exactly one [[listen]] section"),
            ("policy = 5", "policy is not an array of tables"),
            ("policy = [5]", "policy is not an array of tables"),
            ("profile = 5", "profile is not a table"),
            ("profile.web = 5", "profile is not a table"),
            ("[[policy]]\nprofile = 'web'", "client is missing in [[policy]]"),
            ("[[policy]]\nclient = '::/0'", "profile is missing in [[policy]]"),
            ("[[policy]]\nclients = '::/0'", "unknown key 'clients' in [[policy]]"),
            ("[[policy]]\nclient = '::/0'\nprofile = 'web'", "there is no profile 'web'"),
            ("[[listen]]\nprofile = 'wob'\n[profile.web]", "there is no profile 'wob'"),
            ("[[listen]]\nprofile = 'tcpa'", "there is no profile 'tcpa'"),
            (
                "[[policy]]\nclient = 'web'\nprofile = 'a'\n[profile.a]",
                "client in [[policy]]: 'web' is not a network",
            ),
            ("[profile.iw]", "'iw' cannot be the name of a profile"),
            ("[profile.web]\nlaunch.windw = 44", "[profile.web]: unknown key 'launch.windw'"),
            ("[profile.web]\nlaunch.window = 65", "[profile.web]: launch.window '65' requires lab = true"),
            (
                "[profile.web]\nlab = true",
                "[profile.web]: lab = true is only for simulated and emulated paths",
            ),
            ("[profile.web]\nwnd_extend = 1", "[profile.web]: the key 'wnd_extend' is refused"),
            ("[[listen]]\nclient_address = \"magic\"", "unknown client address mode 'magic'"),
            ("[[listen]]\nupstream = \"unix:server.sock\"", "'server.sock' is not an absolute path"),
            ("= 5", ""),
        ] {
            let (message, _) = error(text);
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    /// The service does not start without a choice for the client's address, nor if the server uses the port
    /// that the service takes over.
    #[test]
    fn incomplete_settings_are_refused() {
        let whole = || Inputs::from_toml(FILE).expect("a valid file");
        let refused = |inputs: Inputs| inputs.complete().expect_err("an error").message;
        assert_eq!(refused(Inputs { listen: None, ..whole() }), "the address to listen on is missing");
        assert_eq!(refused(Inputs { upstream: None, ..whole() }), "the address of the server is missing");
        assert!(refused(Inputs { client_address: None, ..whole() }).contains("--client-address"));
        let listen = "203.0.113.5:443".parse().expect("an address");
        assert!(
            refused(Inputs { upstream: Some(Upstream::Tcp(listen)), ..whole() }).contains("to listen on")
        );
        let transparent = |upstream: &str| {
            let upstream = upstream.parse().ok();
            Inputs { upstream, client_address: Some(ClientAddress::Transparent), ..whole() }
        };
        assert!(transparent("127.0.0.1:443").complete().is_ok());
        for upstream in ["[::1]:443", "203.0.113.5:8443", "unix:/run/server.sock"] {
            assert!(refused(transparent(upstream)).contains("does not work with"), "{upstream}");
        }
        let any = "0.0.0.0:443".parse().ok();
        assert_eq!(
            refused(Inputs { listen: any, ..whole() }),
            "0.0.0.0:443 is not a specific address and port"
        );
        for local in ["127.0.0.1:443", "[::1]:443", "[::ffff:127.0.0.1]:443"] {
            let inputs = Inputs { listen: local.parse().ok(), ..whole() };
            assert!(refused(inputs).contains("is a loopback address"), "{local}");
        }
        for (connections, syn_rate, expected) in [
            (Some(0), None, "connections is 0"),
            (Some(800_001), None, "connections is 800001"),
            (None, Some(0), "syn_rate is 0"),
            (None, Some(MOST_SYN_RATE + 1), "syn_rate is 1000000001"),
        ] {
            let whole = whole();
            let connections = connections.or(whole.connections);
            let syn_rate = syn_rate.or(whole.syn_rate);
            assert_eq!(refused(Inputs { connections, syn_rate, ..whole }), expected);
        }
        let upstream = "127.0.0.1:0".parse().ok();
        assert_eq!(
            refused(Inputs { upstream, ..whole() }),
            "the address of the server, 127.0.0.1:0, has no port"
        );
        let matching = Some("accept; flush ruleset".into());
        assert!(
            refused(Inputs { matching, ..whole() }).starts_with("the expression of --match is not valid")
        );
    }
}
