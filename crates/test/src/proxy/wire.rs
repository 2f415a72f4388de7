//! Just enough of the PostgreSQL protocol, version 3: where messages begin and end, and what kind
//! they are.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

const SSL_REQUEST: i32 = 80_877_103;
const GSS_REQUEST: i32 = 80_877_104;
const CANCEL_REQUEST: i32 = 80_877_102;

/// No message of a test is longer; a length beyond it means that we have lost our place.
const LONGEST: usize = 1 << 30;

/// What a client says first. Has no type byte.
pub(crate) enum Opening {
    /// Asks for encryption, and waits for one byte. A proxy that reads along says no.
    Encrypt,
    Cancel(Vec<u8>),
    Startup {
        user: String,
        bytes: Vec<u8>,
    },
}

pub(crate) async fn read_opening(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Opening> {
    let length = from.read_i32().await?;
    let body = read_body(from, length).await?;
    let mut bytes = length.to_be_bytes().to_vec();
    bytes.extend_from_slice(&body);
    let code = body
        .get(..4)
        .map_or(0, |code| i32::from_be_bytes([code[0], code[1], code[2], code[3]]));
    Ok(match code {
        SSL_REQUEST | GSS_REQUEST => Opening::Encrypt,
        CANCEL_REQUEST => Opening::Cancel(bytes),
        _ => Opening::Startup {
            user: parameter(&body[4..], "user").unwrap_or_default(),
            bytes,
        },
    })
}

/// Parameters are pairs of zero-terminated strings.
fn parameter(body: &[u8], name: &str) -> Option<String> {
    let mut parts = body.split(|byte| *byte == 0);
    while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
        if key == name.as_bytes() {
            return Some(String::from_utf8_lossy(value).into_owned());
        }
    }
    None
}

/// One message after the opening, of either side.
pub(crate) struct Message {
    pub kind: u8,
    /// All of it, as it goes on: type, length, body.
    pub bytes: Vec<u8>,
}

pub(crate) async fn read_message(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Message> {
    let kind = from.read_u8().await?;
    let length = from.read_i32().await?;
    let body = read_body(from, length).await?;
    let mut bytes = Vec::with_capacity(5 + body.len());
    bytes.push(kind);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&body);
    Ok(Message { kind, bytes })
}

/// The length counts itself.
async fn read_body(from: &mut (impl AsyncRead + Unpin), length: i32) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length)
        .ok()
        .and_then(|n| n.checked_sub(4))
        .filter(|n| *n <= LONGEST);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not the PostgreSQL protocol"))?;
    let mut body = vec![0; length];
    from.read_exact(&mut body).await?;
    Ok(body)
}

impl Message {
    /// The first string of the body: the text of a Query, the name of a Parse.
    pub(crate) fn first_string(&self) -> &str {
        string(&self.bytes[5..]).0
    }

    /// The second: the text of a Parse.
    pub(crate) fn second_string(&self) -> &str {
        string(string(&self.bytes[5..]).1).0
    }
}

fn string(bytes: &[u8]) -> (&str, &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let rest = bytes.get(end + 1..).unwrap_or_default();
    (std::str::from_utf8(&bytes[..end]).unwrap_or_default(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&(i32::try_from(body.len()).unwrap() + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[tokio::test]
    async fn messages_are_read_whole_and_go_on_as_they_came() {
        let parse = framed(b'P', b"s1\0SELECT 1\0\0\0");
        let query = framed(b'Q', b"COMMIT\0");
        let stream = [parse.clone(), query.clone()].concat();
        let mut from = &stream[..];
        let message = read_message(&mut from).await.unwrap();
        assert_eq!((message.first_string(), message.second_string()), ("s1", "SELECT 1"));
        assert_eq!(message.bytes, parse);
        let message = read_message(&mut from).await.unwrap();
        assert_eq!((message.kind, message.first_string()), (b'Q', "COMMIT"));
        assert_eq!(message.bytes, query);
        assert_eq!(
            read_message(&mut from).await.err().map(|e| e.kind()),
            Some(io::ErrorKind::UnexpectedEof)
        );
    }

    #[tokio::test]
    async fn a_nonsensical_length_is_an_error() {
        let mut from: &[u8] = &[b'Q', 0, 0, 0, 3];
        assert_eq!(
            read_message(&mut from).await.err().map(|e| e.kind()),
            Some(io::ErrorKind::InvalidData)
        );
        let mut from: &[u8] = &[b'Q', 0xff, 0, 0, 3];
        assert_eq!(
            read_message(&mut from).await.err().map(|e| e.kind()),
            Some(io::ErrorKind::InvalidData)
        );
    }

    #[tokio::test]
    async fn the_opening_names_the_user() {
        let body = [
            &196_608_i32.to_be_bytes()[..],
            b"database\0d\0user\0counterfoil_lane\0\0",
        ]
        .concat();
        let bytes = framed(b'?', &body)[1..].to_vec();
        match read_opening(&mut &bytes[..]).await.unwrap() {
            Opening::Startup { user, bytes: again } => {
                assert_eq!(user, "counterfoil_lane");
                assert_eq!(again, bytes);
            }
            _ => panic!("not a startup"),
        }
        let bytes = framed(b'?', &SSL_REQUEST.to_be_bytes())[1..].to_vec();
        assert!(matches!(read_opening(&mut &bytes[..]).await.unwrap(), Opening::Encrypt));
    }
}
