//! The accept loop.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::app::App;
use crate::engine::Engine;
use crate::limits::{Limits, SMALL};

/// After an error of `accept`, such as no file descriptors left: they come back when others close.
const PAUSE: Duration = Duration::from_millis(50);

/// For connections whose answers came when the lanes were brought to an end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves until `shutdown` ends; then takes no new connection, finishes running requests, and lands
/// what the lanes have accepted, for [`Limits::drain`] at the most both together. Returns whether
/// everything came to its end.
pub async fn serve<E: Engine>(listener: TcpListener, app: Arc<App<E>>, shutdown: impl Future<Output = ()>) -> bool {
    let http = protocol(&app.limits);
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(app.limits.connections));
    tokio::pin!(shutdown);
    loop {
        // Room first: who finds none waits in the backlog, where it costs nothing.
        let accepted = async {
            let place = Arc::clone(&room)
                .acquire_owned()
                .await
                .expect("the semaphore is never closed");
            (place, listener.accept().await)
        };
        let (place, stream) = tokio::select! {
            biased;
            () = &mut shutdown => break,
            (place, accepted) = accepted => match accepted {
                Ok((stream, _)) => (place, stream),
                Err(error) => {
                    drop(place);
                    pause_after(&error).await;
                    continue;
                }
            },
        };
        let app = Arc::clone(&app);
        let service = {
            let app = Arc::clone(&app);
            service_fn(move |request: hyper::Request<Incoming>| {
                let app = Arc::clone(&app);
                async move { Ok::<_, Infallible>(app.handle(request).await) }
            })
        };
        let Some(io) = prepare(stream) else { continue };
        let connection = graceful.watch(http.serve_connection(io, service));
        tokio::spawn(async move {
            let _open = app.metrics.connection();
            // What ends a connection early is the caller's doing, and no news to us.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    finish(&app, graceful).await
}

async fn finish<E: Engine>(app: &App<E>, graceful: GracefulShutdown) -> bool {
    let closed = graceful.shutdown();
    tokio::pin!(closed);
    let deadline = Instant::now() + app.limits.drain;
    let in_time = tokio::time::timeout_at(deadline.into(), &mut closed).await.is_ok();
    let landed = app.engine.shutdown(deadline).await;
    let answered = in_time || tokio::time::timeout(LAST_WORDS, &mut closed).await.is_ok();
    if !answered {
        tracing::warn!(
            connections = app.metrics.connections(),
            "stopped with connections that did not end"
        );
    }
    landed && answered
}

fn protocol(limits: &Limits) -> Builder {
    let mut http = Builder::new();
    http.timer(TokioTimer::new())
        // Between two requests the same clock runs, so that it closes idle connections too.
        .header_read_timeout(limits.head_timeout)
        .max_header_size(limits.head)
        // Of each connection, beside what is counted of large bodies.
        .max_buf_size(SMALL.max(limits.head))
        .keep_alive(true);
    http
}

/// Small answers must not wait for the acknowledgement of the one before.
fn prepare(stream: TcpStream) -> Option<TokioIo<TcpStream>> {
    stream.set_nodelay(true).ok()?;
    Some(TokioIo::new(stream))
}

async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    // Of the connection that was about to be, not of the listener.
    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        return;
    }
    tracing::warn!(%error, "could not accept a connection");
    tokio::time::sleep(PAUSE).await;
}
