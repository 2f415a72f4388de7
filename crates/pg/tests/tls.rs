//! Encryption: who is believed, and who is not. On Debian's PostgreSQL 15.

use std::path::PathBuf;

use counterfoil_pg::{Database, Error, Role, Scope, Settings, Sql, Tls, TlsMode};

use crate::cluster::{Cluster, TestDb, variable_of};

static ENCRYPTED: &Sql = &Sql {
    name: "encrypted",
    text: "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
    params: &[],
};

async fn connects(db: &TestDb, host: &str, mode: TlsMode, root: Option<&str>) -> Result<bool, Error> {
    let mut settings = db.settings.clone();
    settings.host = host.to_owned();
    settings.tls = Tls {
        mode,
        root_cert: root.map(PathBuf::from),
    };
    let database = Database::new(settings)?;
    let tx = database.pool(Role::App).begin(&Scope::Installation).await?;
    Ok(tx.query_one(ENCRYPTED, &[]).await?.get(0))
}

/// Another authority, of which the server has nothing.
const STRANGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stranger.crt");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_mode_believes_whom_it_should() {
    let db = Cluster::pg15().database().await;
    let ca = variable_of("COUNTERFOIL_TEST_PG15_CA");
    let ca = Some(ca.as_str());
    let at = |host, mode, root| connects(&db, host, mode, root);

    assert!(!at("127.0.0.1", TlsMode::Disable, None).await.unwrap());
    assert!(
        at("127.0.0.1", TlsMode::Require, None).await.unwrap(),
        "any certificate will do"
    );
    assert!(at("127.0.0.1", TlsMode::Require, ca).await.unwrap());
    assert!(at("127.0.0.1", TlsMode::VerifyFull, ca).await.unwrap());
    assert!(at("localhost", TlsMode::VerifyFull, ca).await.unwrap());
    // The certificate does not carry this name: `require` does not mind, `verify-full` does.
    assert!(
        at("127.0.0.2", TlsMode::Require, ca).await.is_err(),
        "nobody listens there"
    );

    for mode in [TlsMode::Require, TlsMode::VerifyFull] {
        let error = at("127.0.0.1", mode, Some(STRANGER)).await.expect_err("a stranger");
        assert!(error.to_string().starts_with("no encrypted connection"), "{error}");
    }
}

#[test]
fn a_root_certificate_that_cannot_be_used_is_named() {
    let with = |mode, root_cert: Option<&str>| {
        let mut settings = Settings::new("localhost", 5432, "shop");
        settings.tls = Tls {
            mode,
            root_cert: root_cert.map(PathBuf::from),
        };
        match Database::new(settings) {
            Ok(_) => panic!("accepted"),
            Err(error) => error.to_string(),
        }
    };
    assert!(with(TlsMode::VerifyFull, None).contains("set tls_root_cert"));
    let missing = with(TlsMode::Require, Some("/no/such/file.pem"));
    assert!(missing.contains("readable PEM file"), "{missing}");
    let empty = with(
        TlsMode::Require,
        Some(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
    );
    assert!(empty.contains("at least one CERTIFICATE"), "{empty}");
}
