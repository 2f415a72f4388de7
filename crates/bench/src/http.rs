//! A client for HTTP/1.1 that does only what the load needs, since it shares two cores with the
//! server: one request on the way, requests prepared as bytes, a buffer that stays, and of the
//! answer its status and where its body lies.

use std::io;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{Error, Result};

const WHOM: &str = "the server";

/// Any head the server sends is far shorter.
const MAX_HEAD: usize = 16 << 10;

fn lost(source: io::Error) -> Error {
    Error::Connection { whom: WHOM, source }
}

fn not_http(what: impl Into<String>) -> Error {
    Error::NotHttp {
        whom: WHOM,
        what: what.into(),
    }
}

/// A connection that is kept alive.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer, in the connection's buffer until the next request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        Ok(Self {
            stream,
            buffer: vec![0; 4 << 10],
        })
    }

    /// Sends a whole request and reads its answer.
    pub(crate) async fn call(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.stream.write_all(request).await.map_err(lost)?;
        let mut filled = 0;
        let head = loop {
            filled += self.read(filled).await?;
            if let Some(head) = Head::read(&self.buffer[..filled])? {
                break head;
            }
            if filled >= MAX_HEAD {
                return Err(not_http("a head without an end"));
            }
            if filled == self.buffer.len() {
                self.buffer.resize(2 * filled, 0);
            }
        };
        let end = head.length + head.content;
        if self.buffer.len() < end {
            // Once, for the largest answer there is.
            self.buffer.resize(end.next_power_of_two(), 0);
        }
        while filled < end {
            filled += self.read(filled).await?;
        }
        if filled > end {
            return Err(not_http("more than one answer"));
        }
        Ok(Answer {
            status: head.status,
            body: &self.buffer[head.length..end],
        })
    }

    async fn read(&mut self, filled: usize) -> Result<usize> {
        match self.stream.read(&mut self.buffer[filled..]).await {
            Ok(0) => Err(lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => Ok(n),
            Err(error) => Err(lost(error)),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Bytes of the head, with the empty line that ends it.
    length: usize,
    /// Bytes of the body.
    content: usize,
}

impl Head {
    /// `None` while its end has not arrived.
    fn read(bytes: &[u8]) -> Result<Option<Self>> {
        let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = &bytes[..end];
        let status = head.strip_prefix(b"HTTP/1.1 ").and_then(|rest| number(rest.get(..3)?));
        let Some(status) = status.and_then(|status| u16::try_from(status).ok()) else {
            return Err(not_http(String::from_utf8_lossy(&head[..head.len().min(40)])));
        };
        let content = head.split(|byte| *byte == b'\n').find_map(content_length);
        let Some(content) = content else {
            return Err(not_http("no Content-Length"));
        };
        Ok(Some(Self {
            status,
            length: end + 4,
            content,
        }))
    }
}

fn content_length(line: &[u8]) -> Option<usize> {
    const NAME: &[u8] = b"content-length:";
    let value = line.get(NAME.len()..)?;
    line[..NAME.len()]
        .eq_ignore_ascii_case(NAME)
        .then(|| number(value.trim_ascii()))?
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The head of a request to a tenant's intents.
pub(crate) fn post_intents(tenant: i64, host: &str, key: &str, length: usize) -> Vec<u8> {
    let path = format!("/v1/tenants/{tenant}/intents");
    post(&path, host, key, "application/json", length)
}

/// The head of a request with a body.
pub(crate) fn post(path: &str, host: &str, key: &str, media_type: &str, length: usize) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes()
}

/// A whole request of what anybody may ask.
pub(crate) fn get(path: &str, host: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()
}

/// The statuses of the items of an array's answer, each with the item's place in the body.
pub(crate) fn items(body: &[u8]) -> impl Iterator<Item = (u16, usize)> + '_ {
    // Inside a string the quotes would be escaped, and only an item begins with its status.
    const MARK: &[u8] = b"{\"status\":";
    memmem::find_iter(body, MARK).map(move |at| {
        let digits = body.get(at + MARK.len()..at + MARK.len() + 3);
        let status = digits.and_then(number).and_then(|status| u16::try_from(status).ok());
        (status.unwrap_or(0), at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_gives_status_and_length_in_any_case_and_order() {
        let text = b"HTTP/1.1 201 Created\r\nDate: x\r\ncontent-LENGTH:  12\r\n\r\n{}";
        assert_eq!(
            Head::read(text).unwrap(),
            Some(Head {
                status: 201,
                length: text.len() - 2,
                content: 12
            })
        );
        let first = b"HTTP/1.1 429 Too Many\r\nContent-Length: 0\r\nRetry-After: 1\r\n\r\n";
        assert_eq!(
            Head::read(first).unwrap().map(|head| (head.status, head.content)),
            Some((429, 0))
        );
    }

    #[test]
    fn half_a_head_is_waited_for_and_another_protocol_refused() {
        assert_eq!(Head::read(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n").unwrap(), None);
        assert!(Head::read(b"SSH-2.0\r\n\r\n").is_err());
        assert!(Head::read(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn items_are_counted_by_their_own_status_only() {
        let body = br#"[{"status":201,"result":{"text":"{\"status\":500"}},{"status":429,"code":"too_many"}]"#;
        let statuses: Vec<u16> = items(body).map(|(status, _)| status).collect();
        assert_eq!(statuses, [201, 429]);
        assert_eq!(items(b"[]").count(), 0);
    }
}
