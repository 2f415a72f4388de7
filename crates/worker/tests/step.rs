//! A step whose every pass is announced to the test and answered by it.

use std::time::Duration;

use counterfoil_worker::{Progress, Step, StepError};
use tokio::sync::{mpsc, oneshot};

/// What the test wants of one pass.
pub enum Order {
    Idle,
    More,
    Fail,
    Panic,
}

pub struct Pass {
    pub answer: oneshot::Sender<Order>,
}

pub struct Told {
    announce: mpsc::UnboundedSender<Pass>,
    interval: Duration,
}

pub fn told(interval: Duration) -> (Told, mpsc::UnboundedReceiver<Pass>) {
    let (announce, passes) = mpsc::unbounded_channel();
    (Told { announce, interval }, passes)
}

impl Step for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn interval(&self) -> Duration {
        self.interval
    }

    async fn run(&self) -> Result<Progress, StepError> {
        let (answer, order) = oneshot::channel();
        self.announce.send(Pass { answer })?;
        match order.await? {
            Order::Idle => Ok(Progress::Idle),
            Order::More => Ok(Progress::More),
            Order::Fail => Err("as told".into()),
            Order::Panic => panic!("as told"),
        }
    }
}

/// The next pass, or a failure of the test when none comes.
pub async fn next(passes: &mut mpsc::UnboundedReceiver<Pass>) -> Pass {
    tokio::time::timeout(Duration::from_secs(10), passes.recv())
        .await
        .expect("no pass began")
        .expect("the step is gone")
}

pub async fn answer(passes: &mut mpsc::UnboundedReceiver<Pass>, order: Order) {
    let pass = next(passes).await;
    assert!(pass.answer.send(order).is_ok(), "the pass was cut off");
}

/// An interval that no test lives to see.
pub const NEVER: Duration = Duration::from_secs(86_400);
