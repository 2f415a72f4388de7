//! What can stand in the way, each as one sentence that says what to do about it.

use std::time::Duration;

/// Errors of `init`, of migrations, and of the check that servers make before they serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Pg(#[from] counterfoil_pg::Error),

    #[error("could not {doing} as {user}")]
    Admin {
        doing: String,
        user: String,
        source: tokio_postgres::Error,
    },

    #[error("PostgreSQL {found} is too old: Counterfoil needs 15 or newer")]
    TooOld { found: String },

    #[error(
        "the role {role} is there already, and its password is not in this data folder: copy roles.toml \
         of the first folder here (without its [database], if this is to be another database), or pass \
         --reset-passwords, which shuts the first installation out until it has the new roles.toml"
    )]
    RoleThere { role: &'static str },

    #[error("the passwords of the roles could not be kept, so nothing was made")]
    NotKept {
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    #[error("{user} may not create roles: run `counterfoil init` as a superuser, or as a role with CREATEROLE")]
    NotAdministrator { user: String },

    #[error(
        "{user} may not change the role {role}: run `counterfoil init` as the role that created it, or \
         as a superuser, or let one of them run GRANT {role} TO {user} WITH ADMIN OPTION"
    )]
    NotOurRole { user: String, role: &'static str },

    #[error(
        "{user} may not create a schema in database {dbname}: let its owner run GRANT CREATE ON DATABASE \
         {dbname} TO {user}"
    )]
    NoSchemaRight { user: String, dbname: String },

    #[error(
        "database {dbname} is encoded as {found}, and Counterfoil needs UTF8: name another database, or \
         one that does not exist yet, so that it is created"
    )]
    Encoding { dbname: String, found: String },

    #[error(
        "the role {role} can pass over row level security: as a superuser run ALTER ROLE {role} NOSUPERUSER \
         NOBYPASSRLS, or run `counterfoil init` as one"
    )]
    PassesWalls { role: &'static str },

    #[error(
        "the schema counterfoil of database {dbname} belongs to {owner}, so it is not ours: name another \
         database, or rename that schema"
    )]
    ForeignSchema { dbname: String, owner: String },

    #[error("the name of the database is empty or has a NUL in it: name another")]
    DatabaseName,

    #[error("database {dbname} has no schema of Counterfoil: run `counterfoil init`")]
    Uninitialised { dbname: String },

    #[error("database {dbname} lacks {missing} of this version's migrations, {first} first: run `counterfoil init`")]
    Behind {
        dbname: String,
        missing: usize,
        first: String,
    },

    #[error(
        "database {dbname} has been migrated by a newer version of Counterfoil ({name} is unknown to this \
         one): run that version or a newer one"
    )]
    Newer { dbname: String, name: String },

    #[error(
        "migration {name} is not the one that was applied to database {dbname}: run a released version of \
         Counterfoil, whose migrations never change"
    )]
    Changed { dbname: String, name: String },

    #[error(
        "another process has been migrating database {dbname} for more than {} s: see what it waits for, \
         then try again", .waited.as_secs()
    )]
    Busy { dbname: String, waited: Duration },

    #[error("migration {name} failed, and nothing of it was applied")]
    Migration {
        name: String,
        source: counterfoil_pg::Error,
    },

    #[error("what became of migration {name} is unknown, because the database went away: run it again, which is safe")]
    Unknown {
        name: String,
        source: counterfoil_pg::Error,
    },
}
