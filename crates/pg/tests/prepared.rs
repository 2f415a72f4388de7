//! Prepared statements: forgotten when they go stale, never named behind a pooler.

use counterfoil_pg::{Class, Pooler, Role, Sql, Type, attempt};

use crate::cluster::{BACKEND, Cluster, ONE, THING_LIST, insert, variable_of};
use crate::on_both;
use crate::proxy::Proxy;

on_both!(
    a_statement_is_prepared_once_per_connection,
    after_ddl_a_stale_plan_is_prepared_again,
    after_deallocate_all_statements_are_prepared_again,
    a_missing_parameter_is_said_without_asking_the_server,
);

static WHOLE_THING: &Sql = &Sql {
    name: "whole_thing",
    text: "SELECT * FROM counterfoil.thing",
    params: &[],
};

async fn a_statement_is_prepared_once_per_connection(cluster: Cluster) {
    let db = cluster.database().await;
    let proxy = Proxy::before(cluster.port()).await;
    let narrow = db.with(|settings| {
        settings.port = proxy.port;
        settings.pool_size = [(Role::App, 1)].into();
    });
    for id in 0..3 {
        let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
        insert(&tx, 1, id).await.unwrap();
        tx.query(THING_LIST, &[]).await.unwrap();
        tx.commit().await.unwrap();
    }
    // The look at the session, the insert and the list: each named once, and beside that sent
    // unnamed the first time, so that nothing waits for Parse.
    let sent = proxy.sent();
    let (unnamed, named): (Vec<_>, Vec<_>) = sent
        .iter()
        .filter(|(kind, _)| *kind == b'P')
        .partition(|(_, body)| body[0] == 0);
    assert_eq!((named.len(), unnamed.len()), (3, 3));
}

async fn after_ddl_a_stale_plan_is_prepared_again(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.narrow();
    let pool = narrow.pool(Role::App);
    let tx = pool.begin(&ONE).await.unwrap();
    let before: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
    tx.query(WHOLE_THING, &[]).await.unwrap();
    tx.commit().await.unwrap();

    let ddl = "ALTER TABLE counterfoil.thing ADD COLUMN more text";
    db.admin.batch_execute(ddl).await.unwrap();
    let tx = pool.begin(&ONE).await.unwrap();
    let error = tx
        .query(WHOLE_THING, &[])
        .await
        .expect_err("cached plan must not change");
    assert_eq!((error.sqlstate(), error.class()), (Some("0A000"), Class::Reprepare));
    drop(tx);
    let tx = pool.begin(&ONE).await.unwrap();
    tx.query(WHOLE_THING, &[]).await.expect("prepared again");
    let after: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
    assert_eq!(before, after, "on the same connection");
    tx.commit().await.unwrap();

    // `run` does that by itself.
    db.admin
        .batch_execute("ALTER TABLE counterfoil.thing DROP COLUMN more")
        .await
        .unwrap();
    pool.run(&ONE, |tx| attempt(async move { tx.query(WHOLE_THING, &[]).await }))
        .await
        .unwrap();
}

async fn after_deallocate_all_statements_are_prepared_again(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.narrow();
    let pool = narrow.pool(Role::App);
    let tx = pool.begin(&ONE).await.unwrap();
    tx.query(THING_LIST, &[]).await.unwrap();
    tx.batch("DEALLOCATE ALL").await.unwrap();
    let error = tx.query(THING_LIST, &[]).await.expect_err("unknown to the server");
    assert_eq!((error.sqlstate(), error.class()), (Some("26000"), Class::Reprepare));
    assert!(error.to_string().contains("pooler = transaction"), "{error}");
    drop(tx);
    let tx = pool.begin(&ONE).await.unwrap();
    tx.query(THING_LIST, &[]).await.unwrap();
    // Outside of any transaction of ours, so that even the next look at the session fails.
    tx.batch("DEALLOCATE ALL").await.unwrap();
    tx.commit().await.unwrap();
    pool.begin(&ONE).await.expect("another connection").rollback().await;
}

async fn a_missing_parameter_is_said_without_asking_the_server(cluster: Cluster) {
    let db = cluster.database().await;
    for pooler in [Pooler::None, Pooler::Transaction] {
        let database = db.with(|settings| settings.pooler = pooler);
        let tx = database.pool(Role::App).begin(&ONE).await.unwrap();
        let error = tx.query(crate::cluster::THING_INSERT, &[&1i64]).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "statement thing_insert takes 2 parameters, and was given 1"
        );
        tx.commit().await.expect("nothing was sent, nothing failed");
    }
}

/// Every message between us and PgBouncer is looked at: a statement is never named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_named_statement_reaches_pgbouncer() {
    static NAMED: &Sql = &Sql {
        name: "named",
        text: "SELECT count(*) FROM pg_prepared_statements",
        params: &[],
    };
    static SUM: &Sql = &Sql {
        name: "sum",
        text: "SELECT $1 + $2, $3::text[]",
        params: &[Type::INT8, Type::INT8, Type::TEXT_ARRAY],
    };
    let db = Cluster::pg15().database().await;
    db.database.maintain_outcomes().await.unwrap();
    let bouncer = Cluster {
        admin: variable_of("COUNTERFOIL_TEST_PGBOUNCER").parse().unwrap(),
    };
    let proxy = Proxy::before(bouncer.port()).await;
    let through = db.with(|settings| {
        settings.port = proxy.port;
        settings.pooler = Pooler::Transaction;
    });
    let pool = through.pool(Role::App);
    for id in 0..4i64 {
        pool.run(&ONE, move |tx| {
            attempt(async move {
                assert_eq!(insert(tx, 1, id).await?, 1);
                let rows = tx.query(THING_LIST, &[]).await?;
                assert_eq!(rows.len() as i64, id + 1);
                let texts = vec!["a".to_owned()];
                let row = tx.query_one(SUM, &[&1i64, &2i64, &texts]).await?;
                assert_eq!((row.get::<_, i64>(0), row.get::<_, Vec<String>>(1)), (3, texts));
                let named: i64 = tx.query_one(NAMED, &[]).await?.get(0);
                assert_eq!(named, 0);
                Ok(())
            })
        })
        .await
        .unwrap();
    }
    let _ = pool.begin(&ONE).await.unwrap().query(BACKEND, &[&1i64]).await;
    through.maintain_outcomes().await.unwrap();
    let sent = proxy.sent();
    let parsed: Vec<_> = sent.iter().filter(|(kind, _)| *kind == b'P').collect();
    assert!(parsed.len() > 20, "{}", parsed.len());
    for (_, body) in parsed {
        assert_eq!(body[0], 0, "a named statement: {}", String::from_utf8_lossy(body));
    }
    for (kind, body) in &sent {
        // Bind names the portal, then the statement; Describe and Close name one or the other.
        match kind {
            b'B' => assert_eq!(&body[..2], [0, 0]),
            b'D' | b'C' => assert_eq!(body[1], 0),
            _ => {}
        }
    }
}
