//! Tests of copies over loopback connections.
#![cfg(target_os = "linux")]

mod copies;
mod fetches;
mod limits;
mod pipes;
mod proxy;
mod refusals;
mod small;
mod versions;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use fullpipe_relay::{
    AllowList, Connections, CopyObserver, CopyOptions, CopyReport, End, Error, Fingerprint, Identity, Kernel,
    ServeObserver, ServeOptions, Sources, copy, serve,
};
use fullpipe_units::Duration;
use tempfile::TempDir;

/// A relay in a thread of this process, and the options of a client that it accepts.
pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) client: Identity,
    pub(crate) relay: Fingerprint,
}

struct Listening(mpsc::Sender<SocketAddr>);

impl ServeObserver for Listening {
    fn listening(&self, address: SocketAddr) {
        self.0.send(address).expect("the test waits");
    }

    fn report(&self, text: &str) {
        eprintln!("relay: {text}");
    }
}

impl Fixture {
    /// Starts a relay that writes to the folder `in`. The tests read their sources from the folder `out`.
    pub(crate) fn new() -> Self {
        Self::with("", None)
    }

    /// Starts a relay that gives its client the rights `rights`, written as in an allow file.
    pub(crate) fn with_rights(rights: &str) -> Self {
        Self::with(rights, None)
    }

    /// Starts a relay that samples and paces its sockets by `kernel`.
    pub(crate) fn with_kernel(kernel: Arc<dyn Kernel>) -> Self {
        Self::with("", Some(kernel))
    }

    fn with(rights: &str, kernel: Option<Arc<dyn Kernel>>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["in", "out"] {
            fs::create_dir(path(name)).expect("a folder");
        }
        let key = |name: &str| Identity::load_or_create(&path(name)).expect("a key");
        let (client, identity) = (key("client.key"), key("relay.key"));
        let relay = identity.fingerprint();
        let mut allow = AllowList::default();
        allow.add_file(&format!("{} {rights}", client.fingerprint())).expect("valid");
        let listen = "127.0.0.1:0".parse().expect("an address");
        let options = ServeOptions { listen, root: path("in"), identity, allow, kernel };
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || serve(&options, Arc::new(Listening(sender))).expect("it serves until the end"));
        let address = receiver.recv().expect("it listens");
        Self { folder, address, client, relay }
    }

    /// Writes a source file of `size` bytes whose content depends on `name`, and returns its path.
    pub(crate) fn source(&self, name: &str, size: usize) -> PathBuf {
        let path = self.folder.path().join("out").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        let salt = name.bytes().fold(7_u64, |salt, byte| salt.wrapping_mul(31).wrapping_add(byte.into()));
        let mut state = salt | 1;
        // Eight bytes at a time, because tests are not optimised.
        let mut content = Vec::with_capacity(size + 8);
        while content.len() < size {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            content.extend_from_slice(&(state ^ (state >> 32)).to_le_bytes());
        }
        content.truncate(size);
        fs::write(&path, content).expect("written");
        path
    }

    pub(crate) fn options(&self, source: &Path, target: &str, address: SocketAddr) -> CopyOptions {
        let target = format!("relay://{address}/{target}");
        CopyOptions {
            sources: Sources::Files(vec![source.into()]),
            target: End::parse(target.as_ref()).expect("an end"),
            connections: Connections::new(3, 3).expect("a range"),
            identity: self.client.clone(),
            peer: Some(self.relay),
            verify: false,
            limit: None,
            memory: None,
            cc: None,
            pacer: None,
            link: None,
            peers: None,
            retry: Duration::ZERO,
        }
    }

    pub(crate) fn copy(&self, source: &Path, target: &str) -> Result<CopyReport, Error> {
        copy(&self.options(source, target, self.address), None, &())
    }

    pub(crate) fn placed(&self, name: &str) -> PathBuf {
        self.folder.path().join("in").join(name)
    }

    /// Returns the names of all files below the relay's folder, except the journal.
    pub(crate) fn names(&self) -> Vec<PathBuf> {
        let root = self.folder.path().join("in");
        let mut names = Vec::new();
        below(&root, &mut names);
        names.iter().map(|path| path.strip_prefix(&root).expect("below the root").to_path_buf()).collect()
    }
}

fn below(folder: &Path, names: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry")).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries.iter().filter(|entry| entry.file_name() != ".fullpipe") {
        match entry.file_type().expect("a type").is_dir() {
            true => below(&entry.path(), names),
            false => names.push(entry.path()),
        }
    }
}

/// Repeats an interrupted copy as soon as the relay has noticed that the first attempt has ended.
pub(crate) fn copy_again(options: &CopyOptions) -> CopyReport {
    for _ in 0..200 {
        match copy(options, None, &Notes) {
            Err(error) if error.message.contains("another transfer is writing") => wait(50),
            result => return result.expect("copied"),
        }
    }
    panic!("the relay did not notice the end of the interrupted copy");
}

/// Prints the events of a copy.
pub(crate) struct Notes;

impl CopyObserver for Notes {
    fn note(&self, text: &str) {
        eprintln!("client: {text}");
    }
}

#[expect(clippy::disallowed_methods, reason = "the kernel's time, not the engine's")]
pub(crate) fn wait(milliseconds: u64) {
    thread::sleep(std::time::Duration::from_millis(milliseconds));
}
