//! Connections, by role.

use std::sync::Arc;

use deadpool::Runtime;
use deadpool::managed::{Object, PoolError};

use crate::conn::{Connections, Manager};
use crate::settings::{Role, Settings};
use crate::{Class, Error, Scope, Tx, statements};

/// One database: five roles, a pool for each. Cheap to clone.
#[derive(Clone)]
pub struct Database(Arc<Inner>);

struct Inner {
    settings: Arc<Settings>,
    /// In the order of `Role::ALL`.
    pools: [Pool; Role::ALL.len()],
}

impl Database {
    /// Connects to nothing yet; reads the TLS root certificate.
    ///
    /// # Errors
    /// [`Error::Settings`] if the certificate that vouches for the server is missing or cannot be used.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let tls = settings.tls.connector()?;
        let settings = Arc::new(settings);
        let connections = |role| {
            Connections::builder(Manager::new(Arc::clone(&settings), role, tls.clone()))
                .max_size(settings.pool_size(role))
                .wait_timeout(Some(settings.wait_timeout))
                .runtime(Runtime::Tokio1)
                .build()
                .expect("a pool with a timeout has a runtime")
        };
        let owner = connections(Role::Owner);
        let pools = Role::ALL.map(|role| Pool {
            role,
            connections: if role == Role::Owner {
                owner.clone()
            } else {
                connections(role)
            },
            owner: owner.clone(),
        });
        Ok(Self(Arc::new(Inner { settings, pools })))
    }

    /// The same database with a connection of its own per role, opened when it is first needed: for
    /// questions that must not wait for what everybody else does.
    ///
    /// # Errors
    /// If the TLS root certificate cannot be read any more.
    pub fn apart(&self) -> Result<Self, Error> {
        let mut settings = Settings::clone(&self.0.settings);
        settings.pool_size = Role::ALL.map(|role| (role, 1)).into();
        Self::new(settings)
    }

    #[must_use]
    pub fn pool(&self, role: Role) -> &Pool {
        // `Role::ALL` lists the roles in the order of their declaration; a test holds it to that.
        &self.0.pools[role as usize]
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Whether the server keeps what it has acknowledged (promise 10), asked as those who write:
    /// `synchronous_commit` may differ by role.
    ///
    /// # Errors
    /// If the database cannot be asked as one of the three.
    pub async fn durability(&self) -> Result<Durability, Error> {
        let mut worst: Option<Durability> = None;
        for role in [Role::Lane, Role::App, Role::Ops] {
            let tx = self.pool(role).begin(&Scope::Installation).await?;
            let row = tx.query_one(statements::DURABILITY, &[]).await?;
            tx.rollback().await;
            let found = Durability {
                fsync: row.try_get(0)?,
                full_page_writes: row.try_get(1)?,
                synchronous_commit: row.try_get(2)?,
            };
            if found.shortfall().is_some() {
                return Ok(found);
            }
            worst.get_or_insert(found);
        }
        Ok(worst.expect("three roles were asked"))
    }

    /// `server_version_num`: 150018 is 15.18.
    ///
    /// # Errors
    /// If the database cannot be asked.
    pub async fn server_version(&self) -> Result<u32, Error> {
        // Not a connection that callers' requests may all be holding.
        let tx = self.pool(Role::Ops).begin(&Scope::Installation).await?;
        let row = tx.query_one(statements::SERVER_VERSION, &[]).await?;
        tx.rollback().await;
        Ok(row.try_get::<_, i32>(0)?.unsigned_abs())
    }

    /// How many connections the server has for roles like ours, whoever else takes of them.
    ///
    /// # Errors
    /// If the database cannot be asked.
    pub async fn connections_room(&self) -> Result<usize, Error> {
        let tx = self.pool(Role::Ops).begin(&Scope::Installation).await?;
        let row = tx.query_one(statements::CONNECTIONS_ROOM, &[]).await?;
        tx.rollback().await;
        Ok(usize::try_from(row.try_get::<_, i32>(0)?).unwrap_or(0))
    }

    /// Closes every pool: who waits for a connection gets an error, open transactions end first.
    pub fn close(&self) {
        for pool in &self.0.pools {
            pool.connections.close();
        }
    }
}

/// What the server does before it acknowledges a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durability {
    pub fsync: bool,
    pub full_page_writes: bool,
    pub synchronous_commit: String,
}

impl Durability {
    /// What is missing for "nothing is acknowledged before it is durable", as a sentence.
    #[must_use]
    pub fn shortfall(&self) -> Option<&'static str> {
        if !self.fsync {
            Some("fsync is off: a crash of the machine can lose or break everything; set fsync = on")
        } else if !self.full_page_writes {
            Some(
                "full_page_writes is off: a crash of the machine can break pages; set it on unless \
                 the file system writes pages whole",
            )
        } else if self.synchronous_commit == "off" {
            Some(
                "synchronous_commit is off: a crash loses what was acknowledged last; set it on \
                 for the roles of counterfoil",
            )
        } else {
            None
        }
    }
}

/// The connections of one role.
#[derive(Clone)]
pub struct Pool {
    role: Role,
    connections: Connections,
    /// Makes partitions of the outcome table, whoever needs one.
    owner: Connections,
}

impl Pool {
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Begins a transaction with this scope, READ COMMITTED.
    ///
    /// A pooled connection may have died since it was last used. Nothing has been done yet, so
    /// another one is taken; each turn closes one, and the first that is freshly opened decides.
    ///
    /// # Errors
    /// [`Error::Connect`], [`Error::PoolExhausted`] or [`Error::PoolClosed`] where there is no connection to
    /// be had, [`Error::ScopeSet`] where it arrived with a scope of somebody else's.
    pub async fn begin(&self, scope: &Scope) -> Result<Tx, Error> {
        loop {
            let conn = self.connection().await?;
            let pooled = Object::metrics(&conn).recycle_count > 0;
            match Tx::begin(conn, scope).await {
                Err(error) if pooled && error.class() == Class::Reconnect => {}
                Err(error) if pooled && error.class() == Class::Reprepare => {}
                result => return result,
            }
        }
    }

    async fn connection(&self) -> Result<Object<Manager>, Error> {
        self.connections.get().await.map_err(|error| match error {
            PoolError::Backend(error) => error,
            PoolError::Closed => Error::PoolClosed { role: self.role },
            PoolError::Timeout(_) | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
                Error::PoolExhausted {
                    role: self.role,
                    size: self.connections.status().max_size,
                    waited: self.settings().wait_timeout,
                }
            }
        })
    }

    pub(crate) fn settings(&self) -> &Settings {
        self.connections.manager().settings()
    }

    /// The owner's connections, as a pool.
    pub(crate) fn owner(&self) -> Self {
        Self {
            role: Role::Owner,
            connections: self.owner.clone(),
            owner: self.owner.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_finds_its_own_pool() {
        let database = Database::new(Settings::new("localhost", 5432, "shop")).unwrap();
        for role in Role::ALL {
            assert_eq!(database.pool(role).role(), role);
        }
    }
}
