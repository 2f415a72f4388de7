//! `counterfoil bench NAME`.

use std::process::{Command, ExitCode};

use counterfoil_bench::{NAMES, Options, ServerParams};

use crate::Failure;
use crate::args::{BenchArgs, Format};
use crate::command::up::say;

pub(crate) async fn run(args: BenchArgs) -> Result<ExitCode, Failure> {
    if args.name == "list" {
        NAMES.iter().for_each(|name| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    let program = std::env::current_exe()?;
    let seconds = u32::try_from(args.seconds)?;
    let mut options = Options::new(seconds, move |params| server(&program, params));
    options.pg_bin = args.pg_bin;
    options.lean = args.lean;
    let report = counterfoil_bench::run(&args.name, &options, say).await?;
    match args.format {
        Format::Text => print!("{}", report.table()),
        Format::Json => println!("{}", serde_json::to_string(&report)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prepares the database and becomes the server, in one process as the bench sees it.
fn server(program: &std::path::Path, params: &ServerParams) -> Command {
    let mut command = Command::new("/bin/sh");
    command.arg("-ec").arg(
        r#""$0" init --data "$1" --database-url "$2"; exec "$0" up --data "$1" --database-url "$3" --listen "$4""#,
    );
    command
        .arg(program)
        .arg(&params.data)
        .arg(&params.database_url)
        .arg(&params.socket_url)
        .arg(&params.listen);
    for (name, _) in std::env::vars_os() {
        // The run is of the program as it is set up by default, whatever the caller's shell says.
        if name.to_string_lossy().starts_with("COUNTERFOIL_") {
            command.env_remove(name);
        }
    }
    command
}
