//! `counterfoil init`: everything that must be there before the first migration.
//!
//! It works as a superuser and as what managed PostgreSQL gives instead: a role with CREATEROLE that
//! may create a schema in the database. From PostgreSQL 16 on, who creates a role may administer it
//! but not act as it, so the right to act as the owner is granted for the length of the transaction
//! and taken back at its end.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use counterfoil_pg::{Client, Config, Role, Tls, connect_admin};
use tokio_postgres::{IsolationLevel, Transaction};

use crate::Error;
use crate::roles::{identifier, literal, settings, verifier};

/// The oldest server that will do, as `server_version_num` counts.
const OLDEST: i32 = 150_000;

/// From here on membership has options of its own (INHERIT, SET).
const MEMBERSHIP_OPTIONS: i32 = 160_000;

/// Roles are rows shared by the whole cluster, and two `init` in two databases may write them at the
/// same time; then one of them fails, and is run again.
const ATTEMPTS: u32 = 10;

/// Why a caller could not keep the passwords.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What `init` is asked to make.
#[derive(Clone)]
pub struct Init {
    pub dbname: String,
    /// Create the database if there is none of this name.
    pub create_database: bool,
    /// Set as the passwords of the roles that are made; a role that is not named gets none.
    pub passwords: BTreeMap<Role, String>,
    /// Roles belong to the whole cluster, so another installation may live by those that are there.
    pub existing: Existing,
}

/// What becomes of the passwords of roles that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// They stay as they are: the ones given are known to be theirs.
    Keep,
    /// Nothing is made at all: the ones given cannot be theirs.
    Refuse,
    /// They become the ones given, and whoever knows only the old ones is shut out.
    Reset,
}

/// Written by hand, so that no password is ever printed.
impl fmt::Debug for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Init")
            .field("dbname", &self.dbname)
            .field("create_database", &self.create_database)
            .field("passwords_of", &self.passwords.keys().collect::<Vec<_>>())
            .field("existing", &self.existing)
            .finish()
    }
}

/// Makes the database if asked to, the roles, their limits and passwords, and the schema. What is
/// there already is brought to the same state. Migrations come after it, as the owner: [`crate::run`].
///
/// `admin` says where the server is and as whom to connect; its database is where one connects to
/// create another.
pub async fn init(admin: &Config, tls: &Tls, wanted: &Init) -> Result<(), Error> {
    init_after(admin, tls, wanted, &mut || Ok(())).await
}

/// The same, for passwords that have to be kept first: `keep` is called when all is made and nothing
/// is committed yet, and where it fails nothing has been made. It may be called more than once.
pub async fn init_after(
    admin: &Config,
    tls: &Tls,
    wanted: &Init,
    keep: &mut (dyn FnMut() -> Result<(), Failure> + Send),
) -> Result<(), Error> {
    if wanted.dbname.is_empty() || wanted.dbname.contains('\0') {
        return Err(Error::DatabaseName);
    }
    let user = admin.get_user().unwrap_or("the administrator").to_owned();
    if wanted.create_database {
        let client = connect_admin(admin, tls).await?;
        Admin { user: &user, wanted }.database(&client).await?;
    }
    let mut config = admin.clone();
    config.dbname(&wanted.dbname);
    let mut client = connect_admin(&config, tls).await?;
    let admin = Admin { user: &user, wanted };
    let mut attempt = 1;
    loop {
        match admin.everything(&mut client, keep).await {
            Err(error) if attempt < ATTEMPTS && is_collision(&error) => {
                tracing::debug!(attempt, "somebody else is changing the same roles");
                tokio::time::sleep(Duration::from_millis(rand::random_range(20..100) * u64::from(attempt))).await;
                attempt += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Whether two sessions wrote the same row of a catalogue: that has no SQLSTATE of its own.
fn is_collision(error: &Error) -> bool {
    let Error::Admin { source, .. } = error else {
        return false;
    };
    source.as_db_error().is_some_and(|db| match db.code().code() {
        "42710" | "42P06" | "40001" | "40P01" => true,
        "23505" => matches!(db.schema(), Some("pg_catalog")),
        "XX000" => matches!(db.routine(), Some("simple_heap_update" | "simple_heap_delete")),
        _ => false,
    })
}

struct Admin<'a> {
    user: &'a str,
    wanted: &'a Init,
}

/// These are the statements of the administrator: they run outside of every pool and scope, before
/// the roles that have them exist.
#[allow(clippy::disallowed_methods)]
impl Admin<'_> {
    fn failed(&self, doing: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> Error {
        let (doing, user) = (doing.into(), self.user.to_owned());
        move |source| Error::Admin { doing, user, source }
    }

    async fn database(&self, client: &Client) -> Result<(), Error> {
        let name = &self.wanted.dbname;
        let doing = format!("create database {name}");
        let there = client
            .query_opt("SELECT 1 FROM pg_catalog.pg_database WHERE datname = $1", &[name])
            .await
            .map_err(self.failed(&doing))?;
        if there.is_some() {
            return Ok(());
        }
        // C: the order of the bytes is the same on every machine, for ever; an upgrade of the C
        // library or of ICU reorders no index. Reports that want another order say so.
        let create = format!(
            "CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'",
            identifier(name)
        );
        match client.batch_execute(&create).await {
            Ok(()) => {
                tracing::info!(database = name, "created the database");
                Ok(())
            }
            // Another init was first: the name is taken, or its row just appeared.
            Err(error)
                if error
                    .code()
                    .is_some_and(|code| matches!(code.code(), "42P04" | "23505")) =>
            {
                Ok(())
            }
            Err(error) => Err(self.failed(doing)(error)),
        }
    }

    async fn everything(
        &self,
        client: &mut Client,
        keep: &mut (dyn FnMut() -> Result<(), Failure> + Send),
    ) -> Result<(), Error> {
        let tx = client
            .build_transaction()
            .isolation_level(IsolationLevel::ReadCommitted)
            .read_only(false)
            .start()
            .await
            .map_err(self.failed("begin"))?;
        // Passwords and limits are stated for this transaction, whatever the server's defaults are.
        tx.batch_execute(
            "SET LOCAL search_path = ''; SET LOCAL lock_timeout = '10s'; SET LOCAL statement_timeout = '60s'",
        )
        .await
        .map_err(self.failed("set the limits of this transaction"))?;
        let server = self.server(&tx).await?;
        for role in Role::ALL {
            self.role(&tx, role, &server).await?;
        }
        self.schema(&tx, &server).await?;
        self.connect_rights(&tx).await?;
        // Before COMMIT: a password that is set, and then lost with this process, locks everybody out.
        keep().map_err(|source| Error::NotKept { source })?;
        tx.commit().await.map_err(self.failed("commit"))
    }

    /// Who we are and where, and whether that is enough.
    async fn server(&self, tx: &Transaction<'_>) -> Result<ServerFacts, Error> {
        let row = tx
            .query_one(
                "SELECT pg_catalog.current_setting('server_version_num')::int4,
                        pg_catalog.current_setting('server_version'),
                        pg_catalog.current_setting('server_encoding'),
                        rolsuper, rolcreaterole,
                        pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
                 FROM pg_catalog.pg_roles WHERE rolname = CURRENT_USER",
                &[],
            )
            .await
            .map_err(self.failed("ask what the server is"))?;
        let facts = ServerFacts {
            version: row.get(0),
            superuser: row.get(3),
            may_create_schema: row.get(5),
        };
        let user = || self.user.to_owned();
        if facts.version < OLDEST {
            return Err(Error::TooOld { found: row.get(1) });
        }
        let encoding: String = row.get(2);
        if encoding != "UTF8" {
            return Err(Error::Encoding {
                dbname: self.wanted.dbname.clone(),
                found: encoding,
            });
        }
        if !facts.superuser && !row.get::<_, bool>(4) {
            return Err(Error::NotAdministrator { user: user() });
        }
        Ok(facts)
    }

    async fn role(&self, tx: &Transaction<'_>, role: Role, server: &ServerFacts) -> Result<(), Error> {
        let name = role.name();
        let found = tx
            .query_opt(
                "SELECT rolsuper OR rolbypassrls FROM pg_catalog.pg_roles WHERE rolname = $1",
                &[&name],
            )
            .await
            .map_err(self.failed(format!("look for role {name}")))?;
        let there = found.is_some();
        if there && self.wanted.existing == Existing::Refuse {
            return Err(Error::RoleThere { role: name });
        }
        let mut sql = match found.map(|row| row.get::<_, bool>(0)) {
            None => format!("CREATE ROLE {name} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE INHERIT;"),
            // Even to take these two away one has to have them.
            Some(_) if server.superuser => format!("ALTER ROLE {name} LOGIN NOSUPERUSER NOBYPASSRLS;"),
            Some(true) => return Err(Error::PassesWalls { role: name }),
            Some(false) => format!("ALTER ROLE {name} LOGIN;"),
        };
        if (!there || self.wanted.existing == Existing::Reset)
            && let Some(password) = self.wanted.passwords.get(&role)
        {
            sql += &format!("ALTER ROLE {name} PASSWORD {};", literal(&verifier(password)));
        }
        for (setting, value) in settings(role) {
            sql += &format!("ALTER ROLE {name} SET {setting} = {};", literal(value));
        }
        tx.batch_execute(&sql)
            .await
            .map_err(|error| match error.code().map(|code| code.code()) {
                Some("42501") => Error::NotOurRole {
                    user: self.user.to_owned(),
                    role: name,
                },
                _ => self.failed(format!("make the role {name}"))(error),
            })
    }

    async fn schema(&self, tx: &Transaction<'_>, server: &ServerFacts) -> Result<(), Error> {
        let owner = Role::Owner.name();
        let found = tx
            .query_opt(
                "SELECT pg_catalog.pg_get_userbyid(nspowner)::text FROM pg_catalog.pg_namespace
                 WHERE nspname = 'counterfoil'",
                &[],
            )
            .await
            .map_err(self.failed("look for the schema"))?;
        let there = match found.map(|row| row.get::<_, String>(0)) {
            Some(other) if other != owner => {
                return Err(Error::ForeignSchema {
                    dbname: self.wanted.dbname.clone(),
                    owner: other,
                });
            }
            found => found.is_some(),
        };
        if !there && !server.may_create_schema {
            return Err(Error::NoSchemaRight {
                user: self.user.to_owned(),
                dbname: self.wanted.dbname.clone(),
            });
        }
        let lent = self.borrow_owner(tx, server).await?;
        let create = if there {
            ""
        } else {
            "CREATE SCHEMA counterfoil AUTHORIZATION counterfoil_owner;"
        };
        // Granted as the owner, so that it also works for an administrator who inherits nothing.
        let grant = "SET LOCAL ROLE counterfoil_owner;
             REVOKE ALL ON SCHEMA counterfoil FROM PUBLIC;
             GRANT USAGE ON SCHEMA counterfoil
                TO counterfoil_app, counterfoil_lane, counterfoil_ops, counterfoil_report;
             RESET ROLE;";
        tx.batch_execute(&format!("{create}{grant}"))
            .await
            .map_err(self.failed("make the schema counterfoil"))?;
        if lent {
            tx.batch_execute(&format!("REVOKE {owner} FROM CURRENT_USER"))
                .await
                .map_err(self.failed(format!("give back the right to act as {owner}")))?;
        }
        Ok(())
    }

    /// Lets us act as the owner. True where we could not before, so that it is to be taken back.
    async fn borrow_owner(&self, tx: &Transaction<'_>, server: &ServerFacts) -> Result<bool, Error> {
        let owner = Role::Owner.name();
        let right = if server.version >= MEMBERSHIP_OPTIONS {
            "SET"
        } else {
            "MEMBER"
        };
        let may: bool = tx
            .query_one(
                "SELECT pg_catalog.pg_has_role(CURRENT_USER, $1::text::name, $2)",
                &[&owner, &right],
            )
            .await
            .map_err(self.failed(format!("ask who may act as {owner}")))?
            .get(0);
        if !may {
            tx.batch_execute(&format!("GRANT {owner} TO CURRENT_USER"))
                .await
                .map_err(|error| match error.code().map(|code| code.code()) {
                    Some("42501") => Error::NotOurRole {
                        user: self.user.to_owned(),
                        role: owner,
                    },
                    _ => self.failed(format!("act as {owner}"))(error),
                })?;
        }
        Ok(!may)
    }

    /// Everybody may connect to a database unless its owner took that away; where it was, our roles
    /// are let in again.
    async fn connect_rights(&self, tx: &Transaction<'_>) -> Result<(), Error> {
        for role in Role::ALL {
            let name = role.name();
            let may: bool = tx
                .query_one(
                    "SELECT pg_catalog.has_database_privilege($1::text::name, pg_catalog.current_database(), 'CONNECT')",
                    &[&name],
                )
                .await
                .map_err(self.failed("ask who may connect"))?
                .get(0);
            if !may {
                let grant = format!(
                    "GRANT CONNECT ON DATABASE {} TO {name}",
                    identifier(&self.wanted.dbname)
                );
                tx.batch_execute(&grant)
                    .await
                    .map_err(self.failed(format!("let {name} connect")))?;
            }
        }
        Ok(())
    }
}

struct ServerFacts {
    version: i32,
    superuser: bool,
    may_create_schema: bool,
}
