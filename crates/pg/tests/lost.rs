//! Promise 9: when the reply to COMMIT is lost, the outcome row decides.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil_pg::{Class, Error, Pooler, Role, Token, Verdict, attempt};

use crate::cluster::{Cluster, ONE, TestDb, insert, variable_of};
use crate::on_both;
use crate::proxy::{Fault, Proxy};

on_both!(
    lost_before_commit_it_is_run_again,
    lost_after_commit_it_is_not_run_again,
    a_twin_still_in_progress_is_waited_for,
    a_twin_that_will_never_commit_is_run_again,
    a_lost_commit_on_a_cold_database_makes_its_partition,
    what_cannot_be_resolved_is_unknown_and_can_be_asked_again,
    a_token_of_long_ago_is_never_guessed,
    the_first_answer_stands,
);

struct Story {
    db: TestDb,
    proxy: Proxy,
    runs: AtomicU32,
}

impl Story {
    async fn on(cluster: Cluster) -> Self {
        let db = cluster.database().await;
        db.database.maintain_outcomes().await.unwrap();
        let proxy = Proxy::before(cluster.port()).await;
        Self {
            db,
            proxy,
            runs: AtomicU32::new(0),
        }
    }

    /// Inserts a thing with the next free id, so that a second run would leave a second row.
    async fn run(&self, change: impl FnOnce(&mut counterfoil_pg::Settings)) -> Result<u32, Error> {
        let through = self.db.with(|settings| {
            settings.port = self.proxy.port;
            change(settings);
        });
        through
            .pool(Role::App)
            .run(&ONE, |tx| {
                let run = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
                attempt(async move {
                    insert(tx, 1, run.into()).await?;
                    Ok(run)
                })
            })
            .await
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

async fn lost_before_commit_it_is_run_again(cluster: Cluster) {
    let story = Story::on(cluster).await;
    story.proxy.arm(Fault::Before);
    assert_eq!(story.run(|_| {}).await.unwrap(), 2, "the second run's value");
    assert!(!story.proxy.is_armed());
    assert_eq!((story.runs(), story.db.things().await), (2, 1), "one effect");
}

async fn lost_after_commit_it_is_not_run_again(cluster: Cluster) {
    let story = Story::on(cluster).await;
    story.proxy.arm(Fault::After);
    assert_eq!(story.run(|_| {}).await.unwrap(), 1, "the first run's value");
    assert!(!story.proxy.is_armed());
    assert_eq!((story.runs(), story.db.things().await), (1, 1), "one effect");
}

/// The interleaving that a look at a table would get wrong: the resolver asks while the twin is
/// still in its transaction, and the twin's COMMIT reaches the server later.
async fn a_twin_still_in_progress_is_waited_for(cluster: Cluster) {
    let story = Story::on(cluster).await;
    story.proxy.arm(Fault::Hold);
    let commit_later = async {
        story.db.wait_until("wait_event_type = 'Lock'").await;
        assert_eq!(story.db.things().await, 0, "nothing to be seen yet");
        story.proxy.let_go();
    };
    let (value, ()) = futures_util::future::join(story.run(|_| {}), commit_later).await;
    assert_eq!(value.unwrap(), 1);
    assert_eq!((story.runs(), story.db.things().await), (1, 1), "one effect");
}

/// The same, but the twin's session ends without COMMIT.
async fn a_twin_that_will_never_commit_is_run_again(cluster: Cluster) {
    let story = Story::on(cluster).await;
    story.proxy.arm(Fault::Hold);
    let end_later = async {
        story.db.wait_until("wait_event_type = 'Lock'").await;
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND state = 'idle in transaction'";
        story.db.admin.execute(end, &[]).await.unwrap();
    };
    let (value, ()) = futures_util::future::join(story.run(|_| {}), end_later).await;
    assert_eq!(value.unwrap(), 2);
    assert_eq!((story.runs(), story.db.things().await), (2, 1), "one effect");
}

async fn a_lost_commit_on_a_cold_database_makes_its_partition(cluster: Cluster) {
    let db = cluster.database().await;
    let proxy = Proxy::before(cluster.port()).await;
    let story = Story {
        db,
        proxy,
        runs: AtomicU32::new(0),
    };
    story.proxy.arm(Fault::After);
    // The first COMMIT is the one that makes the partition, as the owner. Its loss is no reason to
    // tell the caller anything.
    story.run(|_| {}).await.unwrap();
    assert_eq!(story.db.things().await, 1);
}

async fn what_cannot_be_resolved_is_unknown_and_can_be_asked_again(cluster: Cluster) {
    for (fault, verdict, things) in [
        (Fault::After, Verdict::Committed, 1),
        (Fault::Before, Verdict::RolledBack, 0),
    ] {
        let story = Story::on(cluster.clone()).await;
        // The only connection is lost with COMMIT, and the resolver gets no other.
        story.proxy.arm_and_close(fault);
        let result = story
            .run(|settings| {
                settings.resolve_timeout = Duration::from_millis(600);
                settings.pool_size = [(Role::App, 1)].into();
            })
            .await;
        let Err(Error::Unknown { token, source }) = &result else {
            panic!("{result:?}")
        };
        assert!(matches!(**source, Error::CommitLost { .. }));
        let error = result.as_ref().unwrap_err();
        assert_eq!(error.class(), Class::Other);
        assert!(error.to_string().contains(&token.to_string()), "{error}");
        // Not run again, whatever became of it.
        assert_eq!(story.runs(), 1);
        let token: Token = token.to_string().parse().unwrap();
        for _ in 0..2 {
            assert_eq!(story.db.database.resolve(token).await.unwrap(), verdict);
        }
        assert_eq!(story.db.things().await, things);
    }
}

/// Its partition has been dropped; made anew and empty it would say "rolled back".
async fn a_token_of_long_ago_is_never_guessed(cluster: Cluster) {
    let db = cluster.database().await;
    db.database.maintain_outcomes().await.unwrap();
    let token: Token = "0192f0c1-2345-7000-8000-000000000000".parse().unwrap();
    let error = db.database.resolve(token).await.expect_err("nobody knows");
    assert!(matches!(error, Error::TokenOutOfRange { .. }), "{error}");
}

async fn the_first_answer_stands(cluster: Cluster) {
    let db = cluster.database().await;
    db.database.maintain_outcomes().await.unwrap();
    // A token that nobody wrote: the question makes sure that nobody will.
    let token: Token = fresh_token().parse().unwrap();
    let (a, b) = futures_util::future::join(db.database.resolve(token), db.database.resolve(token)).await;
    assert_eq!((a.unwrap(), b.unwrap()), (Verdict::RolledBack, Verdict::RolledBack));
    let sql = "SELECT count(*) FROM counterfoil.outcome WHERE verdict = 'rolled_back'";
    assert_eq!(db.admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 1);
}

/// All of it once more behind PgBouncer, where the session that resolves is not ours to choose.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_pgbouncer_a_lost_commit_is_resolved_as_well() {
    let bouncer = Cluster {
        admin: variable_of("COUNTERFOIL_TEST_PGBOUNCER").parse().unwrap(),
    };
    for (fault, runs) in [(Fault::Before, 2), (Fault::After, 1)] {
        let mut story = Story::on(Cluster::pg15()).await;
        story.proxy = Proxy::before(bouncer.port()).await;
        story.proxy.arm(fault);
        story
            .run(|settings| settings.pooler = Pooler::Transaction)
            .await
            .unwrap();
        assert_eq!((story.runs(), story.db.things().await), (runs, 1), "{fault:?}");
    }
}

/// The text of a UUIDv7 of now.
fn fresh_token() -> String {
    let ms = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let hex = format!("{ms:012x}");
    format!("{}-{}-7abc-8abc-0123456789ab", &hex[..8], &hex[8..])
}
