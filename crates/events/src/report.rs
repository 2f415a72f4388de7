//! Questions about counts, and the edges of days, weeks and months in any zone.

use counterfoil_pg::{Error, Scope, TenantId, Tx};
use jiff::civil::{DateTime, Weekday};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan as _, Zoned};
use uuid::Uuid;

use crate::bucket;
use crate::id;
use crate::store;

/// How long the intervals of a series are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    /// A quarter of an hour.
    Bucket,
    Hour,
    Day,
    /// From the first day of the week on, which is Monday unless somebody says otherwise.
    Week,
    Month,
}

impl Grain {
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Bucket, "bucket"),
        (Self::Hour, "hour"),
        (Self::Day, "day"),
        (Self::Week, "week"),
        (Self::Month, "month"),
    ];

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(grain, _)| *grain)
    }
}

/// A day of the week by its English name, in small letters.
#[must_use]
pub fn weekday(name: &str) -> Option<Weekday> {
    const NAMES: [&str; 7] = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    let at = NAMES.iter().position(|known| *known == name)?;
    Weekday::from_monday_zero_offset(i8::try_from(at).ok()?).ok()
}

/// Intervals of one report at the most.
pub const MAX_INTERVALS: usize = 10_000;

/// From a moment to another, which is not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: Timestamp,
    pub to: Timestamp,
}

/// One interval of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub start: Zoned,
    pub n: i64,
}

impl Interval {
    /// Where it begins, with the offset of its zone: `2026-03-29T00:00:00+01:00`.
    #[must_use]
    pub fn start_text(&self) -> String {
        self.start.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    }
}

/// One subject of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub subject: String,
    pub n: i64,
}

/// What is asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report<'a> {
    pub(crate) tenant: TenantId,
    pub(crate) stream: &'a str,
    pub(crate) span: Span,
}

/// The intervals of a span, and the pieces they are made of.
///
/// Most have one piece. But a zone whose clocks went back at 00:01, as St. John's did until 2011, begins a
/// day, goes on with the one before for an hour, and then begins it again: such a day is what its clocks
/// called it, in two pieces.
#[derive(Debug, PartialEq, Eq)]
struct Series {
    /// Where each interval begins by the clocks of the zone, whether or not the span begins later.
    starts: Vec<Zoned>,
    /// Where each piece begins, and the end of the span.
    edges: Vec<Timestamp>,
    /// To which interval each piece belongs.
    of: Vec<usize>,
}

impl Series {
    /// `None`: more than [`MAX_INTERVALS`], or beyond the times that there are.
    fn new(span: Span, (grain, first): (Grain, Weekday), zone: &TimeZone) -> Option<Self> {
        let mut series = Self {
            starts: Vec::new(),
            edges: Vec::new(),
            of: Vec::new(),
        };
        let mut changes = zone.following(span.from).map(|change| change.timestamp());
        let mut change = changes.next();
        let mut at = span.from;
        while at < span.to {
            let offset = zone.to_offset(at);
            series.piece(at, offset, (grain, first), zone)?;
            let next = offset.to_timestamp(end(offset.to_datetime(at), grain, first)?).ok()?;
            at = match change {
                Some(earlier) if earlier <= next => {
                    change = changes.next();
                    earlier
                }
                _ => next,
            };
        }
        series.edges.push(span.to);
        Some(series)
    }

    fn piece(
        &mut self,
        at: Timestamp,
        offset: Offset,
        (grain, first): (Grain, Weekday),
        zone: &TimeZone,
    ) -> Option<()> {
        let civil = begin(offset.to_datetime(at), grain, first);
        let start = match grain {
            // An hour that the clocks showed twice is two.
            Grain::Bucket | Grain::Hour => offset.to_timestamp(civil).ok()?.to_zoned(zone.clone()),
            // Where clocks skip midnight, the moment after the gap; where they show it twice, the first.
            Grain::Day | Grain::Week | Grain::Month => zone.to_ambiguous_zoned(civil).compatible().ok()?,
        };
        // Clocks go back over one beginning at the most.
        let recent = self.starts.len().saturating_sub(2);
        let known = (recent..self.starts.len()).find(|at| self.starts[*at] == start);
        let interval = known.unwrap_or(self.starts.len());
        if known.is_none() {
            if self.starts.len() == MAX_INTERVALS {
                return None;
            }
            self.starts.push(start);
        }
        // A change of the offset that changes no interval is no edge.
        if self.of.last() != Some(&interval) {
            self.edges.push(at);
            self.of.push(interval);
        }
        Some(())
    }
}

/// The beginning of the interval in which a time of the clock is.
fn begin(at: DateTime, grain: Grain, first: Weekday) -> DateTime {
    match grain {
        Grain::Bucket => at.date().at(at.hour(), at.minute() / 15 * 15, 0, 0),
        Grain::Hour => at.date().at(at.hour(), 0, 0, 0),
        Grain::Day => at.date().at(0, 0, 0, 0),
        Grain::Week => {
            let back = i64::from(at.weekday().since(first));
            at.date().saturating_sub(back.days()).at(0, 0, 0, 0)
        }
        Grain::Month => at.date().first_of_month().at(0, 0, 0, 0),
    }
}

/// The beginning of the next one.
fn end(at: DateTime, grain: Grain, first: Weekday) -> Option<DateTime> {
    let length = match grain {
        Grain::Bucket => 15.minutes(),
        Grain::Hour => 1.hour(),
        Grain::Day => 1.day(),
        Grain::Week => 1.week(),
        Grain::Month => 1.month(),
    };
    begin(at, grain, first).checked_add(length).ok()
}

/// Edges that are in the middle of a bucket: what of it is behind the edge is counted from raw events.
fn cuts(edges: &[Timestamp]) -> (Vec<Timestamp>, Vec<Uuid>, Vec<Uuid>) {
    let mut cuts = (Vec::new(), Vec::new(), Vec::new());
    for edge in edges.iter().copied().filter(|edge| bucket::start(*edge) != *edge) {
        let (least, most) = ids_around(edge, bucket::ceiling(edge));
        cuts.0.push(edge);
        cuts.1.push(least);
        cuts.2.push(most);
    }
    cuts
}

/// The ids of events between two moments: the time in a UUIDv7 may be a day apart from the event's own.
fn ids_around(from: Timestamp, to: Timestamp) -> (Uuid, Uuid) {
    let apart = 86_400_000;
    id::range(from.as_millisecond() - apart, to.as_millisecond() + apart)
}

/// A question about a series.
#[derive(Debug, Clone)]
pub struct Ask {
    pub stream: String,
    /// `None`: all subjects together.
    pub subject: Option<String>,
    pub grain: Grain,
    /// The first day of a week.
    pub week_start: Weekday,
    pub zone: TimeZone,
    /// `None`: from the first bucket with an event.
    pub from: Option<Timestamp>,
    /// `None`: to the end of the last bucket with an event.
    pub to: Option<Timestamp>,
}

/// More than [`MAX_INTERVALS`] intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the report has more than {MAX_INTERVALS} intervals; ask for a shorter span, or for longer intervals")]
pub struct TooLong;

/// The counts of a series, and the span they are of. Without an event there is no span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts<T> {
    pub span: Option<Span>,
    pub rows: Vec<T>,
}

impl<T> Counts<T> {
    fn none() -> Self {
        Self {
            span: None,
            rows: Vec::new(),
        }
    }
}

/// Counts per interval, those without an event included.
///
/// # Errors
/// If the database cannot be asked. Within: [`TooLong`].
pub async fn series(
    scope: &Scope,
    tx: &Tx,
    tenant: TenantId,
    ask: Ask,
) -> Result<Result<Counts<Interval>, TooLong>, Error> {
    let subject = ask.subject.as_deref().unwrap_or("");
    let Some(span) = span(scope, tx, tenant, &ask.stream, subject, (ask.from, ask.to)).await? else {
        return Ok(Ok(Counts::none()));
    };
    let Some(series) = Series::new(span, (ask.grain, ask.week_start), &ask.zone) else {
        return Ok(Err(TooLong));
    };
    let report = Report {
        tenant,
        stream: &ask.stream,
        span,
    };
    let rows = report.series(scope, tx, subject, series).await?;
    Ok(Ok(Counts { span: Some(span), rows }))
}

/// The subjects with most events, the most first, `most` of them.
///
/// # Errors
/// If the database cannot be asked.
pub async fn top(
    scope: &Scope,
    tx: &Tx,
    tenant: TenantId,
    stream: &str,
    ends: (Option<Timestamp>, Option<Timestamp>),
    most: i64,
) -> Result<Counts<Subject>, Error> {
    let Some(span) = span(scope, tx, tenant, stream, "", ends).await? else {
        return Ok(Counts::none());
    };
    let report = Report { tenant, stream, span };
    let rows = report.top(scope, tx, most).await?;
    Ok(Counts { span: Some(span), rows })
}

/// A table of `start,count`.
#[must_use]
pub fn intervals_csv(rows: &[Interval]) -> String {
    let mut table = "start,count\n".to_owned();
    for row in rows {
        table.push_str(&format!("{},{}\n", row.start_text(), row.n));
    }
    table
}

/// A table of `subject,count`, as RFC 4180 quotes it.
#[must_use]
pub fn subjects_csv(rows: &[Subject]) -> String {
    let mut table = "subject,count\n".to_owned();
    for row in rows {
        let quoted = row.subject.contains(['"', ',', '\n', '\r']);
        if quoted {
            table.push_str(&format!("\"{}\",{}\n", row.subject.replace('"', "\"\""), row.n));
        } else {
            table.push_str(&format!("{},{}\n", row.subject, row.n));
        }
    }
    table
}

async fn span(
    scope: &Scope,
    tx: &Tx,
    tenant: TenantId,
    stream: &str,
    subject: &str,
    (from, to): (Option<Timestamp>, Option<Timestamp>),
) -> Result<Option<Span>, Error> {
    let (first, last) = match (from, to) {
        (Some(from), Some(to)) => (from, to),
        (from, to) => {
            let Some((first, last)) = store::range(scope, tx, tenant, stream, subject).await? else {
                return Ok(None);
            };
            let end = last.saturating_add(bucket::BUCKET).unwrap_or(last);
            (from.unwrap_or(first), to.unwrap_or(end))
        }
    };
    Ok((first < last).then_some(Span { from: first, to: last }))
}

impl Report<'_> {
    async fn series(&self, scope: &Scope, tx: &Tx, subject: &str, series: Series) -> Result<Vec<Interval>, Error> {
        let cuts = cuts(&series.edges);
        let from = bucket::start(self.span.from);
        let counted = store::series(scope, tx, self, subject, &series.edges, from, cuts).await?;
        let starts = series.starts.into_iter();
        let mut intervals: Vec<_> = starts.map(|start| Interval { start, n: 0 }).collect();
        for (piece, n) in counted {
            // 0 is before the first edge, and behind the last is one too many.
            let piece = usize::try_from(piece).ok().and_then(|piece| piece.checked_sub(1));
            if let Some(interval) = piece.and_then(|piece| series.of.get(piece)) {
                intervals[*interval].n += n;
            }
        }
        Ok(intervals)
    }

    async fn top(&self, scope: &Scope, tx: &Tx, most: i64) -> Result<Vec<Subject>, Error> {
        let Span { from, to } = self.span;
        let mut ends = store::Ends::default();
        for (edge, sign) in [(from, -1), (to, 1)] {
            let start = bucket::start(edge);
            if start != edge {
                ends.push(start, edge, sign, ids_around(start, edge));
            }
        }
        store::top(scope, tx, self, (bucket::start(from), bucket::start(to)), ends, most).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn series(from: &str, to: &str, grain: Grain, zone: &str) -> Series {
        let span = Span {
            from: at(from),
            to: at(to),
        };
        Series::new(span, (grain, Weekday::Monday), &TimeZone::get(zone).unwrap()).unwrap()
    }

    /// Where intervals begin, and the pieces of each.
    fn shown(series: &Series) -> Vec<String> {
        let start = |start: &Zoned| start.strftime("%Y-%m-%d %H:%M%:z").to_string();
        let pieces = |interval: usize| {
            let own = series.of.iter().enumerate().filter(move |(_, of)| **of == interval);
            own.map(|(piece, _)| format!("{} to {}", series.edges[piece], series.edges[piece + 1]))
                .collect::<Vec<_>>()
                .join(", ")
        };
        series
            .starts
            .iter()
            .enumerate()
            .map(|(i, zoned)| format!("{}: {}", start(zoned), pieces(i)))
            .collect()
    }

    #[test]
    fn a_day_is_what_the_clocks_of_its_zone_call_it() {
        // 23 hours.
        assert_eq!(
            shown(&series(
                "2026-03-28T23:00:00Z",
                "2026-03-30T22:00:00Z",
                Grain::Day,
                "Europe/Berlin"
            )),
            [
                "2026-03-29 00:00+01:00: 2026-03-28T23:00:00Z to 2026-03-29T22:00:00Z",
                "2026-03-30 00:00+02:00: 2026-03-29T22:00:00Z to 2026-03-30T22:00:00Z"
            ]
        );
        // Half an hour more.
        assert_eq!(
            shown(&series(
                "2024-04-06T13:00:00Z",
                "2024-04-07T13:30:00Z",
                Grain::Day,
                "Australia/Lord_Howe"
            )),
            ["2024-04-07 00:00+11:00: 2024-04-06T13:00:00Z to 2024-04-07T13:30:00Z"]
        );
        // Back by an hour at 00:01: the first minute of the day, then the day before again.
        assert_eq!(
            shown(&series(
                "2009-10-31T02:30:00Z",
                "2009-11-02T03:30:00Z",
                Grain::Day,
                "America/St_Johns"
            )),
            [
                "2009-10-31 00:00-02:30: 2009-10-31T02:30:00Z to 2009-11-01T02:30:00Z, 2009-11-01T02:31:00Z to 2009-11-01T03:30:00Z",
                "2009-11-01 00:00-02:30: 2009-11-01T02:30:00Z to 2009-11-01T02:31:00Z, 2009-11-01T03:30:00Z to 2009-11-02T03:30:00Z"
            ]
        );
    }

    #[test]
    fn weeks_begin_on_monday_and_months_on_the_first_also_before_the_span() {
        assert_eq!(
            shown(&series(
                "2026-11-26T00:00:00Z",
                "2026-12-08T00:00:00Z",
                Grain::Week,
                "UTC"
            )),
            [
                "2026-11-23 00:00+00:00: 2026-11-26T00:00:00Z to 2026-11-30T00:00:00Z",
                "2026-11-30 00:00+00:00: 2026-11-30T00:00:00Z to 2026-12-07T00:00:00Z",
                "2026-12-07 00:00+00:00: 2026-12-07T00:00:00Z to 2026-12-08T00:00:00Z"
            ]
        );
        assert_eq!(
            shown(&series(
                "2026-01-31T16:00:00Z",
                "2026-03-31T16:00:00Z",
                Grain::Month,
                "Asia/Taipei"
            )),
            [
                "2026-02-01 00:00+08:00: 2026-01-31T16:00:00Z to 2026-02-28T16:00:00Z",
                "2026-03-01 00:00+08:00: 2026-02-28T16:00:00Z to 2026-03-31T16:00:00Z"
            ]
        );
    }

    #[test]
    fn a_week_begins_on_the_day_that_is_asked_for() {
        let span = Span {
            from: at("2026-11-30T00:00:00Z"),
            to: at("2026-12-07T00:00:00Z"),
        };
        let sunday = weekday("sunday").unwrap();
        assert_eq!(
            shown(&Series::new(span, (Grain::Week, sunday), &TimeZone::UTC).unwrap()),
            [
                "2026-11-29 00:00+00:00: 2026-11-30T00:00:00Z to 2026-12-06T00:00:00Z",
                "2026-12-06 00:00+00:00: 2026-12-06T00:00:00Z to 2026-12-07T00:00:00Z"
            ]
        );
        assert_eq!(weekday("monday"), Some(Weekday::Monday));
        assert_eq!(weekday("Sunday"), None);
    }

    #[test]
    fn hours_are_those_of_the_zone_and_one_shown_twice_is_two() {
        assert_eq!(
            shown(&series(
                "2026-01-01T00:00:00Z",
                "2026-01-01T02:00:00Z",
                Grain::Hour,
                "Asia/Kathmandu"
            ))
            .len(),
            3
        );
        assert_eq!(
            shown(&series(
                "2026-10-25T00:00:00Z",
                "2026-10-25T02:00:00Z",
                Grain::Hour,
                "Europe/Berlin"
            )),
            [
                "2026-10-25 02:00+02:00: 2026-10-25T00:00:00Z to 2026-10-25T01:00:00Z",
                "2026-10-25 02:00+01:00: 2026-10-25T01:00:00Z to 2026-10-25T02:00:00Z"
            ]
        );
    }

    #[test]
    fn a_series_without_end_is_not_made() {
        let span = Span {
            from: at("2000-01-01T00:00:00Z"),
            to: at("2026-01-01T00:00:00Z"),
        };
        assert_eq!(
            Series::new(span, (Grain::Bucket, Weekday::Monday), &TimeZone::UTC),
            None
        );
        assert!(Series::new(span, (Grain::Day, Weekday::Monday), &TimeZone::UTC).is_some());
    }
}
