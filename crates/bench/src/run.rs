//! One run: a server, both schemas, the naive way, ours, and the check of both.

use std::path::PathBuf;
use std::process::Command;

use tokio::signal::unix::{SignalKind, signal};

use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::load::{Measured, Times, measure};
use crate::postgres::{Control, Folder, Postgres};
use crate::report::{Report, Side, round};
use crate::server::{Server, ServerParams};
use crate::{events, machine, naive, ours};

/// How a benchmark is run.
pub struct Options {
    /// Measured time of each side, after a warm-up.
    pub seconds: u32,
    /// The folder of PostgreSQL's programs; the newest there are if not given.
    pub pg_bin: Option<PathBuf>,
    /// Settings of PostgreSQL that win over those of `counterfoil up`.
    pub pg_settings: Vec<(String, String)>,
    /// Where the run's folder is made: `TMPDIR`, or else `/var/tmp`.
    pub folder: Option<PathBuf>,
    /// Leaves the folder where it is.
    pub keep: bool,
    /// Connections of our side, instead of the benchmark's own number.
    pub in_flight: Option<usize>,
    /// Accounts, instead of the benchmark's own number.
    pub accounts: Option<u32>,
    /// Leaves foreign keys and the indexes for statements out of the naive way: the barest there is.
    pub lean: bool,
    /// The tenant of our side.
    pub tenant: i64,
    /// The file with the operator key, in [`ServerParams::data`].
    pub operator_key: PathBuf,
    /// The command line that brings our server up.
    pub server: Box<dyn Fn(&ServerParams) -> Command + Send + Sync>,
}

impl Options {
    /// The defaults, for a server started by this command line.
    pub fn new(seconds: u32, server: impl Fn(&ServerParams) -> Command + Send + Sync + 'static) -> Self {
        Self {
            seconds,
            pg_bin: None,
            pg_settings: Vec::new(),
            folder: None,
            keep: false,
            in_flight: None,
            accounts: None,
            lean: false,
            tenant: 1,
            operator_key: PathBuf::from("operator.key"),
            server: Box::new(server),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("seconds", &self.seconds)
            .field("pg_bin", &self.pg_bin)
            .finish_non_exhaustive()
    }
}

/// Runs one benchmark, both ways. Ctrl-C or SIGTERM ends it, and what it started.
pub async fn run(name: &str, options: &Options, progress: impl Fn(&str)) -> Result<Report> {
    let stop = stop_signal()?;
    tokio::select! {
        report = both(name, options, &progress) => report,
        () = stop => Err(Error::Interrupted),
    }
}

/// Resolves on Ctrl-C or SIGTERM: the run is dropped then, and with it PostgreSQL, server and folder.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    let listen = |kind| {
        signal(kind).map_err(|source| Error::Connection {
            whom: "the system",
            source,
        })
    };
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

async fn both(name: &str, options: &Options, progress: &impl Fn(&str)) -> Result<Report> {
    let bench = bench_of(name, options)?;
    let mut stage = Stage::set(options, progress).await?;
    progress("preparing the naive schema");
    if bench.is_events() {
        events::prepare(&stage.control).await?;
    } else {
        naive::prepare(&stage.control, &bench, options.lean).await?;
    }

    progress("starting the server");
    let (params, log) = (stage.server_params()?, stage.folder.path().join("server.log"));
    let server = Server::start((options.server)(&params), &params, &options.operator_key, log).await?;
    stage.control.server = Some(server.pid());
    let door = ours::Door::of(&server, options.tenant);
    if bench.is_events() {
        return stage.events(&bench, options, server, door, progress).await;
    }
    progress(&format!("opening {} accounts over HTTP", bench.accounts));
    let opened = ours::prepare(&door, &bench).await?;

    progress(&format!("the naive way, for {} s", options.seconds));
    let naive = stage.naive(&bench, options.seconds).await?;

    progress(&format!("ours, for {} s", options.seconds));
    stage.control.settle().await?;
    let connections = options.in_flight.unwrap_or(bench.ours).max(1);
    let times = Times::of(options.seconds);
    let measured = measure(&stage.control, times, move || ours::connect(door, bench, connections)).await?;
    let units = bench.batch.unwrap_or(1);
    let peak = machine::peak_memory(server.pid()).unwrap_or(0);

    progress("comparing what clients saw with what the database holds");
    server.stop().await?;
    ours::verify(&stage.control, &bench, opened, measured.tally.all.accepted).await?;
    let ours = Side::new(&measured, options.seconds, connections, units);
    let report = stage.report(&bench, options, naive, ours, peak);
    stage.clear().await?;
    Ok(report)
}

/// Runs the naive way alone: to tune it, and to see what the machine can do.
pub async fn naive_only(name: &str, options: &Options, progress: impl Fn(&str)) -> Result<Side> {
    let bench = bench_of(name, options)?;
    if bench.is_events() {
        return Err(Error::UnknownName(name.to_owned()));
    }
    let stage = Stage::set(options, &progress).await?;
    naive::prepare(&stage.control, &bench, options.lean).await?;
    progress(&format!("the naive way, for {} s", options.seconds));
    let side = stage.naive(&bench, options.seconds).await?;
    stage.clear().await?;
    Ok(side)
}

fn bench_of(name: &str, options: &Options) -> Result<Bench> {
    let bench = Bench::named(name)?;
    // Six digits are what an account's number has.
    let accounts = options.accounts.unwrap_or(bench.accounts).clamp(2, 1_000_000);
    Ok(Bench { accounts, ..bench })
}

/// A PostgreSQL of the run's own. Fields are dropped in order: the folder goes last.
struct Stage {
    control: Control,
    postgres: Postgres,
    folder: Folder,
}

impl Stage {
    async fn set(options: &Options, progress: &impl Fn(&str)) -> Result<Self> {
        let folder = Folder::new(options.folder.as_deref(), options.keep)?;
        if machine::file_system(folder.path()).is_some_and(|kind| kind == "tmpfs") {
            progress(
                "this folder is in memory, where a flush costs nothing: choose another for figures that mean anything",
            );
        }
        progress("starting a PostgreSQL of its own");
        let cluster = folder.path().join("cluster");
        let start = Postgres::start(options.pg_bin.clone(), cluster, options.pg_settings.clone());
        let (postgres, words) = start.await?;
        words.iter().for_each(|word| progress(word));
        let control = Control::new(&postgres).await?;
        Ok(Self {
            control,
            postgres,
            folder,
        })
    }

    fn server_params(&self) -> Result<ServerParams> {
        let data = self.folder.path().join("server");
        std::fs::create_dir(&data).map_err(Error::file("create", &data))?;
        let (database_url, socket_url) = self.postgres.address().urls();
        Ok(ServerParams {
            database_url,
            socket_url,
            listen: "127.0.0.1:0".to_owned(),
            data,
        })
    }

    async fn naive(&self, bench: &Bench, seconds: u32) -> Result<Side> {
        self.control.settle().await?;
        let (address, bench) = (self.postgres.address(), *bench);
        let load = measure(&self.control, Times::of(seconds), move || {
            naive::connect(address, bench, bench.naive)
        });
        let measured: Measured = load.await?;
        naive::verify(&self.control, &bench, measured.tally.all.accepted).await?;
        Ok(Side::new(&measured, seconds, bench.naive, 1))
    }

    /// Events, both ways.
    async fn events(
        self,
        bench: &Bench,
        options: &Options,
        server: Server,
        door: ours::Door,
        progress: &impl Fn(&str),
    ) -> Result<Report> {
        let (seconds, bench) = (options.seconds, *bench);
        progress(&format!("what it is compared with, for {seconds} s"));
        self.control.settle().await?;
        let (address, its_door) = (self.postgres.address(), door.clone());
        let compared = measure(&self.control, Times::of(seconds), move || {
            events::naive(address, its_door, bench)
        });
        let units = bench.batch.unwrap_or(1);
        let naive = Side::new(&compared.await?, seconds, bench.naive, units);

        progress(&format!("ours, for {seconds} s"));
        self.control.settle().await?;
        let connections = options.in_flight.unwrap_or(bench.ours).max(1);
        let measured = measure(&self.control, Times::of(seconds), move || {
            events::ours(door, bench, connections)
        });
        let measured = measured.await?;
        let peak = machine::peak_memory(server.pid()).unwrap_or(0);

        progress("comparing what clients saw with what the database holds");
        server.stop().await?;
        events::verify(&self.control, measured.tally.all.accepted).await?;
        let ours = Side::new(&measured, seconds, connections, units);
        let report = self.report(&bench, options, naive, ours, peak);
        self.clear().await?;
        Ok(report)
    }

    fn report(&self, bench: &Bench, options: &Options, naive: Side, ours: Side, peak: u64) -> Report {
        #[allow(clippy::cast_precision_loss)]
        let server_rss_mb = round(peak as f64 / f64::from(1 << 20), 1);
        Report {
            name: bench.name.to_owned(),
            ratio: round(ours.per_s / naive.per_s, 2),
            p50_ms: ours.p50_ms,
            p99_ms: ours.p99_ms,
            longer_ms: round(ours.p50_ms - naive.p50_ms, 3),
            commits_per_s: ours.commits_per_s,
            wal_bytes_per_unit: ours.wal_bytes_per_unit,
            naive,
            ours,
            server_rss_mb,
            seconds: options.seconds,
            accounts: bench.accounts,
            lean: options.lean,
            postgres: self.postgres.version(),
            machine: machine::describe(self.folder.path()),
        }
    }

    async fn clear(self) -> Result<()> {
        let Self {
            control,
            postgres,
            folder,
        } = self;
        drop(control);
        postgres.stop().await?;
        drop(folder);
        Ok(())
    }
}
