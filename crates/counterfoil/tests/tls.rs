//! Encryption, from the command line to the server's own word for it. On Debian's PostgreSQL 15: the
//! one that is brought along has none.

use std::fs;
use std::path::PathBuf;

use counterfoil_pg::{Client, Tls, connect_admin};
use counterfoil_test::{Server, TestCluster};
use serde_json::{Value, json};

use crate::folders::url;
use crate::harness::{Home, Up, fresh, open_books, until};

const UP: [&str; 3] = ["up", "--listen", "127.0.0.1:0"];

/// Another authority, of which the server has nothing.
const STRANGER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../pg/tests/stranger.crt");

/// Who signed the certificate of the server.
fn authority() -> String {
    std::env::var("COUNTERFOIL_TEST_PG15_CA").expect("run the tests as `scripts/with-servers cargo test`")
}

/// A server that listens to nobody over the network but who encrypts, and the superuser in it, who
/// came before that was so.
#[allow(clippy::disallowed_methods, reason = "the administrator looks from outside")]
async fn encrypted_only() -> (TestCluster, Client) {
    let authority = PathBuf::from(authority());
    let beside = |name| authority.with_file_name(name).display().to_string();
    let (certificate, key) = (beside("server.crt"), beside("server.key"));
    let settings = [("ssl", "on"), ("ssl_cert_file", &certificate), ("ssl_key_file", &key)];
    let cluster = TestCluster::start(Server::Pg15, &settings).await;
    let admin = connect_admin(&cluster.admin(), &Tls::default()).await.unwrap();
    let rules: String = admin.query_one("SHOW hba_file", &[]).await.unwrap().get(0);
    fs::write(rules, "hostssl all all 127.0.0.1/32 scram-sha-256\n").unwrap();
    admin.batch_execute("SELECT pg_catalog.pg_reload_conf()").await.unwrap();
    until("plain text is refused", async || {
        connect_admin(&cluster.admin(), &Tls::default()).await.is_err()
    })
    .await;
    (cluster, admin)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "the administrator looks from outside")]
async fn a_server_that_takes_encrypted_connections_only_is_served_with_verify_full() {
    let (cluster, admin) = encrypted_only().await;
    let url = url(&cluster.admin(), "shop");
    let authority = authority();
    let full = ["--tls", "verify-full", "--tls-root-cert", &authority];
    let home = Home::new();
    let init = ["init", "--create-database", "--database-url", &url];
    home.ok(&[&init[..], &full].concat()).await;
    let made = home
        .ok(&[&["tenant", "create", "one", "--format", "json"][..], &full].concat())
        .await;
    let tenant = made.parse::<Value>().unwrap()["id"].as_i64().unwrap();
    let key = home.ok(&[&["key", "create"][..], &full].concat()).await;

    let up = Up::start(&home, &full).await;
    let mut client = up.client(counterfoil_pg::TenantId(tenant), key.trim());
    open_books(&mut client, &["till"]).await;
    let body = json!({ "key": fresh(), "from": "bank", "to": "till", "amount": "1" });
    assert_eq!(client.post("/transfers", &body).await.status, 201);
    assert_eq!(client.account("till", "posted").await, "1.00");
    assert_eq!(client.send("GET", "/readyz", &[], b"").await.unwrap().status, 200);
    let sessions = "SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl)
                      FROM pg_stat_activity JOIN pg_stat_ssl USING (pid)
                     WHERE usename LIKE 'counterfoil\\_%'";
    let row = admin.query_one(sessions, &[]).await.unwrap();
    let (encrypted, plain): (i64, i64) = (row.get(0), row.get(1));
    assert!(encrypted > 0 && plain == 0, "{encrypted} encrypted, {plain} not");
    up.stop().await;

    // Plain text does not get in, and what would is said.
    for command in [&UP[..], &["tenant", "list"]] {
        home.run(command)
            .await
            .could_not_run(&["does not let counterfoil_", "in: ", "tls"]);
    }
    // An authority that knows nothing of the server, as each of them who asks.
    let stranger = ["--tls", "verify-full", "--tls-root-cert", STRANGER];
    for command in [&UP[..], &["tenant", "list"], &init] {
        home.run(&[command, &stranger].concat())
            .await
            .could_not_run(&["no encrypted connection", "check that tls_root_cert vouches"]);
    }
    // And none at all.
    home.run(&[&UP[..], &["--tls", "verify-full"]].concat())
        .await
        .could_not_run(&["set tls_root_cert"]);
}
