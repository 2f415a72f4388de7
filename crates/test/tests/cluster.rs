use counterfoil_pg::{Database, Role, Scope, Sql, attempt};
use counterfoil_tenant::{NewTenant, create};
use counterfoil_test::{Server, TestCluster};

static COUNT: &Sql = &Sql {
    name: "count",
    text: "SELECT count(*) FROM counterfoil.tenant",
    params: &[],
};

const ALL: &Scope = &Scope::Installation;

async fn add(db: &Database) {
    let new = NewTenant::new("x").unwrap();
    db.pool(Role::Ops)
        .run(ALL, |tx| attempt(create(ALL, tx, &new)))
        .await
        .unwrap()
        .unwrap();
}

async fn count(db: &Database) -> i64 {
    let tx = db.pool(Role::Ops).begin(ALL).await.unwrap();
    tx.query_one(COUNT, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn what_was_committed_outlives_every_way_to_stop() {
    for server in Server::DIRECT {
        let mut cluster = TestCluster::start(server, &[]).await;
        let db = cluster.database("shop").await;
        add(&db).await;
        cluster.stop_immediately().await;
        assert!(db.pool(Role::Ops).begin(ALL).await.is_err());
        cluster.restart().await;
        // The same pools: the port has stayed.
        assert_eq!(count(&db).await, 1);
        add(&db).await;
        cluster.kill().await;
        cluster.restart().await;
        assert_eq!(count(&db).await, 2);
    }
}

#[tokio::test]
async fn settings_reach_the_server() {
    let cluster = TestCluster::start(
        Server::Pg18,
        &[("synchronous_commit", "off"), ("wal_writer_delay", "10s")],
    )
    .await;
    let db = cluster.database("shop").await;
    let found = db.durability().await.unwrap();
    assert_eq!((found.synchronous_commit.as_str(), found.fsync), ("off", false));
}
