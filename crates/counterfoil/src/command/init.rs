//! `counterfoil init`, and the same for the PostgreSQL that is brought along.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use counterfoil_migrate::{Existing, Init};
use counterfoil_pg::{Config, Database, Role, Scope, Tls, attempt};
use counterfoil_pg_embedded::Running;
use counterfoil_tenant::{ApiKey, Caller, Label, NewTenant};

use crate::Failure;
use crate::args::InitArgs;
use crate::command::up::{rotate, say};
use crate::command::{MIGRATIONS, pg_settings};
use crate::home::{Address, Roles};
use crate::settings::{Foreign, Settings};

/// The database that is made in the PostgreSQL that is brought along.
const DATABASE: &str = "counterfoil";
/// The first tenant's name.
const FIRST_TENANT: &str = "first";

pub(crate) async fn run(settings: Settings, args: InitArgs) -> Result<ExitCode, Failure> {
    let Some(Foreign { address, mut admin }) = settings.foreign.clone() else {
        return Err(
            "init prepares a PostgreSQL that is there already: name it with --database-url; \
                    `counterfoil up` prepares the one it brings along by itself"
                .into(),
        );
    };
    if args.create_database {
        // One that is always there: who wants to make a database cannot connect to it yet.
        admin.dbname("postgres");
    }
    settings.home.create()?;
    let known = settings.home.roles()?;
    match known.as_ref().map(|roles| &roles.database) {
        Some(Some(other)) if *other != address => {
            let dir = settings.home.dir().display();
            return Err(format!(
                "the folder {dir} belongs to {other}; choose another with --data, or remove its roles.toml if that \
                 database is gone"
            )
            .into());
        }
        Some(Some(_)) => {}
        Some(None) | None => settings.home.refuse_beside_a_cluster(&address)?,
    }
    let existing = match (&known, args.reset_passwords) {
        (_, true) => Existing::Reset,
        (Some(_), false) => Existing::Keep,
        (None, false) => Existing::Refuse,
    };
    let roles = Roles {
        database: Some(address.clone()),
        ..known.unwrap_or_else(new_passwords)
    };
    let wanted = Init {
        dbname: address.dbname.clone(),
        create_database: args.create_database,
        passwords: roles.passwords.clone(),
        existing,
    };
    prepare(
        &settings,
        &admin,
        &settings.tls.clone(),
        &wanted,
        &address,
        &roles,
        args.stub_retention,
    )
    .await?;
    println!(
        "database {} is ready; start the server with `counterfoil up`",
        address.dbname
    );
    Ok(ExitCode::SUCCESS)
}

/// Prepares the PostgreSQL that is brought along; does nothing where that is done.
pub(crate) async fn embedded(settings: &Settings, running: &Running) -> Result<(Address, Roles), Failure> {
    let address = Address {
        host: running.socket_dir().display().to_string(),
        port: running.port(),
        dbname: DATABASE.to_owned(),
    };
    let roles = settings.home.roles()?.unwrap_or_else(new_passwords);
    let mut admin = Config::new();
    admin
        .host(running.host())
        .port(running.port())
        .user(running.user())
        .password(running.password());
    admin.dbname("postgres");
    let wanted = Init {
        dbname: DATABASE.to_owned(),
        create_database: true,
        passwords: roles.passwords.clone(),
        // Nobody else lives by the roles of this server, and a roles.toml that was lost is made anew.
        existing: Existing::Reset,
    };
    let here = Settings {
        tls: Tls::default(),
        pooler: counterfoil_pg::Pooler::None,
        ..settings.clone()
    };
    prepare(&here, &admin, &here.tls.clone(), &wanted, &address, &roles, None).await?;
    Ok((address, roles))
}

fn new_passwords() -> Roles {
    // 128 bits each, in a form that no connection string has to quote.
    let secret = || uuid::Uuid::from_u128(rand::random()).simple().to_string();
    let passwords: BTreeMap<Role, String> = Role::ALL.into_iter().map(|role| (role, secret())).collect();
    Roles {
        database: None,
        passwords,
    }
}

async fn prepare(
    settings: &Settings,
    admin: &Config,
    tls: &Tls,
    wanted: &Init,
    address: &Address,
    roles: &Roles,
    retention: Option<u16>,
) -> Result<(), Failure> {
    let mut keep = || Ok(settings.home.write_roles(roles)?);
    counterfoil_migrate::init_after(admin, tls, wanted, &mut keep).await?;
    let database = Database::new(pg_settings(settings, address, roles))?;
    every_role_gets_in(&database).await?;
    // Each is logged as it is applied.
    counterfoil_migrate::run(&database, MIGRATIONS).await?;
    if let Some(days) = retention {
        let retention = Duration::from_secs(u64::from(days) * 86_400);
        counterfoil_intent::Generations::set_retention(&database, retention).await?;
    }
    let generations = counterfoil_intent::Generations::load(&database).await?;
    if let Some(days) = retention
        && generations.retention() != Duration::from_secs(u64::from(days) * 86_400)
    {
        let is = generations.retention().as_secs() / 86_400;
        return Err(
            format!("stubs of this database are kept for {is} days, and that cannot be changed any more").into(),
        );
    }
    rotate(generations, &database).await;
    if let Err(error) = database.maintain_outcomes().await {
        let cause = &error as &dyn std::error::Error;
        tracing::warn!(
            error = cause,
            "partitions of outcome rows could not be made now; servers try again"
        );
    }
    first_tenant(&database).await?;
    operator_key(settings, &database).await?;
    database.close();
    Ok(())
}

/// Passwords that were there before may be others than those in the data folder.
async fn every_role_gets_in(database: &Database) -> Result<(), Failure> {
    for role in Role::ALL {
        database.pool(role).begin(&Scope::Installation).await?.rollback().await;
    }
    Ok(())
}

async fn first_tenant(database: &Database) -> Result<(), Failure> {
    let scope = Scope::Installation;
    let new = NewTenant::new(FIRST_TENANT).map_err(|invalid| invalid.to_string())?;
    let pool = database.pool(Role::Ops);
    let created = pool.run(&scope, |tx| {
        let (scope, new) = (&scope, &new);
        attempt(async move {
            if counterfoil_tenant::list(scope, tx, None, 1).await?.is_empty() {
                return counterfoil_tenant::create(scope, tx, new).await.map(Some);
            }
            Ok(None)
        })
    });
    if let Some(Ok(tenant)) = created.await? {
        say(&format!("created tenant {} ({})", tenant.id, tenant.name));
    }
    Ok(())
}

/// An operator's key in a file beside the passwords, unless there is one.
async fn operator_key(settings: &Settings, database: &Database) -> Result<(), Failure> {
    let path = settings.home.operator_key();
    if path.exists() {
        return Ok(());
    }
    let key = ApiKey::generate();
    let label = Label::new("made by counterfoil init").map_err(|invalid| invalid.to_string())?;
    let scope = Scope::Installation;
    database
        .pool(Role::Ops)
        .run(&scope, |tx| {
            let (scope, key, label) = (&scope, &key, &label);
            attempt(async move { counterfoil_tenant::create_key(scope, tx, key, Caller::Operator, label).await })
        })
        .await?;
    settings.home.write_operator_key(key.token())?;
    say(&format!("wrote an operator's key to {}", path.display()));
    Ok(())
}
