//! `counterfoil stub KEY`.

use std::process::ExitCode;

use counterfoil_intent::{Key, Stub};
use counterfoil_pg::{Role, Scope};

use crate::Failure;
use crate::args::{Format, StubArgs};
use crate::command::{database, tenant};
use crate::settings::Settings;

pub(crate) async fn run(settings: Settings, args: StubArgs) -> Result<ExitCode, Failure> {
    let key = Key::parse(&args.key)?;
    let database = database(&settings).await?;
    let tenant = tenant(&database, args.tenant).await?;
    let scope = Scope::Tenant(tenant);
    let tx = database.pool(Role::App).begin(&scope).await?;
    let (stub, as_of) = Stub::find(&scope, &tx, tenant, &key).await?;
    tx.rollback().await;
    match (stub, args.format) {
        (Some(stub), Format::Text) => {
            let outcome = if stub.accepted { "accepted" } else { "refused" };
            println!("{outcome}\t{}\t{}\t{}", stub.kind, stub.recorded_at, stub.result);
        }
        (Some(stub), Format::Json) => println!(
            "{}",
            serde_json::json!({
                "key": stub.key.to_string(),
                "kind": stub.kind,
                "outcome": if stub.accepted { "accepted" } else { "refused" },
                "result": serde_json::from_str::<serde_json::Value>(&stub.result)?,
                "recorded_at": stub.recorded_at.to_string(),
            })
        ),
        (None, Format::Text) => println!("none as of {as_of}: it is safe to send the intent again under this key"),
        (None, Format::Json) => println!("{}", serde_json::json!({ "state": "none", "as_of": as_of.to_string() })),
    }
    Ok(ExitCode::SUCCESS)
}
