//! The rows of a journal, and the groups of them that are transfers.

use std::borrow::Cow;
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

/// The rows of a journal in the order of [`COLUMNS`], whatever their order in the file.
pub(super) struct Rows<R> {
    reader: csv::Reader<R>,
    /// Where each of [`COLUMNS`] stands in the file.
    places: [usize; 6],
    width: usize,
    /// The first row of the next group.
    ahead: Option<(u64, ByteRecord)>,
}

impl<R: Read> Rows<R> {
    pub(super) fn new(input: R) -> Result<Self, Error> {
        let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(input);
        let header = reader.byte_headers().map_err(Error::Read)?.clone();
        let names: Vec<String> = header
            .iter()
            // Spreadsheets write a byte order mark before the first name.
            .map(|name| String::from_utf8_lossy(name.strip_prefix(b"\xef\xbb\xbf").unwrap_or(name)).trim().to_owned())
            .collect();
        let mut places = [0; 6];
        for (place, column) in places.iter_mut().zip(COLUMNS) {
            let mut found = names.iter().enumerate().filter(|(_, name)| *name == column).map(|(at, _)| at);
            *place = match (found.next(), found.next()) {
                (Some(at), None) => at,
                (None, _) => return Err(Error::Header(format!("`{column}` is missing"))),
                (Some(_), Some(_)) => return Err(Error::Header(format!("`{column}` is there twice"))),
            };
        }
        if let Some(name) = names.iter().find(|name| !COLUMNS.contains(&name.as_str()) && *name != ERROR) {
            return Err(Error::Header(format!("`{name}` is not one of {}", COLUMNS.join(", "))));
        }
        Ok(Self { reader, places, width: names.len(), ahead: None })
    }

    /// Bytes read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.reader.position().byte()
    }

    /// The next row with its line. A row that does not have the header's number of fields comes
    /// back as it is.
    fn next_row(&mut self) -> Result<Option<(u64, ByteRecord)>, Error> {
        if let Some(ahead) = self.ahead.take() {
            return Ok(Some(ahead));
        }
        let mut row = ByteRecord::new();
        if !self.reader.read_byte_record(&mut row).map_err(Error::Read)? {
            return Ok(None);
        }
        let line = row.position().map_or(0, csv::Position::line);
        if row.len() != self.width {
            return Ok(Some((line, row)));
        }
        Ok(Some((line, self.places.iter().map(|place| &row[*place]).collect())))
    }

    /// The asset and the amount of the next row that has them, as they are written.
    pub(super) fn next_amount(&mut self) -> Result<Option<(String, String)>, Error> {
        while let Some((_, row)) = self.next_row()? {
            if row.len() == COLUMNS.len() {
                let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
                return Ok(Some((text(&row[4]), text(&row[5]))));
            }
        }
        Ok(None)
    }

    /// The next rows of one key.
    pub(super) fn next_group(&mut self) -> Result<Option<Group>, Error> {
        let Some((line, first)) = self.next_row()? else { return Ok(None) };
        let mut group = Group { line, rows: vec![first] };
        while let Some((line, row)) = self.next_row()? {
            // A transfer of more legs than there may be is cut, so that a file of one key does
            // not fill the memory; all of its parts are refused, the first for its number of legs
            // and the others because they do not begin the key.
            if row.get(0) != group.rows[0].get(0) || group.rows.len() > MOST_ROWS {
                self.ahead = Some((line, row));
                break;
            }
            group.rows.push(row);
        }
        Ok(Some(group))
    }
}

/// The rows of one key, as they are in the file.
#[derive(Debug)]
pub(super) struct Group {
    line: u64,
    rows: Vec<ByteRecord>,
}

impl Group {
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    pub(super) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    pub(super) fn rows(&self) -> &[ByteRecord] {
        &self.rows
    }

    /// The transfer that the rows are.
    pub(super) fn body(&self) -> Result<ImportBody, Trouble> {
        let mut legs = Vec::with_capacity(self.rows.len());
        let mut rows = Vec::with_capacity(self.rows.len());
        for (i, row) in self.rows.iter().enumerate() {
            // Lines are counted from the first row of the group: a field may hold a line break,
            // but then the rows before it tell where it is as well.
            let at = |what: String| format!("row {} of the transfer: {what}", i + 1);
            rows.push(fields(row).map_err(|what| row_invalid(at(what)))?);
        }
        let [key, date, description, ..] = rows[0];
        if key.is_empty() || key.len() > MAX_SOURCE || key.contains(char::is_control) {
            return Err(row_invalid("the key is 1 to 255 bytes long, without control characters".to_owned()));
        }
        for (i, [_, other_date, other_description, account, asset, amount]) in rows.iter().copied().enumerate() {
            if other_date != date || other_description != description {
                let message = format!("row {}: the rows of one transfer have one date and one description", i + 1);
                return Err(Trouble { code: codes::ROWS_DIFFER.into(), message });
            }
            let leg = (|| {
                let account = AccountCode::parse(account, "account")?;
                let asset = AssetCode::parse(asset, "asset")?;
                Ok((account, asset, amount::non_zero(amount, "amount")?))
            })();
            legs.push(leg.map_err(|invalid: Invalid| Trouble {
                code: invalid.code.into(),
                message: format!("row {}, {}: {}", i + 1, invalid.field, invalid.message),
            })?);
        }
        let Some(effective_at) = time::date(date) else {
            let message = "a date is written as 2026-01-31".to_owned();
            return Err(Trouble { code: codes::DATE_INVALID.into(), message });
        };
        let trouble = |invalid: Invalid| Trouble { code: invalid.code.into(), message: invalid.message.into_owned() };
        let description = text::text(Some(description), "description").map_err(trouble)?;
        ImportBody::new(key, legs, effective_at, description).map_err(trouble)
    }
}

/// The six fields of a row.
fn fields(row: &ByteRecord) -> Result<[&str; 6], String> {
    if row.len() != COLUMNS.len() {
        return Err(format!("it has {} fields, not as many as the first row names", row.len()));
    }
    let mut out = [""; 6];
    for (field, (bytes, name)) in out.iter_mut().zip(row.iter().zip(COLUMNS)) {
        *field = std::str::from_utf8(bytes).map_err(|_| format!("the field {name} is not UTF-8"))?;
    }
    Ok(out)
}
