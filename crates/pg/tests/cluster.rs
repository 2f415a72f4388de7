//! A database of its own for each test, with the five roles, the schema, our migrations and one
//! table behind a wall.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use counterfoil_pg::{
    Client, Config, Database, Error, MIGRATIONS, Role, Scope, Settings, Sql, TenantId, Tls, Tx, Type, connect_admin,
};

/// What every role of a test cluster has for a password.
pub const PASSWORD: &str = "secret";

/// A server of `scripts/with-servers`.
#[derive(Clone)]
pub struct Cluster {
    pub admin: Config,
}

impl Cluster {
    pub fn pg15() -> Self {
        Self::named("COUNTERFOIL_TEST_PG15")
    }

    pub fn pg18() -> Self {
        Self::named("COUNTERFOIL_TEST_PG18")
    }

    fn named(variable: &str) -> Self {
        Self {
            admin: variable_of(variable).parse().expect("a connection string"),
        }
    }

    pub fn port(&self) -> u16 {
        self.admin.get_ports()[0]
    }

    /// A connection of the superuser to one database.
    pub async fn connect(&self, dbname: &str) -> Client {
        let config = self.admin.clone().dbname(dbname).clone();
        connect_admin(&config, &Tls::default())
            .await
            .expect("the administrator can connect")
    }

    /// A database with everything, and settings that lead to it.
    pub async fn database(&self) -> TestDb {
        let name = fresh_name();
        let admin = self.connect("postgres").await;
        // Roles are shared by all databases of the cluster, so by all tests at once.
        admin
            .batch_execute(&format!(
                "BEGIN; SELECT pg_advisory_xact_lock(20260314); {} COMMIT",
                Role::ALL.map(make_role).concat()
            ))
            .await
            .expect("roles");
        admin
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .expect("database");
        let admin = self.connect(&name).await;
        admin
            .batch_execute(
                "CREATE SCHEMA counterfoil AUTHORIZATION counterfoil_owner;
                 GRANT USAGE ON SCHEMA counterfoil
                    TO counterfoil_app, counterfoil_lane, counterfoil_ops, counterfoil_report",
            )
            .await
            .expect("schema");
        let mut settings = Settings::new("127.0.0.1", self.port(), &name);
        for role in Role::ALL {
            settings.passwords.insert(role, PASSWORD.to_owned());
        }
        let database = Database::new(settings.clone()).expect("settings");
        let owner = database
            .pool(Role::Owner)
            .begin(&Scope::Installation)
            .await
            .expect("owner");
        for (name, script) in MIGRATIONS {
            owner
                .batch(script)
                .await
                .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        }
        owner.batch(THINGS).await.expect("the table of the tests");
        owner.commit().await.expect("migrations");
        TestDb {
            cluster: self.clone(),
            name,
            admin,
            settings,
            database,
        }
    }
}

pub fn variable_of(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run the tests as `scripts/with-servers cargo test`"))
}

fn make_role(role: Role) -> String {
    let name = role.name();
    format!(
        "DO $$ BEGIN
           IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{name}') THEN
             CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}';
           END IF;
         END $$;"
    )
}

fn fresh_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let micros = SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("a clock after 1970")
        .as_micros();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("pg_{}_{micros}_{number}", std::process::id())
}

/// A table as the design wants them: walls by tenant, for one tenant and for a batch.
const THINGS: &str = "
    CREATE TABLE counterfoil.thing (
        tenant_id bigint NOT NULL,
        id        bigint NOT NULL,
        note      text   NOT NULL DEFAULT '',
        PRIMARY KEY (tenant_id, id)
    );
    ALTER TABLE counterfoil.thing ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
    CREATE POLICY app ON counterfoil.thing TO counterfoil_app
        USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
        WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
    CREATE POLICY lane ON counterfoil.thing TO counterfoil_lane
        USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
        WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
    GRANT SELECT, INSERT, UPDATE, DELETE ON counterfoil.thing
        TO counterfoil_app, counterfoil_lane;
";

pub static THING_INSERT: &Sql = &Sql {
    name: "thing_insert",
    text: "INSERT INTO counterfoil.thing (tenant_id, id) VALUES ($1, $2)",
    params: &[Type::INT8, Type::INT8],
};

pub static THING_LIST: &Sql = &Sql {
    name: "thing_list",
    text: "SELECT tenant_id, id FROM counterfoil.thing ORDER BY tenant_id, id",
    params: &[],
};

pub static THING_TOUCH: &Sql = &Sql {
    name: "thing_touch",
    text: "UPDATE counterfoil.thing SET note = note || 'x' WHERE tenant_id = $1 AND id = $2",
    params: &[Type::INT8, Type::INT8],
};

pub static SLEEP: &Sql = &Sql {
    name: "sleep",
    text: "SELECT pg_sleep($1)",
    params: &[Type::FLOAT8],
};

pub static BACKEND: &Sql = &Sql {
    name: "backend",
    text: "SELECT pg_backend_pid()",
    params: &[],
};

pub const ONE: Scope = Scope::Tenant(TenantId(1));

pub struct TestDb {
    pub cluster: Cluster,
    pub name: String,
    /// The superuser, in this database.
    pub admin: Client,
    pub settings: Settings,
    pub database: Database,
}

impl TestDb {
    /// The same database by other settings.
    pub fn with(&self, change: impl FnOnce(&mut Settings)) -> Database {
        let mut settings = self.settings.clone();
        change(&mut settings);
        Database::new(settings).expect("settings")
    }

    /// One connection per role, so that a test knows which one it gets.
    pub fn narrow(&self) -> Database {
        self.with(|settings| {
            settings.pool_size = Role::ALL.map(|role| (role, 1)).into();
            settings.wait_timeout = Duration::from_secs(20);
        })
    }

    pub async fn things(&self) -> i64 {
        let sql = "SELECT count(*) FROM counterfoil.thing";
        self.admin.query_one(sql, &[]).await.expect("count").get(0)
    }

    /// How many sessions of our roles are in this state, in this database.
    pub async fn sessions(&self, state: &str) -> i64 {
        let sql = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND usename LIKE 'counterfoil%'
                      AND state LIKE $1";
        self.admin.query_one(sql, &[&state]).await.expect("sessions").get(0)
    }

    /// Waits until a session of ours is as the condition says, for at most ten seconds.
    pub async fn wait_until(&self, condition: &str) {
        let sql = format!(
            "SELECT count(*) FROM pg_stat_activity
              WHERE datname = current_database() AND usename LIKE 'counterfoil%' AND {condition}"
        );
        for _ in 0..500 {
            if self
                .admin
                .query_one(&sql, &[])
                .await
                .expect("sessions")
                .get::<_, i64>(0)
                > 0
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("no session where {condition}");
    }

    /// Waits until no session of ours is in the state, for at most ten seconds.
    pub async fn wait_for_no_session(&self, state: &str) {
        for _ in 0..500 {
            if self.sessions(state).await == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("sessions are still {state}");
    }
}

/// Nothing is left over: no transaction of ours is open when a test ends.
impl Drop for TestDb {
    fn drop(&mut self) {
        let (cluster, name) = (self.cluster.clone(), self.name.clone());
        // Dropping is not async, and the runtime of the test may be about to end.
        let cleared = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("runtime").block_on(clear_away(&cluster, &name))
        });
        match cleared.join() {
            Ok(0) => {}
            _ if std::thread::panicking() => {}
            Ok(open) => panic!("{open} transactions were left open"),
            Err(_) => panic!("the database was not dropped"),
        }
    }
}

/// Drops the database; how many transactions were still open in it.
async fn clear_away(cluster: &Cluster, name: &str) -> i64 {
    let admin = cluster.connect("postgres").await;
    let sql = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = $1 AND usename LIKE 'counterfoil%' AND state LIKE 'idle in%'";
    let mut open = 0;
    // What has just been dropped is rolled back by a task of its own.
    for _ in 0..100 {
        open = admin.query_one(sql, &[&name]).await.expect("sessions").get(0);
        if open == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let drop = format!("DROP DATABASE {name} WITH (FORCE)");
    admin.batch_execute(&drop).await.expect("drop");
    open
}

pub async fn insert(tx: &Tx, tenant: i64, id: i64) -> Result<u64, Error> {
    tx.execute(THING_INSERT, &[&tenant, &id]).await
}
