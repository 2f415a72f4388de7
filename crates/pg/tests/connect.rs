//! What goes wrong before there is a connection: one sentence, with a way out, without a secret.

use std::error::Error as _;
use std::time::Duration;

use counterfoil_pg::{Class, Database, Error, Role, Scope, Settings, Tls, TlsMode, connect_admin};
use tokio::net::TcpListener;

use crate::cluster::{Cluster, ONE, PASSWORD};
use crate::on_both;

on_both!(
    a_wrong_password,
    no_password,
    a_database_that_is_not_there,
    a_role_that_may_not_log_in,
    no_connection_left,
    a_pool_with_nothing_free,
    an_administrator_with_a_wrong_password,
);

async fn refused(database: &Database) -> Error {
    let result = database.pool(Role::App).begin(&Scope::Installation).await;
    let Err(error) = result else { panic!("a connection") };
    well_said(&error);
    error
}

/// One sentence; nothing of its source in it; no password anywhere.
fn well_said(error: &Error) {
    let sentence = error.to_string();
    assert!(!sentence.contains('\n'), "{sentence}");
    let mut source = error.source();
    while let Some(inner) = source {
        assert!(!sentence.contains(&inner.to_string()), "{sentence} repeats {inner}");
        source = inner.source();
    }
    let everything = format!("{error} {error:?}");
    assert!(!everything.contains("hunter2"), "{everything}");
}

async fn a_wrong_password(cluster: Cluster) {
    let db = cluster.database().await;
    let database = db.with(|settings| {
        settings.passwords.insert(Role::App, "hunter2".to_owned());
    });
    let error = refused(&database).await;
    assert_eq!((error.sqlstate(), error.class()), (Some("28P01"), Class::Other));
    assert!(error.to_string().contains("password of counterfoil_app"), "{error}");
}

async fn no_password(cluster: Cluster) {
    let db = cluster.database().await;
    let error = refused(&db.with(|settings| settings.passwords.clear())).await;
    assert_eq!(error.class(), Class::Other);
    assert!(error.to_string().contains("password of counterfoil_app"), "{error}");
}

async fn a_database_that_is_not_there(cluster: Cluster) {
    let db = cluster.database().await;
    let error = refused(&db.with(|settings| settings.dbname = "no_such_shop".to_owned())).await;
    assert_eq!((error.sqlstate(), error.class()), (Some("3D000"), Class::Other));
    assert!(
        error
            .to_string()
            .starts_with("there is no database no_such_shop at 127.0"),
        "{error}"
    );
}

/// As with a role that does not exist where pg_hba.conf trusts: 28000.
async fn a_role_that_may_not_log_in(cluster: Cluster) {
    let db = cluster.database().await;
    let name = format!("guest_{}", db.name);
    let make = format!("CREATE ROLE {name} NOLOGIN PASSWORD 'hunter2'");
    db.admin.batch_execute(&make).await.unwrap();
    let mut config = cluster.admin.clone();
    config.user(&name).password("hunter2").dbname(&db.name);
    let error = connect_admin(&config, &Tls::default())
        .await
        .expect_err("may not log in");
    db.admin.batch_execute(&format!("DROP ROLE {name}")).await.unwrap();
    well_said(&error);
    assert_eq!(error.sqlstate(), Some("28000"));
    assert!(error.to_string().contains("counterfoil init"), "{error}");
}

async fn no_connection_left(cluster: Cluster) {
    let db = cluster.database().await;
    let limit = format!("ALTER DATABASE {} CONNECTION LIMIT 0", db.name);
    db.admin.batch_execute(&limit).await.unwrap();
    let error = refused(&db.with(|_| {})).await;
    assert_eq!((error.sqlstate(), error.class()), (Some("53300"), Class::Reconnect));
    assert!(error.to_string().contains("max_connections"), "{error}");
}

async fn a_pool_with_nothing_free(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.with(|settings| {
        settings.pool_size = [(Role::App, 1)].into();
        settings.wait_timeout = Duration::from_millis(100);
    });
    let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
    let error = refused(&narrow).await;
    assert!(matches!(error, Error::PoolExhausted { size: 1, .. }), "{error}");
    assert_eq!(error.class(), Class::Reconnect, "there may be one in a moment");
    assert!(error.to_string().contains("make its pool larger"), "{error}");
    tx.rollback().await;
    narrow.close();
    assert!(matches!(refused(&narrow).await, Error::PoolClosed { .. }));
}

async fn an_administrator_with_a_wrong_password(cluster: Cluster) {
    let mut config = cluster.admin.clone();
    config.password("hunter2").dbname("postgres");
    let error = connect_admin(&config, &Tls::default()).await.expect_err("wrong");
    well_said(&error);
    assert!(error.to_string().contains("password of postgres"), "{error}");
}

#[tokio::test]
async fn nobody_listens() {
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let database = Database::new(Settings::new("127.0.0.1", port, "shop")).unwrap();
    let error = refused(&database).await;
    assert_eq!(error.class(), Class::Reconnect);
    let sentence = format!("cannot reach PostgreSQL at 127.0.0.1:{port}: start it, or correct");
    assert!(error.to_string().starts_with(&sentence), "{error}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve() {
    let database = Database::new(Settings::new("no-such-host.invalid", 5432, "shop")).unwrap();
    let error = refused(&database).await;
    assert!(error.to_string().starts_with("cannot reach"), "{error}");
}

#[tokio::test]
async fn somebody_listens_and_says_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = Settings::new("127.0.0.1", listener.local_addr().unwrap().port(), "shop");
    settings.connect_timeout = Duration::from_millis(100);
    let error = refused(&Database::new(settings).unwrap()).await;
    assert_eq!(error.class(), Class::Reconnect);
    assert!(error.to_string().contains("did not answer within 0.1 s"), "{error}");
}

#[tokio::test]
async fn the_server_knows_no_tls() {
    let cluster = Cluster::pg18();
    let mut settings = Settings::new("127.0.0.1", cluster.port(), "postgres");
    settings.passwords.insert(Role::App, PASSWORD.to_owned());
    settings.tls.mode = TlsMode::Require;
    let error = refused(&Database::new(settings).unwrap()).await;
    assert_eq!(error.class(), Class::Other);
    assert!(error.to_string().starts_with("no encrypted connection"), "{error}");
}

/// Of what speaks first, and of what answers a question it does not understand.
#[tokio::test]
async fn what_is_not_postgresql_is_told_apart_from_what_is_not_there() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    for answer in [
        "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2p1\r\n",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stranger = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let database = Database::new(Settings::new("127.0.0.1", port, "shop")).unwrap();
        let error = refused(&database).await;
        assert!(
            error.to_string().contains("is not PostgreSQL: correct the host"),
            "{answer:?}: {error}"
        );
        stranger.abort();
    }
}
