//! Handing effects to a lane until each has an outcome.

use std::time::Duration;

use counterfoil_intent::{Answer, Intent, Key, Kinds, Stub};
use counterfoil_pg::TenantId;
use uuid::Uuid;

use crate::asset::{NewAsset, NewAssetBody};
use crate::open::{Open, OpenBody};
use crate::source::{Import, ImportBody};

/// How often everything left is handed over again with nothing settled in between.
const PATIENCE: u32 = 12;
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// One thing an import does.
#[derive(Debug, Clone)]
pub(super) enum Effect {
    Asset(NewAssetBody),
    Open(OpenBody),
    Import(ImportBody),
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Verdict {
    Done,
    /// It was imported before.
    Known,
    Refused {
        code: String,
        message: String,
    },
}

/// What takes effects: lanes, and in tests the books alone.
pub(super) trait Sink {
    /// Applies the effects in order, and tells of each what came of it; or why it gives up.
    async fn settle(&mut self, effects: &[Effect]) -> Result<Vec<Verdict>, &'static str>;
}

/// The lanes of a server, behind a function that submits.
pub(super) struct Lanes<'a, F> {
    kinds: &'a Kinds,
    tenant: TenantId,
    run: Uuid,
    /// Effects so far: with the run the key of the next.
    count: u64,
    submit: F,
}

impl<'a, F> Lanes<'a, F> {
    pub(super) fn new(kinds: &'a Kinds, tenant: TenantId, run: Uuid, submit: F) -> Self {
        Self {
            kinds,
            tenant,
            run,
            count: 0,
            submit,
        }
    }

    fn intent(&self, effect: &Effect, number: u64) -> Intent {
        let key = Key::Internal(format!("ledger.import:{}:{number}", self.run).into());
        match effect {
            Effect::Asset(body) => self.kinds.internal::<NewAsset>(self.tenant, key, body.clone()),
            Effect::Open(body) => self.kinds.internal::<Open>(self.tenant, key, body.clone()),
            Effect::Import(body) => self.kinds.internal::<Import>(self.tenant, key, body.clone()),
        }
    }
}

/// What an answer means for an import.
enum Meaning {
    Settled(Verdict),
    /// The same key may be sent again, after this long at the least.
    Again(Duration, &'static str),
    /// It is no use.
    Stop(&'static str),
}

fn meaning(answer: Answer) -> Meaning {
    let again = |reason| Meaning::Again(Duration::ZERO, reason);
    match answer {
        Answer::First(stub) | Answer::Replayed(stub) => Meaning::Settled(verdict(&stub)),
        Answer::TooMany { retry_after } => Meaning::Again(retry_after, "too many intents are waiting"),
        Answer::Busy => again("another session holds a row that it needs"),
        Answer::Unavailable { reason } => again(reason),
        // The same key again finds the stub, if there is one.
        Answer::Unknown => again("the fate of a transaction could not be learnt"),
        Answer::DeadlinePassed => again("a deadline passed"),
        Answer::ShuttingDown => Meaning::Stop("the server is on its way down"),
        Answer::Failed { id } => Meaning::Settled(Verdict::Refused {
            code: "failed".to_owned(),
            message: format!("it failed for a reason that the log tells under {id}"),
        }),
        Answer::Mismatch { .. } | Answer::KeyTooOld { .. } | Answer::KeyAhead => {
            Meaning::Stop("a key of its own was refused")
        }
    }
}

fn verdict(stub: &Stub) -> Verdict {
    match stub.refusal() {
        Some(refusal) => Verdict::Refused {
            code: refusal.code.into_owned(),
            message: refusal.message.into_owned(),
        },
        None => {
            let result: serde_json::Value = serde_json::from_str(&stub.result).unwrap_or_default();
            if result.get("known").is_some() {
                Verdict::Known
            } else {
                Verdict::Done
            }
        }
    }
}

impl<F: AsyncFnMut(Vec<Intent>) -> Vec<Answer>> Sink for Lanes<'_, F> {
    async fn settle(&mut self, effects: &[Effect]) -> Result<Vec<Verdict>, &'static str> {
        let first = self.count;
        self.count += effects.len() as u64;
        let mut verdicts: Vec<Option<Verdict>> = effects.iter().map(|_| None).collect();
        let mut open: Vec<usize> = (0..effects.len()).collect();
        let mut tries = 0;
        while !open.is_empty() {
            let intents = open
                .iter()
                .map(|i| self.intent(&effects[*i], first + *i as u64))
                .collect();
            let answers = (self.submit)(intents).await;
            assert_eq!(answers.len(), open.len(), "each intent has its answer");
            let mut left = Vec::new();
            let (mut pause, mut reason) = (Duration::ZERO, "");
            let before = open.len();
            for (i, answer) in open.into_iter().zip(answers) {
                match meaning(answer) {
                    Meaning::Settled(verdict) => verdicts[i] = Some(verdict),
                    Meaning::Again(after, why) => {
                        left.push(i);
                        (pause, reason) = (pause.max(after), why);
                    }
                    Meaning::Stop(why) => return Err(why),
                }
            }
            if !left.is_empty() {
                tries = if left.len() < before { 0 } else { tries + 1 };
                if tries == PATIENCE {
                    return Err(reason);
                }
                let backoff = Duration::from_millis(50) * 2_u32.pow(tries);
                tokio::time::sleep(pause.max(backoff).min(LONGEST_PAUSE)).await;
            }
            open = left;
        }
        Ok(verdicts
            .into_iter()
            .map(|verdict| verdict.expect("each was settled"))
            .collect())
    }
}
