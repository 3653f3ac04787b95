//! Copies to and from `HOST:PATH`: the user's own `ssh` starts a relay on that host for one copy.
//!
//! ```text
//!   copy ── standard input of ssh ──► fullpipe relay once      { client: fingerprint, folder }
//!        ◄─ standard output ─────────                          { relay: fingerprint, port }
//!        ══ TLS connections to the port ═══════════════════►   blocks and files
//!     or ── standard input of ssh ────────────────────────►   { dial: port }, for each connection
//!        ◄═ TLS connections from the other host ════════════   blocks and files
//!        ── end of standard input ───►                         the relay ends
//! ```
//!
//! If this host cannot connect to the port, this host listens, and the relay connects to the address of the
//! ssh client (`SSH_CONNECTION`). The roles in TLS and in the protocol do not depend on which end opens the
//! TCP connections.
//!
//! Both ends create keys for this copy only, and exchange the fingerprints through the ssh channel. Secrets
//! never appear in the arguments of a command, and paths do not pass through the shell of the other host.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::error::{Error, Outlook};
use crate::frame::VERSION;
use crate::keys::{AllowList, Fingerprint, Identity};
use crate::locked;
use crate::name::PathText;
use crate::send::Kernel;
use crate::serve::{self, ServeObserver, ServeOptions};
use crate::tls::SAME_VERSION;

/// Command that ssh runs on the other host.
const REMOTE: [&str; 3] = ["fullpipe", "relay", "once"];
/// Prefix of the line that contains the relay's answer. The start-up files of a shell may print other lines.
const MARK: &str = "fullpipe-relay ";
/// Maximum number of bytes that are read before the answer is complete.
const MOST_OUTPUT: u64 = 64 << 10;

/// Message that the client sends first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Call {
    /// Versions of the protocol that the client speaks.
    versions: Vec<u32>,
    /// Fingerprint of the client's key.
    client: String,
    /// Folder that receives the files, as an absolute path or relative to the home folder. It is created if
    /// it does not exist.
    folder: PathText,
    /// Whether the client reads files instead, from anywhere on the relay's host.
    #[serde(default)]
    reads: bool,
}

/// Later message of the client: the relay opens a TCP connection to this port of the client's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Dialling {
    dial: u16,
}

/// Standard input of ssh, over which a client asks the relay for connections. The relay ends when the input is closed.
#[derive(Clone, Debug)]
pub(crate) struct Dial(Arc<Mutex<Option<ChildStdin>>>);

impl Dial {
    /// Asks the relay to connect to `port` of this host.
    pub(crate) fn ask(&self, port: u16) -> io::Result<()> {
        let line = to_line(&Dialling { dial: port })?;
        match &mut *locked(&self.0) {
            Some(input) => input.write_all(line.as_bytes()).and_then(|()| input.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn close(&self) {
        locked(&self.0).take();
    }
}

/// Answer of the relay to the client's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ready {
        /// Fingerprint of the relay's key.
        relay: String,
        /// Port on which the relay listens.
        port: u16,
    },
    Failed {
        message: String,
        hint: String,
        #[serde(default)]
        temporary: bool,
        /// Versions of the protocol that the relay speaks, if the client speaks none of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        versions: Vec<u32>,
    },
}

impl Answer {
    /// Creates the answer of a relay that ends because of `error`.
    fn failed(error: Error) -> Self {
        let Error { message, hint, outlook, .. } = error;
        let versions = if outlook == Outlook::Refused { vec![VERSION] } else { Vec::new() };
        Self::Failed { message, hint, temporary: outlook == Outlook::Temporary, versions }
    }

    /// Returns the fingerprint and the port of the relay on `host`, or its error.
    fn ready(self, host: &str) -> Result<(Fingerprint, u16), Error> {
        match self {
            Self::Ready { relay, port } => Ok((relay.parse()?, port)),
            // Earlier builds do not state their versions, but give the same hint.
            Self::Failed { message, hint, versions, .. } if !versions.is_empty() || hint == SAME_VERSION => {
                Err(Error::network(format!("{host}: {message}"), hint).refusal())
            }
            Self::Failed { message, hint, temporary, .. } => {
                let error = Error::runtime(format!("{host}: {message}"), hint);
                Err(if temporary { error.temporary() } else { error })
            }
        }
    }
}

/// Splits the path of a target into the folder that receives the files, and the rest of the path below it.
pub(crate) fn split(path: &Path, is_folder: bool) -> Result<(PathBuf, PathBuf), Error> {
    // No shell expands the tilde, but ssh starts commands in the user's home folder.
    let path = path.strip_prefix("~").unwrap_or(path);
    let refused = || {
        Error::usage(
            format!("{} is not a valid path for a copy", path.display()),
            "write HOST:PATH, with an absolute path or a path relative to the home folder, and without '..'",
        )
    };
    if path.components().any(|part| part == Component::ParentDir)
        || path.as_os_str().as_encoded_bytes()[..] == *b"~"
    {
        return Err(refused());
    }
    let non_empty = |path: &Path| match path.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => path.to_path_buf(),
    };
    if is_folder {
        return Ok((non_empty(path), PathBuf::new()));
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Err(refused()) };
    Ok((non_empty(folder), name.into()))
}

/// A relay that ssh has started on another host; it ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Remote {
    ssh: Child,
    input: Dial,
    /// Name or address to which the copy connects.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) fingerprint: Fingerprint,
}

impl Remote {
    /// Starts a relay for `folder` on `host`, which is written as for ssh.
    pub(crate) fn start(host: &str, folder: &Path, client: Fingerprint) -> Result<Self, Error> {
        Self::call(host, (folder, false), client)
    }

    /// Starts a relay on `host` that only sends files.
    pub(crate) fn start_reading(host: &str, client: Fingerprint) -> Result<Self, Error> {
        Self::call(host, (Path::new("."), true), client)
    }

    fn call(host: &str, (folder, reads): (&Path, bool), client: Fingerprint) -> Result<Self, Error> {
        let mut ssh = Command::new("ssh")
            // Data uses other connections; the ssh channel carries only a few hundred bytes.
            .args(["-T", "-o", "ClearAllForwardings=yes", "--", host])
            .args(REMOTE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                Error::runtime(format!("cannot start ssh: {error}"), "install the client of OpenSSH")
            })?;
        let (Some(mut input), Some(output)) = (ssh.stdin.take(), ssh.stdout.take()) else {
            return Err(Error::runtime("cannot start ssh: its standard input or output is not a pipe", ""));
        };
        let call = Call { versions: vec![VERSION], client: client.to_string(), folder: folder.into(), reads };
        // If ssh has already ended, it has printed the reason on standard error.
        let written = to_line(&call).and_then(|line| input.write_all(line.as_bytes()));
        let answer = written.and_then(|()| read_answer(output));
        // The port must be read before this process waits for ssh, because ssh does not end before its input.
        match answer {
            Ok(Some(answer)) => {
                let (fingerprint, port) = answer.ready(host)?;
                let input = Dial(Arc::new(Mutex::new(Some(input))));
                Ok(Self { ssh, input, host: address(host), port, fingerprint })
            }
            Ok(None) | Err(_) => {
                drop(input);
                let status = ssh.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                Err(Error::network(
                    format!("ssh {host} did not start a relay ({status})"),
                    format!(
                        "check that ssh {host} {} --help works; the other host needs a build of fullpipe with the \
                         feature copy",
                        REMOTE.join(" ")
                    ),
                ))
            }
        }
    }

    /// Returns the channel over which the relay is asked for connections.
    pub(crate) fn dial(&self) -> Dial {
        self.input.clone()
    }

    /// Ends the relay, and waits until it has ended.
    pub(crate) fn end(mut self) {
        self.input.close();
        let _ = self.ssh.wait();
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // The relay keeps durable data, and ends when its input ends.
        self.input.close();
    }
}

/// Returns the address to use for connections other than ssh's own; the settings of ssh may map the host name
/// to another one.
fn address(host: &str) -> String {
    let settings = Command::new("ssh").args(["-G", "--", host]).stderr(Stdio::null()).output();
    let settings = settings.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let name = settings
        .unwrap_or_default()
        .lines()
        .find_map(|line| Some(line.strip_prefix("hostname ")?.trim().to_owned()));
    let own = host.rsplit_once('@').map_or(host, |(_, host)| host);
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| own.to_owned())
}

fn to_line(message: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(message)? + "\n")
}

/// Reads lines until the answer is found; returns `None` if there is no answer.
fn read_answer(output: impl Read) -> io::Result<Option<Answer>> {
    for line in BufReader::new(output.take(MOST_OUTPUT)).split(b'\n') {
        let line = line?;
        if let Some(answer) = line.strip_prefix(MARK.as_bytes()) {
            return Ok(Some(serde_json::from_slice(answer)?));
        }
    }
    Ok(None)
}

/// Reads a port to which the client asks for a connection; returns `None` at the end of the input.
fn read_dial(input: &mut impl BufRead) -> io::Result<Option<u16>> {
    let mut line = String::new();
    if input.take(MOST_OUTPUT).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str::<Dialling>(&line)?.dial))
}

/// Returns the address of the ssh client. The relay connects only to this address.
fn client_address() -> Option<IpAddr> {
    let connection = std::env::var("SSH_CONNECTION").ok()?;
    connection.split_whitespace().next()?.parse().ok()
}

/// Serves one copy: reads the client's fingerprint and the folder from `input`, and writes the answer to
/// `output`. Returns once `input` and the copy have ended.
///
/// # Errors
/// Returns an error if the client does not receive the answer, or if the copy cannot be served. If the folder
/// or the address cannot be used, the client reports this.
pub fn serve_once(
    input: impl Read + Send + 'static,
    mut output: impl Write,
    kernel: Option<Arc<dyn Kernel>>,
    observer: Arc<dyn ServeObserver>,
) -> Result<(), Error> {
    let mut answer = |answer: &Answer| {
        let written = to_line(answer).and_then(|line| output.write_all((MARK.to_owned() + &line).as_bytes()));
        written.and_then(|()| output.flush()).map_err(|error| Error::system("answer the client", &error))
    };
    let mut input = BufReader::new(input);
    let prepared = prepare(&mut input, kernel, observer);
    let (relay, listener, folder, fingerprint) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return answer(&Answer::failed(error)),
    };
    let port = listener.local_addr().map_err(|error| Error::system("listen", &error))?.port();
    answer(&Answer::Ready { relay: fingerprint.to_string(), port })?;
    let (asked, asks) = mpsc::unbounded_channel();
    thread::spawn(move || {
        // If this input ends or fails, the client has ended.
        while let Ok(Some(port)) = read_dial(&mut input) {
            let client = client_address();
            if client.is_none_or(|client| asked.send(SocketAddr::new(client, port)).is_err()) {
                break;
            }
        }
        let _ = io::copy(&mut input, &mut io::sink());
        drop(asked);
    });
    let served = serve::until(relay, listener, asks);
    if let Some(folder) = folder {
        crate::store::FileStore::clean(&folder);
    }
    served
}

/// Relay, listener, folder to which the relay writes, and fingerprint of the relay's key.
type Prepared = (Arc<serve::Relay>, std::net::TcpListener, Option<PathBuf>, Fingerprint);

fn prepare(
    input: &mut impl BufRead,
    kernel: Option<Arc<dyn Kernel>>,
    observer: Arc<dyn ServeObserver>,
) -> Result<Prepared, Error> {
    let mut line = String::new();
    let read = input.take(MOST_OUTPUT).read_line(&mut line);
    read.map_err(|error| Error::system("read standard input", &error))?;
    let call: Call = serde_json::from_str(&line).map_err(|error| {
        Error::usage(
            format!("standard input does not come from fullpipe copy: {error}"),
            "do not run this command by hand; run fullpipe copy on the other host",
        )
    })?;
    if !call.versions.contains(&VERSION) {
        let message = format!("this host supports only version {VERSION} of the protocol");
        return Err(Error::network(message, SAME_VERSION).refusal());
    }
    let identity = Identity::temporary()?;
    let fingerprint = identity.fingerprint();
    let mut allow = AllowList::default();
    allow.add(call.client.parse()?);
    if call.reads {
        let relay = serve::Relay::open(&identity, allow, kernel, observer)?;
        return Ok((relay, listen().map_err(|error| Error::system("listen", &error))?, None, fingerprint));
    }
    let folder = call.folder.as_path().to_path_buf();
    fs::create_dir_all(&folder).map_err(|error| {
        let error = Error::system(format_args!("create the folder {}", folder.display()), &error);
        match error.hint.is_empty() {
            true => Error { hint: "choose another folder".into(), ..error },
            false => error,
        }
    })?;
    let listener = listen().map_err(|error| Error::system("listen", &error))?;
    let options = ServeOptions {
        listen: listener.local_addr().map_err(|error| Error::system("listen", &error))?,
        root: folder.clone(),
        identity,
        allow,
        kernel,
    };
    Ok((serve::Relay::new(&options, observer)?, listener, Some(folder), fingerprint))
}

/// Listens on a free port, over both IPv6 and IPv4 if the host has both.
pub(crate) fn listen() -> io::Result<std::net::TcpListener> {
    let any = |address: SocketAddr| std::net::TcpListener::bind(address);
    any((Ipv6Addr::UNSPECIFIED, 0).into())
        .or_else(|_| any((Ipv4Addr::UNSPECIFIED, 0).into()))
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
}

/// Checks the part of `HOST:PATH` before the colon, because it becomes an argument of ssh.
pub(crate) fn is_host(host: &OsStr) -> Option<String> {
    let host = host.to_str()?;
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let is_plain = !bare.is_empty() && !bare.starts_with('-') && !bare.contains(char::is_whitespace);
    is_plain.then(|| bare.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn the_answer_is_found_among_other_lines() {
        let ready = Answer::Ready { relay: "sha256:0".into(), port: 9 };
        let line = MARK.to_owned() + &to_line(&ready).expect("JSON");
        let output = format!("Welcome\n\nfullpipe\n{line}more\n");
        assert_eq!(read_answer(output.as_bytes()).expect("readable"), Some(ready));
        assert_eq!(read_answer(&b"Welcome\n"[..]).expect("readable"), None);
        assert!(read_answer(&b"fullpipe-relay {\n"[..]).is_err());
        let endless = std::iter::repeat_n(b"noise\n", 100_000).flatten().copied().collect::<Vec<u8>>();
        assert_eq!(read_answer(&endless[..]).expect("bounded"), None);
    }

    /// A relay of another version is not a failure of this copy, but a peer that refuses it: another exit code.
    #[test]
    fn a_relay_of_another_version_is_a_refusal() {
        let read = |answer: &str| serde_json::from_str::<Answer>(answer).expect("JSON").ready("ny");
        let later = r#"{"failed":{"message":"m","hint":"install version 2","versions":[2]}}"#;
        let earlier = format!(r#"{{"failed":{{"message":"m","hint":"{SAME_VERSION}","temporary":false}}}}"#);
        for answer in [later, &earlier] {
            let error = read(answer).expect_err("refused");
            assert_eq!((error.kind, error.outlook), (Kind::Network, Outlook::Refused), "{answer}");
            assert!(
                error.message == "ny: m" && error.hint.starts_with("install "),
                "{error}: {}",
                error.hint
            );
        }
        let own = Answer::failed(Error::network("m", SAME_VERSION).refusal());
        assert_eq!(own.ready("ny").map_err(|error| error.kind), Err(Kind::Network));
        let full = read(r#"{"failed":{"message":"m","hint":"","temporary":true}}"#).expect_err("busy");
        assert_eq!((full.kind, full.outlook), (Kind::Runtime, Outlook::Temporary));
    }

    #[test]
    fn the_client_asks_for_connections_line_by_line() {
        let mut input = &b"{\"dial\":4711}\n{\"dial\":1,\"later\":2}\n"[..];
        assert_eq!(read_dial(&mut input).expect("readable"), Some(4711));
        assert_eq!(read_dial(&mut input).expect("readable"), Some(1));
        assert_eq!(read_dial(&mut input).expect("the end"), None);
        assert!(read_dial(&mut &b"{\"dial\":65536}\n"[..]).is_err());
    }

    #[test]
    fn the_folder_and_the_name_follow_from_the_path() {
        let pair = |folder: &str, name: &str| Ok((folder.into(), name.into()));
        assert_eq!(split(Path::new("a/b"), false), pair("a", "b"));
        assert_eq!(split(Path::new("a"), false), pair(".", "a"));
        assert_eq!(split(Path::new("/a"), false), pair("/", "a"));
        assert_eq!(split(Path::new("~/a/b"), true), pair("a/b", ""));
        assert_eq!(split(Path::new(""), true), pair(".", ""));
        assert_eq!(split(Path::new("/srv/in/"), true), pair("/srv/in", ""));
        for (path, is_folder) in [("a/../b", false), ("..", true), ("/", false), ("", false)] {
            assert!(split(Path::new(path), is_folder).is_err(), "{path}");
        }
    }

    #[test]
    fn options_of_ssh_are_no_hosts() {
        let host = |text: &str| is_host(OsStr::new(text));
        assert_eq!(host("user@ny.example.com").as_deref(), Some("user@ny.example.com"));
        assert_eq!(host("[2001:db8::1]").as_deref(), Some("2001:db8::1"));
        for wrong in ["", "-oProxyCommand=x", "a b", "[]"] {
            assert_eq!(host(wrong), None, "{wrong}");
        }
    }
}
