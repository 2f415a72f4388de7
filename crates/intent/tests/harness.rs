//! A database with the example kind and kinds with faults, and lanes on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counterfoil_intent::{Answer, Generations, Intent, Key, Kinds, Lanes, Limits, Options, Stub};
use counterfoil_pg::{Client, Database, Role, Scope, TenantId};
use counterfoil_test::{Server, TestDatabase, database};
use serde_json::value::RawValue;

use crate::add_a_kind::{self, MIGRATION};
use crate::faulty_kinds;

pub struct Harness {
    pub test: TestDatabase,
    pub admin: Client,
    pub kinds: Kinds,
}

impl Harness {
    pub async fn new(server: Server) -> Self {
        Self::with_retention(server, Duration::from_secs(30 * 86_400)).await
    }

    pub async fn with_retention(server: Server, retention: Duration) -> Self {
        // What the lanes log is shown with the output of a test that fails.
        let _ = tracing_subscriber::fmt()
            .with_test_writer()
            .with_target(false)
            .try_init();
        let test = database(server).await;
        let owner = test.database();
        assert!(Generations::set_retention(&owner, retention).await.unwrap());
        let tx = owner.pool(Role::Owner).begin(&Scope::Installation).await.unwrap();
        tx.batch(MIGRATION).await.unwrap();
        tx.commit().await.unwrap();
        Generations::load(&owner).await.unwrap().rotate(&owner).await.unwrap();
        let mut kinds = Kinds::new();
        add_a_kind::register(&mut kinds);
        faulty_kinds::register(&mut kinds);
        Self {
            admin: test.admin().await,
            test,
            kinds,
        }
    }

    pub async fn lanes(&self) -> Lanes {
        self.lanes_on(self.test.database(), Options::default()).await
    }

    /// Lanes of another server process, as far as the database can tell.
    pub async fn lanes_on(&self, database: Database, options: Options) -> Lanes {
        let generations = Generations::load(&database).await.unwrap();
        Lanes::start(database, self.kinds.clone(), generations, options)
    }

    pub async fn tenant(&self) -> TenantId {
        self.test.tenant("one").await
    }

    pub fn count(&self, tenant: TenantId, key: &str, counter: &str, by: i64) -> Intent {
        self.intent(
            tenant,
            key,
            "example.count",
            &format!(r#"{{"counter":"{counter}","by":{by}}}"#),
        )
    }

    pub fn intent(&self, tenant: TenantId, key: &str, kind: &str, body: &str) -> Intent {
        let raw = RawValue::from_string(format!(r#"{{"key":"{key}","kind":"{kind}","body":{body}}}"#)).unwrap();
        self.kinds.intent(Limits::default(), tenant, None, &raw).unwrap()
    }

    /// What the superuser sees of a counter.
    pub async fn counter(&self, tenant: TenantId, name: &str) -> Option<i64> {
        let sql = "SELECT count FROM counterfoil.example_counter WHERE tenant_id = $1 AND name = $2";
        self.admin
            .query_opt(sql, &[&tenant.0, &name])
            .await
            .unwrap()
            .map(|row| row.get(0))
    }

    /// The sum of all counters.
    pub async fn sum(&self, tenant: TenantId) -> i64 {
        let sql = "SELECT sum(count)::bigint FROM counterfoil.example_counter WHERE tenant_id = $1";
        self.admin.query_one(sql, &[&tenant.0]).await.unwrap().get(0)
    }

    pub async fn stubs(&self, tenant: TenantId) -> i64 {
        let sql = "SELECT count(*) FROM counterfoil.stub WHERE tenant_id = $1";
        self.admin.query_one(sql, &[&tenant.0]).await.unwrap().get(0)
    }
}

/// The sum over the lanes of a metric's lines that begin so.
pub fn metric(lanes: &Lanes, begin: &str) -> u64 {
    let mut text = String::new();
    lanes.metrics().render(&mut text);
    let lines = text.lines().filter(|line| line.starts_with(begin));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

/// Attempts that failed so far with errors of a class.
pub fn failures(lanes: &Lanes, class: &str) -> u64 {
    let mut text = String::new();
    lanes.metrics().render(&mut text);
    let class = format!("class=\"{class}\"");
    let lines = text
        .lines()
        .filter(|line| line.starts_with("counterfoil_batch_failures_total{") && line.contains(&class));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

/// Until something is so; a test that waits for what never comes must end, too.
pub async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let start = std::time::Instant::now();
    while !so().await {
        assert!(start.elapsed() < Duration::from_secs(40), "it never came: {what}");
        tokio::task::yield_now().await;
    }
}

/// A key nobody has used.
pub fn fresh() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("key-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

/// The stub of an answer that has one, and whether it was a replay.
#[track_caller]
pub fn stub(answer: &Answer) -> (&Stub, bool) {
    match answer {
        Answer::First(stub) => (stub, false),
        Answer::Replayed(stub) => (stub, true),
        other => panic!("an answer without a stub: {other:?}"),
    }
}

#[track_caller]
pub fn accepted(answer: &Answer) -> &Stub {
    let (stub, _) = stub(answer);
    assert!(stub.accepted, "{stub:?}");
    stub
}
