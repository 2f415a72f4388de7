//! A database with an event lane on it, as a server would run it.

use std::sync::Arc;

use counterfoil_events::{Actors, Answer, Days, Event, EventLanes, Fold, Limits, Options, Reader};
use counterfoil_pg::{Client, Database, TenantId};
use counterfoil_test::{Server, TestDatabase, database};
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Value, json};

pub struct House {
    pub test: TestDatabase,
    pub admin: Client,
    pub db: Database,
    pub days: Arc<Days>,
    pub lanes: EventLanes,
    pub fold: Fold,
    pub tenant: TenantId,
    actors: Actors,
}

/// The moment that every story happens at, but for those about time.
pub fn now() -> Timestamp {
    counterfoil_events::now()
}

impl House {
    pub async fn new(server: Server) -> Self {
        let test = database(server).await;
        let db = test.database();
        let days = Arc::new(Days::default());
        days.keep(&db).await.unwrap();
        Self {
            lanes: EventLanes::start(db.clone(), Arc::clone(&days), Options::default()),
            fold: Fold::new(db.clone()),
            actors: Actors::load(&db).await.unwrap(),
            admin: test.admin().await,
            tenant: test.tenant("one").await,
            test,
            db,
            days,
        }
    }

    /// The lane of another server process, as far as the database can tell.
    pub async fn other_lanes(&self) -> EventLanes {
        let db = self.test.database();
        let days = Arc::new(Days::default());
        days.refresh(&db).await.unwrap();
        EventLanes::start(db, days, Options::default())
    }

    pub fn event(&self, body: &Value) -> Event {
        self.event_of(self.tenant, body)
    }

    pub fn event_of(&self, tenant: TenantId, body: &Value) -> Event {
        let raw = RawValue::from_string(body.to_string()).unwrap();
        let reader = Reader {
            limits: Limits {
                late: None,
                ..Limits::default()
            },
            actors: &self.actors,
            tenant,
            now: now(),
        };
        reader
            .read(&raw)
            .unwrap_or_else(|invalid| panic!("{body}: {invalid:?}"))
    }

    pub fn click(&self, subject: &str, id: &str, at: Timestamp) -> Event {
        self.event(&json!({"stream": "web", "subject": subject, "id": id, "at": at.to_string()}))
    }

    pub async fn submit(&self, events: Vec<Event>) -> Vec<Answer> {
        self.lanes.submit(self.tenant, events, None).await
    }

    pub async fn count(&self, sql: &str) -> i64 {
        self.admin.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Promise 7: for every subject and bucket, and for all subjects of it, what is counted is what is stored.
    #[track_caller]
    pub fn assert_whole(&self) -> impl Future<Output = ()> + '_ {
        let place = std::panic::Location::caller();
        async move {
            let wrong = self
                .admin
                .query(
                    "WITH stored AS (
                        SELECT tenant_id, stream, coalesce(subject, '') AS subject, bucket, count(*) AS n
                          FROM (SELECT tenant_id, stream, subject,
                                       to_timestamp(floor(extract(epoch FROM at) / 900) * 900) AS bucket
                                  FROM counterfoil.event) AS event
                         GROUP BY GROUPING SETS ((tenant_id, stream, subject, bucket), (tenant_id, stream, bucket))
                     ), counted AS (
                        SELECT tenant_id, stream, subject, bucket, sum(n) AS n
                          FROM (SELECT tenant_id, stream, subject, bucket, n FROM counterfoil.rollup
                                UNION ALL
                                SELECT tenant_id, stream, subject, bucket, n FROM counterfoil.rollup_delta) AS part
                         GROUP BY 1, 2, 3, 4
                     )
                     SELECT stream || ' ' || subject || ' ' || bucket || ': stored ' ||
                            coalesce(stored.n, 0) || ', counted ' || coalesce(counted.n, 0)
                       FROM stored FULL JOIN counted USING (tenant_id, stream, subject, bucket)
                      WHERE stored.n IS DISTINCT FROM counted.n",
                    &[],
                )
                .await
                .unwrap();
            let wrong: Vec<String> = wrong.iter().map(|row| row.get(0)).collect();
            assert!(wrong.is_empty(), "at {place}: {wrong:#?}");
        }
    }
}
