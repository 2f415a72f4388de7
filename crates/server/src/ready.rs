//! `/readyz`: whether intents would land, and whether "durable first" holds on this PostgreSQL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use counterfoil_pg::Durability;
use http::{Response, StatusCode};
use http_body_util::Full;
use tokio::sync::Mutex;

use crate::app::{App, json};
use crate::engine::Engine;
use crate::json;

/// Anybody may ask, so the database is asked once in this time, however many do.
const FRESH: Duration = Duration::from_secs(1);

/// The database has this long to answer before it counts as out of reach.
const PATIENCE: Duration = Duration::from_secs(3);

/// What was found out about the database.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// `server_version_num`, or why the database does not answer.
    pub database: Result<u32, String>,
    /// `None` where it could not be asked.
    pub durability: Option<Durability>,
    /// Whether the schema is the one this version needs, or what to do.
    pub schema: Result<(), String>,
}

impl Readiness {
    /// Durability is no part of it: where it is lacking, answers are still true but for a crash of
    /// the machine, and `durable` says so.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.database.is_ok() && self.schema.is_ok()
    }

    /// What is wrong for promise 10, if anything.
    #[must_use]
    pub fn shortfall(&self) -> Option<&'static str> {
        self.durability.as_ref().and_then(Durability::shortfall)
    }

    /// Anybody may read it, so it says which part is not as it should be, in these words and no others.
    /// Why, and where, is in the log.
    fn render(&self) -> Vec<u8> {
        let database = match self.database {
            Ok(_) => "in reach",
            Err(_) => "out of reach",
        };
        let schema = match (&self.database, &self.schema) {
            (Err(_), _) => "not known",
            (Ok(_), Ok(())) => "current",
            (Ok(_), Err(_)) => "not current",
        };
        let commits = match (&self.durability, self.shortfall()) {
            (None, _) => "not known",
            (Some(_), None) => "durable",
            (Some(_), Some(_)) => "not durable",
        };
        json::object(|out| {
            out.flag("ready", self.is_ready());
            out.text("database", database);
            out.text("schema", schema);
            out.text("commits", commits);
        })
    }

    /// Everything that is wrong, for the log; empty where nothing is.
    fn wrong(&self) -> String {
        let database = self.database.as_ref().err().map(String::as_str);
        let schema = self.schema.as_ref().err().map(String::as_str);
        let parts: Vec<_> = [database, schema, self.shortfall()].into_iter().flatten().collect();
        parts.join("; ")
    }
}

#[derive(Debug, Default)]
pub(crate) struct Cached(Mutex<Option<(Instant, Arc<Readiness>)>>);

impl<E: Engine> App<E> {
    pub(crate) async fn readiness(&self) -> Response<Full<Bytes>> {
        let found = self.found_ready().await;
        let mut response = json(found.render());
        if !found.is_ready() {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        response
    }

    /// Who comes while the database is being asked waits for that answer.
    pub(crate) async fn found_ready(&self) -> Arc<Readiness> {
        let mut cached = self.ready.0.lock().await;
        if let Some((at, found)) = &*cached
            && at.elapsed() < FRESH
        {
            return Arc::clone(found);
        }
        let found = match tokio::time::timeout(PATIENCE, self.engine.readiness()).await {
            Ok(found) => found,
            Err(_) => Readiness {
                database: Err(format!("the database did not answer within {} s", PATIENCE.as_secs())),
                durability: None,
                schema: Ok(()),
            },
        };
        let before = cached.take().map(|(_, before)| before.wrong()).unwrap_or_default();
        match found.wrong() {
            wrong if wrong == before => {}
            wrong if wrong.is_empty() => tracing::info!("/readyz finds everything as it should be again"),
            wrong => tracing::warn!("/readyz finds: {wrong}"),
        }
        let found = Arc::new(found);
        *cached = Some((Instant::now(), Arc::clone(&found)));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(readiness: &Readiness) -> String {
        String::from_utf8(readiness.render()).unwrap()
    }

    fn durability(fsync: bool) -> Option<Durability> {
        Some(Durability {
            fsync,
            full_page_writes: true,
            synchronous_commit: "on".to_owned(),
        })
    }

    #[test]
    fn a_database_that_is_not_durable_is_ready_and_says_so() {
        let found = Readiness {
            database: Ok(150_018),
            durability: durability(false),
            schema: Ok(()),
        };
        assert!(found.is_ready());
        insta::assert_snapshot!(text(&found), @r#"{"ready":true,"database":"in reach","schema":"current","commits":"not durable"}"#);
        assert!(found.wrong().contains("fsync is off"));
    }

    /// The why names hosts and roles, and is for the log.
    #[test]
    fn a_database_that_is_away_or_behind_is_not_ready_and_the_why_is_not_shown() {
        let away = Readiness {
            database: Err("cannot reach PostgreSQL at db.internal:5432".to_owned()),
            durability: None,
            schema: Ok(()),
        };
        assert!(!away.is_ready());
        insta::assert_snapshot!(text(&away), @r#"{"ready":false,"database":"out of reach","schema":"not known","commits":"not known"}"#);
        assert_eq!(away.wrong(), "cannot reach PostgreSQL at db.internal:5432");
        let behind = Readiness {
            database: Ok(180_000),
            durability: durability(true),
            schema: Err("database shop lacks 1 migration".to_owned()),
        };
        assert!(!behind.is_ready());
        insta::assert_snapshot!(text(&behind), @r#"{"ready":false,"database":"in reach","schema":"not current","commits":"durable"}"#);
        assert_eq!(behind.wrong(), "database shop lacks 1 migration");
    }
}
