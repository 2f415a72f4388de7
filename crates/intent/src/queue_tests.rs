use super::*;
use crate::error::Invalid;
use crate::hash::Fields;
use crate::kind::{Context, Kind, Kinds, Needs};
use crate::refs::Refs;
use crate::reply::{Outcome, Reply};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::value::RawValue;

struct Nothing;

impl Kind for Nothing {
    const NAME: &'static str = "example.nothing";
    type Body = String;
    fn parse(raw: &RawValue) -> Result<String, Invalid> {
        Kinds::read(raw)
    }
    fn fields(body: &String, fields: &mut Fields) {
        fields.field("text", body.as_bytes());
    }
    fn needs(_: &String, _: &Refs, _: &mut Needs<'_>) {}
    fn apply(_: &mut crate::Books, _: &String, _: &Refs, _: &mut Context) -> Outcome {
        Outcome::Accepted(Reply::new())
    }
}

fn pending(tenant: i64, key: &str, body: &str) -> (Pending, oneshot::Receiver<Answer>) {
    let mut kinds = Kinds::new();
    kinds.kind::<Nothing>();
    let intent = kinds.internal::<Nothing>(TenantId(tenant), Key::Text(key.into()), body.to_owned());
    let (reply, answer) = oneshot::channel();
    (
        Pending {
            intent,
            origin: 0,
            unknown: false,
            series: Series::default(),
            reply,
        },
        answer,
    )
}

fn queue(per_tenant: usize, per_lane: usize) -> Queue {
    Queue::new(Bounds { per_tenant, per_lane })
}

fn push(queue: &mut Queue, tenant: i64, key: &str) -> oneshot::Receiver<Answer> {
    let (pending, answer) = pending(tenant, key, "");
    assert!(queue.push(pending).is_ok());
    answer
}

fn end(queue: &mut Queue, pending: Pending, answer: Answer) -> bool {
    let mut replies = Vec::new();
    let woken = queue.finish(pending, answer, &mut replies);
    send(replies);
    woken
}

fn keys(batch: &[Pending]) -> Vec<(i64, String)> {
    batch
        .iter()
        .map(|pending| (pending.intent.tenant.0, pending.intent.key.to_string()))
        .collect()
}

fn stub_of(pending: &Pending) -> Stub {
    Stub {
        tenant: pending.intent.tenant,
        key: pending.intent.key.clone(),
        kind: "example.nothing".into(),
        accepted: true,
        result: "{}".into(),
        recorded_at: Timestamp::UNIX_EPOCH,
        origin: 1,
        hashes: pending.intent.hashes.bytes.clone(),
    }
}

#[test]
fn a_small_tenant_is_in_the_first_batch_however_long_the_line_of_a_giant() {
    let mut queue = queue(5_000, 50_000);
    let mut waiting = Vec::new();
    for i in 0..5_000 {
        waiting.push(push(&mut queue, 1, &format!("g{i}")));
    }
    for tenant in 2..100 {
        waiting.push(push(&mut queue, tenant, "s"));
    }
    let batch = queue.take(2_000);
    assert_eq!(batch.iter().filter(|pending| pending.intent.tenant.0 != 1).count(), 98);
    assert_eq!(batch.len(), 2_000, "what the small ones leave is the giant's");
}

#[test]
fn a_tenant_beyond_its_bound_is_turned_away_and_others_are_not() {
    let mut queue = queue(2, 4);
    let _waiting = [push(&mut queue, 1, "a"), push(&mut queue, 1, "b")];
    assert!(queue.push(pending(1, "c", "").0).is_err());
    let _others = [push(&mut queue, 2, "a"), push(&mut queue, 3, "a")];
    assert!(queue.push(pending(4, "a", "").0).is_err(), "the lane is full");
}

#[test]
fn the_second_of_one_key_is_answered_by_the_stub_of_the_first() {
    let mut queue = queue(10, 10);
    let _first = push(&mut queue, 1, "k");
    let (same, mut same_answer) = pending(1, "k", "");
    let (other, mut other_answer) = pending(1, "k", "another body");
    assert!(queue.push(same).is_ok() && queue.push(other).is_ok());
    let mut batch = queue.take(10);
    assert_eq!(batch.len(), 1, "a key is in a batch once");
    let first = batch.pop().unwrap();
    let stub = stub_of(&first);
    end(&mut queue, first, Answer::First(stub));
    assert!(matches!(same_answer.try_recv(), Ok(Answer::Replayed(_))));
    assert!(matches!(other_answer.try_recv(), Ok(Answer::Mismatch { field }) if field == "text"));
    assert!(queue.is_idle());
    assert!(!queue.in_flight(TenantId(1), &Key::Text("k".into())));
}

#[test]
fn the_second_of_one_key_takes_the_place_of_a_first_that_ends_without_a_stub() {
    let mut queue = queue(10, 10);
    let mut first_answer = push(&mut queue, 1, "k");
    let (second, mut second_answer) = pending(1, "k", "");
    assert!(queue.push(second).is_ok());
    let _behind = push(&mut queue, 1, "l");
    let first = queue.take(1).pop().unwrap();
    assert!(end(&mut queue, first, Answer::Busy));
    assert!(matches!(first_answer.try_recv(), Ok(Answer::Busy)));
    assert!(second_answer.try_recv().is_err());
    assert_eq!(keys(&queue.take(10)), [(1, "k".to_owned()), (1, "l".to_owned())]);
}

#[test]
fn a_tenant_aside_keeps_its_order_and_comes_back_when_its_line_is_empty() {
    let mut queue = queue(10, 10);
    let mut waiting: Vec<_> = ["a", "b", "c"].iter().map(|key| push(&mut queue, 1, key)).collect();
    waiting.push(push(&mut queue, 2, "x"));
    let held = queue.take(2);
    assert!(queue.put_aside(TenantId(1), held));
    waiting.push(push(&mut queue, 1, "d"));
    assert_eq!(
        keys(&queue.take(10)),
        [(2, "x".to_owned())],
        "the lane leaves the tenant alone"
    );
    let line = queue.take_aside(TenantId(1), 10);
    assert_eq!(
        keys(&line).iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>(),
        ["a", "b", "c", "d"]
    );
    for pending in line {
        end(&mut queue, pending, Answer::Busy);
    }
    assert!(queue.take_aside(TenantId(1), 10).is_empty());
    waiting.push(push(&mut queue, 1, "e"));
    assert_eq!(keys(&queue.take(10)), [(1, "e".to_owned())], "back in the lane");
}

#[test]
fn an_unknown_intent_is_never_told_that_nothing_was_done() {
    let mut queue = queue(10, 10);
    let mut answer = push(&mut queue, 1, "k");
    let mut pending = queue.take(1).pop().unwrap();
    pending.unknown = true;
    end(&mut queue, pending, Answer::Busy);
    assert!(matches!(answer.try_recv(), Ok(Answer::Unknown)));
}

fn push_weighing(queue: &mut Queue, tenant: i64, key: &str, weight: usize) -> oneshot::Receiver<Answer> {
    let (mut pending, answer) = pending(tenant, key, "");
    pending.intent.weight = weight;
    assert!(queue.push(pending).is_ok());
    answer
}

#[test]
fn a_batch_and_a_turn_are_bounded_by_weight_not_by_number() {
    let mut queue = queue(5_000, 50_000);
    let mut waiting = Vec::new();
    for i in 0..300 {
        waiting.push(push_weighing(&mut queue, 1, &format!("h{i}"), 96));
        waiting.push(push(&mut queue, 2, &format!("l{i}")));
    }
    for _ in 0..2 {
        let batch = queue.take(200);
        // A heavy one every third turn; the light tenant has all of its turns, 32 in each.
        let heavy = batch.iter().filter(|pending| pending.intent.tenant.0 == 1).count();
        assert_eq!((heavy, batch.len() - heavy), (1, 104));
        assert_eq!(super::weight(&batch), 200);
    }
}

#[test]
fn what_weighs_more_than_a_batch_is_a_batch_of_its_own() {
    let mut queue = queue(10, 10);
    let _waiting = [
        push_weighing(&mut queue, 1, "heavy", 5_000),
        push(&mut queue, 1, "light"),
        push_weighing(&mut queue, 1, "heavier", 6_000),
    ];
    assert_eq!(keys(&queue.take(64)), [(1, "heavy".to_owned())]);
    let light = queue.take(64);
    assert_eq!(keys(&light), [(1, "light".to_owned())]);
    assert!(queue.put_aside(TenantId(1), light));
    assert_eq!(keys(&queue.take_aside(TenantId(1), 64)), [(1, "light".to_owned())]);
    assert_eq!(keys(&queue.take_aside(TenantId(1), 64)), [(1, "heavier".to_owned())]);
}

proptest! {
    /// Whatever is pushed, taken, put aside and finished: every caller is answered once, and within
    /// a tenant intents are taken in the order they came.
    #[test]
    fn everything_pushed_is_answered_once_and_in_order(steps in prop::collection::vec((0_i64..4, 0_u8..5), 1..300)) {
        let mut queue = queue(50, 100);
        let mut answers = Vec::new();
        let mut seen: HashMap<i64, Vec<usize>> = HashMap::new();
        let mut next = 0;
        for (tenant, step) in steps {
            match step {
                0..=2 => {
                    let (pending, answer) = pending(tenant, &format!("{next}"), "");
                    next += 1;
                    if queue.push(pending).is_ok() {
                        answers.push(answer);
                    }
                }
                3 => {
                    let batch = queue.take(7);
                    for pending in batch {
                        seen.entry(pending.intent.tenant.0).or_default().push(pending.intent.key.to_string().parse().unwrap());
                        end(&mut queue, pending, Answer::Busy);
                    }
                }
                _ => {
                    let mut lines: HashMap<i64, Vec<Pending>> = HashMap::new();
                    for pending in queue.take(5) {
                        lines.entry(pending.intent.tenant.0).or_default().push(pending);
                    }
                    for (tenant, line) in lines {
                        queue.put_aside(TenantId(tenant), line);
                    }
                }
            }
        }
        for tenant in 0..4 {
            loop {
                let line = queue.take_aside(TenantId(tenant), 3);
                if line.is_empty() {
                    break;
                }
                for pending in line {
                    seen.entry(tenant).or_default().push(pending.intent.key.to_string().parse().unwrap());
                    end(&mut queue, pending, Answer::Busy);
                }
            }
        }
        loop {
            let batch = queue.take(3);
            if batch.is_empty() {
                break;
            }
            for pending in batch {
                seen.entry(pending.intent.tenant.0).or_default().push(pending.intent.key.to_string().parse().unwrap());
                end(&mut queue, pending, Answer::Busy);
            }
        }
        prop_assert!(queue.is_idle());
        for keys in seen.values() {
            prop_assert!(keys.is_sorted(), "{keys:?}");
        }
        for mut answer in answers {
            prop_assert!(answer.try_recv().is_ok());
        }
    }
}

#[test]
fn who_waits_behind_an_unknown_intent_is_not_told_that_nothing_was_done_either() {
    let mut queue = queue(10, 10);
    let _first = push(&mut queue, 1, "k");
    let (second, mut answer) = pending(1, "k", "");
    assert!(queue.push(second).is_ok());
    let mut first = queue.take(1).pop().unwrap();
    first.unknown = true;
    end(&mut queue, first, Answer::Unavailable { reason: "away" });
    let second = queue.take(1).pop().unwrap();
    end(&mut queue, second, Answer::Unavailable { reason: "away" });
    assert!(matches!(answer.try_recv(), Ok(Answer::Unknown)));
}

#[test]
fn a_tenant_that_is_turned_away_leaves_nothing_behind() {
    let mut queue = queue(10, 1);
    let _one = push(&mut queue, 1, "a");
    assert!(queue.push(pending(2, "a", "").0).is_err());
    assert_eq!(queue.lines.len(), 1);
}

fn push_by(queue: &mut Queue, tenant: i64, key: &str, by: Instant) -> oneshot::Receiver<Answer> {
    let (mut pending, answer) = pending(tenant, key, "");
    pending.intent = pending.intent.with_deadline(Some(by));
    assert!(queue.push(pending).is_ok());
    answer
}

#[test]
fn what_waits_beyond_its_deadline_is_ended_and_nothing_else() {
    let mut queue = queue(100, 100);
    let now = Instant::now();
    let (past, future) = (now, now + std::time::Duration::from_secs(9));
    let mut running = push_by(&mut queue, 1, "running", past);
    let mut behind_running = push_by(&mut queue, 1, "running", past);
    let batch = queue.take(1);
    let mut late = push_by(&mut queue, 1, "late", past);
    let mut behind_late = push_by(&mut queue, 1, "late", past);
    let mut in_time_behind_late = push_by(&mut queue, 1, "late", future);
    let mut in_time = push_by(&mut queue, 1, "in time", future);
    let mut other_tenant = push_by(&mut queue, 2, "late", past);

    let mut replies = Vec::new();
    queue.expire(TenantId(1), now, &mut replies);
    send(replies);
    for ended in [&mut late, &mut behind_late] {
        assert!(matches!(ended.try_recv(), Ok(Answer::DeadlinePassed)));
    }
    for waiting in [
        &mut running,
        &mut behind_running,
        &mut in_time_behind_late,
        &mut in_time,
        &mut other_tenant,
    ] {
        assert!(waiting.try_recv().is_err());
    }
    assert_eq!(queue.waiting(), 4);
    for pending in batch {
        end(&mut queue, pending, Answer::Busy);
    }
    while let Some(pending) = queue.take(1).pop() {
        end(&mut queue, pending, Answer::Busy);
    }
    assert!(queue.is_idle() && queue.lines.is_empty() && queue.flights.is_empty());
    for mut ended in [running, behind_running, in_time_behind_late, in_time, other_tenant] {
        assert!(matches!(ended.try_recv(), Ok(Answer::Busy)));
    }
}

#[test]
fn a_tenant_whose_whole_line_was_late_has_no_turn_left() {
    let mut queue = queue(100, 100);
    let now = Instant::now();
    let _late = push_by(&mut queue, 1, "a", now);
    let mut replies = Vec::new();
    queue.expire(TenantId(1), now, &mut replies);
    assert!(queue.is_idle() && queue.lines.is_empty());
    let _next = push(&mut queue, 1, "b");
    assert_eq!(keys(&queue.take(9)), [(1, "b".to_owned())]);
}

/// What may have been committed must not be told that nothing was done, nor who waits behind it.
#[test]
fn what_may_have_been_committed_is_not_ended_at_its_deadline() {
    let mut queue = queue(100, 100);
    let now = Instant::now();
    let mut first = push_by(&mut queue, 1, "k", now);
    let mut second = push_by(&mut queue, 1, "k", now);
    let mut batch = queue.take(1);
    batch[0].unknown = true;
    queue.put_aside(TenantId(1), batch);
    let mut replies = Vec::new();
    queue.expire(TenantId(1), now, &mut replies);
    assert!(replies.is_empty());
    assert!(first.try_recv().is_err() && second.try_recv().is_err());
}
