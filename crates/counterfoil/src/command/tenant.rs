//! `counterfoil tenant`.

use std::process::ExitCode;

use counterfoil_pg::{Role, Scope, attempt};
use counterfoil_tenant::{NewTenant, Tenant};

use crate::Failure;
use crate::args::{Format, TenantCommand};
use crate::command::database;
use crate::settings::Settings;

/// Rows read at a time.
const PAGE: u16 = 500;

pub(crate) async fn run(settings: Settings, command: TenantCommand) -> Result<ExitCode, Failure> {
    let database = database(&settings).await?;
    let pool = database.pool(Role::Ops);
    let scope = Scope::Installation;
    match command {
        TenantCommand::Create { name, zone, format } => {
            let new = NewTenant::new(&name)
                .and_then(|new| new.zone(&zone))
                .map_err(|invalid| invalid.to_string())?;
            let tenant = pool
                .run(&scope, |tx| {
                    let (scope, new) = (&scope, &new);
                    attempt(async move { counterfoil_tenant::create(scope, tx, new).await })
                })
                .await?
                .map_err(|invalid| invalid.to_string())?;
            print(&tenant, format);
        }
        TenantCommand::List { format } => {
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
