//! The only caller of this crate's SQL.

use std::any::Any;
use std::marker::PhantomData;

use counterfoil_pg::{Error, Row, Scope, TenantId, Tx, statements};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use uuid::Uuid;

use crate::key::Key;
use crate::refs::Fact;
use crate::stub::Stub;

statements! {
    STUB_FIND = "stub_find" (INT8_ARRAY, BYTEA_ARRAY, INT4);
    STUB_FIND_ANY = "stub_find_any" (INT8_ARRAY, BYTEA_ARRAY);
    STUB_INSERT = "stub_insert" (INT8_ARRAY, BYTEA_ARRAY, INT4_ARRAY, TEXT_ARRAY, INT8_ARRAY, BOOL_ARRAY, BYTEA_ARRAY, TEXT_ARRAY, TIMESTAMPTZ);
    STUB_GET = "stub_get" (INT8, BYTEA);
    GENERATION_OPEN = "generation_open" ();
    GENERATION_LIST = "generation_list" ();
    GENERATION_ADD = "generation_add" (INT4);
    GENERATION_DROP = "generation_drop" (INT4);
    GENERATION_SET_OPEN = "generation_set_open" (INT4);
    GENERATION_REMOVE = "generation_remove" (INT4);
    GENERATION_SETTINGS = "generation_settings" ();
    RETENTION_SET = "retention_set" (INT8);
    CLOCK_READ = "clock_read" ();
}

fn stub(row: &Row) -> Stub {
    let key: &[u8] = row.get(1);
    Stub {
        tenant: TenantId(row.get(0)),
        key: Key::from_bytes(key).expect("a stub's key was written by Key::to_bytes"),
        kind: row.get::<_, &str>(2).into(),
        origin: row.get(3),
        accepted: row.get(4),
        hashes: row.get::<_, &[u8]>(5).into(),
        result: row.get::<_, &str>(6).into(),
        recorded_at: row.get(7),
    }
}

/// Keys as parallel arrays.
#[derive(Debug, Default)]
pub(crate) struct KeyArrays {
    tenants: Vec<i64>,
    keys: Vec<Vec<u8>>,
}

impl KeyArrays {
    pub(crate) fn push(&mut self, tenant: TenantId, key: &Key) {
        self.tenants.push(tenant.0);
        self.keys.push(key.to_bytes());
    }

    pub(crate) fn append(&mut self, mut others: Self) {
        self.tenants.append(&mut others.tenants);
        self.keys.append(&mut others.keys);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }
}

/// The stubs of keys in one generation.
pub(crate) async fn find(_scope: &Scope, tx: &Tx, keys: &KeyArrays, generation: i32) -> Result<Vec<Stub>, Error> {
    let rows = tx.query(STUB_FIND, &[&keys.tenants, &keys.keys, &generation]).await?;
    Ok(rows.iter().map(stub).collect())
}

/// The stubs of keys in whatever generation they are.
pub(crate) async fn find_any(_scope: &Scope, tx: &Tx, keys: &KeyArrays) -> Result<Vec<Stub>, Error> {
    let rows = tx.query(STUB_FIND_ANY, &[&keys.tenants, &keys.keys]).await?;
    Ok(rows.iter().map(stub).collect())
}

/// One tenant's stub, and the database's time.
pub(crate) async fn get(
    _scope: &Scope,
    tx: &Tx,
    tenant: TenantId,
    key: &Key,
) -> Result<(Option<Stub>, Timestamp), Error> {
    let bytes = key.to_bytes();
    // The clock is read first: "none as of" must not claim a moment later than the look.
    let params: [&(dyn counterfoil_pg::ToSql + Sync); 2] = [&tenant.0, &bytes];
    let (now, row) = futures_util::try_join!(tx.query_one(CLOCK_READ, &[]), tx.query_opt(STUB_GET, &params))?;
    Ok((row.as_ref().map(stub), now.get(0)))
}

/// A stub to be inserted, with the generation it goes into.
pub(crate) async fn insert(
    _scope: &Scope,
    tx: &Tx,
    stubs: &[(&Stub, i32)],
    recorded_at: Timestamp,
) -> Result<(), Error> {
    let mut tenants = Vec::with_capacity(stubs.len());
    let mut keys = Vec::with_capacity(stubs.len());
    let mut generations = Vec::with_capacity(stubs.len());
    let mut kinds = Vec::with_capacity(stubs.len());
    let mut origins = Vec::with_capacity(stubs.len());
    let mut accepted = Vec::with_capacity(stubs.len());
    let mut hashes: Vec<&[u8]> = Vec::with_capacity(stubs.len());
    let mut results = Vec::with_capacity(stubs.len());
    for (stub, generation) in stubs {
        tenants.push(stub.tenant.0);
        keys.push(stub.key.to_bytes());
        generations.push(*generation);
        kinds.push(&*stub.kind);
        origins.push(stub.origin);
        accepted.push(stub.accepted);
        hashes.push(&stub.hashes);
        results.push(&*stub.result);
    }
    tx.execute(
        STUB_INSERT,
        &[
            &tenants,
            &keys,
            &generations,
            &kinds,
            &origins,
            &accepted,
            &hashes,
            &results,
            &recorded_at,
        ],
    )
    .await?;
    Ok(())
}

/// The database's clock, and how far generations have come by it.
pub(crate) struct Standing {
    pub(crate) now: Timestamp,
    pub(crate) open: Option<i32>,
    /// The highest that was ever dropped.
    pub(crate) dropped: i32,
}

pub(crate) async fn standing(_scope: &Scope, tx: &Tx) -> Result<Standing, Error> {
    let row = tx.query_one(GENERATION_OPEN, &[]).await?;
    Ok(Standing {
        now: row.get(0),
        open: row.get(1),
        dropped: row.get(2),
    })
}

pub(crate) async fn clock(_scope: &Scope, tx: &Tx) -> Result<Timestamp, Error> {
    Ok(tx.query_one(CLOCK_READ, &[]).await?.get(0))
}

/// A registered fact with its value's type erased.
pub(crate) trait AnyFact: Send + Sync {
    fn noun(&self) -> &'static str;
    #[allow(clippy::type_complexity, reason = "the rows of Fact::read with the value boxed")]
    fn read<'a>(
        &'a self,
        scope: &'a Scope,
        tx: &'a Tx,
        ids: &'a [(TenantId, Uuid)],
    ) -> BoxFuture<'a, Result<Vec<(TenantId, Uuid, Box<dyn Any + Send + Sync>)>, Error>>;
}

pub(crate) struct FactOf<F>(PhantomData<fn() -> F>);

impl<F> Default for FactOf<F> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<F: Fact> AnyFact for FactOf<F> {
    fn noun(&self) -> &'static str {
        F::NOUN
    }
    fn read<'a>(
        &'a self,
        scope: &'a Scope,
        tx: &'a Tx,
        ids: &'a [(TenantId, Uuid)],
    ) -> BoxFuture<'a, Result<Vec<(TenantId, Uuid, Box<dyn Any + Send + Sync>)>, Error>> {
        Box::pin(async move {
            let facts = F::read(scope, tx, ids).await?;
            Ok(facts
                .into_iter()
                .map(|(tenant, id, value)| (tenant, id, Box::new(value) as _))
                .collect())
        })
    }
}
