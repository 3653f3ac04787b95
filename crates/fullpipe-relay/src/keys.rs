//! Keys of relays and clients: ed25519 raw public keys in TLS (RFC 7250), pinned by their fingerprints.
//!
//! As with SSH, there is no certificate: a client names the fingerprint of its relay, and a relay lists the
//! fingerprints of its clients with their rights.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use fullpipe_units::Rate;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::SignatureAlgorithm;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;

use crate::error::Error;
use crate::hex::Hex;
use crate::send::LEAST_LIMIT;

/// Permission bits of a key file, which only its owner may read.
const PRIVATE: u32 = 0o600;
/// Permission bits of the group and of other users.
const OTHERS: u32 = 0o077;
/// Maximum size of a key file in bytes; an ed25519 key has 83 bytes at most.
const MOST_KEY: u64 = 4096;

/// SHA-256 of a public key (its SubjectPublicKeyInfo), written as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint(Hex<32>);

impl Fingerprint {
    /// Returns the fingerprint of a public key in DER form.
    pub(crate) fn of(public_key: &[u8]) -> Self {
        let hash = digest(&SHA256, public_key);
        let mut bytes = [0; 32];
        bytes.copy_from_slice(hash.as_ref());
        Self(Hex(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.strip_prefix("sha256:").and_then(|digits| digits.parse().ok());
        digits.map(Self).ok_or_else(|| {
            Error::usage(
                format!("'{text}' is not a fingerprint"),
                "print the fingerprint of a host's key with fullpipe relay key",
            )
        })
    }
}

/// Private key of this host with its fingerprint.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(crate) key: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
}

impl Identity {
    /// Reads the key file at `path`, or creates it with a new key.
    ///
    /// # Errors
    /// Returns an error if the file contains no ed25519 key, or if other users may read it.
    pub fn load_or_create(path: &Path) -> Result<Self, Error> {
        match fs::metadata(path) {
            Ok(metadata) => {
                if metadata.permissions().mode() & OTHERS != 0 {
                    return Err(Error::rights(
                        format!("other users may read the key {}", path.display()),
                        format!("chmod 600 {}", path.display()),
                    ));
                }
                if metadata.len() > MOST_KEY {
                    return Err(not_a_key(path));
                }
                let der = fs::read(path).map_err(|error| {
                    Error::system(format_args!("read the key {}", path.display()), &error)
                })?;
                Self::from_der(der).ok_or_else(|| not_a_key(path))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(path),
            Err(error) => Err(Error::system(format_args!("read the key {}", path.display()), &error)),
        }
    }

    /// Creates a key for one copy, without writing it to a file.
    ///
    /// # Errors
    /// Returns an error if the system's random number generator fails.
    pub fn temporary() -> Result<Self, Error> {
        Ok(Self::generate()?.0)
    }

    fn create(path: &Path) -> Result<Self, Error> {
        let failed =
            |error: io::Error| Error::system(format_args!("create the key {}", path.display()), &error);
        let (identity, der) = Self::generate()?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path).map_err(failed)?;
        file.write_all(&der).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(identity)
    }

    /// Creates a new key; returns the key and its PKCS #8 document.
    pub(crate) fn generate() -> Result<(Self, Vec<u8>), Error> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let der = document.map(|document| document.as_ref().to_vec()).ok();
        let made = der.and_then(|der| Some((Self::from_der(der.clone())?, der)));
        made.ok_or_else(|| Error::runtime("the system's random number generator failed", ""))
    }

    fn from_der(der: Vec<u8>) -> Option<Self> {
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der));
        let key = default_provider().key_provider.load_private_key(der).ok()?;
        if key.algorithm() != SignatureAlgorithm::ED25519 {
            return None;
        }
        let public = key.public_key()?.as_ref().to_vec();
        let fingerprint = Fingerprint::of(&public);
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public)], key));
        Some(Self { key, fingerprint })
    }

    /// Returns the fingerprint of the public key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

fn not_a_key(path: &Path) -> Error {
    Error::runtime(
        format!("{} does not contain an ed25519 key", path.display()),
        "pass another file with --key; fullpipe relay key creates the key if the file does not exist",
    )
}

/// What a client may do in its folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// The client may copy files to the relay and from it.
    #[default]
    ReadWrite,
    /// The client may copy files to the relay only.
    WriteOnly,
    /// The client may copy files from the relay only.
    ReadOnly,
}

/// Rights of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Folder of the client, instead of the root of the relay.
    pub root: Option<PathBuf>,
    /// What the client may do in this folder.
    pub access: Access,
    /// Highest rate of the client's payload in each direction, over all of its connections.
    pub limit: Option<Rate>,
}

impl Rights {
    /// Returns whether the client may copy files from the relay.
    pub(crate) fn may_read(&self) -> bool {
        self.access != Access::WriteOnly
    }

    /// Returns whether the client may copy files to the relay.
    pub(crate) fn may_write(&self) -> bool {
        self.access != Access::ReadOnly
    }
}

/// Clients that a relay accepts, with their rights.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList {
    clients: BTreeMap<Fingerprint, Rights>,
}

impl AllowList {
    /// Adds a client with all rights.
    pub fn add(&mut self, client: Fingerprint) {
        self.clients.insert(client, Rights::default());
    }

    /// Adds the clients in an allow file: one per line, a fingerprint followed by rights. `#` begins a
    /// comment.
    ///
    /// # Errors
    /// Returns an error if a line is not valid. A right that this version does not know is an error, because
    /// ignoring a restriction would grant more than the file states.
    pub fn add_file(&mut self, text: &str) -> Result<(), Error> {
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let Some(first) = words.next() else { continue };
            let client: Fingerprint = first.parse().map_err(|error: Error| Error {
                message: format!("line {number}: {}", error.message),
                ..error
            })?;
            let mut rights = Rights::default();
            for word in words {
                match word.split_once('=') {
                    Some(("root", folder)) if !folder.is_empty() => rights.root = Some(folder.into()),
                    Some(("limit", rate)) => {
                        let limit = rate.parse().ok().filter(|limit| *limit >= LEAST_LIMIT);
                        rights.limit = Some(limit.ok_or_else(|| {
                            Error::usage(
                                format!("line {number}: '{rate}' is not a valid rate limit"),
                                format!("write a rate of at least {LEAST_LIMIT}, for example limit=100mbit"),
                            )
                        })?);
                    }
                    None if word == "write-only" && rights.access != Access::ReadOnly => {
                        rights.access = Access::WriteOnly;
                    }
                    None if word == "read-only" && rights.access != Access::WriteOnly => {
                        rights.access = Access::ReadOnly;
                    }
                    None if ["write-only", "read-only"].contains(&word) => {
                        return Err(Error::usage(
                            format!("line {number}: a client is either read-only or write-only"),
                            "to permit both, remove both words",
                        ));
                    }
                    _ => {
                        return Err(Error::usage(
                            format!("line {number}: unknown right '{word}'"),
                            "known: root=FOLDER, limit=RATE, read-only, write-only",
                        ));
                    }
                }
            }
            self.clients.insert(client, rights);
        }
        Ok(())
    }

    /// Returns the rights of a client, or `None` if it is not accepted.
    pub fn rights(&self, client: Fingerprint) -> Option<&Rights> {
        self.clients.get(&client)
    }

    /// Returns whether no client is accepted.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// Returns the clients whose rate is limited, with their limits.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (Fingerprint, Rate)> {
        self.clients.iter().filter_map(|(client, rights)| Some((*client, rights.limit?)))
    }

    /// Returns the folders of those clients that have a folder other than the root of the relay.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &Path> {
        self.clients.values().filter_map(|rights| rights.root.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_fingerprint() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("new/relay.key");
        let made = Identity::load_or_create(&path).expect("a key");
        let read = Identity::load_or_create(&path).expect("the same key");
        assert_eq!(made.fingerprint(), read.fingerprint());
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, PRIVATE);
        let other = Identity::generate().expect("a key").0;
        assert_ne!(other.fingerprint(), made.fingerprint());
        let text = made.fingerprint().to_string();
        assert_eq!(text.parse(), Ok(made.fingerprint()));
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("relay.key");
        Identity::load_or_create(&path).expect("a key");
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the owner may do so");
            let refused = Identity::load_or_create(&path).expect_err("other users may read it");
            assert_eq!(refused.hint, format!("chmod 600 {}", path.display()));
        }
    }

    #[test]
    fn a_file_without_a_key_is_refused_and_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notes");
        for content in [&b""[..], b"not a key", &[0x30; 5000]] {
            fs::write(&path, content).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(PRIVATE)).expect("the owner may do so");
            assert!(Identity::load_or_create(&path).is_err());
            assert_eq!(fs::read(&path).expect("a file"), content);
        }
    }

    #[test]
    fn an_allow_file_gives_each_client_its_rights() {
        let (one, two) = (Fingerprint(Hex([1; 32])), Fingerprint(Hex([2; 32])));
        let mut allowed = AllowList::default();
        let three = Fingerprint(Hex([3; 32]));
        let text = format!(
            "# clients\n\n{one} root=/srv/in write-only limit=20mbit # the office\n  {two}\n{three} read-only\n"
        );
        allowed.add_file(&text).expect("valid");
        assert_eq!(
            allowed.rights(one),
            Some(&Rights {
                root: Some("/srv/in".into()),
                access: Access::WriteOnly,
                limit: Some(Rate::from_bps(20_000_000))
            })
        );
        assert_eq!(allowed.rights(two), Some(&Rights::default()));
        let rights = allowed.rights(three).expect("listed");
        assert!(rights.may_read() && !rights.may_write());
        assert_eq!(allowed.rights(Fingerprint(Hex([4; 32]))), None);
        for wrong in [
            "sha256:12",
            "md5:00",
            &format!("{one} limit=fast"),
            &format!("{one} limit=10kbit"),
            &format!("{one} root="),
            &format!("{one} read-only write-only"),
        ] {
            let error = allowed.add_file(&format!("\n{wrong}")).expect_err(wrong);
            assert!(error.message.starts_with("line 2: "), "{error}");
        }
    }
}
