//! Stories about the door to PostgreSQL, told on the oldest and the newest supported server.
//!
//! Needs the servers of `scripts/with-servers`.

// A test also looks from outside, as the administrator.
#![allow(clippy::disallowed_methods)]

mod cluster;
mod proxy;

mod begin;
mod commit;
mod connect;
mod leave;
mod lost;
mod outcome;
mod prepared;
mod run;
mod scope;
mod silent;
mod statements;
mod tls;
mod whole;
mod xact_status;

/// Tells each story on PostgreSQL 15 and on 18.
macro_rules! on_both {
    ($($story:ident),+ $(,)?) => {
        mod pg15 {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                super::$story(crate::cluster::Cluster::pg15()).await;
            })+
        }
        mod pg18 {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $story() {
                super::$story(crate::cluster::Cluster::pg18()).await;
            })+
        }
    };
}
pub(crate) use on_both;
