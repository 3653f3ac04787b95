//! Source or target of a copy, as written on the command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::ssh;

/// Default port of a relay.
pub const PORT: u16 = 9581;
/// Prefix of a source or target on a relay.
const SCHEME: &[u8] = b"relay://";

/// Source or target of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// File or folder of this host.
    Local(PathBuf),
    /// Standard input or standard output.
    Pipe,
    /// File or folder of a running relay.
    Relay {
        /// Name or address of the host.
        host: String,
        /// Port of the relay.
        port: u16,
        /// Path below the root of the relay, without the leading slash.
        path: PathBuf,
        /// Whether the path ends with a slash or is empty, so that the names of the sources are
        /// appended to it.
        is_folder: bool,
    },
    /// File or folder of a host that is reached with ssh.
    Ssh {
        /// Host as written for ssh, with or without a user name.
        host: String,
        /// Absolute path, or path relative to the home folder.
        path: PathBuf,
        /// Whether the path ends with a slash or is empty, so that the names of the sources are
        /// appended to it.
        is_folder: bool,
    },
}

impl End {
    /// Parses a source or target: `PATH`, `HOST:PATH`, `relay://HOST[:PORT]/PATH`, or `-` for a
    /// pipe.
    ///
    /// # Errors
    /// Returns an error for an address that is not valid.
    pub fn parse(text: &OsStr) -> Result<Self, Error> {
        let bytes = text.as_bytes();
        if let Some(rest) = bytes.strip_prefix(SCHEME) {
            return relay(rest).ok_or_else(|| {
                Error::usage(
                    format!("'{}' is not the address of a relay", text.to_string_lossy()),
                    "write relay://HOST/PATH or relay://HOST:PORT/PATH",
                )
            });
        }
        if bytes == b"-" {
            return Ok(Self::Pipe);
        }
        // As in scp, a colon before the first slash separates the host from the path.
        let slash = bytes.iter().position(|byte| *byte == b'/').unwrap_or(bytes.len());
        let bracket = bytes.starts_with(b"[").then(|| bytes.iter().position(|byte| *byte == b']')).flatten();
        let from = bracket.unwrap_or(0);
        let colon = bytes[from..].iter().position(|byte| *byte == b':').map(|colon| from + colon);
        if let Some(colon) = colon.filter(|colon| *colon < slash) {
            let host = ssh::is_host(OsStr::from_bytes(&bytes[..colon])).ok_or_else(|| {
                let text = text.to_string_lossy();
                Error::usage(
                    format!("'{text}' does not begin with a host"),
                    format!("write HOST:PATH, or ./{text} for a file on this host"),
                )
            })?;
            let path = &bytes[colon + 1..];
            let is_folder = path.is_empty() || path.ends_with(b"/");
            return Ok(Self::Ssh { host, path: OsStr::from_bytes(path).into(), is_folder });
        }
        Ok(Self::Local(text.into()))
    }
}

fn relay(rest: &[u8]) -> Option<End> {
    let slash = rest.iter().position(|byte| *byte == b'/')?;
    let (authority, path) = (std::str::from_utf8(&rest[..slash]).ok()?, &rest[slash + 1..]);
    let (host, port) = match authority.strip_prefix('[') {
        // An IPv6 address, in brackets as in a URL.
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']')?;
            let port = if after.is_empty() { PORT } else { after.strip_prefix(':')?.parse().ok()? };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (authority, PORT),
        },
    };
    if host.is_empty() {
        return None;
    }
    let is_folder = path.is_empty() || path.ends_with(b"/");
    let path = PathBuf::from(Path::new(OsStr::from_bytes(path)));
    Some(End::Relay { host: host.to_owned(), port, path, is_folder })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<End, Error> {
        End::parse(OsStr::new(text))
    }

    #[test]
    fn ends_are_read() {
        let end = |host: &str, port, path: &str, is_folder| {
            Ok(End::Relay { host: host.into(), port, path: path.into(), is_folder })
        };
        assert_eq!(parse("relay://ny.example.com/in/a"), end("ny.example.com", PORT, "in/a", false));
        assert_eq!(parse("relay://192.0.2.7:95/in/"), end("192.0.2.7", 95, "in/", true));
        assert_eq!(parse("relay://h/"), end("h", PORT, "", true));
        assert_eq!(parse("relay://[2001:db8::1]:96/a"), end("2001:db8::1", 96, "a", false));
        assert_eq!(parse("relay://[::1]/a"), end("::1", PORT, "a", false));
        let ssh = |host: &str, path: &str, is_folder| {
            Ok(End::Ssh { host: host.into(), path: path.into(), is_folder })
        };
        assert_eq!(parse("me@ny:in/a"), ssh("me@ny", "in/a", false));
        assert_eq!(parse("ny:"), ssh("ny", "", true));
        assert_eq!(parse("ny:/srv/"), ssh("ny", "/srv/", true));
        assert_eq!(parse("[2001:db8::1]:a"), ssh("2001:db8::1", "a", false));
        for local in ["a", "./a:b", "/a:b/c", "dir/a:b"] {
            assert_eq!(parse(local), Ok(End::Local(local.into())));
        }
    }

    #[test]
    fn other_ends_are_refused_with_what_to_write() {
        for wrong in
            ["relay://", "relay://h", "relay:///a", "relay://h:x/a", "relay://h:70000/a", "relay://[::1/a"]
        {
            let error = parse(wrong).expect_err(wrong);
            assert_eq!(error.hint, "write relay://HOST/PATH or relay://HOST:PORT/PATH", "{wrong}");
        }
        let error = parse("-oProxyCommand=x:file").expect_err("an option of ssh");
        assert!(error.hint.ends_with("or ./-oProxyCommand=x:file for a file on this host"), "{error}");
        assert!(parse(":file").is_err());
        assert_eq!(parse("-"), Ok(End::Pipe));
    }
}
