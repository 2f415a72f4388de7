//! Over real sockets: what only shows there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_server::{Limits, serve};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::engine::{Client, OPERATOR_KEY, TENANT_KEY};

struct Server {
    client: Client,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    running: JoinHandle<bool>,
}

async fn start(limits: Limits) -> Server {
    let client = Client::with(limits);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let running = tokio::spawn(serve(listener, Arc::clone(&client.app), async {
        let _ = stopped.await;
    }));
    Server {
        client,
        address,
        stop,
        running,
    }
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends bytes on a connection of their own and reads until the server closes it.
    async fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        read_all(&mut stream).await
    }

    async fn is_alive(&self) -> bool {
        let answer = self
            .exchange(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            .await;
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n")
    }
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut text))
        .await
        .expect("an answer");
    String::from_utf8(text).unwrap()
}

/// Reads one answer with a `Content-Length` and leaves the connection open.
async fn read_one(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut piece))
            .await
            .expect("an answer")
            .unwrap();
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&piece[..read]);
        let so_far = String::from_utf8(text.clone()).unwrap();
        let Some((head, body)) = so_far.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .expect("a length");
        if body.len() >= length.parse().unwrap() {
            return so_far;
        }
    }
}

fn post(extra: &str) -> String {
    post_of(7, TENANT_KEY, extra)
}

fn post_of(tenant: i64, key: &str, extra: &str) -> String {
    format!(
        "POST /v1/tenants/{tenant}/intents HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\n{extra}\r\n"
    )
}

#[tokio::test]
async fn a_connection_is_kept_and_every_answer_has_its_length() {
    let server = start(Limits::default()).await;
    let mut stream = server.connect().await;
    let body = r#"{"key":"k","kind":"ledger.transfer","body":{}}"#;
    for _ in 0..3 {
        stream
            .write_all(post(&format!("Content-Length: {}\r\n", body.len())).as_bytes())
            .await
            .unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        let answer = read_one(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    }
    assert_eq!(server.client.taken().len(), 3);
}

#[tokio::test]
async fn two_hundred_megabytes_are_answered_and_the_server_lives() {
    let server = start(Limits::default()).await;
    for head in [
        post("Content-Length: 209715200\r\n"),
        post("Transfer-Encoding: chunked\r\n"),
    ] {
        let chunked = head.contains("chunked");
        let mut stream = server.connect().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        // As a simple caller does: everything is sent before anything is read.
        let piece = vec![b' '; 1 << 20];
        for _ in 0..200 {
            if chunked {
                stream.write_all(b"100000\r\n").await.unwrap();
            }
            stream.write_all(&piece).await.unwrap();
            if chunked {
                stream.write_all(b"\r\n").await.unwrap();
            }
        }
        if chunked {
            stream.write_all(b"0\r\n\r\n").await.unwrap();
        }
        let answer = read_one(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        assert!(answer.contains("\"code\":\"request_too_large\""), "{answer}");
        assert!(server.is_alive().await);
    }
    assert!(server.client.taken().is_empty());
}

#[tokio::test]
async fn what_is_too_large_by_its_length_is_answered_before_it_is_sent() {
    let server = start(Limits::default()).await;
    let mut stream = server.connect().await;
    stream
        .write_all(post("Content-Length: 209715200\r\n").as_bytes())
        .await
        .unwrap();
    let answer = read_one(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    // Who asks first whether to go on is told no, and the connection ends.
    let answer = server
        .exchange(post("Content-Length: 209715200\r\nExpect: 100-continue\r\n").as_bytes())
        .await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(!answer.contains("100 Continue"), "{answer}");
}

#[tokio::test]
async fn who_has_no_key_is_answered_while_still_sending() {
    let server = start(Limits::default()).await;
    let mut stream = server.connect().await;
    let head = "POST /v1/tenants/7/intents HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b'x'; 20_000_000]).await.unwrap();
    let answer = read_one(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    // The connection is as good as before.
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    assert!(read_one(&mut stream).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn too_many_or_too_long_headers_are_431() {
    let server = start(Limits::default()).await;
    let many: String = (0..101).map(|i| format!("x-{i}: y\r\n")).collect();
    let answer = server
        .exchange(format!("GET /healthz HTTP/1.1\r\n{many}\r\n").as_bytes())
        .await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let long = "y".repeat(33 << 10);
    let answer = server
        .exchange(format!("GET /healthz HTTP/1.1\r\nx: {long}\r\n\r\n").as_bytes())
        .await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert!(server.is_alive().await);
}

#[tokio::test]
async fn what_is_no_http_is_400_or_closed() {
    let server = start(Limits::default()).await;
    for noise in [
        "\x16\x03\x01\x02\x00\x01\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ] {
        let answer = server.exchange(noise.as_bytes()).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
            "{noise:?} got {answer}"
        );
    }
    assert!(server.is_alive().await);
}

#[tokio::test]
async fn two_lengths_that_differ_or_a_length_beside_chunks_are_not_believed() {
    let server = start(Limits::default()).await;
    let differ = post("Content-Length: 2\r\nContent-Length: 3\r\n");
    let answer = server.exchange(format!("{differ}{{}} ").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(server.client.taken().is_empty());
    assert!(server.is_alive().await);
}

#[tokio::test]
async fn a_head_that_never_ends_and_an_idle_connection_are_closed() {
    let server = start(Limits {
        head_timeout: Duration::from_millis(100),
        ..Limits::default()
    })
    .await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /healthz HTT").await.unwrap();
    assert_eq!(read_all(&mut slow).await, "");
    let mut idle = server.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    assert!(read_all(&mut idle).await.ends_with("ok\n"));
}

#[tokio::test]
async fn a_body_cut_short_hands_over_nothing() {
    let server = start(Limits::default()).await;
    let mut stream = server.connect().await;
    let body = r#"{"key":"k","kind":"ledger.transfer","body":{}}"#;
    stream
        .write_all(post(&format!("Content-Length: {}\r\n", body.len() + 1)).as_bytes())
        .await
        .unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    read_all(&mut stream).await;
    assert!(server.is_alive().await);
    assert!(server.client.taken().is_empty());
}

#[tokio::test]
async fn a_body_that_stops_coming_is_408() {
    let server = start(Limits {
        body_timeout: Duration::from_millis(100),
        ..Limits::default()
    })
    .await;
    let answer = server.exchange(post("Content-Length: 10\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("\"code\":\"body_timeout\""), "{answer}");
}

#[tokio::test]
async fn head_has_the_length_and_no_body() {
    let server = start(Limits::default()).await;
    let answer = server
        .exchange(b"HEAD /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await;
    assert!(answer.contains("\r\ncontent-length: 3\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn more_connections_than_allowed_wait_their_turn() {
    let server = start(Limits {
        connections: 1,
        ..Limits::default()
    })
    .await;
    let mut first = server.connect().await;
    first
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    assert!(read_one(&mut first).await.ends_with("ok\n"));
    let mut second = server.connect().await;
    second
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut byte = [0];
    let waited = tokio::time::timeout(Duration::from_millis(100), second.read(&mut byte)).await;
    assert!(waited.is_err(), "the second was served beside the first");
    drop(first);
    assert!(read_all(&mut second).await.ends_with("ok\n"));
}

#[tokio::test]
async fn shutdown_closes_idle_connections_and_finishes_running_requests() {
    let server = start(Limits::default()).await;
    let mut idle = server.connect().await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    read_one(&mut idle).await;
    let body = r#"{"key":"k","kind":"ledger.transfer","body":{}}"#;
    let mut busy = server.connect().await;
    busy.write_all(post(&format!("Content-Length: {}\r\n", body.len())).as_bytes())
        .await
        .unwrap();
    busy.write_all(&body.as_bytes()[..5]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.stop.send(()).unwrap();
    assert_eq!(read_all(&mut idle).await, "");
    busy.write_all(&body.as_bytes()[5..]).await.unwrap();
    let answer = read_all(&mut busy).await;
    assert!(answer.contains("\"code\":\"busy\""), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(server.running.await.unwrap(), "everything came to its end");
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "nobody listens any more"
    );
}

#[tokio::test]
async fn shutdown_does_not_wait_for_ever() {
    let server = start(Limits {
        drain: Duration::from_millis(100),
        ..Limits::default()
    })
    .await;
    let mut stuck = server.connect().await;
    stuck
        .write_all(post("Content-Length: 10\r\n").as_bytes())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.stop.send(()).unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(5), server.running)
        .await
        .expect("it ends")
        .unwrap();
    assert!(!ended);
    let left = *server.client.app.engine().time_to_land.lock();
    assert_eq!(left, Some(false), "the lanes have no second drain of their own");
}

/// A body in mid-way holds what its length promises. The other tenant has its own half.
#[tokio::test]
async fn large_bodies_of_one_tenant_leave_half_of_the_room_to_others() {
    const LARGE: usize = 200 << 10;
    let server = start(Limits {
        in_memory: 1 << 20,
        request: 512 << 10,
        ..Limits::default()
    })
    .await;
    let length = format!("Content-Length: {LARGE}\r\n");
    let whole = |tenant, key| {
        let mut bytes = post_of(tenant, key, &length).into_bytes();
        bytes.resize(bytes.len() + LARGE, b' ');
        bytes
    };
    // Counted as 256 KiB each; 512 KiB are what one tenant may have.
    let mut halves = Vec::new();
    for _ in 0..2 {
        let mut stream = server.connect().await;
        let bytes = whole(7, TENANT_KEY);
        stream.write_all(&bytes[..bytes.len() - 1]).await.unwrap();
        halves.push(stream);
    }
    // A third one at once, in one piece, is one too many.
    let answer = loop {
        let mut third = server.connect().await;
        third.write_all(&whole(7, TENANT_KEY)).await.unwrap();
        let answer = read_one(&mut third).await;
        // Until the other two have been seen, it passes, and is no JSON.
        if !answer.starts_with("HTTP/1.1 400 ") {
            break answer;
        }
    };
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    assert!(answer.contains("\"code\":\"too_many_bytes\""), "{answer}");
    let mut other = server.connect().await;
    other.write_all(&whole(8, OPERATOR_KEY)).await.unwrap();
    let answer = read_one(&mut other).await;
    assert!(answer.contains("\"code\":\"json_invalid\""), "{answer}");
    for mut stream in halves {
        stream.write_all(b" ").await.unwrap();
        let answer = read_one(&mut stream).await;
        assert!(answer.contains("\"code\":\"json_invalid\""), "{answer}");
    }
    let mut again = server.connect().await;
    again.write_all(&whole(7, TENANT_KEY)).await.unwrap();
    assert!(read_one(&mut again).await.contains("\"code\":\"json_invalid\""));
}
