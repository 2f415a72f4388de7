//! A database with lanes on it, as a server would run them.

use std::sync::atomic::{AtomicU64, Ordering};

use counterfoil_intent::{Answer, Generations, Intent, Kinds, Lanes, Limits, Options};
use counterfoil_ledger::check::check;
use counterfoil_ledger::read::{self, AccountView};
use counterfoil_pg::{Client, Database, Role, Scope, TenantId, Tx};
use counterfoil_test::{Server, TestDatabase, database};
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub struct Ledger {
    pub test: TestDatabase,
    pub admin: Client,
    looks: Client,
    pub kinds: Kinds,
    pub db: Database,
    pub lanes: Lanes,
    pub tenant: TenantId,
}

/// What came of an intent.
#[derive(Debug, Clone, PartialEq)]
pub struct Came {
    pub accepted: bool,
    pub result: Value,
    pub replayed: bool,
    pub recorded_at: jiff::Timestamp,
}

impl Came {
    pub fn code(&self) -> &str {
        if self.accepted {
            "accepted"
        } else {
            self.result["code"].as_str().unwrap()
        }
    }

    #[track_caller]
    pub fn ok(&self) -> &Self {
        assert!(self.accepted, "{self:?}");
        self
    }

    #[track_caller]
    pub fn id(&self, noun: &str) -> uuid::Uuid {
        self.ok().result[noun].as_str().unwrap().parse().unwrap()
    }
}

/// A key nobody has used.
pub fn fresh() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("key-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

#[track_caller]
pub fn came(answer: &Answer) -> Came {
    let (stub, replayed) = match answer {
        Answer::First(stub) => (stub, false),
        Answer::Replayed(stub) => (stub, true),
        other => panic!("an answer without a stub: {other:?}"),
    };
    let result = serde_json::from_str(&stub.result).unwrap();
    Came {
        accepted: stub.accepted,
        result,
        replayed,
        recorded_at: stub.recorded_at,
    }
}

impl Ledger {
    pub async fn new(server: Server) -> Self {
        let test = database(server).await;
        let db = test.database();
        let generations = Generations::load(&db).await.unwrap();
        generations.rotate(&db).await.unwrap();
        let mut kinds = Kinds::new();
        counterfoil_ledger::register(&mut kinds);
        let lanes = lanes(&db, &kinds).await;
        let (admin, looks, tenant) = (test.admin().await, test.admin().await, test.tenant("one").await);
        Self {
            test,
            admin,
            looks,
            kinds,
            db,
            lanes,
            tenant,
        }
    }

    /// Lanes of another server process, as far as the database can tell.
    pub async fn other_lanes(&self) -> Lanes {
        lanes(&self.test.database(), &self.kinds).await
    }

    pub fn intent(&self, kind: &str, body: &Value) -> Intent {
        self.intent_of(self.tenant, &fresh(), kind, body)
    }

    pub fn intent_of(&self, tenant: TenantId, key: &str, kind: &str, body: &Value) -> Intent {
        let text = json!({"key": key, "kind": kind, "body": body}).to_string();
        self.read(tenant, &text)
    }

    pub fn read(&self, tenant: TenantId, text: &str) -> Intent {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        self.kinds
            .intent(Limits::default(), tenant, None, &raw)
            .unwrap_or_else(|invalid| panic!("{text}: {invalid:?}"))
    }

    pub async fn submit(&self, intents: Vec<Intent>) -> Vec<Came> {
        self.lanes.submit(intents).await.iter().map(came).collect()
    }

    pub async fn run(&self, kind: &str, body: Value) -> Came {
        self.submit(vec![self.intent(kind, &body)]).await.remove(0)
    }

    /// USD, and accounts in it: code and floor.
    pub async fn usd(&self, accounts: &[(&str, Option<&str>)]) {
        let mut intents = vec![self.intent("ledger.asset", &json!({"code": "USD", "scale": 2}))];
        for (code, floor) in accounts {
            intents.push(self.intent("ledger.open", &json!({"account": code, "asset": "USD", "floor": floor})));
        }
        for came in self.submit(intents).await {
            came.ok();
        }
    }

    pub async fn pay(&self, from: &str, to: &str, amount: &str) -> Came {
        self.run("ledger.transfer", json!({"from": from, "to": to, "amount": amount}))
            .await
    }

    pub fn scope(&self) -> Scope {
        Scope::Tenant(self.tenant)
    }

    /// A transaction that asks, as the app role.
    pub async fn app(&self) -> Tx {
        self.db.pool(Role::App).begin(&self.scope()).await.unwrap()
    }

    pub async fn account(&self, code: &str) -> AccountView {
        let tx = self.app().await;
        let found = read::account(&self.scope(), &tx, code).await.unwrap();
        tx.rollback().await;
        found.unwrap_or_else(|| panic!("no account {code}"))
    }

    /// Posted, held and available, as they are written.
    pub async fn figures(&self, code: &str) -> (String, String, String) {
        let view = self.account(code).await;
        (
            view.posted.to_string(),
            view.held.to_string(),
            view.available.to_string(),
        )
    }

    /// What the checker finds.
    pub async fn violations(&self) -> Vec<String> {
        let tx = self.db.pool(Role::Ops).begin(&Scope::Installation).await.unwrap();
        let found = check(&Scope::Installation, &tx).await.unwrap();
        tx.rollback().await;
        found.iter().map(ToString::to_string).collect()
    }

    #[track_caller]
    pub fn assert_whole(&self) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            let found = self.violations().await;
            assert!(found.is_empty(), "at {at}: {found:#?}");
        }
    }

    /// What the superuser does from outside.
    #[allow(clippy::disallowed_methods, reason = "a hand from outside")]
    pub async fn outside(&self, sql: &str) {
        self.admin
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    #[allow(clippy::disallowed_methods, reason = "a look from outside")]
    pub async fn count(&self, sql: &str) -> i64 {
        // Not the connection of `outside`: in a transaction pg_stat_activity always shows what it
        // showed at the first look.
        self.looks
            .query_one(sql, &[])
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
            .get(0)
    }
}

async fn lanes(db: &Database, kinds: &Kinds) -> Lanes {
    let generations = Generations::load(db).await.unwrap();
    Lanes::start(db.clone(), kinds.clone(), generations, Options::default())
}
