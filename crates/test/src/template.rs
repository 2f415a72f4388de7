//! The database that every test's own is a copy of.

use std::collections::BTreeMap;
use std::time::Duration;

use counterfoil_migrate::{Existing, Init};
use counterfoil_pg::{Client, Database, Role, Settings, Tls, connect_admin};
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use crate::Server;

/// The password of each of the five roles.
pub const PASSWORD: &str = "secret";

/// "cftest" and a one. Session-level, in database `postgres`, where the product never locks anything.
const LOCK: i64 = 0x0063_6674_6573_7401;

/// Every migration, in the order of the crates.
#[must_use]
pub fn migrations() -> Vec<&'static [(&'static str, &'static str)]> {
    vec![
        counterfoil_pg::MIGRATIONS,
        counterfoil_tenant::MIGRATIONS,
        counterfoil_intent::MIGRATIONS,
        counterfoil_events::MIGRATIONS,
        counterfoil_ledger::MIGRATIONS,
    ]
}

pub(crate) fn passwords() -> BTreeMap<Role, String> {
    Role::ALL.into_iter().map(|role| (role, PASSWORD.to_owned())).collect()
}

/// The name of the template on this server, which is there when this returns.
///
/// The name is made of what went into it: another version of a migration is another template, so a
/// server may live as long as it likes. Test processes run side by side, and the first makes it.
pub(crate) async fn template(server: Server) -> &'static str {
    static PG15: OnceCell<String> = OnceCell::const_new();
    static PG18: OnceCell<String> = OnceCell::const_new();
    let cell = match server {
        Server::Pg15 | Server::PgBouncer => &PG15,
        Server::Pg18 => &PG18,
    };
    cell.get_or_init(|| make(server)).await
}

async fn make(server: Server) -> String {
    let name = format!("cf_template_{}", fingerprint());
    let admin = connect_admin(&server.admin(), &Tls::default())
        .await
        .expect("the test server takes its superuser");
    // Held until this connection ends, that is until the end of this function.
    admin
        .query_one("SELECT pg_catalog.pg_advisory_lock($1)", &[&LOCK])
        .await
        .expect("the lock of the template");
    let there = admin
        .query_opt("SELECT 1 FROM pg_catalog.pg_database WHERE datname = $1", &[&name])
        .await
        .expect("a look for the template");
    if there.is_none() {
        build(server, &admin, &name).await;
    }
    name
}

/// Built beside its name and renamed: under its own name it is always whole.
async fn build(server: Server, admin: &Client, name: &str) {
    let fresh = format!("{name}_new");
    let run = async |sql: String| {
        admin
            .batch_execute(&sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    };
    run(format!("DROP DATABASE IF EXISTS {fresh} WITH (FORCE)")).await;
    let wanted = Init {
        dbname: fresh.clone(),
        create_database: true,
        passwords: passwords(),
        existing: Existing::Keep,
    };
    counterfoil_migrate::init(&server.admin(), &Tls::default(), &wanted)
        .await
        .expect("init of the template");
    let db = Database::new(settings_on(&server.admin(), &fresh)).expect("pools on the template");
    counterfoil_migrate::run(&db, &migrations())
        .await
        .expect("migrations of the template");
    db.maintain_outcomes().await.expect("partitions of the outcome table");
    db.close();
    // A database with connections can be neither renamed nor copied.
    run(format!("ALTER DATABASE {fresh} ALLOW_CONNECTIONS false")).await;
    empty_of_sessions(admin, &fresh).await;
    run(format!("ALTER DATABASE {fresh} RENAME TO {name}")).await;
    run(format!("ALTER DATABASE {name} IS_TEMPLATE true")).await;
}

/// The five roles, with nothing between them and the server of `admin`.
pub(crate) fn settings_on(admin: &counterfoil_pg::Config, dbname: &str) -> Settings {
    let host = match admin.get_hosts().first() {
        Some(tokio_postgres::config::Host::Tcp(host)) => host.clone(),
        Some(tokio_postgres::config::Host::Unix(path)) => path.display().to_string(),
        None => "127.0.0.1".to_owned(),
    };
    let port = admin.get_ports().first().copied().unwrap_or(5432);
    let mut settings = Settings::new(host, port, dbname);
    settings.passwords = passwords();
    settings
}

async fn empty_of_sessions(admin: &Client, dbname: &str) {
    for _ in 0..500 {
        let left: i64 = admin
            .query_one(
                "SELECT count(pg_catalog.pg_terminate_backend(pid)) FROM pg_catalog.pg_stat_activity WHERE datname = $1",
                &[&dbname],
            )
            .await
            .expect("the sessions of the template")
            .get(0);
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("sessions of {dbname} do not end");
}

fn fingerprint() -> String {
    let mut hash = Sha256::new();
    for (name, sql) in migrations().into_iter().flatten() {
        hash.update(name.as_bytes());
        hash.update(sql.as_bytes());
    }
    // What `init` does belongs to the template as much as what migrations do.
    hash.update(include_bytes!("../../migrate/src/init.rs"));
    hash.update(include_bytes!("../../migrate/src/roles.rs"));
    hash.finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
