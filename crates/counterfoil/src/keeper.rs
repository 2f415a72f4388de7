//! Keeps the PostgreSQL that was brought along at work.

use std::time::{Duration, Instant};

use counterfoil_pg_embedded::{Mode, Running};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Failure;
use crate::command::up::say;

/// How often it is looked whether it is there.
const LOOK: Duration = Duration::from_millis(250);

/// It is started again so many times; an end that comes later than `CALM` after the one before begins anew.
const STARTS: u32 = 5;
const CALM: Duration = Duration::from_secs(60);

/// The pause before the second start in a row; it doubles with each further one.
const PAUSE: Duration = Duration::from_millis(500);

/// Watches over a PostgreSQL, and starts it again when it has ended by itself.
pub(crate) struct Keeper {
    stop: oneshot::Sender<()>,
    task: JoinHandle<(Running, Option<Failure>)>,
}

impl Keeper {
    /// The second resolves when it has been given up; with an error where that never comes.
    pub(crate) fn start(running: Running) -> (Self, oneshot::Receiver<()>) {
        let (stop, stopped) = oneshot::channel();
        let (give_up, given_up) = oneshot::channel();
        let task = tokio::spawn(async move {
            let (running, failure) = keep(running, stopped).await;
            if failure.is_some() {
                let _ = give_up.send(());
            }
            (running, failure)
        });
        (Self { stop, task }, given_up)
    }

    /// Stops PostgreSQL. An error where it had been given up before.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        let _ = self.stop.send(());
        let (mut running, failure) = self.task.await?;
        say("stopping PostgreSQL");
        tokio::task::spawn_blocking(move || running.stop(Mode::Fast)).await??;
        failure.map_or(Ok(()), Err)
    }
}

async fn keep(mut running: Running, mut stop: oneshot::Receiver<()>) -> (Running, Option<Failure>) {
    let (mut starts, mut last) = (0, Instant::now());
    loop {
        tokio::select! {
            _ = &mut stop => return (running, None),
            () = tokio::time::sleep(LOOK) => {}
        }
        if running.is_alive() {
            continue;
        }
        if last.elapsed() > CALM {
            starts = 0;
        }
        let log = running.cluster().log_dir();
        if starts == STARTS {
            let sentence = format!(
                "PostgreSQL ended again and again and is not started any more; {} says why",
                log.display()
            );
            return (running, Some(sentence.into()));
        }
        starts += 1;
        last = Instant::now();
        tracing::error!(log = %log.display(), "PostgreSQL has ended by itself, and is started again");
        if starts > 1 {
            tokio::select! {
                _ = &mut stop => return (running, None),
                () = tokio::time::sleep(PAUSE * 2_u32.pow(starts - 2)) => {}
            }
        }
        // Not cut off by a stop: a start takes a moment, and what was started has to be stopped.
        let started = tokio::task::spawn_blocking(move || {
            let started = running.restart(&say);
            (running, started)
        });
        let result;
        (running, result) = started.await.expect("a start does not panic");
        match result {
            Ok(()) => tracing::info!(starts, "PostgreSQL is back"),
            Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "PostgreSQL did not start"),
        }
    }
}
