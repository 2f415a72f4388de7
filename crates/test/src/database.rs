//! A database of a test's own.

use counterfoil_pg::{Client, Config, Database, Settings, Tls, connect_admin};

use crate::template::{passwords, template};
use crate::{FaultProxy, Server};

/// A database that nobody else knows; dropped, with whoever is still connected, when this value is.
#[derive(Debug)]
pub struct TestDatabase {
    pub name: String,
    /// The five roles, each with the password `secret`.
    pub settings: Settings,
    admin: Config,
}

/// A fresh database with every migration applied.
pub async fn database(server: Server) -> TestDatabase {
    let template = template(server).await;
    let test = TestDatabase::named(server);
    test.create(&format!("TEMPLATE {template}")).await;
    test
}

/// A fresh database with nothing in it: for tests of `init` and of migrations.
pub async fn empty_database(server: Server) -> TestDatabase {
    let test = TestDatabase::named(server);
    test.create("TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'")
        .await;
    test
}

impl TestDatabase {
    fn named(server: Server) -> Self {
        let name = format!("cf_test_{}_{:08x}", std::process::id(), rand::random::<u32>());
        let (host, port) = server.address();
        let mut settings = Settings::new(host, port, &name);
        settings.passwords = passwords();
        settings.pooler = server.pooler();
        Self {
            name,
            settings,
            admin: server.admin(),
        }
    }

    async fn create(&self, how: &str) {
        let admin = connect_admin(&self.admin, &Tls::default())
            .await
            .expect("the test server takes its superuser");
        let sql = format!("CREATE DATABASE {} {how}", self.name);
        admin
            .batch_execute(&sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// Pools of the five roles.
    #[must_use]
    pub fn database(&self) -> Database {
        Database::new(self.settings.clone()).expect("settings without TLS are good")
    }

    /// A proxy before this database.
    pub async fn proxy(&self) -> FaultProxy {
        FaultProxy::start(&self.settings.host, self.settings.port).await
    }

    /// Settings whose connections go through the proxy.
    #[must_use]
    pub fn settings_through(&self, proxy: &FaultProxy) -> Settings {
        let mut settings = self.settings.clone();
        settings.host = "127.0.0.1".to_owned();
        settings.port = proxy.port();
        settings
    }

    /// Pools whose connections go through the proxy.
    #[must_use]
    pub fn database_through(&self, proxy: &FaultProxy) -> Database {
        Database::new(self.settings_through(proxy)).expect("settings without TLS are good")
    }

    /// How the superuser connects to this database, with nothing in between.
    #[must_use]
    pub fn admin_config(&self) -> Config {
        let mut config = self.admin.clone();
        config.dbname(&self.name);
        config
    }

    /// The superuser in this database: for a foreign session that gets in the way, or to look at
    /// what no role may see.
    pub async fn admin(&self) -> Client {
        connect_admin(&self.admin_config(), &Tls::default())
            .await
            .expect("the test server takes its superuser")
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let (admin, sql) = (
            self.admin.clone(),
            format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name),
        );
        // A thread with a runtime of its own: here there may be one already, or none.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| e.to_string())?;
            runtime.block_on(async {
                let admin = connect_admin(&admin, &Tls::default())
                    .await
                    .map_err(|e| e.to_string())?;
                admin.batch_execute(&sql).await.map_err(|e| format!("{sql}: {e:?}"))
            })
        })
        .join();
        // Not a panic: the test may be failing already, and this would hide why.
        match dropped {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("a test database was left behind: {error}"),
            Err(_) => eprintln!("a test database was left behind"),
        }
    }
}
