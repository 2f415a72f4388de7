//! The servers that `scripts/with-servers` starts for a run.

use std::path::PathBuf;

use counterfoil_pg::{Config, Pooler};
use tokio_postgres::config::Host;

/// Which server a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Server {
    /// The oldest that will do: Debian's 15.
    Pg15,
    /// The newest that has been tried.
    Pg18,
    /// `PgBouncer` in transaction mode before the 15. Its databases are made and dropped directly.
    PgBouncer,
}

impl Server {
    /// The two that are PostgreSQL itself.
    pub const DIRECT: [Self; 2] = [Self::Pg15, Self::Pg18];

    pub const ALL: [Self; 3] = [Self::Pg15, Self::Pg18, Self::PgBouncer];

    /// Where the five roles connect.
    pub(crate) fn address(self) -> (String, u16) {
        address_of(&conninfo(match self {
            Self::Pg15 => "COUNTERFOIL_TEST_PG15",
            Self::Pg18 => "COUNTERFOIL_TEST_PG18",
            Self::PgBouncer => "COUNTERFOIL_TEST_PGBOUNCER",
        }))
    }

    /// The superuser, on database `postgres`, with nothing in between.
    #[must_use]
    pub fn admin(self) -> Config {
        let mut config = conninfo(match self {
            Self::Pg15 | Self::PgBouncer => "COUNTERFOIL_TEST_PG15",
            Self::Pg18 => "COUNTERFOIL_TEST_PG18",
        });
        config.dbname("postgres").application_name("counterfoil-test");
        config
    }

    pub(crate) fn pooler(self) -> Pooler {
        match self {
            Self::Pg15 | Self::Pg18 => Pooler::None,
            Self::PgBouncer => Pooler::Transaction,
        }
    }

    /// The server's programs, for clusters of a test's own.
    #[must_use]
    pub fn bin_dir(self) -> PathBuf {
        PathBuf::from(variable(match self {
            Self::Pg15 | Self::PgBouncer => "COUNTERFOIL_TEST_PG15_BIN",
            Self::Pg18 => "COUNTERFOIL_TEST_PG18_BIN",
        }))
    }
}

fn conninfo(name: &'static str) -> Config {
    let text = variable(name);
    text.parse()
        .unwrap_or_else(|error| panic!("{name} is not a connection string ({error}): {text:?}"))
}

fn variable(name: &'static str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: run the tests with their servers, as in `scripts/with-servers cargo test …`")
    })
}

fn address_of(config: &Config) -> (String, u16) {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "127.0.0.1".to_owned(),
    };
    (host, config.get_ports().first().copied().unwrap_or(5432))
}
