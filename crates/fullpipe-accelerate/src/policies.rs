//! Settings of the senders: the profile of all connections, and policies for the connections of some clients.
//!
//! ```toml
//! [[listen]]
//! profile = "web"
//! [[policy]]                   # the first policy that contains the client's address applies
//! client = "198.51.100.0/24"
//! profile = "careful"
//! [profile.web]
//! launch.window = 32
//! [profile.careful]
//! launch.window = 10
//! ```
//!
//! The keys of a profile are those of experiments ([`fullpipe_lab::profile`]). A profile with `lab = true` is refused,
//! because its wider ranges are only for simulated and emulated paths.

use fullpipe_lab::nearest::nearest_name;
use fullpipe_lab::profile::{Profile, ProfileError, ProfileName};
use fullpipe_tcp::stack::ClientPrefix;
use fullpipe_tcp::{Config, Tunables};
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::config::ConfigError;

/// Settings of the senders of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Senders {
    /// Profile of the connections to which no policy applies; `None` for the settings of Linux.
    profile: Option<NamedProfile>,
    policies: Vec<ClientPolicy>,
}

/// A valid profile, as the keeper sends it to the worker: the text of its table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NamedProfile {
    name: String,
    text: String,
}

/// Profile of the connections of some clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ClientPolicy {
    /// Network or address, as [`ClientPrefix`] reads it.
    client: String,
    profile: NamedProfile,
}

impl From<ProfileError> for ConfigError {
    fn from(error: ProfileError) -> Self {
        Self::new(error.message, error.hint)
    }
}

impl NamedProfile {
    fn read(name: &str, table: &Table) -> Result<Self, ConfigError> {
        let text = table.to_string();
        let named = Self { name: name.into(), text };
        if named.profile()?.lab {
            return Err(ConfigError::new(
                format!("[profile.{name}]: lab = true is only for simulated and emulated paths"),
                "remove lab, or use the profile in fullpipe race",
            ));
        }
        Ok(named)
    }

    fn profile(&self) -> Result<Profile, ConfigError> {
        let name: ProfileName = self.name.parse()?;
        let table: Table = self.text.parse().map_err(|error: toml::de::Error| {
            ConfigError::new(format!("[profile.{name}]: {}", error.message()), "")
        })?;
        Ok(Profile::read(name, &table)?)
    }

    /// Returns `config` with the settings of this profile.
    fn applied(&self, config: &Config) -> Result<Config, ConfigError> {
        Ok(applied(&self.profile()?, config))
    }
}

/// Returns `config` with the settings of `profile`, but with its own bursts, because they depend on the host.
pub(crate) fn applied(profile: &Profile, config: &Config) -> Config {
    let applied = profile.applied(config.clone());
    let tunables = Tunables { bursts: config.tunables.bursts, ..applied.tunables };
    Config { tunables, ..applied }
}

impl Senders {
    /// Reads the tables of the profiles and of the policies, in the order of the file. `profile` is the name that
    /// `[[listen]]` contains.
    ///
    /// # Errors
    /// Returns an error if a profile or a policy is not valid, or if a profile does not exist.
    pub(crate) fn read(
        profile: Option<&str>,
        policies: Vec<(String, String)>,
        tables: &[(String, Table)],
    ) -> Result<Self, ConfigError> {
        let profiles: Vec<NamedProfile> =
            tables.iter().map(|(name, table)| NamedProfile::read(name, table)).collect::<Result<_, _>>()?;
        let find = |name: &str| {
            let found = profiles.iter().find(|profile| profile.name == name);
            found.cloned().ok_or_else(|| {
                let known = profiles.iter().map(|profile| profile.name.as_str());
                let hint = nearest_name(name, known).map_or_else(
                    || format!("add a table [profile.{name}]"),
                    |nearest| format!("did you mean {nearest}?"),
                );
                ConfigError::new(format!("there is no profile '{name}'"), hint)
            })
        };
        let policy = |(client, profile): (String, String)| {
            client.parse::<ClientPrefix>().map_err(|error| {
                ConfigError::new(
                    format!("client in [[policy]]: {error}"),
                    "write the first address and the length",
                )
            })?;
            Ok(ClientPolicy { client, profile: find(&profile)? })
        };
        Ok(Self {
            profile: profile.map(find).transpose()?,
            policies: policies.into_iter().map(policy).collect::<Result<_, ConfigError>>()?,
        })
    }

    /// Returns whether a connection may launch more than ten segments although its congestion control does not.
    pub(crate) fn have_profiles(&self) -> bool {
        self.profile.is_some() || !self.policies.is_empty()
    }

    /// Returns the configuration of connections to which no policy applies, and the policies. `config` contains the
    /// settings that do not depend on the profile.
    pub(crate) fn configs(
        &self,
        config: &Config,
    ) -> Result<(Config, Vec<(ClientPrefix, Config)>), ConfigError> {
        let of_all =
            self.profile.as_ref().map_or_else(|| Ok(config.clone()), |profile| profile.applied(config))?;
        let policy = |policy: &ClientPolicy| {
            let clients = policy.client.parse().map_err(|_| ConfigError::new("client in [[policy]]", ""))?;
            Ok((clients, policy.profile.applied(config)?))
        };
        Ok((of_all, self.policies.iter().map(policy).collect::<Result<_, ConfigError>>()?))
    }
}
