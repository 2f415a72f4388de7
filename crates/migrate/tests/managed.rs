//! Where there is no superuser: in clusters of their own, because roles belong to the whole cluster.

use counterfoil_migrate::{Error, Init, init, require, run};
use counterfoil_pg::{Client, Config, Database, MIGRATIONS, Tls, connect_admin};
use counterfoil_test::{Server, TestCluster};

use crate::init::{made, wanted};

async fn administrator(cluster: &TestCluster, attributes: &str) -> (Client, Config) {
    let superuser = connect_admin(&cluster.admin(), &Tls::default()).await.unwrap();
    superuser
        .batch_execute(&format!("CREATE ROLE boss LOGIN PASSWORD 'boss' {attributes}"))
        .await
        .unwrap();
    let mut boss = cluster.admin();
    boss.user("boss").password("boss");
    (superuser, boss)
}

async fn an_administrator_without_superuser(server: Server, attributes: &str) {
    let cluster = TestCluster::start(server, &[]).await;
    let (superuser, boss) = administrator(&cluster, attributes).await;
    let wanted = Init {
        create_database: true,
        ..wanted("shop")
    };
    init(&boss, &Tls::default(), &wanted).await.unwrap();
    let mut inside = boss.clone();
    inside.dbname("shop");
    let first = made(&connect_admin(&inside, &Tls::default()).await.unwrap()).await;
    init(&boss, &Tls::default(), &wanted).await.unwrap();
    assert_eq!(
        made(&connect_admin(&inside, &Tls::default()).await.unwrap()).await,
        first
    );

    let db = Database::new(cluster.settings("shop")).unwrap();
    run(&db, &[MIGRATIONS]).await.unwrap();
    require(&db, &[MIGRATIONS]).await.unwrap();
    db.close();

    // What was lent for the length of init has been given back.
    let right = if server == Server::Pg15 { "MEMBER" } else { "SET" };
    let row = superuser
        .query_one("SELECT pg_has_role('boss', 'counterfoil_owner', $1)", &[&right])
        .await
        .unwrap();
    assert!(!row.get::<_, bool>(0));
}

#[tokio::test]
async fn an_administrator_with_createrole_is_enough_on_15() {
    an_administrator_without_superuser(Server::Pg15, "CREATEROLE CREATEDB").await;
}

#[tokio::test]
async fn an_administrator_with_createrole_is_enough_on_18() {
    an_administrator_without_superuser(Server::Pg18, "CREATEROLE CREATEDB").await;
}

#[tokio::test]
async fn an_administrator_who_inherits_nothing_is_enough_on_15() {
    an_administrator_without_superuser(Server::Pg15, "CREATEROLE CREATEDB NOINHERIT").await;
}

#[tokio::test]
async fn an_administrator_who_inherits_nothing_is_enough_on_18() {
    an_administrator_without_superuser(Server::Pg18, "CREATEROLE CREATEDB NOINHERIT").await;
}

#[tokio::test]
async fn what_an_administrator_may_not_do_is_one_sentence() {
    let cluster = TestCluster::start(Server::Pg18, &[]).await;
    let (superuser, mut boss) = administrator(&cluster, "").await;
    superuser.batch_execute("CREATE DATABASE shop").await.unwrap();
    boss.dbname("shop");
    let wanted = wanted("shop");
    let refused = async || init(&boss, &Tls::default(), &wanted).await.unwrap_err();

    let error = refused().await;
    assert!(
        matches!(&error, Error::NotAdministrator { user } if user == "boss"),
        "{error}"
    );

    superuser.batch_execute("ALTER ROLE boss CREATEROLE").await.unwrap();
    let error = refused().await;
    assert!(matches!(&error, Error::NoSchemaRight { .. }), "{error}");
    let made: i64 = superuser
        .query_one("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'counterfoil%'", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(made, 0, "all or nothing");

    superuser
        .batch_execute("GRANT CREATE ON DATABASE shop TO boss; CREATE ROLE counterfoil_ops LOGIN")
        .await
        .unwrap();
    let error = refused().await;
    assert!(
        matches!(
            &error,
            Error::NotOurRole {
                role: "counterfoil_ops",
                ..
            }
        ),
        "{error}"
    );

    superuser
        .batch_execute("GRANT counterfoil_ops TO boss WITH ADMIN TRUE; ALTER ROLE counterfoil_ops BYPASSRLS")
        .await
        .unwrap();
    let error = refused().await;
    assert!(
        matches!(
            &error,
            Error::PassesWalls {
                role: "counterfoil_ops"
            }
        ),
        "{error}"
    );

    // A superuser mends it.
    init(&cluster.admin(), &Tls::default(), &wanted).await.unwrap();
    let passes: bool = superuser
        .query_one(
            "SELECT bool_or(rolbypassrls) FROM pg_roles WHERE rolname LIKE 'counterfoil%'",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert!(!passes);
}
