//! `counterfoil tenant`.

use std::process::ExitCode;

use counterfoil_pg::{Pool, Role, Scope, attempt};
use counterfoil_tenant::{Created, NewTenant, Tenant};

use crate::Failure;
use crate::args::{Format, TenantCommand};
use crate::command::database;
use crate::command::heading;
use crate::command::up::say;
use crate::settings::Settings;

/// Rows read at a time.
const PAGE: u16 = 500;

pub(crate) async fn run(settings: Settings, command: TenantCommand) -> Result<ExitCode, Failure> {
    let database = database(&settings).await?;
    let pool = database.pool(Role::Ops);
    let scope = Scope::Installation;
    match command {
        TenantCommand::Create(args) => {
            let new = NewTenant::new(&args.name)
                .and_then(|new| new.zone(&args.zone))
                .and_then(|new| new.collation(&args.collation))
                .map_err(|invalid| invalid.to_string())?
                .rounding(args.rounding.into());
            let tenant = match args.key {
                None => pool
                    .run(&scope, |tx| {
                        let (scope, new) = (&scope, &new);
                        attempt(async move { counterfoil_tenant::create(scope, tx, new).await })
                    })
                    .await?
                    .map_err(|invalid| invalid.to_string())?,
                Some(key) => once(pool, &key, &new).await?,
            };
            print(&tenant, args.format);
        }
        TenantCommand::List { format } => {
            heading(format, "tenant\tzone\tname");
            let mut after = None;
            loop {
                let tx = pool.begin(&scope).await?;
                let page = counterfoil_tenant::list(&scope, &tx, after, PAGE).await?;
                tx.rollback().await;
                for tenant in &page {
                    print(tenant, format);
                }
                after = page.last().map(|tenant| tenant.id);
                if page.len() < usize::from(PAGE) {
                    break;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Under a key as the API has it: the same command again finds what the first has made.
async fn once(pool: &Pool, key: &str, new: &NewTenant) -> Result<Tenant, Failure> {
    let key = counterfoil_intent::one_key(Some(key), None).map_err(|invalid| invalid.to_string())?;
    let (scope, key) = (Scope::Installation, key.to_string());
    let created = pool.run(&scope, |tx| {
        let (scope, key) = (&scope, key.as_str());
        attempt(async move { counterfoil_tenant::create_once(scope, tx, key, new).await })
    });
    match created.await?.map_err(|invalid| invalid.to_string())? {
        Created::First(tenant) => Ok(tenant),
        Created::Again(tenant) => {
            say("it was created before, under this key");
            Ok(tenant)
        }
        Created::Other { field } => {
            Err(format!("the key was used to create another tenant; its {field} differs, and nothing was done").into())
        }
    }
}

fn print(tenant: &Tenant, format: Format) {
    match format {
        Format::Text => println!("{}\t{}\t{}", tenant.id, tenant.zone, tenant.name),
        Format::Json => println!(
            "{}",
            serde_json::json!({
                "id": tenant.id.0,
                "name": tenant.name,
                "zone": tenant.zone,
                "collation": tenant.collation,
                "rounding": tenant.rounding.as_str(),
                "created_at": tenant.created_at.to_string(),
            })
        ),
    }
}
