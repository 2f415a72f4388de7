use counterfoil_migrate::{Error, State, Status, init, require, run, status};
use counterfoil_pg::{Database, Role, Tls};
use counterfoil_test::{Server, TestDatabase, empty_database};

use crate::init::wanted;

type List = &'static [(&'static str, &'static str)];

const ONE: List = &[(
    "x/0001_thing",
    "CREATE TABLE counterfoil.thing (id bigint PRIMARY KEY);
     INSERT INTO counterfoil.thing VALUES (1), (2);
     GRANT SELECT ON counterfoil.thing TO counterfoil_ops;",
)];

const TWO: List = &[
    ONE[0],
    ("x/0002_more", "ALTER TABLE counterfoil.thing ADD COLUMN name text"),
];

async fn initialised(server: Server) -> (TestDatabase, Database) {
    let test = empty_database(server).await;
    init(&test.admin_config(), &Tls::default(), &wanted(&test.name))
        .await
        .unwrap();
    let db = test.database();
    (test, db)
}

async fn things(test: &TestDatabase) -> i64 {
    test.admin()
        .await
        .query_one("SELECT count(*) FROM counterfoil.thing", &[])
        .await
        .unwrap()
        .get(0)
}

#[tokio::test]
async fn applied_twice_they_change_nothing() {
    for server in Server::ALL {
        let (test, db) = initialised(server).await;
        assert_eq!(
            run(&db, &[ONE]).await.unwrap(),
            ["migrate/0001_migration", "x/0001_thing"]
        );
        let first = status(&db, &[ONE]).await.unwrap();
        assert_eq!(run(&db, &[ONE]).await.unwrap(), [""; 0]);
        assert_eq!(status(&db, &[ONE]).await.unwrap(), first);
        assert!(
            first.iter().all(|status| matches!(status.state, State::Applied(_))),
            "{first:?}"
        );
        assert_eq!(things(&test).await, 2);
        require(&db, &[ONE]).await.unwrap();
        // Those of a later version follow.
        assert_eq!(run(&db, &[TWO]).await.unwrap(), ["x/0002_more"]);
    }
}

#[tokio::test]
async fn many_servers_at_once_apply_each_once() {
    for server in Server::DIRECT {
        let (test, _) = initialised(server).await;
        let servers: Vec<_> = (0..6)
            .map(|_| {
                let db = test.database();
                tokio::spawn(async move { run(&db, &[TWO]).await.unwrap() })
            })
            .collect();
        let mut applied = Vec::new();
        for server in servers {
            applied.extend(server.await.unwrap());
        }
        applied.sort_unstable();
        assert_eq!(applied, ["migrate/0001_migration", "x/0001_thing", "x/0002_more"]);
        assert_eq!(things(&test).await, 2);
    }
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_left_alone() {
    let (_test, db) = initialised(Server::Pg15).await;
    run(&db, &[TWO]).await.unwrap();
    for error in [
        run(&db, &[ONE]).await.unwrap_err(),
        require(&db, &[ONE]).await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, Error::Newer { name, .. } if name == "x/0002_more"),
            "{error}"
        );
    }
    let states = status(&db, &[ONE]).await.unwrap();
    assert!(
        matches!(&states[2], Status { name, state: State::Newer(_) } if name == "x/0002_more"),
        "{states:?}"
    );
}

#[tokio::test]
async fn a_migration_whose_text_has_changed_is_refused() {
    const CHANGED: List = &[
        ("x/0001_thing", "CREATE TABLE counterfoil.other ()"),
        ("x/0002_more", "SELECT 1"),
    ];
    let (test, db) = initialised(Server::Pg15).await;
    run(&db, &[ONE]).await.unwrap();
    for error in [
        run(&db, &[CHANGED]).await.unwrap_err(),
        require(&db, &[CHANGED]).await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, Error::Changed { name, .. } if name == "x/0001_thing"),
            "{error}"
        );
    }
    let other = test
        .admin()
        .await
        .query_one("SELECT to_regclass('counterfoil.other') IS NULL", &[])
        .await
        .unwrap();
    assert!(other.get::<_, bool>(0));
}

#[tokio::test]
async fn a_server_that_finds_no_schema_or_an_old_one_says_what_to_do() {
    // The roles belong to the whole server, so that they may be there before the schema is.
    let (_other, _) = initialised(Server::Pg15).await;
    let test = empty_database(Server::Pg15).await;
    let db = test.database();
    let error = require(&db, &[ONE]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "database {} has no schema of Counterfoil: run `counterfoil init`",
            test.name
        )
    );

    // Initialised but never migrated.
    init(&test.admin_config(), &Tls::default(), &wanted(&test.name))
        .await
        .unwrap();
    assert!(matches!(require(&db, &[ONE]).await, Err(Error::Uninitialised { .. })));

    run(&db, &[ONE]).await.unwrap();
    let error = require(&db, &[TWO]).await.unwrap_err();
    assert!(
        matches!(&error, Error::Behind { missing: 1, first, .. } if first == "x/0002_more"),
        "{error}"
    );
}

#[tokio::test]
async fn a_migration_that_fails_leaves_nothing() {
    const BROKEN: List = &[(
        "x/0001_broken",
        "CREATE TABLE counterfoil.thing (); SELECT 1/0; CREATE TABLE counterfoil.other ()",
    )];
    let (test, db) = initialised(Server::Pg18).await;
    let error = run(&db, &[BROKEN]).await.unwrap_err();
    assert!(
        matches!(&error, Error::Migration { name, source } if name == "x/0001_broken" && source.sqlstate() == Some("22012")),
        "{error:?}"
    );
    let row = test
        .admin()
        .await
        .query_one("SELECT to_regclass('counterfoil.thing') IS NULL", &[])
        .await
        .unwrap();
    assert!(row.get::<_, bool>(0));
    // The same name, mended: it had not been recorded.
    assert_eq!(
        run(&db, &[&[("x/0001_broken", "SELECT 1")]]).await.unwrap(),
        ["x/0001_broken"]
    );
}

#[tokio::test]
async fn a_reply_to_commit_that_is_lost_is_found_out() {
    let (test, db) = initialised(Server::Pg15).await;
    run(&db, &[]).await.unwrap();
    let proxy = test.proxy().await;
    let through = test.database_through(&proxy);
    let owner = proxy.role(Role::Owner);

    let lost = owner.cut_after_commit(1);
    // Its twin was committed: somebody has applied it, and nobody does so again.
    assert_eq!(run(&through, &[ONE]).await.unwrap(), [""; 0]);
    assert!(lost.has_fired());
    assert_eq!(things(&test).await, 2);

    let never_sent = owner.cut_before_commit(1);
    assert_eq!(run(&through, &[TWO]).await.unwrap(), ["x/0002_more"]);
    assert!(never_sent.has_fired());
    require(&db, &[TWO]).await.unwrap();
}

#[tokio::test]
async fn a_lock_that_somebody_holds_is_asked_for_again_and_again() {
    let (test, db) = initialised(Server::Pg15).await;
    run(&db, &[ONE]).await.unwrap();
    let mut reader = test.admin().await;
    let reading = reader.transaction().await.unwrap();
    reading.query("SELECT FROM counterfoil.thing", &[]).await.unwrap();

    let proxy = test.proxy().await;
    let through = test.database_through(&proxy);
    let second = proxy.role(Role::Owner).hold_text("ALTER TABLE counterfoil.thing", 2);
    let migrating = tokio::spawn(async move { run(&through, &[TWO]).await });
    // The first attempt has given up, so that others got through; only now does the lock come free.
    second.reached().await;
    reading.commit().await.unwrap();
    second.release();
    assert_eq!(migrating.await.unwrap().unwrap(), ["x/0002_more"]);
}
