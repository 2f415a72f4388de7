//! `counterfoil key`.

use std::process::ExitCode;

use counterfoil_pg::{Role, Scope, TenantId, attempt};
use counterfoil_tenant::{ApiKey, Caller, KeyInfo, Label};

use crate::Failure;
use crate::args::{Format, KeyCommand};
use crate::command::{database, heading};
use crate::settings::Settings;

/// Rows read at a time.
const PAGE: u16 = 500;

pub(crate) async fn run(settings: Settings, command: KeyCommand) -> Result<ExitCode, Failure> {
    let database = database(&settings).await?;
    let pool = database.pool(Role::Ops);
    let scope = Scope::Installation;
    match command {
        KeyCommand::Create { tenant, label, format } => {
            let label = Label::new(&label).map_err(|invalid| invalid.to_string())?;
            let caller = tenant.map_or(Caller::Operator, |id| Caller::Tenant(TenantId(id)));
            let key = ApiKey::generate();
            let created = pool
                .run(&scope, |tx| {
                    let (scope, key, label) = (&scope, &key, &label);
                    attempt(async move { counterfoil_tenant::create_key(scope, tx, key, caller, label).await })
                })
                .await?;
            let Some(info) = created else {
                return Err("there is no such tenant; `counterfoil tenant list` shows them".into());
            };
            match format {
                Format::Text => println!("{}", key.token()),
                Format::Json => println!("{}", serde_json::json!({ "id": info.id, "key": key.token() })),
            }
        }
        KeyCommand::List { format } => {
            heading(format, "key\tbegins\tholder\tstate\tlabel");
            for caller in callers(&database).await? {
                let mut after = None;
                loop {
                    let tx = pool.begin(&scope).await?;
                    let page = counterfoil_tenant::list_keys(&scope, &tx, caller, after, PAGE).await?;
                    tx.rollback().await;
                    page.iter().for_each(|info| print(info, format));
                    after = page.last().map(|info| info.id);
                    if page.len() < usize::from(PAGE) {
                        break;
                    }
                }
            }
        }
        KeyCommand::Revoke { id } => {
            let revoked = pool.run(&scope, |tx| {
                let scope = &scope;
                attempt(async move { counterfoil_tenant::revoke_key(scope, tx, id).await })
            });
            if revoked.await?.is_none() {
                return Err(format!("there is no key {id}; `counterfoil key list` shows them").into());
            }
            println!("revoked {id}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Operators, then every tenant.
async fn callers(database: &counterfoil_pg::Database) -> Result<Vec<Caller>, Failure> {
    let scope = Scope::Installation;
    let mut callers = vec![Caller::Operator];
    let mut after = None;
    loop {
        let tx = database.pool(Role::Ops).begin(&scope).await?;
        let page = counterfoil_tenant::list(&scope, &tx, after, PAGE).await?;
        tx.rollback().await;
        callers.extend(page.iter().map(|tenant| Caller::Tenant(tenant.id)));
        after = page.last().map(|tenant| tenant.id);
        if page.len() < usize::from(PAGE) {
            return Ok(callers);
        }
    }
}

fn print(info: &KeyInfo, format: Format) {
    let holder = info
        .tenant
        .map_or_else(|| "operator".to_owned(), |tenant| format!("tenant {tenant}"));
    match format {
        Format::Text => {
            let state = info
                .revoked_at
                .map_or_else(|| "valid".to_owned(), |at| format!("revoked {at}"));
            println!("{}\t{}…\t{holder}\t{state}\t{}", info.id, info.prefix, info.label);
        }
        Format::Json => println!(
            "{}",
            serde_json::json!({
                "id": info.id,
                "prefix": info.prefix,
                "tenant": info.tenant,
                "label": info.label,
                "created_at": info.created_at.to_string(),
                "revoked_at": info.revoked_at.map(|at| at.to_string()),
            })
        ),
    }
}
