//! Where the database is, and as whom we speak to it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::tls::{Tls, TlsMode};

/// The LOGIN roles that `counterfoil init` creates; one pool each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Owns every object: migrations and maintenance. FORCE ROW LEVEL SECURITY binds it too.
    Owner,
    /// One tenant.
    App,
    /// The tenants of a batch.
    Lane,
    /// All tenants, by a policy of its own.
    Ops,
    /// One tenant, read only, longer timeouts.
    Report,
}

impl Role {
    pub const ALL: [Self; 5] = [Self::Owner, Self::App, Self::Lane, Self::Ops, Self::Report];

    /// The name of the role in the server.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Owner => "counterfoil_owner",
            Self::App => "counterfoil_app",
            Self::Lane => "counterfoil_lane",
            Self::Ops => "counterfoil_ops",
            Self::Report => "counterfoil_report",
        }
    }

    /// Connections of this role, unless `Settings::pool_size` says otherwise.
    #[must_use]
    pub const fn default_pool_size(self) -> usize {
        match self {
            Self::Owner => 1,
            Self::App => 8,
            Self::Lane => 16,
            Self::Ops => 2,
            Self::Report => 4,
        }
    }

    /// How long the reply to a statement is waited for, unless `Settings::reply_timeout` says
    /// otherwise: five seconds more than the role's `statement_timeout`, which a server that is
    /// frozen, or behind a network that swallows what it is sent, does not keep.
    #[must_use]
    pub const fn default_reply_timeout(self) -> Option<Duration> {
        match self {
            // Migrations take as long as they take.
            Self::Owner => None,
            Self::App | Self::Lane => Some(Duration::from_secs(20)),
            Self::Ops => Some(Duration::from_secs(65)),
            Self::Report => Some(Duration::from_secs(305)),
        }
    }
}

/// What stands between us and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooler {
    /// Nothing that hands our session to others: statements are prepared once per connection.
    #[default]
    None,
    /// A pooler in transaction mode (`PgBouncer`): no statement is ever named.
    Transaction,
}

/// One database and its five roles.
#[derive(Clone)]
pub struct Settings {
    /// A host name, an address, or the directory of a unix socket (starts with `/`).
    pub host: String,
    pub port: u16,
    pub dbname: String,
    /// A role without a password connects without one (`peer`, `trust`).
    pub passwords: BTreeMap<Role, String>,
    pub pooler: Pooler,
    pub tls: Tls,
    /// Connections per role, where it differs from [`Role::default_pool_size`].
    pub pool_size: BTreeMap<Role, usize>,
    /// From the first packet to the end of authentication.
    pub connect_timeout: Duration,
    /// How long a caller waits for a connection of the pool to become free.
    pub wait_timeout: Duration,
    /// How long the reply to a statement is waited for, from the last reply on, where it differs
    /// from [`Role::default_reply_timeout`]. After that the connection is given up, and with it the
    /// transaction; so are those of its pool that lie idle.
    pub reply_timeout: BTreeMap<Role, Duration>,
    /// How long the reply to COMMIT is waited for. After that the verdict is `Unknown`, and the
    /// transaction is asked after on another connection.
    pub commit_timeout: Duration,
    /// How long a lost COMMIT is asked after before the caller is told `Unknown`.
    pub resolve_timeout: Duration,
}

impl Settings {
    pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    pub const WAIT_TIMEOUT: Duration = Duration::from_secs(5);
    pub const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);
    /// Longer than the 30 s after which the server ends a session that is idle in its transaction:
    /// that settles a twin whose COMMIT never arrived, on a connection whose end it did not see.
    pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(45);

    /// Settings with every default: no passwords, no pooler, no TLS.
    pub fn new(host: impl Into<String>, port: u16, dbname: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port,
            dbname: dbname.into(),
            passwords: BTreeMap::new(),
            pooler: Pooler::None,
            tls: Tls::default(),
            pool_size: BTreeMap::new(),
            connect_timeout: Self::CONNECT_TIMEOUT,
            wait_timeout: Self::WAIT_TIMEOUT,
            reply_timeout: BTreeMap::new(),
            commit_timeout: Self::COMMIT_TIMEOUT,
            resolve_timeout: Self::RESOLVE_TIMEOUT,
        }
    }

    #[must_use]
    pub fn pool_size(&self, role: Role) -> usize {
        self.pool_size
            .get(&role)
            .copied()
            .unwrap_or(role.default_pool_size())
            .max(1)
    }

    #[must_use]
    pub fn reply_timeout(&self, role: Role) -> Option<Duration> {
        self.reply_timeout.get(&role).copied().or(role.default_reply_timeout())
    }

    /// How long BEGIN is waited for, and the look at the session that goes with it. They are no work, so a
    /// connection that takes longer than opening one may take is dead; behind a pooler they wait for a
    /// connection of the server, as long as any other statement.
    pub(crate) fn begin_timeout(&self, role: Role) -> Duration {
        let reply = self.reply_timeout(role).unwrap_or(Duration::MAX);
        match self.pooler {
            Pooler::None => self.connect_timeout.min(reply),
            Pooler::Transaction => reply.min(self.commit_timeout),
        }
    }

    /// How `role` connects. Nothing of the session is set here (a pooler in transaction mode would
    /// refuse it, or hand it to others): timeouts belong to the roles, by ALTER ROLE.
    #[must_use]
    pub fn config(&self, role: Role) -> Config {
        let mut config = Config::new();
        config
            .host(&self.host)
            .port(self.port)
            .dbname(&self.dbname)
            .user(role.name());
        if let Some(password) = self.passwords.get(&role) {
            config.password(password);
        }
        config.application_name("counterfoil");
        config.connect_timeout(self.connect_timeout);
        // A peer that vanished without a word is noticed within a minute, not within two hours.
        config
            .keepalives_idle(Duration::from_secs(30))
            .keepalives_interval(Duration::from_secs(10))
            .keepalives_retries(3)
            .tcp_user_timeout(Duration::from_secs(30));
        config.ssl_mode(match self.tls.mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Require | TlsMode::VerifyFull => SslMode::Require,
        });
        config
    }

    /// `host:port`, or the socket's path: for messages.
    #[must_use]
    pub fn address(&self) -> String {
        let Self { host, port, .. } = self;
        if host.starts_with('/') {
            format!("{host}/.s.PGSQL.{port}")
        } else if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

/// Written by hand, so that no password is ever printed.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("dbname", &self.dbname)
            .field("passwords_of", &self.passwords.keys().collect::<Vec<_>>())
            .field("pooler", &self.pooler)
            .field("tls", &self.tls)
            .field("pool_size", &self.pool_size)
            .field("connect_timeout", &self.connect_timeout)
            .field("wait_timeout", &self.wait_timeout)
            .field("reply_timeout", &self.reply_timeout)
            .field("commit_timeout", &self.commit_timeout)
            .field("resolve_timeout", &self.resolve_timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_printed() {
        let mut settings = Settings::new("db.example", 5432, "shop");
        settings.passwords.insert(Role::App, "hunter2".to_owned());
        let printed = format!("{settings:?} {:#?} {:?}", settings, settings.config(Role::App));
        assert!(!printed.contains("hunter2"), "{printed}");
        assert!(printed.contains("App"), "{printed}");
    }

    #[test]
    fn a_socket_directory_is_a_host() {
        let settings = Settings::new("/var/run/postgresql", 5433, "shop");
        assert_eq!(settings.address(), "/var/run/postgresql/.s.PGSQL.5433");
        assert_eq!(Settings::new("::1", 5432, "shop").address(), "[::1]:5432");
    }
}
