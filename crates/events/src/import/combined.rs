//! A line of the combined log format, or of the common one, which has neither referrer nor agent.
//!
//! `host ident user [day/month/year:hour:minute:second zone] "request" status bytes "referrer" "agent"`, as
//! Apache's httpd documents it under `mod_log_config`.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub(crate) address: String,
    pub(crate) at: Timestamp,
    pub(crate) method: String,
    /// Without the query.
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) status: u16,
    pub(crate) bytes: Option<u64>,
    pub(crate) referrer: Option<String>,
    pub(crate) agent: Option<String>,
}

impl Entry {
    /// Reads a line, or says what is wrong with it.
    ///
    /// # Errors
    /// A sentence about the first part that cannot be read.
    pub fn parse(line: &str) -> Result<Self, String> {
        let mut rest = Rest(line);
        let address = rest.word("the address")?.to_owned();
        rest.word("the ident")?;
        rest.word("the user")?;
        let at = time(rest.between('[', ']', "the time")?)?;
        let request = rest.quoted("the request")?;
        let status = rest.word("the status")?;
        let status = status
            .parse::<u16>()
            .ok()
            .filter(|status| (100..1_000).contains(status))
            .ok_or_else(|| format!("the status is {status:.40} and not three digits"))?;
        let bytes = match rest.word("the bytes")? {
            "-" => None,
            text => Some(
                text.parse()
                    .map_err(|_| format!("the bytes are {text:.40} and no number"))?,
            ),
        };
        let (referrer, agent) = if rest.0.is_empty() {
            (None, None)
        } else {
            (known(rest.quoted("the referrer")?), known(rest.quoted("the agent")?))
        };
        let (method, target) = match request.split_once(' ') {
            Some((method, target)) if !method.is_empty() => (method, target),
            _ => return Err(format!("the request is {request:.40?} and names no path")),
        };
        let target = target.rsplit_once(" HTTP/").map_or(target, |(target, _)| target);
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        if path.is_empty() {
            return Err(format!("the request is {request:.40?} and names no path"));
        }
        Ok(Self {
            address,
            at,
            method: method.to_owned(),
            path: path.to_owned(),
            query,
            status,
            bytes,
            referrer,
            agent,
        })
    }
}

/// `-` is how the format writes that there is none.
fn known(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty() && text != "-")
}

/// `17/May/2015:10:05:03 +0000`
fn time(text: &str) -> Result<Timestamp, String> {
    let wrong = || format!("the time is {text:.40?} and not written like 17/May/2015:10:05:03 +0000");
    let number = |at: std::ops::Range<usize>| {
        let digits = text
            .get(at)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|digits| digits.parse::<i16>().ok())
    };
    let read = || {
        let month = MONTHS.iter().position(|month| text.get(3..6) == Some(month))?;
        let marks = [(2, "/"), (6, "/"), (11, ":"), (14, ":"), (17, ":"), (20, " ")];
        if text.len() != 26 || marks.iter().any(|(at, mark)| text.get(*at..at + 1) != Some(*mark)) {
            return None;
        }
        let small = |at| number(at).and_then(|n| i8::try_from(n).ok());
        let date = Date::new(number(7..11)?, i8::try_from(month + 1).ok()?, small(0..2)?).ok()?;
        let (hour, minute, second) = (small(12..14)?, small(15..17)?, small(18..20)?);
        let time = jiff::civil::Time::new(hour, minute, second, 0).ok()?;
        let sign = match text.get(21..22)? {
            "+" => 1,
            "-" => -1,
            _ => return None,
        };
        let offset = i32::from(number(22..24)?) * 3_600 + i32::from(number(24..26)?) * 60;
        let offset = Offset::from_seconds(sign * offset).ok()?;
        offset.to_timestamp(date.to_datetime(time)).ok()
    };
    read().ok_or_else(wrong)
}

/// What of the line is left.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn word(&mut self, what: &str) -> Result<&'a str, String> {
        let (word, rest) = self.0.split_once(' ').unwrap_or((self.0, ""));
        if word.is_empty() {
            return Err(format!("the line ends before {what}"));
        }
        self.0 = rest;
        Ok(word)
    }

    fn between(&mut self, open: char, close: char, what: &str) -> Result<&'a str, String> {
        let inner = self
            .0
            .strip_prefix(open)
            .ok_or_else(|| format!("{what} does not begin with {open}"))?;
        let (inner, rest) = inner
            .split_once(close)
            .ok_or_else(|| format!("the line ends within {what}"))?;
        self.0 = rest.strip_prefix(' ').unwrap_or(rest);
        Ok(inner)
    }

    /// A text in quotes, in which a quote or a backslash has a backslash before it.
    fn quoted(&mut self, what: &str) -> Result<String, String> {
        let inner = self.0.strip_prefix('"').ok_or_else(|| {
            if self.0.is_empty() {
                format!("the line ends before {what}")
            } else {
                format!("{what} does not begin with a quote")
            }
        })?;
        let mut text = String::new();
        let mut chars = inner.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    let rest = &inner[at + 1..];
                    self.0 = rest.strip_prefix(' ').unwrap_or(rest);
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    // `\xhh` and the like stay as the server wrote them.
                    Some((_, other)) => text.extend(['\\', other]),
                    None => break,
                },
                c => text.push(c),
            }
        }
        Err(format!("the line ends within {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = r#"203.0.113.9 - - [17/May/2015:10:05:03 +0200] "GET /a/b.png?x=1&y=\"2\" HTTP/1.1" 200 203 "http://example.org/" "Agent/1.0 (\"x\" \\ y)""#;

    #[test]
    fn a_line_of_the_combined_format_is_read() {
        let entry = Entry::parse(LINE).unwrap();
        assert_eq!(entry.at.to_string(), "2015-05-17T08:05:03Z");
        assert_eq!(
            (entry.path.as_str(), entry.query.as_deref(), entry.method.as_str()),
            ("/a/b.png", Some("x=1&y=\"2\""), "GET")
        );
        assert_eq!((entry.status, entry.bytes), (200, Some(203)));
        assert_eq!(entry.agent.as_deref(), Some("Agent/1.0 (\"x\" \\ y)"));
    }

    #[test]
    fn a_line_of_the_common_format_has_neither_referrer_nor_agent() {
        let entry =
            Entry::parse(r#"::1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 304 -"#).unwrap();
        assert_eq!((entry.bytes, entry.referrer, entry.agent), (None, None, None));
        assert_eq!(entry.at.to_string(), "2000-10-10T20:55:36Z");
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        let cases = [
            ("", "the line ends before the address"),
            ("a b", "the line ends before the user"),
            ("a b c d", "the time does not begin with ["),
            ("a - - [17/May/2015:10:05:03", "the line ends within the time"),
            (
                "a - - [17/Mai/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1",
                "the time is",
            ),
            (
                "a - - [31/Feb/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1",
                "the time is",
            ),
            ("a - - [17/May/2015:10:05:03 +0000] \"-\" 408 -", "names no path"),
            (
                "a - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" OK 1",
                "the status is OK",
            ),
            (
                "a - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 x",
                "the bytes are x",
            ),
            (&LINE[..LINE.len() - 3], "the line ends within the agent"),
        ];
        for (line, says) in cases {
            let told = Entry::parse(line).unwrap_err();
            assert!(told.contains(says), "{line}: {told}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_line_it_is_read_or_refused(line in ".*", cut in 0..150_usize) {
            let _ = Entry::parse(&line);
            let cut = LINE.char_indices().nth(cut).map_or(LINE.len(), |(at, _)| at);
            let _ = Entry::parse(&LINE[..cut]);
        }
    }
}
