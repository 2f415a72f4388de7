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

    fn render(&self) -> Vec<u8> {
        json::object(|out| {
            out.flag("ready", self.is_ready());
            out.object("database", |out| {
                out.flag("reachable", self.database.is_ok());
                match &self.database {
                    Ok(version) => out.plain("version", format_args!("{}.{}", version / 10_000, version % 10_000)),
                    Err(why) => out.text("error", why),
                }
            });
            if let Some(durability) = &self.durability {
                out.object("durability", |out| {
                    out.flag("durable", durability.shortfall().is_none());
                    out.flag("fsync", durability.fsync);
                    out.flag("full_page_writes", durability.full_page_writes);
                    out.text("synchronous_commit", &durability.synchronous_commit);
                    if let Some(why) = durability.shortfall() {
                        out.text("warning", why);
                    }
                });
            }
            if self.database.is_ok() {
                out.object("schema", |out| {
                    out.flag("current", self.schema.is_ok());
                    if let Err(why) = &self.schema {
                        out.text("error", why);
                    }
                });
            }
        })
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

    #[test]
    fn a_database_that_is_not_durable_is_ready_and_says_so() {
        let durability = Durability {
            fsync: false,
            full_page_writes: true,
            synchronous_commit: "on".to_owned(),
        };
        let found = Readiness {
            database: Ok(150_018),
            durability: Some(durability),
            schema: Ok(()),
        };
        assert!(found.is_ready());
        insta::assert_snapshot!(text(&found), @r#"{"ready":true,"database":{"reachable":true,"version":"15.18"},"durability":{"durable":false,"fsync":false,"full_page_writes":true,"synchronous_commit":"on","warning":"fsync is off: a crash of the machine can lose or break everything; set fsync = on"},"schema":{"current":true}}"#);
    }

    #[test]
    fn a_database_that_is_away_or_behind_is_not_ready() {
        let away = Readiness {
            database: Err("connection refused".to_owned()),
            durability: None,
            schema: Ok(()),
        };
        assert!(!away.is_ready());
        insta::assert_snapshot!(text(&away), @r#"{"ready":false,"database":{"reachable":false,"error":"connection refused"}}"#);
        let durability = Durability {
            fsync: true,
            full_page_writes: true,
            synchronous_commit: "on".to_owned(),
        };
        let schema = Err("run `counterfoil init`".to_owned());
        let behind = Readiness {
            database: Ok(180_000),
            durability: Some(durability),
            schema,
        };
        assert!(!behind.is_ready());
        insta::assert_snapshot!(text(&behind), @r#"{"ready":false,"database":{"reachable":true,"version":"18.0"},"durability":{"durable":true,"fsync":true,"full_page_writes":true,"synchronous_commit":"on"},"schema":{"current":false,"error":"run `counterfoil init`"}}"#);
    }
}
