//! The binary: arguments, then settings, then one file per command. No logic of its own.

mod args;
mod command;
mod home;
mod keeper;
mod settings;
mod steps;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};

/// What `main` returns where it could not run at all; 1 is for findings.
const COULD_NOT_RUN: u8 = 2;

/// An error is shown as one sentence, followed by the sentences of what caused it.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let args = Args::parse();
    log();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    match runtime.block_on(run(args)) {
        Ok(code) => code,
        Err(error) => fail(&*error),
    }
}

async fn run(args: Args) -> Result<ExitCode, Failure> {
    let settings = settings::Settings::read(args.settings)?;
    match args.command {
        Command::Up(up) => command::up::run(settings.with_up(up)?).await,
        Command::Init(init) => command::init::run(settings, init).await,
        Command::Tenant(tenant) => command::tenant::run(settings, tenant).await,
        Command::Key(key) => command::key::run(settings, key).await,
        Command::Stub(stub) => command::stub::run(settings, stub).await,
        Command::Accounts(accounts) => command::accounts::run(settings, accounts).await,
        Command::Import(import) => command::import::run(settings, import).await,
        Command::Report(report) => command::report::run(settings, report).await,
        Command::Check(check) => command::check::run(settings, check).await,
        Command::Bench(bench) => command::bench::run(bench).await,
    }
}

fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("COUNTERFOIL_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn,counterfoil=info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("counterfoil: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // What the PostgreSQL client says before it comes to the point.
        if text != "db error" {
            eprintln!("  because: {text}");
        }
        cause = error.source();
    }
    ExitCode::from(COULD_NOT_RUN)
}
