use counterfoil_migrate::{State, require, status};
use counterfoil_pg::{Tls, connect_admin};
use counterfoil_test::{Server, database, empty_database, migrations};

async fn is_there(server: Server, name: &str) -> bool {
    let admin = connect_admin(&server.admin(), &Tls::default()).await.unwrap();
    admin
        .query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&name])
        .await
        .unwrap()
        .is_some()
}

#[tokio::test]
async fn a_test_database_has_every_migration_and_goes_away() {
    for server in Server::ALL {
        let test = database(server).await;
        let db = test.database();
        require(&db, &migrations()).await.unwrap();
        let states = status(&db, &migrations()).await.unwrap();
        assert!(
            states.iter().all(|status| matches!(status.state, State::Applied(_))),
            "{states:?}"
        );
        let name = test.name.clone();
        assert!(is_there(server, &name).await);
        // With connections still open in it.
        drop(test);
        assert!(!is_there(server, &name).await, "{server:?}");
    }
}

#[tokio::test]
async fn two_tests_do_not_see_each_other() {
    let (one, two) = (database(Server::Pg15).await, database(Server::Pg15).await);
    one.tenant("a").await;
    let count = async |test: &counterfoil_test::TestDatabase| -> i64 {
        test.admin()
            .await
            .query_one("SELECT count(*) FROM counterfoil.tenant", &[])
            .await
            .unwrap()
            .get(0)
    };
    assert_eq!((count(&one).await, count(&two).await), (1, 0));
}

#[tokio::test]
async fn an_empty_database_is_empty() {
    let test = empty_database(Server::Pg18).await;
    let admin = test.admin().await;
    let row = admin
        .query_one("SELECT to_regnamespace('counterfoil') IS NULL", &[])
        .await
        .unwrap();
    assert!(row.get::<_, bool>(0));
}

#[test]
fn a_test_database_goes_away_where_there_is_no_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let test = runtime.block_on(database(Server::Pg15));
    let name = test.name.clone();
    drop(test);
    assert!(!runtime.block_on(is_there(Server::Pg15, &name)));
}
