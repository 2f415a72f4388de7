//! The hashes of a body that a stub keeps, field by field.

use sha2::{Digest, Sha256};

/// The version of the normal form: a later one may hash other bytes for the same body, and a stub
/// of an older version is then compared in its own.
pub(crate) const VERSION: u8 = 1;

/// Bytes kept of each field's hash. The tenant is the only one who could look for a collision, and
/// only ever with its own bodies; 64 bits keep accidents out and the stub short.
const WIDTH: usize = 8;

/// Collects the fields of a body in their normal form (`1.50` as `1.5`, a default as absent).
#[derive(Debug, Default)]
pub struct Fields {
    names: Vec<String>,
    hashes: Vec<u8>,
    prefix: String,
}

impl Fields {
    pub(crate) fn new() -> Self {
        Self {
            names: Vec::new(),
            hashes: vec![VERSION],
            prefix: String::new(),
        }
    }

    /// A kind names its fields in one order, always all of them.
    pub fn field(&mut self, name: &str, value: &[u8]) {
        let digest = Sha256::digest(value);
        self.names.push(format!("{}{name}", self.prefix));
        self.hashes.extend_from_slice(&digest[..WIDTH]);
    }

    /// A field that may be absent; absent and empty differ.
    pub fn optional(&mut self, name: &str, value: Option<&[u8]>) {
        match value {
            None => self.field(name, b""),
            Some(value) => {
                let mut tagged = Vec::with_capacity(value.len() + 1);
                tagged.push(1);
                tagged.extend_from_slice(value);
                self.field(name, &tagged);
            }
        }
    }

    pub(crate) fn set_prefix(&mut self, prefix: String) {
        self.prefix = prefix;
    }

    pub(crate) fn finish(self) -> Hashes {
        Hashes {
            names: self.names.into(),
            bytes: self.hashes.into(),
        }
    }
}

/// The finished hashes of an intent.
#[derive(Debug, Clone)]
pub(crate) struct Hashes {
    names: Box<[String]>,
    pub(crate) bytes: Box<[u8]>,
}

impl Hashes {
    /// The first field in which a stored stub differs, or `None` where they are the same.
    pub(crate) fn differs_from(&self, stored: &[u8]) -> Option<&str> {
        if *self.bytes == *stored {
            return None;
        }
        let ours = self.bytes[1..].chunks(WIDTH);
        let mut theirs = stored.get(1..).unwrap_or_default().chunks(WIDTH);
        for (name, hash) in self.names.iter().zip(ours) {
            if theirs.next() != Some(hash) {
                return Some(name);
            }
        }
        // Fewer fields than the stored body: an `all` that was cut short.
        Some("all")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(fields: &[(&str, &str)]) -> Hashes {
        let mut out = Fields::new();
        for (name, value) in fields {
            out.field(name, value.as_bytes());
        }
        out.finish()
    }

    #[test]
    fn the_first_field_that_differs_is_named() {
        let first = hashes(&[("from", "a"), ("to", "b"), ("amount", "1")]);
        let second = hashes(&[("from", "a"), ("to", "c"), ("amount", "2")]);
        assert_eq!(second.differs_from(&first.bytes), Some("to"));
        assert_eq!(first.differs_from(&first.bytes), None);
    }

    #[test]
    fn a_longer_or_shorter_body_differs() {
        let short = hashes(&[("from", "a")]);
        let long = hashes(&[("from", "a"), ("to", "b")]);
        assert_eq!(long.differs_from(&short.bytes), Some("to"));
        assert_eq!(short.differs_from(&long.bytes), Some("all"));
    }

    #[test]
    fn an_absent_field_and_an_empty_one_differ() {
        let mut absent = Fields::new();
        absent.optional("note", None);
        let mut empty = Fields::new();
        empty.optional("note", Some(b""));
        assert_eq!(empty.finish().differs_from(&absent.finish().bytes), Some("note"));
    }
}
