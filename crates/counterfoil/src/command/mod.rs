//! One file per command, and what several of them need.

pub(crate) mod accounts;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod stub;
pub(crate) mod tenant;
pub(crate) mod up;

use counterfoil_intent::Kinds;
use counterfoil_pg::{Database, Role, Scope, Settings as PgSettings, TenantId};

use crate::Failure;
use crate::home::{Place, Roles};
use crate::settings::Settings;

/// Every migration of this program, in order.
pub(crate) const MIGRATIONS: &[&[(&str, &str)]] = &[
    counterfoil_pg::MIGRATIONS,
    counterfoil_tenant::MIGRATIONS,
    counterfoil_intent::MIGRATIONS,
    counterfoil_ledger::MIGRATIONS,
];

/// Every kind of this program.
pub(crate) fn kinds() -> Kinds {
    let mut kinds = Kinds::new();
    counterfoil_ledger::register(&mut kinds);
    kinds
}

/// How this program speaks to the database at `place`.
pub(crate) fn pg_settings(settings: &Settings, place: &Place, roles: &Roles) -> PgSettings {
    let mut pg = PgSettings::new(&place.host, place.port, &place.dbname);
    pg.passwords.clone_from(&roles.passwords);
    pg.pooler = settings.pooler;
    pg.tls = settings.tls.clone();
    pg.pool_size
        .insert(Role::Lane, 3 * settings.lanes.lanes + settings.lanes.detours + 1);
    pg
}

/// The tenant of this number, or a sentence that there is none: an empty answer would look like one.
pub(crate) async fn tenant(database: &Database, id: i64) -> Result<TenantId, Failure> {
    let id = TenantId(id);
    let scope = Scope::Tenant(id);
    let tx = database.pool(Role::App).begin(&scope).await?;
    let found = counterfoil_tenant::get(&scope, &tx, id).await?;
    tx.rollback().await;
    match found {
        Some(tenant) => Ok(tenant.id),
        None => Err(format!("there is no tenant {id}; `counterfoil tenant list` shows them").into()),
    }
}

/// The database that the settings name, for commands that work beside a running server: the one
/// they name, the one `init` prepared, or the one that a running `up` brought along.
pub(crate) async fn database(settings: &Settings) -> Result<Database, Failure> {
    let home = &settings.home;
    let dir = home.dir().display();
    let Some(roles) = home.roles()? else {
        return Err(
            format!("nothing has been set up in {dir}; start `counterfoil up`, or run `counterfoil init`").into(),
        );
    };
    let place = match (&settings.foreign, &roles.database) {
        (Some(foreign), _) => foreign.place.clone(),
        (None, Some(place)) => place.clone(),
        (None, None) => match home.running()? {
            Some(running) => running.database,
            None => return Err(format!("no server is running on {dir}; start `counterfoil up` first").into()),
        },
    };
    let database = Database::new(pg_settings(settings, &place, &roles))?;
    counterfoil_migrate::require(&database, MIGRATIONS).await?;
    Ok(database)
}
