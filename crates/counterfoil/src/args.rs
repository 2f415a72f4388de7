//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// The write path for PostgreSQL: each intent lands exactly once, inside its tenant's walls, in one
/// short transaction, and leaves a stub.
///
/// Stdout is data, stderr is the rest. Exit status: 0 fine, 1 findings, 2 could not run.
/// Settings: flags over COUNTERFOIL_* environment variables over counterfoil.toml.
#[derive(Debug, Parser)]
#[command(name = "counterfoil", version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct SettingsArgs {
    /// The folder of the data, the keys and the settings [default: /var/lib/counterfoil as root, else
    /// ~/.local/share/counterfoil]
    #[arg(long, global = true, env = "COUNTERFOIL_DATA", value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Use this PostgreSQL instead of bringing one: postgres://HOST[:PORT]/DATABASE, with a user and
    /// password for `init` only
    #[arg(
        long,
        global = true,
        env = "COUNTERFOIL_DATABASE_URL",
        value_name = "URL",
        hide_env_values = true
    )]
    pub(crate) database_url: Option<String>,
    /// What stands between us and PostgreSQL [default: none]
    #[arg(long, global = true, env = "COUNTERFOIL_POOLER", value_name = "POOLER")]
    pub(crate) pooler: Option<PoolerArg>,
    /// Encryption of the connection to PostgreSQL [default: disable]
    #[arg(long, global = true, env = "COUNTERFOIL_TLS", value_name = "MODE")]
    pub(crate) tls: Option<TlsArg>,
    /// PEM file of the authorities trusted for it
    #[arg(long, global = true, env = "COUNTERFOIL_TLS_ROOT_CERT", value_name = "FILE")]
    pub(crate) tls_root_cert: Option<PathBuf>,
    /// Read this file instead of counterfoil.toml in the data folder
    #[arg(long, global = true, env = "COUNTERFOIL_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PoolerArg {
    /// Nothing that shares our sessions
    None,
    /// A pooler in transaction mode, such as PgBouncer
    Transaction,
}

#[derive(Debug, Clone, Copy, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TlsArg {
    /// Plain text: for unix sockets and the same machine
    Disable,
    /// Encrypted; with a root certificate the chain is verified
    Require,
    /// Encrypted; chain and host name verified
    VerifyFull,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bring everything up: PostgreSQL, schema, a first tenant and key, the server
    Up(UpArgs),
    /// Prepare a PostgreSQL that is there already: roles, schema, a first tenant and an operator key
    Init(InitArgs),
    /// Create and list tenants
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Create, list and revoke API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Show the stub of an intent
    Stub(StubArgs),
    /// Print the accounts of a tenant with their balances
    Accounts(AccountsArgs),
    /// Import data
    #[command(subcommand)]
    Import(ImportCommand),
    /// Prove from the rows that promise 4 (money) holds; exit status 1 if it does not
    Check(CheckArgs),
    /// Run a benchmark: the naive way and ours in one run on one server
    Bench(BenchArgs),
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct UpArgs {
    /// Where to listen for HTTP; port 0 takes a free one [default: 127.0.0.1:7070]
    #[arg(long, env = "COUNTERFOIL_LISTEN", value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// The folder of PostgreSQL's programs, instead of those found or fetched
    #[arg(long, env = "COUNTERFOIL_PG_BIN", value_name = "DIR")]
    pub(crate) pg_bin: Option<PathBuf>,
    /// The port of the PostgreSQL that is brought along; 0 takes a free one [default: 0]
    #[arg(long, env = "COUNTERFOIL_PG_PORT", value_name = "PORT")]
    pub(crate) pg_port: Option<u16>,
    /// Lanes, each with one connection [default: 4]
    #[arg(long, env = "COUNTERFOIL_LANES", value_name = "N")]
    pub(crate) lanes: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// Create the database if it is not there
    #[arg(long)]
    pub(crate) create_database: bool,
    /// How long stubs are kept at the least, in days; it cannot be changed later [default: 30]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub(crate) stub_retention: Option<u16>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Create a tenant and print its number
    Create {
        /// What people call it
        name: String,
        /// Its time zone, by the name of the IANA database
        #[arg(long, default_value = "UTC", value_name = "ZONE")]
        zone: String,
        #[arg(long, default_value = "text", value_name = "FORMAT")]
        format: Format,
    },
    /// List the tenants
    List {
        #[arg(long, default_value = "text", value_name = "FORMAT")]
        format: Format,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Create an API key and print it, once: only its hash is kept
    Create {
        /// The tenant it is for; without one it is an operator's
        #[arg(long, value_name = "TENANT")]
        tenant: Option<i64>,
        /// What it is used for
        #[arg(long, default_value = "", value_name = "TEXT")]
        label: String,
        #[arg(long, default_value = "text", value_name = "FORMAT")]
        format: Format,
    },
    /// List keys: number, tenant, first characters, label, state
    List {
        #[arg(long, default_value = "text", value_name = "FORMAT")]
        format: Format,
    },
    /// Revoke a key; every server stops taking it within two seconds
    Revoke {
        /// Its number, as `key list` shows it
        id: i64,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct StubArgs {
    /// The idempotency key
    pub(crate) key: String,
    #[arg(long, default_value_t = 1, env = "COUNTERFOIL_TENANT", value_name = "TENANT")]
    pub(crate) tenant: i64,
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AccountsArgs {
    #[arg(long, default_value_t = 1, env = "COUNTERFOIL_TENANT", value_name = "TENANT")]
    pub(crate) tenant: i64,
    /// Only accounts whose code starts so
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) format: ListFormat,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    /// Import transfers from a CSV file with the columns key, date, description, account, asset, amount
    ///
    /// Rows of one key are one transfer. Assets and accounts are opened as needed. Importing a file
    /// again changes nothing; after an interruption, import it again.
    Journal(JournalArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct JournalArgs {
    pub(crate) file: PathBuf,
    #[arg(long, default_value_t = 1, env = "COUNTERFOIL_TENANT", value_name = "TENANT")]
    pub(crate) tenant: i64,
    /// Where rows go that could not be imported, with the reason; mend them and import that file
    /// [default: FILE with the ending .rejected.csv]
    #[arg(long, value_name = "FILE")]
    pub(crate) rejected: Option<PathBuf>,
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Which one; `list` names them
    pub(crate) name: String,
    /// How long each side runs
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// The folder of PostgreSQL's programs, instead of those found or fetched
    #[arg(long, env = "COUNTERFOIL_PG_BIN", value_name = "DIR")]
    pub(crate) pg_bin: Option<PathBuf>,
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// For people
    Text,
    /// For programs
    Json,
    /// For spreadsheets
    Csv,
}
