//! A caller: just enough of HTTP/1.1, one connection that is kept, and raw bytes where a proper
//! client would not send them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use counterfoil_pg::TenantId;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longer than anything the server waits for, so that it is the server that answers.
const LONGEST: Duration = Duration::from_secs(90);

pub struct Client {
    pub address: SocketAddr,
    pub tenant: TenantId,
    pub key: String,
    stream: Option<BufStream<TcpStream>>,
}

/// Without the connection: a caller of its own.
impl Clone for Client {
    fn clone(&self) -> Self {
        Self {
            address: self.address,
            tenant: self.tenant,
            key: self.key.clone(),
            stream: None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn replayed(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The answers to an array.
    #[track_caller]
    pub fn items(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text());
        match self.json() {
            Value::Array(items) => items,
            other => panic!("not an array: {other}"),
        }
    }

    /// The code of a problem, or nothing.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Status and code, for comparisons.
    pub fn verdict(&self) -> (u16, String) {
        (self.status, self.code())
    }
}

impl Client {
    pub fn new(address: SocketAddr, tenant: TenantId, key: &str) -> Self {
        Self {
            address,
            tenant,
            key: key.to_owned(),
            stream: None,
        }
    }

    pub fn path(&self, rest: &str) -> String {
        format!("/v1/tenants/{}{rest}", self.tenant)
    }

    /// Connects ahead of time, and has its key known to the server.
    pub async fn ready(mut self) -> Self {
        assert_eq!(self.get("/accounts?limit=1").await.status, 200);
        self
    }

    /// Reads below the tenant.
    pub async fn get(&mut self, rest: &str) -> Response {
        let path = self.path(rest);
        self.send("GET", &path, &[], b"")
            .await
            .unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    /// Writes below the tenant.
    pub async fn post(&mut self, rest: &str, body: &Value) -> Response {
        self.try_post(rest, body)
            .await
            .unwrap_or_else(|error| panic!("POST {rest}: {error}"))
    }

    pub async fn try_post(&mut self, rest: &str, body: &Value) -> io::Result<Response> {
        let path = self.path(rest);
        self.send(
            "POST",
            &path,
            &[("content-type", "application/json")],
            body.to_string().as_bytes(),
        )
        .await
    }

    /// Writes bytes as they are.
    pub async fn post_bytes(&mut self, rest: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let path = self.path(rest);
        self.send("POST", &path, headers, body)
            .await
            .unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    /// A member of an account.
    pub async fn account(&mut self, code: &str, member: &str) -> Value {
        let answer = self.get(&format!("/accounts/{code}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()[member].clone()
    }

    /// What is known of a key: `found`, `in_flight` or `none`.
    pub async fn stub_state(&mut self, key: &str) -> String {
        self.get(&format!("/stubs/{key}")).await.json()["state"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    pub async fn is_alive(&self) -> bool {
        let answer = self.clone().send("GET", "/healthz", &[], b"").await;
        answer.is_ok_and(|answer| answer.status == 200)
    }

    /// One request. After an error the connection is another one.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let answer = timeout(LONGEST, self.exchange(method, path, headers, body)).await;
        let answer = answer.unwrap_or_else(|_| panic!("{method} {path}: no answer after {LONGEST:?}"));
        let closes = |answer: &Response| answer.header("connection").is_some_and(|value| value == "close");
        if answer.as_ref().map_or(true, closes) {
            self.stream = None;
        }
        answer
    }

    async fn exchange(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\n");
        if !self.key.is_empty() {
            head += &format!("authorization: Bearer {}\r\n", self.key);
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if method == "POST" && !headers.iter().any(|(name, _)| *name == "transfer-encoding") {
            head += &format!("content-length: {}\r\n", body.len());
        }
        head += "\r\n";
        let stream = match &mut self.stream {
            Some(stream) => stream,
            place => place.insert(connect(self.address).await?),
        };
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        stream.flush().await?;
        read_response(stream).await
    }

    /// Sends the request and hangs up; what is returned is the connection, to be dropped when the
    /// time has come.
    pub async fn send_only(&self, rest: &str, body: &Value) -> BufStream<TcpStream> {
        let body = body.to_string();
        let (path, key, length) = (self.path(rest), &self.key, body.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        let mut stream = connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }

    /// Sends so many megabytes of white space before it reads anything, as a simple caller does.
    pub async fn flood(&self, rest: &str, megabytes: usize, chunked: bool) -> Response {
        let (path, key) = (self.path(rest), &self.key);
        let length = if chunked {
            "transfer-encoding: chunked".to_owned()
        } else {
            format!("content-length: {}", megabytes << 20)
        };
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\n{length}\r\n\r\n"
        );
        let mut stream = connect(self.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let piece = vec![b' '; 1 << 20];
        let (before, after, end) = if chunked {
            ("100000\r\n", "\r\n", "0\r\n\r\n")
        } else {
            ("", "", "")
        };
        for _ in 0..megabytes {
            stream.write_all(before.as_bytes()).await.unwrap();
            stream.write_all(&piece).await.unwrap();
            stream.write_all(after.as_bytes()).await.unwrap();
        }
        stream.write_all(end.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        timeout(LONGEST, read_response(&mut stream))
            .await
            .expect("an answer")
            .unwrap()
    }

    /// Sends bytes on a connection of their own, and reads an answer if there is one.
    pub async fn raw(&self, bytes: &[u8]) -> io::Result<Response> {
        let mut stream = connect(self.address).await?;
        stream.write_all(bytes).await?;
        stream.flush().await?;
        stream.get_mut().shutdown().await?;
        timeout(LONGEST, read_response(&mut stream))
            .await
            .expect("an answer or an end")
    }
}

async fn connect(address: SocketAddr) -> io::Result<BufStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(BufStream::with_capacity(16 << 10, 64 << 10, stream))
}

pub async fn read_response(stream: &mut BufStream<TcpStream>) -> io::Result<Response> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end() {
            // What comes before the answer proper.
            "" if lines
                .first()
                .is_some_and(|line: &String| line.starts_with("HTTP/1.1 100")) =>
            {
                lines.clear()
            }
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{what}: {lines:?}"));
    let status = lines[0]
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| bad("no status"))?;
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut response = Response {
        status,
        headers,
        body: Vec::new(),
    };
    let length = response.header("content-length").and_then(|length| length.parse().ok());
    response.body = vec![0; length.ok_or_else(|| bad("no length"))?];
    stream.read_exact(&mut response.body).await?;
    Ok(response)
}
