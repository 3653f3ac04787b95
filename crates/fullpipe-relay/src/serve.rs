//! `relay serve`: accepts connections, checks their keys, and joins the connections of a transfer.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::error::Error;
use crate::frame::{MOST_CONNECTIONS, Reply, Request, VERSION};
use crate::hex::Hex;
use crate::keys::{AllowList, Fingerprint, Identity};
use crate::pending::Pending;
use crate::session::{MOST_REPLIES, Session};
use crate::store::FileStore;
use crate::{locked, runtime, tls, wire};

/// Time in which a client has to complete the handshake and its first message.
const GREETING: Duration = Duration::from_secs(10);
/// Time in which the last replies of a transfer have to be sent.
const FAREWELL: Duration = Duration::from_secs(5);
/// Maximum number of transfers at the same time.
const MOST_TRANSFERS: usize = 64;
/// Maximum number of replies that are written at once.
const MOST_TOGETHER: usize = 256;
/// Time in which the transfers of a client have to end that has gone: that of a connection without an answer,
/// and some more.
const LAST: Duration = Duration::from_secs(40);
/// Time between two checks whether transfers have ended.
const CHECKS: Duration = Duration::from_millis(10);
/// Pause after an error of `accept`, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Settings of a relay.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Folder to which clients copy.
    pub root: PathBuf,
    /// Key of the relay.
    pub identity: Identity,
    /// Clients that are accepted.
    pub allow: AllowList,
}

/// Receives what a relay reports.
pub trait ServeObserver: Send + Sync + 'static {
    /// The relay accepts connections at `address`.
    fn listening(&self, address: SocketAddr);
    /// A transfer has ended, or a connection has failed.
    fn report(&self, text: &str);
}

type Transfer = (Fingerprint, Hex<16>);

/// A relay with its roots and transfers.
pub(crate) struct Relay {
    acceptor: TlsAcceptor,
    allow: AllowList,
    root: PathBuf,
    stores: BTreeMap<PathBuf, Arc<FileStore>>,
    pending: Mutex<Pending<oneshot::Sender<()>>>,
    transfers: Mutex<BTreeMap<Transfer, Arc<Session>>>,
    observer: Arc<dyn ServeObserver>,
}

/// A connection whose key has been accepted.
struct Greeting {
    tls: TlsStream<TcpStream>,
    transfer: Transfer,
    connection: u32,
}

/// Serves until the process ends.
///
/// # Errors
/// Returns an error if no client is accepted, if a root cannot be opened or contains another one, or if the
/// address cannot be listened on.
pub fn serve(options: &ServeOptions, observer: Arc<dyn ServeObserver>) -> Result<(), Error> {
    let relay = Relay::new(options, observer)?;
    let failed = |error: io::Error| Error::system(format_args!("listen on {}", options.listen), &error);
    runtime()?.block_on(async {
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        relay.observer.listening(listener.local_addr().map_err(failed)?);
        accept(relay, listener).await;
        Ok(())
    })
}

/// Serves until `end` is resolved or dropped, and the transfers have ended.
pub(crate) fn until(
    relay: Arc<Relay>,
    listener: std::net::TcpListener,
    end: oneshot::Receiver<()>,
) -> Result<(), Error> {
    runtime()?.block_on(async {
        let listener = TcpListener::from_std(listener).map_err(|error| Error::system("listen", &error))?;
        tokio::select! {
            () = accept(Arc::clone(&relay), listener) => {}
            _ = end => {}
        }
        // A client that was killed leaves connections that end one after another.
        let ended = async {
            while !locked(&relay.transfers).is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let _ = timeout(LAST, ended).await;
        Ok(())
    })
}

fn nested(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

async fn accept(relay: Arc<Relay>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((tcp, peer)) => {
                tokio::spawn(Arc::clone(&relay).connection(tcp, peer));
            }
            Err(error) => {
                relay.observer.report(&format!("cannot accept a connection: {error}"));
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl Relay {
    /// Opens the roots of a relay.
    pub(crate) fn new(options: &ServeOptions, observer: Arc<dyn ServeObserver>) -> Result<Arc<Self>, Error> {
        if options.allow.is_empty() {
            return Err(Error::usage(
                "a relay without --allow accepts no client",
                "run fullpipe relay key on the client, and pass what it prints: --allow sha256:...",
            ));
        }
        let config = tls::server(&options.identity, options.allow.clone())?;
        let mut stores: BTreeMap<PathBuf, Arc<FileStore>> = BTreeMap::new();
        for root in std::iter::once(options.root.as_path()).chain(options.allow.roots()) {
            let folder = root.canonicalize();
            let folder = folder
                .map_err(|error| Error::system(format_args!("open the folder {}", root.display()), &error))?;
            if stores.contains_key(&folder) {
                continue;
            }
            if let Some(other) = stores.keys().find(|other| nested(other, &folder)) {
                return Err(Error::usage(
                    format!("the roots {} and {} contain each other", folder.display(), other.display()),
                    "choose folders of which none is inside another",
                ));
            }
            let store = Arc::new(FileStore::open_root(&folder)?);
            stores.insert(folder, store);
        }
        Ok(Arc::new(Self {
            acceptor: TlsAcceptor::from(config),
            allow: options.allow.clone(),
            root: options.root.clone(),
            stores,
            pending: Mutex::default(),
            transfers: Mutex::default(),
            observer,
        }))
    }

    async fn connection(self: Arc<Self>, tcp: TcpStream, peer: SocketAddr) {
        let (entry, displaced) = oneshot::channel();
        let number = locked(&self.pending).enter(peer.ip(), entry);
        let greeting = tokio::select! {
            _ = displaced => Err(io::Error::other("a newer connection of this address took its place")),
            greeting = timeout(GREETING, self.greet(tcp)) => {
                greeting.unwrap_or_else(|_| Err(io::Error::other("no message within 10 s")))
            }
        };
        locked(&self.pending).leave(peer.ip(), number);
        let served = match greeting {
            Ok(greeting) if greeting.connection == 0 => self.transfer(greeting, peer).await,
            Ok(greeting) => self.join(greeting).await,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            self.observer.report(&format!("{peer}: {}", tls::client_error(&error)));
        }
    }

    /// Accepts the client's key, and reads its first message.
    async fn greet(&self, tcp: TcpStream) -> io::Result<Greeting> {
        let invalid = |message: &'static str| io::Error::new(io::ErrorKind::InvalidData, message);
        wire::prepare(&tcp)?;
        let mut tls = self.acceptor.accept(tcp).await?;
        let key = tls.get_ref().1.peer_certificates().and_then(|keys| keys.first());
        let client = key.map(|key| Fingerprint::of(key)).ok_or_else(|| invalid("the client has no key"))?;
        let hello = wire::next_message::<Request>(&mut tls).await?;
        let Some(Request::Hello { versions, transfer, connection }) = hello else {
            return Err(invalid("the first message is not a hello"));
        };
        if !versions.contains(&VERSION) {
            let message = format!("the relay speaks version {VERSION} of the protocol only");
            let hint = "install the same version of fullpipe at both ends".to_owned();
            wire::write_message(&mut tls, &Reply::Failed { message, hint, temporary: false }).await?;
            tls.shutdown().await?;
            return Err(invalid("the client speaks another version of the protocol"));
        }
        if connection >= MOST_CONNECTIONS {
            return Err(invalid("the number of the connection is too high"));
        }
        Ok(Greeting { tls, transfer: (client, transfer), connection })
    }

    /// Returns the store of a client.
    fn store(&self, client: Fingerprint) -> Option<Arc<FileStore>> {
        let root = self.allow.rights(client)?.root.as_ref().unwrap_or(&self.root);
        self.stores.get(&root.canonicalize().ok()?).cloned()
    }

    /// Adds a transfer; returns whether its name is free, and the relay has room for it.
    fn enter(&self, transfer: Transfer, session: &Arc<Session>) -> bool {
        let mut transfers = locked(&self.transfers);
        let has_room = transfers.len() < MOST_TRANSFERS && !transfers.contains_key(&transfer);
        if has_room {
            transfers.insert(transfer, Arc::clone(session));
        }
        has_room
    }

    /// Ends an earlier attempt at the same transfer, of which the client has lost connection 0.
    async fn displace(&self, transfer: Transfer) {
        let Some(earlier) = locked(&self.transfers).get(&transfer).cloned() else { return };
        earlier.close();
        drop(earlier);
        let ended = async {
            while locked(&self.transfers).contains_key(&transfer) {
                tokio::time::sleep(CHECKS).await;
            }
        };
        // Otherwise, the transfer cannot be entered, which the client is informed of.
        let _ = timeout(FAREWELL, ended).await;
    }

    /// Serves connection 0 of a transfer, and with it the transfer.
    async fn transfer(&self, greeting: Greeting, peer: SocketAddr) -> io::Result<()> {
        let Greeting { mut tls, transfer, .. } = greeting;
        let store =
            self.store(transfer.0).ok_or_else(|| io::Error::other("the root of the client is gone"))?;
        self.displace(transfer).await;
        let (replies, mut outgoing) = mpsc::channel(MOST_REPLIES);
        let session = Arc::new(Session::new(store, replies));
        if !self.enter(transfer, &session) {
            let message = format!("the relay has {MOST_TRANSFERS} transfers already");
            let hint = "run the same command again later".to_owned();
            wire::write_message(&mut tls, &Reply::Failed { message, hint, temporary: true }).await?;
            tls.shutdown().await?;
            return Err(io::Error::other("too many transfers"));
        }
        session.reply(Reply::Welcome { version: VERSION });
        let (mut reader, mut writer) = tokio::io::split(tls);
        let sending = tokio::spawn(async move {
            let mut replies = Vec::new();
            // Several replies share a record of TLS and a packet.
            while outgoing.recv_many(&mut replies, MOST_TOGETHER).await > 0 {
                let mut buffer = Vec::new();
                for reply in replies.drain(..) {
                    wire::push_message(&mut buffer, &reply)?;
                }
                writer.write_all(&buffer).await?;
                writer.flush().await?;
            }
            writer.shutdown().await
        });
        let keeping = tokio::spawn(Arc::clone(&session).keep_durable());
        let settling = tokio::spawn(Arc::clone(&session).keep_settled());
        let served = session.read(&mut reader).await;
        session.end().await;
        // An error of a task would be a panic, which it has reported.
        let _ = (keeping.await, settling.await);
        locked(&self.transfers).remove(&transfer);
        let totals = session.totals();
        drop(session);
        let _ = timeout(FAREWELL, sending).await;
        let (files, received) = (totals.files, totals.received);
        let plural = if files == 1 { "" } else { "s" };
        self.observer.report(&format!("{peer}: placed {files} file{plural}, received {received}"));
        served
    }

    /// Serves another connection of a transfer.
    async fn join(&self, greeting: Greeting) -> io::Result<()> {
        let Greeting { mut tls, transfer, connection } = greeting;
        let session = locked(&self.transfers).get(&transfer).cloned();
        let session = session.ok_or_else(|| io::Error::other("the transfer has ended, or has not begun"))?;
        if !session.enter(connection) {
            return Err(io::Error::other("the transfer has a connection of this number already"));
        }
        let welcome = wire::write_message(&mut tls, &Reply::Welcome { version: VERSION }).await;
        let served = match welcome {
            Ok(()) => session.read(&mut tls).await,
            Err(error) => Err(error),
        };
        session.leave(connection);
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl ServeObserver for Nothing {
        fn listening(&self, _: SocketAddr) {}

        fn report(&self, _: &str) {}
    }

    #[test]
    fn a_relay_has_a_limited_number_of_transfers() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Arc::new(FileStore::open_root(folder.path()).expect("empty"));
        let identity = Identity::generate().expect("a key").0;
        let config = tls::server(&identity, AllowList::default()).expect("a configuration");
        let relay = Relay {
            acceptor: TlsAcceptor::from(config),
            allow: AllowList::default(),
            root: folder.path().into(),
            stores: BTreeMap::new(),
            pending: Mutex::default(),
            transfers: Mutex::default(),
            observer: Arc::new(Nothing),
        };
        let session = || Arc::new(Session::new(Arc::clone(&store), mpsc::channel(1).0));
        let name = |number: usize| (identity.fingerprint(), Hex([number as u8; 16]));
        assert!(relay.enter(name(0), &session()) && !relay.enter(name(0), &session()), "one connection 0");
        assert!((1..MOST_TRANSFERS).all(|number| relay.enter(name(number), &session())));
        assert!(!relay.enter(name(MOST_TRANSFERS), &session()), "full");
        locked(&relay.transfers).remove(&name(7));
        assert!(relay.enter(name(MOST_TRANSFERS), &session()));
    }
}
