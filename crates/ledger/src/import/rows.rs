//! The rows of a journal, and the groups of them that are transfers.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::io::Read;

use counterfoil_intent::Invalid;
use csv::ByteRecord;

use super::{Error, MOST_ROWS, row_invalid};
use crate::account::AccountCode;
use crate::amount;
use crate::asset::AssetCode;
use crate::codes;
use crate::source::{ImportBody, MAX_SOURCE};
use crate::text;
use crate::time;

/// The columns of a journal, in the order of an error file.
pub(super) const COLUMNS: [&str; 6] = ["key", "date", "description", "account", "asset", "amount"];
/// The last column of an error file, which a journal may have and nobody reads.
pub(super) const ERROR: &str = "error";

/// Why a transfer goes to the error file.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) code: Cow<'static, str>,
    pub(super) message: String,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// Remembers where lines end. The reader tells where a row ends, but not its line: of a file whose lines end in
/// CRLF, or that has empty ones, it tells another.
struct Ends<R> {
    input: R,
    read: u64,
    /// The places of line feeds behind the row that was read last.
    ahead: VecDeque<u64>,
    /// How many there were before.
    passed: u64,
}

impl<R: Read> Read for Ends<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.input.read(buffer)?;
        let start = self.read;
        let feeds = buffer[..length].iter().zip(start..).filter(|(byte, _)| **byte == b'\n');
        self.ahead.extend(feeds.map(|(_, at)| at));
        self.read += length as u64;
        Ok(length)
    }
}

impl<R> Ends<R> {
    /// The line in which a row stands that ends at this byte, its own end behind it.
    fn line(&mut self, end: u64) -> u64 {
        let mut last = None;
        while let Some(at) = self.ahead.front().copied().filter(|at| *at < end) {
            last = Some(at);
            self.ahead.pop_front();
            self.passed += 1;
        }
        // The line feed of a CRLF is still to come, and the last line may have none.
        let own = last.is_some_and(|at| at + 1 == end);
        self.passed + u64::from(!own)
    }
}

/// The rows of a journal in the order of [`COLUMNS`], whatever their order in the file.
pub(super) struct Rows<R> {
    reader: csv::Reader<Ends<R>>,
    /// Where each of [`COLUMNS`] stands in the file.
    places: [usize; 6],
    width: usize,
    /// The first row of the next group.
    ahead: Option<Row>,
    /// The key of the group before, if it was cut.
    cut: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Row {
    line: u64,
    /// In the order of [`COLUMNS`]; what is not there is empty.
    fields: ByteRecord,
    key: Vec<u8>,
    /// What is wrong with the number of fields.
    ragged: Option<String>,
}

impl<R: Read> Rows<R> {
    pub(super) fn new(input: R) -> Result<Self, Error> {
        let input = Ends {
            input,
            read: 0,
            ahead: VecDeque::new(),
            passed: 0,
        };
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(input);
        let header = reader.byte_headers().map_err(Error::Read)?.clone();
        let names: Vec<String> = header
            .iter()
            // Spreadsheets write a byte order mark before the first name.
            .map(|name| {
                String::from_utf8_lossy(name.strip_prefix(b"\xef\xbb\xbf").unwrap_or(name))
                    .trim()
                    .to_owned()
            })
            .collect();
        if names.is_empty() {
            return Err(Error::Empty);
        }
        if let [one] = names.as_slice() {
            if one.is_empty() {
                return Err(Error::Empty);
            }
            if let Some(other) = [';', '\t', '|'].into_iter().find(|other| one.contains(*other)) {
                let told = format!("they are separated by {other:?}; write them, and all rows, with commas");
                return Err(Error::Header(told));
            }
        }
        let mut places = [0; 6];
        for (place, column) in places.iter_mut().zip(COLUMNS) {
            let mut found = names
                .iter()
                .enumerate()
                .filter(|(_, name)| *name == column)
                .map(|(at, _)| at);
            *place = match (found.next(), found.next()) {
                (Some(at), None) => at,
                (None, _) => {
                    let told = format!(
                        "`{column}` is missing; they are {}, and the row has {:.200}",
                        COLUMNS.join(", "),
                        names.join(", ")
                    );
                    return Err(Error::Header(told));
                }
                (Some(_), Some(_)) => return Err(Error::Header(format!("`{column}` is there twice"))),
            };
        }
        if let Some(name) = names
            .iter()
            .find(|name| !COLUMNS.contains(&name.as_str()) && *name != ERROR)
        {
            return Err(Error::Header(format!("`{name}` is not one of {}", COLUMNS.join(", "))));
        }
        Ok(Self {
            reader,
            places,
            width: names.len(),
            ahead: None,
            cut: None,
        })
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.reader.position().byte()
    }

    fn next_row(&mut self) -> Result<Option<Row>, Error> {
        if let Some(ahead) = self.ahead.take() {
            return Ok(Some(ahead));
        }
        let mut fields = ByteRecord::new();
        if !self.reader.read_byte_record(&mut fields).map_err(Error::Read)? {
            return Ok(None);
        }
        let end = self.reader.position().byte();
        // Of a row of several lines the first.
        let within = fields.iter().flatten().filter(|byte| **byte == b'\n').count() as u64;
        let line = self.reader.get_mut().line(end).saturating_sub(within);
        let key = fields.get(self.places[0]).unwrap_or_default().to_vec();
        let ragged = (fields.len() != self.width).then(|| {
            let beyond: Vec<_> = fields.iter().skip(self.width).map(String::from_utf8_lossy).collect();
            let beyond = match beyond.is_empty() {
                true => String::new(),
                false => format!(", beyond them {:.200}", beyond.join(",")),
            };
            let (has, wants) = (fields.len(), self.width);
            format!("it has {has} fields, and the first row of the file {wants}{beyond}")
        });
        // Also of a row that is not whole, so that the error file has as many fields in each row.
        let columns = self.places.iter().map(|place| fields.get(*place).unwrap_or_default());
        Ok(Some(Row {
            line,
            fields: columns.collect(),
            key,
            ragged,
        }))
    }

    /// The asset and the amount of the next row that has them, as they are written.
    pub(super) fn next_amount(&mut self) -> Result<Option<(String, String)>, Error> {
        while let Some(row) = self.next_row()? {
            if row.ragged.is_none() {
                let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
                return Ok(Some((text(&row.fields[4]), text(&row.fields[5]))));
            }
        }
        Ok(None)
    }

    /// The next rows of one key.
    pub(super) fn next_group(&mut self) -> Result<Option<Group>, Error> {
        let Some(first) = self.next_row()? else { return Ok(None) };
        let continues = self.cut.take().is_some_and(|key| key == first.key);
        let mut group = Group {
            rows: vec![first],
            continues,
        };
        while let Some(row) = self.next_row()? {
            let same = row.key == group.rows[0].key;
            // A file of one key must not fill the memory.
            if same && group.rows.len() > MOST_ROWS {
                self.cut = Some(row.key.clone());
                self.ahead = Some(row);
                break;
            }
            if !same {
                self.ahead = Some(row);
                break;
            }
            group.rows.push(row);
        }
        Ok(Some(group))
    }
}

/// The rows of one key.
#[derive(Debug)]
pub(super) struct Group {
    rows: Vec<Row>,
    /// There were more rows of the key than a transfer may have, and these are some of the rest.
    continues: bool,
}

impl Group {
    pub(super) fn line(&self) -> u64 {
        self.rows[0].line
    }

    pub(super) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &ByteRecord> {
        self.rows.iter().map(|row| &row.fields)
    }

    /// The transfer that the rows are.
    pub(super) fn body(&self) -> Result<ImportBody, Trouble> {
        if self.continues {
            let message = format!("there are more than {MOST_ROWS} rows of this key");
            return Err(Trouble {
                code: codes::LEGS_COUNT.into(),
                message,
            });
        }
        let mut legs = Vec::with_capacity(self.rows.len());
        let mut rows = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            rows.push(fields(row).map_err(|what| row_invalid(format!("line {}: {what}", row.line)))?);
        }
        let [key, date, description, ..] = rows[0];
        if key.is_empty() || key.len() > MAX_SOURCE || key.contains(char::is_control) {
            return Err(row_invalid(
                "the key is 1 to 255 bytes long, without control characters".to_owned(),
            ));
        }
        for (row, [_, other_date, other_description, account, asset, amount]) in
            self.rows.iter().zip(rows.iter().copied())
        {
            let line = row.line;
            if other_date != date || other_description != description {
                let message = format!("line {line}: the rows of one transfer have one date and one description");
                return Err(Trouble {
                    code: codes::ROWS_DIFFER.into(),
                    message,
                });
            }
            let leg = (|| {
                let account = AccountCode::parse(account, "account")?;
                let asset = AssetCode::parse(asset, "asset")?;
                Ok((account, asset, amount::non_zero(amount, "amount")?))
            })();
            legs.push(leg.map_err(|invalid: Invalid| Trouble {
                code: invalid.code.into(),
                message: format!("line {line}, {}: {}", invalid.field, invalid.message),
            })?);
        }
        let Some(effective_at) = time::date(date) else {
            let message = "a date is written as 2026-01-31".to_owned();
            return Err(Trouble {
                code: codes::DATE_INVALID.into(),
                message,
            });
        };
        let trouble = |invalid: Invalid| Trouble {
            code: invalid.code.into(),
            message: invalid.message.into_owned(),
        };
        let description = text::text(Some(description), "description").map_err(trouble)?;
        ImportBody::new(key, legs, effective_at, description).map_err(trouble)
    }
}

/// The six fields of a row.
fn fields(row: &Row) -> Result<[&str; 6], String> {
    if let Some(ragged) = &row.ragged {
        return Err(ragged.clone());
    }
    let mut out = [""; 6];
    for (field, (bytes, name)) in out.iter_mut().zip(row.fields.iter().zip(COLUMNS)) {
        *field = std::str::from_utf8(bytes).map_err(|_| format!("the field {name} is not UTF-8"))?;
    }
    Ok(out)
}
