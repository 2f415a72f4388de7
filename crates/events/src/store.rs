//! The one caller of this crate's SQL.

use counterfoil_pg::{Error, Scope, TenantId, Tx};
use jiff::Timestamp;
use jiff::civil::Date;
use uuid::Uuid;

use crate::event::Event;
use crate::report::{Report, Subject};

counterfoil_pg::statements! {
    EVENT_INSERT = "event_insert" (
        INT8_ARRAY, UUID_ARRAY, TIMESTAMPTZ_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY, TEXT_ARRAY, INT2
    );
    SPILL_INSERT = "spill_insert" (
        INT8_ARRAY, UUID_ARRAY, TIMESTAMPTZ_ARRAY, TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY, TEXT_ARRAY
    );
    SPILL_FIRST = "spill_first" ();
    SPILL_TAKE = "spill_take" (UUID, UUID, INT8);
    SPILL_DELETE = "spill_delete" (INT8_ARRAY, UUID_ARRAY);
    DAY_LIST = "day_list" ();
    DAY_ADD = "day_add" (DATE);
    CHECK_COUNTS = "check_counts" ();
    CLOCK = "clock" ();
    ACTOR_KEY = "actor_key" ();
    DELTA_FOLD = "delta_fold" (INT2);
    DELTA_ANY = "delta_any" (INT2);
    DELTA_PAGES = "delta_pages" (INT2);
    REPORT_RANGE = "report_range" (INT8, TEXT, TEXT);
    REPORT_SERIES = "report_series" (
        INT8, TEXT, TEXT, TIMESTAMPTZ_ARRAY, TIMESTAMPTZ, TIMESTAMPTZ, TIMESTAMPTZ_ARRAY, UUID_ARRAY, UUID_ARRAY
    );
    REPORT_TOP = "report_top" (
        INT8, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, TIMESTAMPTZ_ARRAY, TIMESTAMPTZ_ARRAY, INT8_ARRAY, UUID_ARRAY,
        UUID_ARRAY, INT8
    );
}

/// Events, column by column, in the order in which they are inserted.
#[derive(Default)]
struct Columns<'a> {
    tenants: Vec<i64>,
    ids: Vec<Uuid>,
    ats: Vec<Timestamp>,
    streams: Vec<&'a str>,
    subjects: Vec<&'a str>,
    actors: Vec<Option<i64>>,
    properties: Vec<Option<&'a str>>,
}

impl<'a> Columns<'a> {
    fn of(events: &[&'a Event]) -> Self {
        let mut columns = Self::default();
        for event in events {
            columns.tenants.push(event.tenant.0);
            columns.ids.push(event.id);
            columns.ats.push(event.at);
            columns.streams.push(&event.stream);
            columns.subjects.push(&event.subject);
            columns.actors.push(event.actor);
            columns.properties.push(event.properties.as_deref());
        }
        columns
    }
}

/// What of a batch was new.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum New {
    All,
    Only(Vec<(TenantId, Uuid)>),
}

/// Stores events, sorted by tenant and id, and appends what they add to the counts.
pub(crate) async fn insert(_scope: &Scope, tx: &Tx, events: &[&Event], slot: i16) -> Result<New, Error> {
    let c = Columns::of(events);
    let row = tx
        .query_one(
            EVENT_INSERT,
            &[
                &c.tenants,
                &c.ids,
                &c.ats,
                &c.streams,
                &c.subjects,
                &c.actors,
                &c.properties,
                &slot,
            ],
        )
        .await?;
    let tenants: Option<Vec<i64>> = row.try_get(1)?;
    let ids: Option<Vec<Uuid>> = row.try_get(2)?;
    Ok(match (row.try_get::<_, i64>(0)?, tenants, ids) {
        (stored, _, _) if usize::try_from(stored) == Ok(events.len()) => New::All,
        (_, tenants, ids) => New::Only(
            tenants
                .unwrap_or_default()
                .into_iter()
                .map(TenantId)
                .zip(ids.unwrap_or_default())
                .collect(),
        ),
    })
}

/// Stores events whose partition is not there yet, sorted by tenant and id.
pub(crate) async fn spill(_scope: &Scope, tx: &Tx, events: &[&Event]) -> Result<New, Error> {
    let c = Columns::of(events);
    let rows = tx
        .query(
            SPILL_INSERT,
            &[
                &c.tenants,
                &c.ids,
                &c.ats,
                &c.streams,
                &c.subjects,
                &c.actors,
                &c.properties,
            ],
        )
        .await?;
    if rows.len() == events.len() {
        return Ok(New::All);
    }
    let new = rows.iter().map(|row| Ok((TenantId(row.try_get(0)?), row.try_get(1)?)));
    Ok(New::Only(new.collect::<Result<_, Error>>()?))
}

/// The least id that waits in the spill table.
pub(crate) async fn spill_first(_scope: &Scope, tx: &Tx) -> Result<Option<Uuid>, Error> {
    let row = tx.query_opt(SPILL_FIRST, &[]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

/// Locks events of the spill table in a range of ids, those that nobody else is taking in.
pub(crate) async fn spill_take(
    _scope: &Scope,
    tx: &Tx,
    (least, most): (Uuid, Uuid),
    limit: i64,
) -> Result<Vec<Event>, Error> {
    let rows = tx.query(SPILL_TAKE, &[&least, &most, &limit]).await?;
    let event = |row: &counterfoil_pg::Row| {
        Ok(Event {
            tenant: TenantId(row.try_get(0)?),
            id: row.try_get(1)?,
            at: row.try_get(2)?,
            stream: row.try_get::<_, String>(3)?.into(),
            subject: row.try_get::<_, String>(4)?.into(),
            actor: row.try_get(5)?,
            properties: row.try_get::<_, Option<String>>(6)?.map(Into::into),
        })
    };
    rows.iter().map(event).collect()
}

pub(crate) async fn spill_delete(_scope: &Scope, tx: &Tx, events: &[&Event]) -> Result<u64, Error> {
    let tenants: Vec<i64> = events.iter().map(|event| event.tenant.0).collect();
    let ids: Vec<Uuid> = events.iter().map(|event| event.id).collect();
    tx.execute(SPILL_DELETE, &[&tenants, &ids]).await
}

/// The days that have a partition.
pub(crate) async fn days(_scope: &Scope, tx: &Tx) -> Result<Vec<Date>, Error> {
    let rows = tx.query(DAY_LIST, &[]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Whether the day was not there yet. Waits for another server that adds the same one.
pub(crate) async fn day_add(_scope: &Scope, tx: &Tx, day: Date) -> Result<bool, Error> {
    Ok(tx.execute(DAY_ADD, &[&day]).await? == 1)
}

pub(crate) async fn clock(_scope: &Scope, tx: &Tx) -> Result<Timestamp, Error> {
    Ok(tx.query_one(CLOCK, &[]).await?.try_get(0)?)
}

pub(crate) async fn actor_key(_scope: &Scope, tx: &Tx) -> Result<Vec<u8>, Error> {
    Ok(tx.query_one(ACTOR_KEY, &[]).await?.try_get(0)?)
}

/// Folds the deltas of a slot. Returns how many rows of the rollup it changed.
pub(crate) async fn fold(_scope: &Scope, tx: &Tx, slot: i16) -> Result<u64, Error> {
    tx.execute(DELTA_FOLD, &[&slot]).await
}

pub(crate) async fn any_delta(_scope: &Scope, tx: &Tx, slot: i16) -> Result<bool, Error> {
    Ok(tx.query_one(DELTA_ANY, &[&slot]).await?.try_get(0)?)
}

/// Whether a slot has any page at all, with or without rows.
pub(crate) async fn has_pages(_scope: &Scope, tx: &Tx, slot: i16) -> Result<bool, Error> {
    Ok(tx.query_one(DELTA_PAGES, &[&slot]).await?.try_get(0)?)
}

/// Counts per place between edges: 1 is behind the first.
pub(crate) async fn series(
    _scope: &Scope,
    tx: &Tx,
    report: &Report<'_>,
    subject: &str,
    edges: &[Timestamp],
    from: Timestamp,
    (cuts, least, most): (Vec<Timestamp>, Vec<Uuid>, Vec<Uuid>),
) -> Result<Vec<(i32, i64)>, Error> {
    let rows = tx
        .query(
            REPORT_SERIES,
            &[
                &report.tenant.0,
                &report.stream,
                &subject,
                &edges,
                &from,
                &report.span.to,
                &cuts,
                &least,
                &most,
            ],
        )
        .await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// Parts of buckets at the ends of a span: what leaves (-1) and what comes (1).
#[derive(Default)]
pub(crate) struct Ends {
    since: Vec<Timestamp>,
    until: Vec<Timestamp>,
    signs: Vec<i64>,
    least: Vec<Uuid>,
    most: Vec<Uuid>,
}

impl Ends {
    pub(crate) fn push(&mut self, since: Timestamp, until: Timestamp, sign: i64, (least, most): (Uuid, Uuid)) {
        self.since.push(since);
        self.until.push(until);
        self.signs.push(sign);
        self.least.push(least);
        self.most.push(most);
    }
}

/// The subjects with most events.
pub(crate) async fn top(
    _scope: &Scope,
    tx: &Tx,
    report: &Report<'_>,
    (from, to): (Timestamp, Timestamp),
    ends: Ends,
    limit: i64,
) -> Result<Vec<Subject>, Error> {
    let rows = tx
        .query(
            REPORT_TOP,
            &[
                &report.tenant.0,
                &report.stream,
                &from,
                &to,
                &ends.since,
                &ends.until,
                &ends.signs,
                &ends.least,
                &ends.most,
                &limit,
            ],
        )
        .await?;
    let subject = |row: &counterfoil_pg::Row| {
        Ok(Subject {
            subject: row.try_get(0)?,
            n: row.try_get(1)?,
        })
    };
    rows.iter().map(subject).collect()
}

/// The first and the last bucket with an event.
pub(crate) async fn range(
    _scope: &Scope,
    tx: &Tx,
    tenant: TenantId,
    stream: &str,
    subject: &str,
) -> Result<Option<(Timestamp, Timestamp)>, Error> {
    let row = tx.query_one(REPORT_RANGE, &[&tenant.0, &stream, &subject]).await?;
    let (first, last): (Option<Timestamp>, Option<Timestamp>) = (row.try_get(0)?, row.try_get(1)?);
    Ok(first.zip(last))
}
