//! The command line.

use std::path::PathBuf;

use clap::{Args as Arguments, Parser, Subcommand, ValueEnum};

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
    ///
    /// Runs until Ctrl-C or SIGTERM; then it takes nothing more, lands what was accepted, stops the
    /// PostgreSQL it has brought along, and ends with exit status 0. The data stay.
    Up(UpArgs),
    /// Prepare a PostgreSQL that is there already: roles, schema, a first tenant and an operator key
    ///
    /// Can be run again, and has to be after an update of the program. --database-url takes the user
    /// and password of a superuser, or of a role with CREATEROLE that may create a schema.
    Init(InitArgs),
    /// Create and list tenants
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Create, list and revoke API keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Show the stub of an intent, or say that there is none; exit status 0 either way
    Stub(StubArgs),
    /// Print the accounts of a tenant with their balances
    Accounts(AccountsArgs),
    /// Import data
    #[command(subcommand)]
    Import(ImportCommand),
    /// Count events: per interval, or of the subjects that have most
    Report(ReportArgs),
    /// Prove from the rows that promises 4 (money) and 7 (counts) hold; exit status 1 if they do not
    ///
    /// Beside a working server, and over the rows of all tenants: eleven rules, each one statement
    /// that reads whole tables. On a large database that takes minutes to hours of one core and of the
    /// disk, and while a rule runs vacuum removes no row that has died since its start. No lock is in
    /// anybody's way. After a second, stderr says which rule is at work.
    Check(CheckArgs),
    /// Run a benchmark: the naive way and ours in one run on one server
    ///
    /// On a PostgreSQL of its own, in a folder below TMPDIR or /var/tmp that is removed at the end:
    /// of the settings only --pg-bin plays a part.
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
    /// Lanes, 1 to 256, each with up to three connections [default: 4]
    #[arg(long, env = "COUNTERFOIL_LANES", value_name = "N", allow_negative_numbers = true)]
    pub(crate) lanes: Option<i64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct InitArgs {
    /// Create the database if it is not there
    #[arg(long)]
    pub(crate) create_database: bool,
    /// Give the five roles new passwords where they are there already: other installations on this
    /// server, whatever their database, are shut out until they have the new roles.toml
    #[arg(long)]
    pub(crate) reset_passwords: bool,
    /// How long stubs are kept at the least, in days, 1 to 3650; it cannot be changed later [default: 30]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..=3650))]
    pub(crate) stub_retention: Option<u16>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// Create a tenant and print its number
    Create(TenantCreateArgs),
    /// List the tenants: number, zone, name
    List {
        /// How to print it
        #[arg(long, default_value = "text", value_name = "FORMAT")]
        format: Format,
    },
}

#[derive(Debug, Arguments)]
pub(crate) struct TenantCreateArgs {
    /// What people call it
    pub(crate) name: String,
    /// Its time zone, by the name of the IANA database
    #[arg(long, default_value = "UTC", value_name = "ZONE")]
    pub(crate) zone: String,
    /// The order of lists that people read: a collation of the database, such as zh-TW-x-icu
    #[arg(long, default_value = "C", value_name = "NAME")]
    pub(crate) collation: String,
    /// How amounts are rounded where they have to be
    #[arg(long, default_value = "half_up", value_name = "RULE")]
    pub(crate) rounding: RoundingArg,
    /// A key of yours: the same command again under it prints the tenant that is there
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// How to print it
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum RoundingArg {
    HalfUp,
    HalfEven,
    HalfDown,
    Up,
    Down,
}

impl From<RoundingArg> for counterfoil_tenant::Rounding {
    fn from(arg: RoundingArg) -> Self {
        match arg {
            RoundingArg::HalfUp => Self::HalfUp,
            RoundingArg::HalfEven => Self::HalfEven,
            RoundingArg::HalfDown => Self::HalfDown,
            RoundingArg::Up => Self::Up,
            RoundingArg::Down => Self::Down,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Create an API key and print it, once: only its hash is kept
    Create {
        /// The tenant it is for; without one it is an operator's
        #[arg(long, value_name = "TENANT")]
        tenant: Option<i64>,
        /// What it is used for, up to 200 characters
        #[arg(long, default_value = "", value_name = "TEXT")]
        label: String,
        /// How to print it
        #[arg(long, default_value = "text", value_name = "FORMAT")]
        format: Format,
    },
    /// List keys: number, first characters, holder, state, label
    List {
        /// How to print it
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
    /// The tenant, by its number
    #[arg(long, default_value_t = 1, env = "COUNTERFOIL_TENANT", value_name = "TENANT")]
    pub(crate) tenant: i64,
    /// How to print it
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AccountsArgs {
    /// The tenant, by its number
    #[arg(long, default_value_t = 1, env = "COUNTERFOIL_TENANT", value_name = "TENANT")]
    pub(crate) tenant: i64,
    /// Only accounts whose code starts so
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,
    /// How to print it
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
    /// Import an access log in the combined or common format, plain or gzipped: each line an event
    ///
    /// The time is the one in the line, however long ago; the subject is the path, without its query.
    /// Identical lines are separate events. Importing a file again changes nothing; after an
    /// interruption, import it again. Lines that cannot be read are listed on stderr, and the exit
    /// status is then 1.
    Log(LogArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// The file, or - for standard input
    pub(crate) file: PathBuf,
    /// The stream of the events
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: String,
    /// The tenant, by its number
    #[arg(long, default_value_t = 1, env = "COUNTERFOIL_TENANT", value_name = "TENANT")]
    pub(crate) tenant: i64,
    /// Only lines that begin at this byte of the file (uncompressed) or behind it: so several
    /// processes can share a file
    #[arg(long, default_value_t = 0, value_name = "BYTE")]
    pub(crate) from_byte: u64,
    /// Only lines that begin before this byte [default: the end]
    #[arg(long, value_name = "BYTE")]
    pub(crate) to_byte: Option<u64>,
    /// How to print it
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// The stream of the events
    #[arg(long, value_name = "STREAM")]
    pub(crate) stream: String,
    /// The tenant, by its number
    #[arg(long, default_value_t = 1, env = "COUNTERFOIL_TENANT", value_name = "TENANT")]
    pub(crate) tenant: i64,
    /// Only events of this subject
    #[arg(long, value_name = "SUBJECT", conflicts_with = "top")]
    pub(crate) subject: Option<String>,
    /// How long the intervals are
    #[arg(long, default_value = "day", value_name = "GRAIN", conflicts_with = "top")]
    pub(crate) grain: GrainArg,
    /// The day on which weeks begin: sunday
    #[arg(long, default_value = "monday", value_name = "DAY", conflicts_with = "top")]
    pub(crate) week_start: String,
    /// Whose days they are, by the name of the IANA database [default: the tenant's]
    #[arg(long, value_name = "ZONE")]
    pub(crate) zone: Option<String>,
    /// From this moment on, or from the beginning of this day in the zone: 2026-01-31T12:00:00Z or
    /// 2026-01-31 [default: the first event]
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// Before this moment, or before the beginning of this day in the zone [default: the last event]
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
    /// Instead of intervals so many subjects, those with most events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..=1_000))]
    pub(crate) top: Option<i64>,
    /// How to print it
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) format: ListFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GrainArg {
    /// A quarter of an hour
    Bucket,
    Hour,
    Day,
    Week,
    Month,
}

impl From<GrainArg> for counterfoil_events::report::Grain {
    fn from(arg: GrainArg) -> Self {
        match arg {
            GrainArg::Bucket => Self::Bucket,
            GrainArg::Hour => Self::Hour,
            GrainArg::Day => Self::Day,
            GrainArg::Week => Self::Week,
            GrainArg::Month => Self::Month,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct JournalArgs {
    /// UTF-8, with a line of column names
    pub(crate) file: PathBuf,
    /// The tenant, by its number
    #[arg(long, default_value_t = 1, env = "COUNTERFOIL_TENANT", value_name = "TENANT")]
    pub(crate) tenant: i64,
    /// Where rows go that could not be imported, with the reason; mend them and import that file
    /// [default: FILE with the ending .rejected.csv]
    #[arg(long, value_name = "FILE")]
    pub(crate) rejected: Option<PathBuf>,
    /// How to print it
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Give up after this many seconds, 1 to 604800, with exit status 2 [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    pub(crate) timeout: Option<u64>,
    /// How to print it
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(crate) format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Which one; `list` names them
    pub(crate) name: String,
    /// How long each side runs, 1 to 3600, after a warm-up of a fifth of it, 5 s at the most
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Leave foreign keys and the indexes for statements out of the naive way
    #[arg(long)]
    pub(crate) lean: bool,
    /// The folder of PostgreSQL's programs, instead of those found or fetched
    #[arg(long, env = "COUNTERFOIL_PG_BIN", value_name = "DIR")]
    pub(crate) pg_bin: Option<PathBuf>,
    /// How to print it
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
