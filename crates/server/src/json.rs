//! Writing JSON objects by hand: an answer is a handful of members around text that is JSON
//! already, and this way it is built in one buffer without a tree in between.

use std::fmt::Display;
use std::io::Write as _;

use jiff::Timestamp;

/// An object being written to the end of a buffer.
pub(crate) struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> Object<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Names are ours and need no escaping.
    fn name(&mut self, name: &str) {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        string(self.out, value);
    }

    /// A value whose written form has nothing to escape: numbers as text, UUIDs, times.
    pub(crate) fn plain(&mut self, name: &str, value: impl Display) {
        self.name(name);
        write!(self.out, "\"{value}\"").expect("writing to memory cannot fail");
    }

    pub(crate) fn number(&mut self, name: &str, value: impl Into<i128>) {
        self.name(name);
        write!(self.out, "{}", value.into()).expect("writing to memory cannot fail");
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) {
        self.raw(name, if value { "true" } else { "false" });
    }

    /// A value that is JSON already.
    pub(crate) fn raw(&mut self, name: &str, json: &str) {
        self.name(name);
        self.out.extend_from_slice(json.as_bytes());
    }

    /// With microseconds always: what PostgreSQL keeps, and one width for every time.
    pub(crate) fn time(&mut self, name: &str, value: Timestamp) {
        self.plain(name, format_args!("{value:.6}"));
    }

    /// Absent is `null`, so that every row of a list has the same members.
    pub(crate) fn maybe_text(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.text(name, value),
            None => self.raw(name, "null"),
        }
    }

    /// An array of objects, each written by `fill`.
    pub(crate) fn list<T>(&mut self, name: &str, rows: &[T], fill: impl Fn(&mut Object<'_>, &T)) {
        self.name(name);
        self.out.push(b'[');
        for (i, row) in rows.iter().enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            let mut inner = Object::new(self.out);
            fill(&mut inner, row);
            inner.end();
        }
        self.out.push(b']');
    }

    pub(crate) fn end(self) {
        self.out.push(b'}');
    }
}

/// A JSON string.
pub(crate) fn string(out: &mut Vec<u8>, value: &str) {
    serde_json::to_writer(out, value).expect("a string is always JSON");
}

/// One object in a buffer of its own.
pub(crate) fn object(fill: impl FnOnce(&mut Object<'_>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut object = Object::new(&mut out);
    fill(&mut object);
    object.end();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_members_are_separated() {
        let out = object(|o| {
            o.text("a", "say \"hi\"\n\u{1}");
            o.number("b", 7_u32);
            o.flag("c", true);
            o.raw("d", "[1]");
            o.maybe_text("e", None);
            o.list("h", &[1_u8, 2], |inner, n| inner.number("n", *n));
        });
        insta::assert_snapshot!(
            String::from_utf8(out).unwrap(),
            @r#"{"a":"say \"hi\"\n\u0001","b":7,"c":true,"d":[1],"e":null,"h":[{"n":1},{"n":2}]}"#
        );
    }

    #[test]
    fn a_time_always_has_six_decimals() {
        let time: Timestamp = "2026-03-01T12:00:00.5Z".parse().unwrap();
        assert_eq!(object(|o| o.time("t", time)), br#"{"t":"2026-03-01T12:00:00.500000Z"}"#);
    }
}
