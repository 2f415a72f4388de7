//! One file per command, and what several of them need.

pub(crate) mod accounts;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod key;
pub(crate) mod log;
pub(crate) mod report;
pub(crate) mod stub;
pub(crate) mod tenant;
pub(crate) mod up;

use std::io::{IsTerminal as _, stdout};

use counterfoil_intent::Kinds;
use counterfoil_pg::{Database, Pooler, Role, Scope, Settings as PgSettings, TenantId};

use crate::Failure;
use crate::args::Format;
use crate::command::up::say;
use crate::home::{Address, Roles};
use crate::settings::Settings;

/// Every migration of this program, in order.
pub(crate) const MIGRATIONS: &[&[(&str, &str)]] = &[
    counterfoil_pg::MIGRATIONS,
    counterfoil_tenant::MIGRATIONS,
    counterfoil_intent::MIGRATIONS,
    counterfoil_events::MIGRATIONS,
    counterfoil_ledger::MIGRATIONS,
];

/// Every kind of this program.
pub(crate) fn kinds() -> Kinds {
    let mut kinds = Kinds::new();
    counterfoil_ledger::register(&mut kinds);
    kinds
}

/// How this program speaks to the database at this address.
pub(crate) fn pg_settings(settings: &Settings, address: &Address, roles: &Roles) -> PgSettings {
    let mut pg = PgSettings::new(&address.host, address.port, &address.dbname);
    pg.passwords.clone_from(&roles.passwords);
    pg.pooler = settings.pooler;
    pg.tls = settings.tls.clone();
    pg.pool_size.insert(Role::Lane, lane_connections(settings));
    pg
}

/// Of each lane three, since its batches overlap; of each detour one; one more that a batch may take
/// before the last has given its own back; and those of the event lane.
fn lane_connections(settings: &Settings) -> usize {
    3 * settings.lanes.lanes + settings.lanes.detours + 1 + settings.events.workers
}

/// What a server needs at the most: its pools, and the three of `/readyz`.
pub(crate) fn connections(settings: &Settings) -> usize {
    let others = Role::ALL.iter().filter(|role| **role != Role::Lane);
    let others: usize = others.map(|role| role.default_pool_size()).sum();
    lane_connections(settings) + others + 3
}

/// The names of the columns of a list, on a terminal: for a program they would be a row.
pub(crate) fn heading(format: Format, columns: &str) {
    if format == Format::Text && stdout().is_terminal() {
        println!("{columns}");
    }
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

/// A database that is there already: the one that the settings name, else the one that `init` has
/// prepared from this data folder. None: PostgreSQL is brought along.
pub(crate) fn prepared(settings: &Settings) -> Result<Option<(Address, Roles)>, Failure> {
    let home = &settings.home;
    let dir = home.dir().display();
    let named = settings.foreign.as_ref().map(|foreign| foreign.address.clone());
    let roles = home.roles()?;
    match (named, roles) {
        (Some(named), None) => Err(format!(
            "the passwords of our roles in {named} are not in {dir}; run `counterfoil init` with its URL first"
        )
        .into()),
        (Some(named), Some(roles)) => {
            match &roles.database {
                Some(own) if *own == named => {}
                // A pooler has an address of its own.
                Some(_) if settings.pooler == Pooler::Transaction => {}
                // Perhaps the same server by another name; if not, what follows needs explaining.
                Some(own) => say(&format!(
                    "roles.toml in {dir} belongs to {own}; its passwords are used for {named}, as --database-url says"
                )),
                None => home.refuse_beside_a_cluster(&named)?,
            }
            Ok(Some((named, roles)))
        }
        (None, Some(roles)) => Ok(roles.database.clone().map(|own| (own, roles))),
        (None, None) => Ok(None),
    }
}

/// For commands that work beside a running server: the database of [`prepared`], or the one that a
/// running `up` has brought along.
pub(crate) async fn database(settings: &Settings) -> Result<Database, Failure> {
    let home = &settings.home;
    let dir = home.dir().display();
    let (address, roles) = match (prepared(settings)?, home.roles()?) {
        (Some(prepared), _) => prepared,
        (None, None) => {
            return Err(
                format!("nothing has been set up in {dir}; start `counterfoil up`, or run `counterfoil init`").into(),
            );
        }
        (None, Some(roles)) => match home.running()? {
            Some(running) => (running.database, roles),
            None => return Err(format!("no server is running on {dir}; start `counterfoil up` first").into()),
        },
    };
    let database = Database::new(pg_settings(settings, &address, &roles))?;
    counterfoil_migrate::require(&database, MIGRATIONS).await?;
    Ok(database)
}
