//! The command `relay serve`: accepts connections, checks their keys, and assigns them to transfers.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::error::Error;
use crate::frame::{Fetch, MOST_CONNECTIONS, Reply, Request, VERSION};
use crate::hex::Hex;
use crate::keys::{AllowList, Fingerprint, Identity, Rights};
use crate::paced::{ClientLimit, Paced};
use crate::pending::Pending;
use crate::send::{Delivery, Joined, Kernel, deliver};
use crate::session::{MOST_REPLIES, Session};
use crate::socket::{self, SocketOptions};
use crate::sources::{Tree, Walk};
use crate::store::FileStore;
use crate::wire::{Bounded, Readiness};
use crate::{locked, runtime, tls, wire};

/// Time within which a client must complete the handshake and send its first message.
const GREETING: Duration = Duration::from_secs(10);
/// Maximum number of bytes that a client may send before its key has been accepted. A handshake takes about 2
/// KiB.
const STRANGER: usize = 16 << 10;
/// Time within which the last replies of a transfer must be sent.
const FAREWELL: Duration = Duration::from_secs(5);
/// Maximum number of simultaneous transfers.
const MOST_TRANSFERS: usize = 64;
/// Maximum number of connections that wait for connection 0 of their transfer.
const MOST_WAITING: usize = 256;
/// Time within which the transfers of a client that has disappeared must end: the timeout of an unresponsive
/// connection, plus a margin.
const LAST: Duration = Duration::from_secs(40);
/// Time between two checks of whether transfers have ended.
const CHECKS: Duration = Duration::from_millis(10);
/// Pause after an error of `accept`, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Settings of a relay.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Folder to which and from which clients copy.
    pub root: PathBuf,
    /// Key of the relay.
    pub identity: Identity,
    /// Clients that are accepted.
    pub allow: AllowList,
    /// Samples and paces the connections on which the relay sends. Without it, a sending relay uses the
    /// minimum number of connections that the client permits, and a client cannot limit the rate.
    pub kernel: Option<Arc<dyn Kernel>>,
}

/// Receives the events of a relay.
pub trait ServeObserver: Send + Sync + 'static {
    /// Reports that the relay accepts connections at `address`.
    fn listening(&self, address: SocketAddr);
    /// Reports that a transfer has ended, or that a connection has failed.
    fn report(&self, text: &str);
}

type Transfer = (Fingerprint, Hex<16>);

/// A transfer that other connections may join.
#[derive(Clone, Debug)]
enum Active {
    /// A transfer in which the client sends.
    Receiving(Arc<Session>),
    /// A transfer in which the relay sends.
    Sending {
        joins: mpsc::UnboundedSender<Joined<Paced<TlsStream<Bounded>>>>,
        /// Ends the transfer.
        end: Arc<Notify>,
    },
}

/// A relay with its roots and transfers.
pub(crate) struct Relay {
    acceptor: TlsAcceptor,
    allow: AllowList,
    root: PathBuf,
    stores: BTreeMap<PathBuf, Arc<FileStore>>,
    pending: Mutex<Pending<oneshot::Sender<()>>>,
    transfers: Mutex<BTreeMap<Transfer, Active>>,
    /// Transfers that have ended recently, oldest first. A connection that arrives late for one of them does not wait
    /// for it to begin.
    ended: Mutex<VecDeque<Transfer>>,
    /// Notified when a transfer begins.
    begun: Notify,
    /// Permits for connections that wait for their transfer.
    waiting: Semaphore,
    /// Rate limits of the clients that have one.
    limits: BTreeMap<Fingerprint, Arc<ClientLimit>>,
    /// Whether clients may ask for paths anywhere on this host.
    is_open: bool,
    kernel: Option<Arc<dyn Kernel>>,
    observer: Arc<dyn ServeObserver>,
}

/// A connection whose key has been accepted.
struct Greeting {
    tls: TlsStream<Bounded>,
    readiness: Readiness,
    transfer: Transfer,
    connection: u32,
    fetch: Option<Fetch>,
    /// Error for a congestion control that the client has chosen and this kernel does not have.
    lacking: Option<Error>,
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

/// Serves until the sender of `asked` is dropped and all transfers have ended. Also connects to the addresses that
/// `asked` receives, and serves these connections like accepted ones.
pub(crate) fn until(
    relay: Arc<Relay>,
    listener: std::net::TcpListener,
    mut asked: mpsc::UnboundedReceiver<SocketAddr>,
) -> Result<(), Error> {
    runtime()?.block_on(async {
        let listener = TcpListener::from_std(listener).map_err(|error| Error::system("listen", &error))?;
        tokio::select! {
            () = accept(Arc::clone(&relay), listener) => {}
            () = async {
                while let Some(client) = asked.recv().await {
                    let relay = Arc::clone(&relay);
                    tokio::spawn(async move {
                        match TcpStream::connect(client).await {
                            Ok(tcp) => relay.connection(tcp, client).await,
                            Err(error) => relay.observer.report(&format!("cannot connect to {client}: {error}")),
                        }
                    });
                }
            } => {}
        }
        // If a client was killed, its connections end one after another.
        let ended = async {
            while !locked(&relay.transfers).is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let _ = timeout(LAST, ended).await;
        Ok(())
    })
}

fn limits(allow: &AllowList) -> BTreeMap<Fingerprint, Arc<ClientLimit>> {
    allow.limits().map(|(client, rate)| (client, Arc::new(ClientLimit::new(rate)))).collect()
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
                "run fullpipe relay key on the client, and pass the fingerprint that it prints with --allow \
                 sha256:...",
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
                    format!(
                        "one of the roots {} and {} contains the other",
                        folder.display(),
                        other.display()
                    ),
                    "choose folders that do not contain one another",
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
            ended: Mutex::default(),
            begun: Notify::new(),
            waiting: Semaphore::new(MOST_WAITING),
            limits: limits(&options.allow),
            is_open: false,
            kernel: options.kernel.clone(),
            observer,
        }))
    }

    /// Creates a relay from which a client may read every file that this process may read. The relay does not
    /// write files.
    pub(crate) fn open(
        identity: &Identity,
        allow: AllowList,
        kernel: Option<Arc<dyn Kernel>>,
        observer: Arc<dyn ServeObserver>,
    ) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            acceptor: TlsAcceptor::from(tls::server(identity, allow.clone())?),
            limits: limits(&allow),
            allow,
            root: PathBuf::from("."),
            stores: BTreeMap::new(),
            pending: Mutex::default(),
            transfers: Mutex::default(),
            ended: Mutex::default(),
            begun: Notify::new(),
            waiting: Semaphore::new(MOST_WAITING),
            is_open: true,
            kernel,
            observer,
        }))
    }

    /// Serves a connection. It is pending from this call on, and not only when the future runs, so that the order of
    /// pending connections is that in which they were accepted.
    fn connection(
        self: Arc<Self>,
        tcp: TcpStream,
        peer: SocketAddr,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (entry, displaced) = oneshot::channel();
        let number = locked(&self.pending).enter(peer.ip(), entry);
        async move {
            let greeting = tokio::select! {
                _ = displaced => Err(io::Error::other(
                    "a newer connection replaced this one, because too many have not proved a key",
                )),
                greeting = timeout(GREETING, self.greet(tcp)) => {
                    greeting.unwrap_or_else(|_| Err(io::Error::other("no message arrived within 10 s")))
                }
            };
            locked(&self.pending).leave(number);
            let served = match greeting {
                Ok(greeting) if greeting.connection == 0 => match greeting.fetch.clone() {
                    None => self.transfer(greeting, peer).await,
                    Some(fetch) => self.send(greeting, fetch, peer).await,
                },
                Ok(greeting) => self.join(greeting).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                self.observer.report(&format!("{peer}: {}", tls::client_error(&error)));
            }
        }
    }

    /// Accepts the client's key, and reads its first message.
    async fn greet(&self, tcp: TcpStream) -> io::Result<Greeting> {
        let invalid = |message: &'static str| io::Error::new(io::ErrorKind::InvalidData, message);
        wire::prepare(&tcp)?;
        let (tcp, readiness) = Readiness::of(tcp)?;
        let mut tls = self.acceptor.accept(Bounded::new(tcp, STRANGER)).await?;
        tls.get_mut().0.accept();
        let key = tls.get_ref().1.peer_certificates().and_then(|keys| keys.first());
        let client =
            key.map(|key| Fingerprint::of(key)).ok_or_else(|| invalid("the client did not send a key"))?;
        let hello = wire::next_message::<Request>(&mut tls).await?;
        let Some(Request::Hello { versions, transfer, connection, fetch, cc }) = hello else {
            return Err(invalid("the first message is not a hello"));
        };
        if !versions.contains(&VERSION) {
            let message = format!("the relay supports only version {VERSION} of the protocol");
            let hint = tls::SAME_VERSION.to_owned();
            wire::write_message(&mut tls, &Reply::Failed { message, hint, temporary: false }).await?;
            tls.shutdown().await?;
            return Err(invalid("the client uses another version of the protocol"));
        }
        if connection >= MOST_CONNECTIONS {
            return Err(invalid("the connection number is too high"));
        }
        let lacking = cc.and_then(|cc| {
            let set = match socket::is_cc(&cc) {
                true => socket::set_cc(&readiness.socket(), &cc),
                false => Err(io::ErrorKind::InvalidInput.into()),
            };
            set.err().map(|error| socket::cc_error("the relay", &cc, &error))
        });
        Ok(Greeting { tls, readiness, transfer: (client, transfer), connection, fetch, lacking })
    }

    /// Returns the file store of a client.
    fn store(&self, client: Fingerprint) -> Option<Arc<FileStore>> {
        let root = self.allow.rights(client)?.root.as_ref().unwrap_or(&self.root);
        self.stores.get(&root.canonicalize().ok()?).cloned()
    }

    /// Adds a transfer; returns whether its name is free and the relay has room for it.
    fn enter(&self, transfer: Transfer, active: Active) -> bool {
        let mut transfers = locked(&self.transfers);
        let has_room = transfers.len() < MOST_TRANSFERS && !transfers.contains_key(&transfer);
        if has_room {
            transfers.insert(transfer, active);
            locked(&self.ended).retain(|ended| *ended != transfer);
            self.begun.notify_waiters();
        }
        has_room
    }

    /// Removes a transfer that has ended.
    fn leave(&self, transfer: Transfer) {
        locked(&self.transfers).remove(&transfer);
        self.end(transfer);
    }

    /// Ends the connections that wait for a transfer.
    fn end(&self, transfer: Transfer) {
        let mut ended = locked(&self.ended);
        ended.push_back(transfer);
        if ended.len() > MOST_TRANSFERS {
            ended.pop_front();
        }
        drop(ended);
        self.begun.notify_waiters();
    }

    /// Returns a transfer. A client opens all connections at the same time, so a connection may have to wait until
    /// connection 0 begins the transfer; returns `None` if that does not happen in time, or if the transfer has ended.
    async fn begun(&self, transfer: Transfer) -> Option<Active> {
        let mut permit = None;
        let begun = async {
            loop {
                let mut begins = std::pin::pin!(self.begun.notified());
                // From here on, the notification about a new transfer is not missed.
                begins.as_mut().enable();
                let active = locked(&self.transfers).get(&transfer).cloned();
                if active.is_some() || locked(&self.ended).contains(&transfer) {
                    return active;
                }
                if permit.is_none() {
                    permit = Some(self.waiting.try_acquire().ok()?);
                }
                begins.await;
            }
        };
        timeout(GREETING, begun).await.ok().flatten()
    }

    /// Ends an earlier attempt at the same transfer; the client has lost connection 0 of that attempt.
    async fn displace(&self, transfer: Transfer) {
        let Some(earlier) = locked(&self.transfers).get(&transfer).cloned() else { return };
        match earlier {
            Active::Receiving(session) => session.close(),
            Active::Sending { end, .. } => end.notify_one(),
        }
        let ended = async {
            while locked(&self.transfers).contains_key(&transfer) {
                tokio::time::sleep(CHECKS).await;
            }
        };
        // If the earlier attempt does not end in time, the relay refuses the new transfer, with an error to the
        // client.
        let _ = timeout(FAREWELL, ended).await;
    }

    /// Refuses a transfer, and sends the reason to the client.
    async fn refuse(
        &self,
        transfer: Transfer,
        mut tls: TlsStream<Bounded>,
        (message, hint): (String, &str),
        temporary: bool,
    ) -> io::Result<()> {
        self.end(transfer);
        let reply = Reply::Failed { message: message.clone(), hint: hint.to_owned(), temporary };
        wire::write_message(&mut tls, &reply).await?;
        tls.shutdown().await?;
        Err(io::Error::other(message))
    }

    fn is_full() -> (String, &'static str) {
        (
            format!("the relay is busy with {MOST_TRANSFERS} transfers, its maximum"),
            "run the same command again later",
        )
    }

    /// Serves connection 0 of a transfer until the transfer ends.
    async fn transfer(&self, greeting: Greeting, peer: SocketAddr) -> io::Result<()> {
        let Greeting { tls, transfer, readiness, lacking, .. } = greeting;
        let limits = SocketOptions::default().limits(&readiness.socket());
        // Only a sender needs the readiness of the socket.
        drop(readiness);
        if !self.allow.rights(transfer.0).is_some_and(Rights::may_write) {
            let message = "the key of this host may only read from the relay".to_owned();
            return self
                .refuse(transfer, tls, (message, "remove read-only in the allow file of the relay"), false)
                .await;
        }
        let store = self
            .store(transfer.0)
            .ok_or_else(|| io::Error::other("the root folder of the client no longer exists"))?;
        self.displace(transfer).await;
        let (replies, outgoing) = mpsc::channel(MOST_REPLIES);
        let session = Arc::new(Session::new(store, replies));
        if !self.enter(transfer, Active::Receiving(Arc::clone(&session))) {
            return self.refuse(transfer, tls, Self::is_full(), true).await;
        }
        let mut notes = Vec::new();
        notes.extend(lacking.map(|error| format!("{error}; only this host uses it")));
        let limit = self.limits.get(&transfer.0).cloned();
        notes.extend(limit.as_ref().map(|limit| limit_note(limit)));
        session.reply(Reply::Welcome { version: VERSION, notes, limits: Some(limits) });
        let (served, sending) = session.receive(tokio::io::split(Paced::new(tls, limit)), outgoing).await;
        self.leave(transfer);
        let totals = session.totals();
        drop(session);
        let _ = timeout(FAREWELL, sending).await;
        let (files, received) = (totals.files, totals.received);
        let plural = if files == 1 { "" } else { "s" };
        self.observer.report(&format!("{peer}: placed {files} file{plural}, received {received}"));
        served
    }

    /// Sends files to a client that asks for them.
    async fn send(&self, greeting: Greeting, fetch: Fetch, peer: SocketAddr) -> io::Result<()> {
        let Greeting { mut tls, readiness, transfer, lacking, .. } = greeting;
        if let Some(Error { message, hint, .. }) = lacking {
            return self.refuse(transfer, tls, (message, &hint), false).await;
        }
        let rights = self.allow.rights(transfer.0).filter(|rights| rights.may_read());
        let Some(rights) = rights else {
            let message = "the key of this host may only write to the relay".to_owned();
            return self
                .refuse(transfer, tls, (message, "remove write-only in the allow file of the relay"), false)
                .await;
        };
        let tree = match self.is_open {
            true => Tree::Host,
            false => Tree::below(rights.root.as_ref().unwrap_or(&self.root))?,
        };
        self.displace(transfer).await;
        let (joins, joined) = mpsc::unbounded_channel();
        let end = Arc::new(Notify::new());
        if !self.enter(transfer, Active::Sending { joins, end: Arc::clone(&end) }) {
            return self.refuse(transfer, tls, Self::is_full(), true).await;
        }
        let limit = self.limits.get(&transfer.0).cloned();
        let notes = limit.iter().map(|limit| limit_note(limit)).collect();
        let Fetch { sources, verify, choose, link_bps, limit_bps, memory_bytes, rcvbuf_bytes } = fetch;
        let kernel = self.kernel.clone();
        // The kernel's pacing is smoother than writes at a limited rate, and the copy can report it as its limit.
        let own = limit.as_ref().filter(|_| kernel.is_some()).map(|limit| limit.rate().as_bps());
        let limit_bps = limit_bps.into_iter().chain(own).min();
        let delivery = Delivery { verify, choose, link_bps, limit_bps, memory_bytes, rcvbuf_bytes, kernel };
        let limits = Some(delivery.sockets().limits(&readiness.socket()));
        let welcome = Reply::Welcome { version: VERSION, notes, limits };
        let delivered = match wire::write_message(&mut tls, &welcome).await {
            Err(error) => Err(error),
            Ok(()) => {
                // The future of a delivery is not `Send`, because its observer is not `Send`.
                let runtime = Handle::current();
                let tls = Paced::new(tls, limit);
                let sending = spawn_blocking(move || {
                    let sources = sources.iter();
                    let sources =
                        sources.map(|(source, target)| (source.as_path().into(), target.as_path().into()));
                    let walk = Walk::below(tree, sources.collect());
                    let delivery = deliver(walk, delivery, peer.to_string(), (tls, readiness), joined);
                    runtime.block_on(async {
                        tokio::select! {
                            delivered = delivery => delivered,
                            () = end.notified() => Err(Error::network("the client has restarted the transfer", "")),
                        }
                    })
                });
                sending.await.map_err(io::Error::other)
            }
        };
        self.leave(transfer);
        match delivered? {
            Ok((files, sent)) => {
                let plural = if files == 1 { "" } else { "s" };
                self.observer.report(&format!("{peer}: sent {files} file{plural}, {sent}"));
                Ok(())
            }
            Err(error) => Err(io::Error::other(error.message)),
        }
    }

    /// Serves another connection of a transfer.
    async fn join(&self, greeting: Greeting) -> io::Result<()> {
        let Greeting { mut tls, readiness, transfer, connection, .. } = greeting;
        let active = self.begun(transfer).await;
        let limit = self.limits.get(&transfer.0).cloned();
        let welcome = || Reply::Welcome { version: VERSION, notes: Vec::new(), limits: None };
        let active =
            active.ok_or_else(|| io::Error::other("the transfer has already ended, or has not begun"))?;
        let session = match active {
            Active::Receiving(session) => session,
            Active::Sending { joins, .. } => {
                wire::write_message(&mut tls, &welcome()).await?;
                let joined = Joined { number: connection, stream: Paced::new(tls, limit), readiness };
                return joins.send(joined).map_err(|_| io::Error::other("the transfer has ended"));
            }
        };
        let entry = session.enter(connection);
        let welcome = wire::write_message(&mut tls, &welcome()).await;
        match welcome {
            Ok(()) => session.serve(entry, &mut Paced::new(tls, limit)).await,
            Err(error) => {
                session.leave(entry);
                Err(error)
            }
        }
    }
}

/// Returns the note that informs the user of a client about its rate limit.
fn limit_note(limit: &ClientLimit) -> String {
    format!("the relay limits the key of this host to {}", limit.rate())
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
            ended: Mutex::default(),
            begun: Notify::new(),
            waiting: Semaphore::new(MOST_WAITING),
            limits: BTreeMap::new(),
            is_open: false,
            kernel: None,
            observer: Arc::new(Nothing),
        };
        let session = || Active::Receiving(Arc::new(Session::new(Arc::clone(&store), mpsc::channel(1).0)));
        let name = |number: usize| (identity.fingerprint(), Hex([number as u8; 16]));
        assert!(relay.enter(name(0), session()) && !relay.enter(name(0), session()), "one connection 0");
        assert!((1..MOST_TRANSFERS).all(|number| relay.enter(name(number), session())));
        assert!(!relay.enter(name(MOST_TRANSFERS), session()), "full");
        locked(&relay.transfers).remove(&name(7));
        assert!(relay.enter(name(MOST_TRANSFERS), session()));
    }
}
