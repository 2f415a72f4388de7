//! A proxy between a client and PostgreSQL that cuts and holds at the moments that matter.
//!
//! It follows the protocol in both directions: it knows which reply belongs to which COMMIT, so "the
//! server has committed and the client will never hear of it" is a fact and not a guess at timing.

mod rule;
mod wire;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use counterfoil_pg::Role;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use rule::{Event, Order, Rules, Then, What};
pub use rule::{Fault, Faults, Hold, Seen};
use wire::{Opening, read_message, read_opening};

/// Listens on a port of its own on 127.0.0.1; ends with everything that goes through it when it is
/// dropped.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
    listener: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    host: String,
    port: u16,
    rules: Arc<Rules>,
    seen: Mutex<Seen>,
    /// Set: new connections are closed at once.
    shut: AtomicBool,
    /// Changed: every connection there is closes.
    cut: watch::Sender<u64>,
}

impl FaultProxy {
    /// A proxy before the server at this address: a host, or the directory of a unix socket.
    pub async fn start(host: &str, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port for the proxy");
        let own_port = listener.local_addr().expect("the address of a listener").port();
        let shared = Arc::new(Shared {
            host: host.to_owned(),
            port,
            rules: Arc::default(),
            seen: Mutex::default(),
            shut: AtomicBool::new(false),
            cut: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self {
            port: own_port,
            shared,
            listener: accepting.abort_handle(),
        }
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What has gone from clients to the server so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        *self.shared.seen.lock()
    }

    /// Faults for the connections of any role.
    #[must_use]
    pub fn any(&self) -> Faults {
        Faults {
            rules: self.shared.rules.clone(),
            user: None,
        }
    }

    /// Faults for the connections of one role.
    #[must_use]
    pub fn role(&self, role: Role) -> Faults {
        Faults {
            user: Some(role),
            ..self.any()
        }
    }

    /// Faults for lanes.
    #[must_use]
    pub fn lane(&self) -> Faults {
        self.role(Role::Lane)
    }

    #[must_use]
    pub fn cut_before_commit(&self, nth: u64) -> Fault {
        self.any().cut_before_commit(nth)
    }

    #[must_use]
    pub fn cut_after_commit(&self, nth: u64) -> Fault {
        self.any().cut_after_commit(nth)
    }

    #[must_use]
    pub fn cut_mid_batch(&self, nth: u64) -> Fault {
        self.any().cut_mid_batch(nth)
    }

    #[must_use]
    pub fn hold_commit(&self, nth: u64) -> Hold {
        self.any().hold_commit(nth)
    }

    /// Cuts every connection there is.
    pub fn cut_all(&self) {
        self.shared.cut.send_modify(|generation| *generation += 1);
    }

    /// From now on nobody gets through: the database has gone away.
    pub fn shut(&self) {
        self.shared.shut.store(true, Ordering::SeqCst);
    }

    /// It has come back.
    pub fn open(&self) {
        self.shared.shut.store(false, Ordering::SeqCst);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.listener.abort();
        self.cut_all();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        if shared.shut.load(Ordering::SeqCst) {
            continue;
        }
        let shared = shared.clone();
        tokio::spawn(async move {
            let mut cut = shared.cut.subscribe();
            tokio::select! {
                // Ends however the connection ends; dropping both halves closes both sides.
                _ = serve(client, &shared) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

async fn serve(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (user, opening) = loop {
        match read_opening(&mut client).await? {
            Opening::Encrypt => client.write_all(b"N").await?,
            Opening::Cancel(bytes) => {
                shared.seen.lock().cancels += 1;
                return cancel(client, shared, &bytes).await;
            }
            Opening::Startup { user, bytes } => break (user, bytes),
        }
    };
    shared.seen.lock().connections += 1;
    let server = connect(shared).await?;
    let (from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = tokio::io::split(server);
    to_server.write_all(&opening).await?;
    let swallow = watch::Sender::new(None);
    let swallowing = swallow.subscribe();
    let up = Upward {
        shared,
        user: &user,
        to_server,
        swallow,
        syncs: 0,
        executes: 0,
    };
    tokio::select! {
        ended = up.run(from_client) => ended,
        ended = downward(from_server, to_client, swallowing) => ended,
    }
}

trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Stream for T {}

async fn connect(shared: &Shared) -> io::Result<Box<dyn Stream>> {
    if shared.host.starts_with('/') {
        let path = format!("{}/.s.PGSQL.{}", shared.host, shared.port);
        return Ok(Box::new(UnixStream::connect(path).await?));
    }
    let stream = TcpStream::connect((shared.host.as_str(), shared.port)).await?;
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

/// The server closes the connection when it has dealt with the request, and the client waits for it.
async fn cancel(mut client: TcpStream, shared: &Shared, request: &[u8]) -> io::Result<()> {
    let mut server = connect(shared).await?;
    server.write_all(request).await?;
    server.read_to_end(&mut Vec::new()).await?;
    client.shutdown().await
}

/// The reply that shall not arrive, counted in ReadyForQuery, and whom to tell when it has been
/// thrown away.
type Swallow = Option<(u64, watch::Sender<bool>)>;

/// From the client to the server.
struct Upward<'a, W> {
    shared: &'a Shared,
    user: &'a str,
    to_server: W,
    swallow: watch::Sender<Swallow>,
    /// How many messages have been sent that the server answers with a ReadyForQuery. The startup,
    /// which it also answers so, is number 0.
    syncs: u64,
    executes: u64,
}

impl<W: tokio::io::AsyncWrite + Unpin> Upward<'_, W> {
    async fn run(mut self, from_client: OwnedReadHalf) -> io::Result<()> {
        let mut from_client = BufReader::with_capacity(64 * 1024, from_client);
        loop {
            let message = read_message(&mut from_client).await?;
            let what = What::of(&message);
            what.count(&message, &mut self.shared.seen.lock());
            match what {
                What::Begin => self.executes = 0,
                What::Execute => self.executes += 1,
                _ => {}
            }
            if matches!(message.kind, b'Q' | b'S' | b'F') {
                self.syncs += 1;
            }
            let event = Event {
                user: self.user,
                message: &message,
                executes: self.executes,
                what,
            };
            match self.shared.rules.show(&event) {
                None => self.to_server.write_all(&message.bytes).await?,
                Some(order) => self.obey(order, &message.bytes).await?,
            }
        }
    }

    async fn obey(&mut self, order: Order, message: &[u8]) -> io::Result<()> {
        let Order { then, fired } = order;
        match then {
            Then::CutBefore => {
                fired.send_replace(true);
                Err(cut())
            }
            Then::CutAfterSending => {
                self.to_server.write_all(message).await?;
                self.to_server.flush().await?;
                fired.send_replace(true);
                Err(cut())
            }
            Then::CutInsteadOfReply => {
                // Said before the server can answer; the other direction cuts when it has.
                self.swallow.send_replace(Some((self.syncs, fired)));
                self.to_server.write_all(message).await?;
                std::future::pending().await
            }
            Then::Hold(mut released) => {
                fired.send_replace(true);
                // An error: the hold was dropped, which releases as well.
                let _ = released.wait_for(|released| *released).await;
                self.to_server.write_all(message).await
            }
        }
    }
}

/// From the server to the client.
async fn downward(
    from_server: impl tokio::io::AsyncRead + Unpin,
    mut to_client: OwnedWriteHalf,
    swallow: watch::Receiver<Swallow>,
) -> io::Result<()> {
    let mut from_server = BufReader::with_capacity(64 * 1024, from_server);
    // ReadyForQuery messages so far: the next one answers the sync of this number.
    let mut ready: u64 = 0;
    loop {
        let message = read_message(&mut from_server).await?;
        let due = swallow.borrow().clone().filter(|(reply, _)| ready >= *reply);
        if message.kind == b'Z' {
            ready += 1;
        }
        match due {
            None => to_client.write_all(&message.bytes).await?,
            Some((_, fired)) if message.kind == b'Z' => {
                fired.send_replace(true);
                return Err(cut());
            }
            Some(_) => {}
        }
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "cut by a rule")
}
