//! A proxy between us and the server that knows the messages we send, and can lose some.
//!
//! It understands the plain-text protocol only: one startup message, then type, length, body.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

/// What happens to the next COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection is closed; the server never hears of COMMIT.
    Before,
    /// The server commits and answers; the answer is thrown away and the connection closed.
    After,
    /// The client's connection is closed; the server's stays open, in the transaction, until
    /// `Proxy::let_go` passes COMMIT on.
    Hold,
    /// COMMIT and everything after it vanishes, and nobody is told.
    Swallow,
}

pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

struct State {
    upstream: u16,
    fault: Mutex<Option<(Fault, bool)>>,
    sent: Mutex<Vec<(u8, Vec<u8>)>>,
    let_go: Notify,
    /// Connections so far.
    connections: AtomicU64,
    /// Replies on connections before this one wait.
    mute: watch::Sender<u64>,
    /// While true, connections are closed as soon as they are made.
    closed: AtomicBool,
}

impl Proxy {
    pub async fn before(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(State {
            upstream,
            fault: Mutex::default(),
            sent: Mutex::default(),
            let_go: Notify::new(),
            connections: AtomicU64::new(0),
            mute: watch::Sender::new(0),
            closed: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !shared.closed.load(Ordering::SeqCst) {
                    tokio::spawn(serve(Arc::clone(&shared), client));
                }
            }
        });
        Self { port, state }
    }

    /// Does this to the next COMMIT, and to no other.
    pub fn arm(&self, fault: Fault) {
        *self.state.fault.lock() = Some((fault, false));
    }

    /// The same, and from then on nobody gets through.
    pub fn arm_and_close(&self, fault: Fault) {
        *self.state.fault.lock() = Some((fault, true));
    }

    pub fn is_armed(&self) -> bool {
        self.state.fault.lock().is_some()
    }

    pub fn let_go(&self) {
        self.state.let_go.notify_one();
    }

    pub fn mute(&self, mute: bool) {
        self.state.mute.send_replace(if mute { u64::MAX } else { 0 });
    }

    /// Connections that are there get no reply any more; new ones do.
    pub fn mute_old(&self) {
        self.state
            .mute
            .send_replace(self.state.connections.load(Ordering::SeqCst));
    }

    /// Every message sent so far: its type, and its body.
    pub fn sent(&self) -> Vec<(u8, Vec<u8>)> {
        self.state.sent.lock().clone()
    }

    pub fn forget(&self) {
        self.state.sent.lock().clear();
    }
}

async fn serve(state: Arc<State>, client: TcpStream) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", state.upstream)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let lose_replies = Arc::new(Notify::new());
    let replies = tokio::spawn(pass_replies(
        state.connections.fetch_add(1, Ordering::SeqCst),
        state.mute.subscribe(),
        from_server,
        to_client,
        Arc::clone(&lose_replies),
    ));
    let result = pass_requests(state, from_client, to_server, &lose_replies).await;
    replies.abort();
    result
}

async fn pass_requests(
    state: Arc<State>,
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    lose_replies: &Notify,
) -> io::Result<()> {
    // The startup message has no type.
    let length = client.read_u32().await?;
    let mut body = vec![0; length as usize - 4];
    client.read_exact(&mut body).await?;
    server.write_u32(length).await?;
    server.write_all(&body).await?;
    loop {
        let kind = client.read_u8().await?;
        let length = client.read_u32().await?;
        let mut body = vec![0; length as usize - 4];
        client.read_exact(&mut body).await?;
        state.sent.lock().push((kind, body.clone()));
        let commit = kind == b'Q' && body.starts_with(b"COMMIT");
        let fault = if commit { state.fault.lock().take() } else { None };
        if let Some((_, true)) = fault {
            state.closed.store(true, Ordering::SeqCst);
        }
        match fault.map(|(fault, _)| fault) {
            Some(Fault::Before) => return Ok(()),
            Some(Fault::Hold) => {
                lose_replies.notify_one();
                drop(client);
                state.let_go.notified().await;
                write(&mut server, kind, &body).await?;
                // Long enough for the server to be done with it before the socket closes.
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                return Ok(());
            }
            Some(Fault::Swallow) => loop {
                if client.read_u8().await.is_err() {
                    return Ok(());
                }
            },
            Some(Fault::After) => {
                lose_replies.notify_one();
                write(&mut server, kind, &body).await?;
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                return Ok(());
            }
            None => write(&mut server, kind, &body).await?,
        }
    }
}

async fn write(server: &mut OwnedWriteHalf, kind: u8, body: &[u8]) -> io::Result<()> {
    let mut message = vec![kind];
    message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    message.extend_from_slice(body);
    server.write_all(&message).await
}

async fn pass_replies(
    number: u64,
    mut mute: watch::Receiver<u64>,
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    lose: Arc<Notify>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = tokio::select! {
            biased;
            () = lose.notified() => break,
            read = server.read(&mut buffer) => read?,
        };
        if read == 0 {
            return Ok(());
        }
        let _ = mute.wait_for(|mute| number >= *mute).await;
        client.write_all(&buffer[..read]).await?;
    }
    // Nobody hears it any more; the client sees its connection end.
    drop(client);
    while server.read(&mut buffer).await? > 0 {}
    Ok(())
}
