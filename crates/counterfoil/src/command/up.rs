//! `counterfoil up`.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use counterfoil_intent::{Generations, Lanes};
use counterfoil_pg::{Database, Pooler};
use counterfoil_pg_embedded::{Binaries, Cluster, Options, Running};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::Failure;
use crate::command::{MIGRATIONS, connections, init, kinds, pg_settings, prepared};
use crate::home::{Address, Home, Roles};
use crate::keeper::Keeper;
use crate::settings::Settings;
use crate::steps::{self, Events};

/// What the PostgreSQL that is brought along has by itself.
const MAX_CONNECTIONS: usize = 100;

/// How long background loops may take to end their pass.
const STEPS_END: Duration = Duration::from_secs(5);

pub(crate) async fn run(settings: Settings) -> Result<ExitCode, Failure> {
    settings.home.create()?;
    let _lock = settings.home.lock()?;
    // Taken before anything else is started: "port taken" should not cost a start of PostgreSQL.
    let listener = listen(&settings.listen).await?;
    let (database, roles, keeper, given_up) = match prepared(&settings)? {
        Some((database, roles)) => (database, roles, None, None),
        None => {
            let running = start_postgres(&settings).await?;
            let (database, roles) = init::embedded(&settings, &running).await?;
            let (keeper, given_up) = Keeper::start(running);
            (database, roles, Some(keeper), Some(given_up))
        }
    };
    let outcome = serve(&settings, listener, database, &roles, given_up).await;
    settings.home.remove_running();
    if let Some(keeper) = keeper {
        keeper.stop().await?;
    }
    outcome?;
    say("stopped");
    Ok(ExitCode::SUCCESS)
}

async fn listen(address: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("{address} is taken by another program; stop it, or choose another address with --listen").into()
        }
        _ => format!("cannot listen on {address} ({error}); --listen takes HOST:PORT").into(),
    })
}

async fn start_postgres(settings: &Settings) -> Result<Running, Failure> {
    let dir = settings.home.cluster();
    let pg_bin = settings.pg_bin.clone();
    let mut options = Options {
        port: settings.pg_port,
        ..Options::default()
    };
    // Beside this server an import or a second server, and people.
    let wanted = 2 * connections(settings) + 20;
    if wanted > MAX_CONNECTIONS {
        let value = wanted.to_string();
        options.settings.push(("max_connections".to_owned(), value));
    }
    let start = move || {
        let progress: &dyn Fn(&str) = &say;
        let binaries = Binaries::for_cluster(pg_bin.as_deref(), &dir, progress)?;
        Cluster::open(binaries, &dir, options, progress)?.start(progress)
    };
    Ok(tokio::task::spawn_blocking(start).await??)
}

async fn serve(
    settings: &Settings,
    listener: TcpListener,
    there: Address,
    roles: &Roles,
    given_up: Option<oneshot::Receiver<()>>,
) -> Result<(), Failure> {
    let database = Database::new(pg_settings(settings, &there, roles))?;
    let probe = database.apart()?;
    counterfoil_migrate::require(&database, MIGRATIONS).await?;
    warn_of_durability(&database).await?;
    warn_of_connections(settings, &database).await?;
    let generations = Generations::load(&database).await?;
    rotate(generations, &database).await;
    let lanes = Lanes::start(database.clone(), kinds(), generations, settings.lanes.clone());
    let events = Events::start(&database, settings.events.clone()).await?;
    let drivers = steps::start(&database, &lanes, &events);
    let address = listener.local_addr()?;
    // Before anybody is told that we are there, and may end us.
    let stop = stop_signal(given_up)?;
    settings.home.write_running(&crate::home::Running {
        pid: std::process::id(),
        http: format!("http://{address}"),
        database: there,
    })?;
    greet(&settings.home, address);
    let app = steps::app(settings, &database, probe, &lanes, events, &drivers);
    if !counterfoil_server::serve(listener, app, stop).await {
        tracing::error!("not everything that was accepted landed in time; ask for the stubs of what got no answer");
    }
    for overrun in counterfoil_worker::shutdown_all(drivers, STEPS_END).await {
        tracing::warn!("{overrun}");
    }
    database.close();
    Ok(())
}

/// Whatever is in the way: the loop that rotates tries again, and a server without it is better than none.
pub(crate) async fn rotate(generations: Generations, database: &Database) {
    if let Err(error) = generations.rotate(database).await {
        let cause = &error as &dyn std::error::Error;
        tracing::warn!(
            error = cause,
            "generations of stubs could not be rotated now; it is tried again"
        );
    }
}

async fn warn_of_durability(database: &Database) -> Result<(), Failure> {
    if let Some(shortfall) = database.durability().await?.shortfall() {
        tracing::warn!("PostgreSQL does not make commits durable: {shortfall}; /readyz says so");
    }
    Ok(())
}

/// Behind a pooler it is the pooler's numbers that count.
async fn warn_of_connections(settings: &Settings, database: &Database) -> Result<(), Failure> {
    let (wanted, room) = (connections(settings), database.connections_room().await?);
    if wanted > room && settings.pooler == Pooler::None {
        tracing::warn!(
            "this server takes up to {wanted} connections, and PostgreSQL has {room} for everybody: \
             raise its max_connections, or lower `count` and `detours` in [lanes]"
        );
    }
    Ok(())
}

/// Resolves on Ctrl-C or SIGTERM, or when PostgreSQL has been given up.
fn stop_signal(given_up: Option<oneshot::Receiver<()>>) -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        let gone = async {
            let told = match given_up {
                Some(given_up) => given_up.await.is_ok(),
                None => false,
            };
            if !told {
                std::future::pending().await
            }
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = gone => {}
        }
        say("landing what was accepted");
    })
}

/// Stdout is data: the address, and three commands to try.
fn greet(home: &Home, address: std::net::SocketAddr) {
    let key = home.operator_key();
    let key = key.display();
    let greeting = format!(
        "counterfoil listens on http://{address}

Try, in another terminal:
  curl http://{address}/readyz
  curl -H \"Authorization: Bearer $(cat {key})\" http://{address}/v1/tenants
  curl -H \"Authorization: Bearer $(cat {key})\" -H 'Content-Type: application/json' -d '{{\"key\":\"try-1\",\"code\":\"USD\",\"scale\":2}}' http://{address}/v1/tenants/1/assets
"
    );
    // Whoever read the address may have closed the pipe; that is no reason to stop.
    let _ = writeln!(std::io::stdout(), "{greeting}");
}

pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
