//! `counterfoil init`, and the same for the PostgreSQL that is brought along.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use counterfoil_migrate::Init;
use counterfoil_pg::{Config, Database, Role, Scope, Tls, attempt};
use counterfoil_pg_embedded::Running;
use counterfoil_tenant::{ApiKey, Caller, Label, NewTenant};

use crate::Failure;
use crate::args::InitArgs;
use crate::command::{MIGRATIONS, pg_settings, up::say};
use crate::home::{Place, Roles};
use crate::settings::{Foreign, Settings};

/// The database that is made in the PostgreSQL that is brought along.
const DATABASE: &str = "counterfoil";
/// The first tenant's name.
const FIRST_TENANT: &str = "first";

pub(crate) async fn run(settings: Settings, args: InitArgs) -> Result<ExitCode, Failure> {
    let Some(Foreign { place, admin }) = settings.foreign.clone() else {
        return Err(
            "init prepares a PostgreSQL that is there already: name it with --database-url; \
                    `counterfoil up` prepares the one it brings along by itself"
                .into(),
        );
    };
    settings.home.create()?;
    let mut roles = passwords(&settings)?;
    if let Some(other) = roles.database.as_ref().filter(|other| !other.is(&place)) {
        return Err(format!(
            "the folder {} belongs to database {} on {}; choose another with --data",
            settings.home.dir().display(),
            other.dbname,
            other.host
        )
        .into());
    }
    roles.database = Some(place.clone());
    let wanted = Init {
        dbname: place.dbname.clone(),
        create_database: args.create_database,
        passwords: roles.passwords.clone(),
    };
    prepare(
        &settings,
        &admin,
        &settings.tls.clone(),
        &wanted,
        &place,
        &roles,
        args.stub_retention,
    )
    .await?;
    println!(
        "database {} is ready; start the server with `counterfoil up`",
        place.dbname
    );
    Ok(ExitCode::SUCCESS)
}

/// Prepares the PostgreSQL that is brought along; does nothing where that is done.
pub(crate) async fn embedded(settings: &Settings, running: &Running) -> Result<(Place, Roles), Failure> {
    let place = Place {
        host: running.socket_dir().display().to_string(),
        port: running.port(),
        dbname: DATABASE.to_owned(),
    };
    let roles = passwords(settings)?;
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
    };
    let here = Settings {
        tls: Tls::default(),
        pooler: counterfoil_pg::Pooler::None,
        ..settings.clone()
    };
    prepare(&here, &admin, &here.tls.clone(), &wanted, &place, &roles, None).await?;
    Ok((place, roles))
}

/// The roles' passwords: those of before, or new ones.
fn passwords(settings: &Settings) -> Result<Roles, Failure> {
    if let Some(roles) = settings.home.roles()? {
        return Ok(roles);
    }
    // 128 bits each, in a form that no connection string has to quote.
    let secret = || uuid::Uuid::from_u128(rand::random()).simple().to_string();
    let passwords: BTreeMap<Role, String> = Role::ALL.into_iter().map(|role| (role, secret())).collect();
    Ok(Roles {
        database: None,
        passwords,
    })
}

async fn prepare(
    settings: &Settings,
    admin: &Config,
    tls: &Tls,
    wanted: &Init,
    place: &Place,
    roles: &Roles,
    retention: Option<u16>,
) -> Result<(), Failure> {
    counterfoil_migrate::init(admin, tls, wanted).await?;
    // Written before they are needed: a password that is set and then lost locks us out.
    settings.home.write_roles(roles)?;
    let database = Database::new(pg_settings(settings, place, roles))?;
    for name in counterfoil_migrate::run(&database, MIGRATIONS).await? {
        say(&format!("migrated: {name}"));
    }
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
    generations.rotate(&database).await?;
    database.maintain_outcomes().await?;
    first_tenant(&database).await?;
    operator_key(settings, &database).await?;
    database.close();
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
