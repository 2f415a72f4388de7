//! The background loops of a server, and what it serves.

use std::sync::Arc;
use std::time::Duration;

use counterfoil_events::{Actors, Days, EventLanes, Fold};
use counterfoil_intent::{Answer, Lanes};
use counterfoil_pg::{Database, Role, Scope};
use counterfoil_server::{App, Limits, Live};
use counterfoil_tenant::Authenticator;
use counterfoil_worker::{Driver, Progress, Step, StepError};

use crate::command::MIGRATIONS;
use crate::settings::Settings;

/// Looks whether a generation of stubs is due to be opened or dropped.
struct RotateStubs {
    database: Database,
    lanes: Lanes,
}

impl Step for RotateStubs {
    fn name(&self) -> &'static str {
        "stubs-rotate"
    }

    /// A hundredth of a generation, between a fifth of a second and a minute.
    fn interval(&self) -> Duration {
        (self.lanes.generations().retention() / 100).clamp(Duration::from_millis(200), Duration::from_secs(60))
    }

    async fn run(&self) -> Result<Progress, StepError> {
        let done = self.lanes.generations().rotate(&self.database).await?;
        if done != counterfoil_intent::Rotation::default() {
            tracing::info!(?done, "rotated stub generations");
        }
        // What was postponed is tried again after the interval: at once it would only stand in the way.
        Ok(Progress::Idle)
    }
}

/// Makes the partitions of outcome rows ahead, and drops those that are past.
struct MaintainOutcomes {
    database: Database,
}

impl Step for MaintainOutcomes {
    fn name(&self) -> &'static str {
        "outcomes-maintain"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(3600)
    }

    async fn run(&self) -> Result<Progress, StepError> {
        self.database.maintain_outcomes().await?;
        Ok(Progress::Idle)
    }
}

/// Takes holds whose time has passed out of their accounts. It submits intents, as anybody would.
struct ExpireHolds {
    database: Database,
    lanes: Lanes,
}

/// Holds of one pass.
const HOLDS: usize = 500;

impl Step for ExpireHolds {
    fn name(&self) -> &'static str {
        "holds-expire"
    }

    /// Expiry counts from the moment it passes; this only tidies up, so a second is soon enough.
    fn interval(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn run(&self) -> Result<Progress, StepError> {
        let scope = Scope::Installation;
        let tx = self.database.pool(Role::Ops).begin(&scope).await?;
        let due = counterfoil_ledger::read::due_holds(&scope, &tx, i64::try_from(HOLDS)?).await?;
        tx.rollback().await;
        let more = due.len() == HOLDS;
        let kinds = self.lanes.kinds();
        let intents = due.into_iter().map(|due| {
            let key = counterfoil_ledger::expire_key(due.hold, due.pass);
            kinds.internal::<counterfoil_ledger::Expire>(
                due.tenant,
                key,
                counterfoil_ledger::ExpireBody { hold: due.hold },
            )
        });
        let answers = self.lanes.submit(intents.collect()).await;
        // Where a line is full or a row is held, the rest can wait for the next pass.
        let all = answers
            .iter()
            .all(|answer| matches!(answer, Answer::First(_) | Answer::Replayed(_)));
        Ok(if more && all { Progress::More } else { Progress::Idle })
    }
}

/// Makes the partitions of events ahead, and takes in what came before its partition.
struct KeepDays {
    database: Database,
    days: Arc<Days>,
}

impl Step for KeepDays {
    fn name(&self) -> &'static str {
        "event-days-keep"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn run(&self) -> Result<Progress, StepError> {
        let kept = self.days.keep(&self.database).await?;
        if !kept.made.is_empty() || kept.taken > 0 {
            tracing::info!(?kept, "kept the days of events");
        }
        Ok(if kept.more { Progress::More } else { Progress::Idle })
    }
}

/// Folds what was counted into the rollup.
struct FoldEvents {
    fold: Fold,
}

impl Step for FoldEvents {
    fn name(&self) -> &'static str {
        "events-fold"
    }

    /// Reports add what is not folded yet, so this only has to keep that small.
    fn interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn run(&self) -> Result<Progress, StepError> {
        self.fold.pass().await?;
        Ok(Progress::Idle)
    }
}

/// The event lane of a server, and what its events are hashed with.
pub(crate) struct Events {
    pub(crate) lanes: EventLanes,
    pub(crate) actors: Actors,
}

impl Events {
    pub(crate) async fn start(
        database: &Database,
        options: counterfoil_events::Options,
    ) -> Result<Self, counterfoil_pg::Error> {
        let actors = Actors::load(database).await?;
        let days = Arc::new(Days::default());
        // So that the first events of a new installation need not wait aside. Whatever is in the way, the
        // loop tries again.
        if let Err(error) = days.keep(database).await {
            let cause = &error as &dyn std::error::Error;
            tracing::warn!(
                error = cause,
                "partitions of events could not be made now; it is tried again"
            );
        }
        Ok(Self {
            lanes: EventLanes::start(database.clone(), days, options),
            actors,
        })
    }
}

/// What the server serves.
pub(crate) fn app(
    settings: &Settings,
    database: &Database,
    probe: Database,
    lanes: &Lanes,
    events: Events,
    drivers: &[Driver],
) -> Arc<App<Live>> {
    let default = Limits::default();
    let limits = Limits {
        request: settings.limits.request_bytes.unwrap_or(default.request),
        items: settings.limits.items.unwrap_or(default.items),
        intent: counterfoil_intent::Limits {
            body: settings.limits.body_bytes.unwrap_or(default.intent.body),
            ..default.intent
        },
        drain: lanes.options().drain,
        ..default
    };
    let workers: Vec<_> = drivers.iter().map(|driver| driver.metrics()).collect();
    let live = Live {
        database: database.clone(),
        probe,
        lanes: lanes.clone(),
        events: events.lanes,
        actors: events.actors,
        auth: Authenticator::new(database.clone()),
        migrations: MIGRATIONS.to_vec(),
        metrics: vec![Box::new(move |out| {
            counterfoil_worker::render(workers.iter().map(|one| one.snapshot()), out)
        })],
    };
    Arc::new(App::new(live, limits))
}

/// Starts every loop of a server.
pub(crate) fn start(database: &Database, lanes: &Lanes, events: &Events) -> Vec<Driver> {
    let days = Driver::start(KeepDays {
        database: database.clone(),
        days: Arc::clone(events.lanes.days()),
    });
    wake_on_missing(Arc::clone(events.lanes.days()), days.signal());
    vec![
        days,
        Driver::start(FoldEvents {
            fold: Fold::new(database.clone()),
        }),
        Driver::start(RotateStubs {
            database: database.clone(),
            lanes: lanes.clone(),
        }),
        Driver::start(ExpireHolds {
            database: database.clone(),
            lanes: lanes.clone(),
        }),
        Driver::start(MaintainOutcomes {
            database: database.clone(),
        }),
    ]
}

/// An event that waits beside its partition does not have to wait for the timer.
fn wake_on_missing(days: Arc<Days>, signal: counterfoil_worker::Signal) {
    tokio::spawn(async move {
        loop {
            days.missing().await;
            signal.wake();
        }
    });
}
