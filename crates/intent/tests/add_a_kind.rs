//! The example of `docs/howto/add-a-kind.md`, which shows this file from the first `// ---` to the
//! last: a kind that counts.

// --- the table
use counterfoil_intent::{
    Books, Changes, Context, Fields, Invalid, Kind, Kinds, LockClass, Mode, Needs, Outcome, Refs, Refusal, Reply,
    Table, Wait,
};
use counterfoil_pg::{Error, Scope, Sql, TenantId, Tx, Type};
use jiff::Timestamp;
use serde_json::value::RawValue;

/// Counters, by name. A row is made when it is first counted.
pub struct Counters;

#[derive(Debug, Clone)]
pub struct Counter {
    pub count: i64,
}

impl Table for Counters {
    const CLASS: LockClass = LockClass::Example;
    const NAME: &'static str = "example_counter";
    type Key = String;
    type Row = Counter;

    async fn make(_: &Scope, tx: &Tx, keys: &[(TenantId, String)]) -> Result<Vec<(TenantId, String)>, Error> {
        let (tenants, names) = arrays(keys);
        let rows = tx.query(&COUNTER_MAKE, &[&tenants, &names]).await?;
        Ok(rows.iter().map(|row| (TenantId(row.get(0)), row.get(1))).collect())
    }

    async fn lock(
        _: &Scope,
        tx: &Tx,
        keys: &[(TenantId, String)],
        wait: Wait,
    ) -> Result<Vec<(TenantId, String)>, Error> {
        let (tenants, names) = arrays(keys);
        let sql = match wait {
            Wait::Skip => &COUNTER_LOCK_SKIP,
            Wait::Queue => &COUNTER_LOCK,
        };
        let rows = tx.query(sql, &[&tenants, &names]).await?;
        Ok(rows.iter().map(|row| (TenantId(row.get(0)), row.get(1))).collect())
    }

    async fn load(
        _: &Scope,
        tx: &Tx,
        keys: &[(TenantId, String)],
        _now: Timestamp,
    ) -> Result<Vec<(TenantId, String, Counter)>, Error> {
        let (tenants, names) = arrays(keys);
        let rows = tx.query(&COUNTER_LOAD, &[&tenants, &names]).await?;
        Ok(rows
            .iter()
            .map(|row| (TenantId(row.get(0)), row.get(1), Counter { count: row.get(2) }))
            .collect())
    }

    async fn save(_: &Scope, tx: &Tx, changes: &Changes<'_, Self>) -> Result<(), Error> {
        let changed = changes.update.iter().chain(&changes.fill);
        let (mut tenants, mut names, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for (tenant, name, counter) in changed {
            tenants.push(tenant.0);
            names.push(name.as_str());
            counts.push(counter.count);
        }
        tx.execute(&COUNTER_SAVE, &[&tenants, &names, &counts]).await?;
        let tenants: Vec<i64> = changes.unmake.iter().map(|(tenant, _)| tenant.0).collect();
        let names: Vec<&str> = changes.unmake.iter().map(|(_, name)| name.as_str()).collect();
        tx.execute(&COUNTER_UNMAKE, &[&tenants, &names]).await?;
        Ok(())
    }
}

fn arrays(keys: &[(TenantId, String)]) -> (Vec<i64>, Vec<&str>) {
    keys.iter().map(|(tenant, name)| (tenant.0, name.as_str())).unzip()
}

// --- the kind
/// Counts something up, to a hundred at the most.
pub struct Count;

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CountBody {
    pub counter: String,
    pub by: i64,
}

impl Kind for Count {
    const NAME: &'static str = "example.count";
    type Body = CountBody;

    fn parse(raw: &RawValue) -> Result<CountBody, Invalid> {
        let body: CountBody = Kinds::read_object(raw)?;
        if body.by < 1 {
            return Err(Invalid::new("by_not_positive", "by", "count by one or more"));
        }
        Ok(body)
    }

    fn fields(body: &CountBody, fields: &mut Fields) {
        fields.field("counter", body.counter.as_bytes());
        fields.field("by", &body.by.to_be_bytes());
    }

    fn needs(body: &CountBody, _: &Refs, needs: &mut Needs<'_>) {
        needs.row::<Counters>(&body.counter, Mode::Make);
    }

    fn apply(books: &mut Books, body: &CountBody, _: &Refs, _: &mut Context) -> Outcome {
        if books.get::<Counters>(&body.counter).is_none() {
            books.create::<Counters>(body.counter.clone(), Counter { count: 0 });
        }
        let counter = books
            .change::<Counters>(&body.counter)
            .expect("it is there, or was just created");
        counter.count += body.by;
        if counter.count > 100 {
            return Refusal::new("counter_full", "by", "the counter would pass a hundred").into();
        }
        Outcome::Accepted(Reply::new().text("count", &counter.count.to_string()))
    }
}

// --- the statements; in a crate of yours each is a file, declared by `statements!`
static COUNTER_MAKE: Sql = Sql {
    name: "counter_make",
    text: "INSERT INTO counterfoil.example_counter (tenant_id, name)
        SELECT u.tenant_id, u.name FROM unnest($1::bigint[], $2::text[]) AS u(tenant_id, name)
        ORDER BY u.tenant_id, u.name
        ON CONFLICT (tenant_id, name) DO NOTHING RETURNING tenant_id, name",
    params: &[Type::INT8_ARRAY, Type::TEXT_ARRAY],
};
static COUNTER_LOCK: Sql = Sql {
    name: "counter_lock",
    text: "SELECT c.tenant_id, c.name
        FROM unnest($1::bigint[], $2::text[]) AS u(tenant_id, name)
        JOIN counterfoil.example_counter AS c ON c.tenant_id = u.tenant_id AND c.name = u.name
        ORDER BY c.tenant_id, c.name FOR NO KEY UPDATE OF c",
    params: &[Type::INT8_ARRAY, Type::TEXT_ARRAY],
};
static COUNTER_LOCK_SKIP: Sql = Sql {
    name: "counter_lock_skip",
    text: "SELECT c.tenant_id, c.name
        FROM unnest($1::bigint[], $2::text[]) AS u(tenant_id, name)
        JOIN counterfoil.example_counter AS c ON c.tenant_id = u.tenant_id AND c.name = u.name
        ORDER BY c.tenant_id, c.name FOR NO KEY UPDATE OF c SKIP LOCKED",
    params: &[Type::INT8_ARRAY, Type::TEXT_ARRAY],
};
static COUNTER_LOAD: Sql = Sql {
    name: "counter_load",
    text: "SELECT c.tenant_id, c.name, c.count
        FROM unnest($1::bigint[], $2::text[]) AS u(tenant_id, name)
        JOIN counterfoil.example_counter AS c ON c.tenant_id = u.tenant_id AND c.name = u.name",
    params: &[Type::INT8_ARRAY, Type::TEXT_ARRAY],
};
static COUNTER_SAVE: Sql = Sql {
    name: "counter_save",
    text: "UPDATE counterfoil.example_counter AS c SET count = u.count
        FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS u(tenant_id, name, count)
        WHERE c.tenant_id = u.tenant_id AND c.name = u.name",
    params: &[Type::INT8_ARRAY, Type::TEXT_ARRAY, Type::INT8_ARRAY],
};
static COUNTER_UNMAKE: Sql = Sql {
    name: "counter_unmake",
    text: "DELETE FROM counterfoil.example_counter AS c
        USING unnest($1::bigint[], $2::text[]) AS u(tenant_id, name)
        WHERE c.tenant_id = u.tenant_id AND c.name = u.name",
    params: &[Type::INT8_ARRAY, Type::TEXT_ARRAY],
};

/// The migration of the table.
pub const MIGRATION: &str = "
CREATE TABLE counterfoil.example_counter (
    tenant_id bigint NOT NULL,
    name      text   NOT NULL,
    count     bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, name)
) WITH (fillfactor = 70);
ALTER TABLE counterfoil.example_counter ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.example_counter FORCE ROW LEVEL SECURITY;
CREATE POLICY tenants_of_the_batch ON counterfoil.example_counter TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
GRANT SELECT, INSERT, UPDATE, DELETE ON counterfoil.example_counter TO counterfoil_lane;
";

/// Registering it is all that is left.
pub fn register(kinds: &mut Kinds) {
    kinds.table::<Counters>().kind::<Count>();
}
// --- the end
