//! Events come once.

use counterfoil_events::Answer;
use counterfoil_test::Server;
use jiff::ToSpan as _;
use serde_json::json;

use crate::house::{House, now};

const EVENTS: &str = "SELECT count(*) FROM counterfoil.event";

fn v7(shift_ms: i64) -> String {
    let ms = now().as_millisecond() + shift_ms;
    uuid::Builder::from_unix_timestamp_millis(ms.unsigned_abs(), &rand::random())
        .into_uuid()
        .to_string()
}

/// Case 2.
#[tokio::test]
async fn the_same_id_twice_in_a_batch_is_stored_once_and_the_first_stays() {
    for server in Server::DIRECT {
        let house = House::new(server).await;
        let id = v7(0);
        let event = |subject: &str| house.event(&json!({"stream": "web", "subject": subject, "id": id}));
        let answers = house.submit(vec![event("/first"), event("/second")]).await;
        assert_eq!(answers, [Answer::Stored, Answer::Known]);
        // With another payload, and sent again: known.
        assert_eq!(house.submit(vec![event("/third")]).await, [Answer::Known]);
        let subject: String = house
            .admin
            .query_one("SELECT subject FROM counterfoil.event", &[])
            .await
            .unwrap()
            .get(0);
        assert_eq!(subject, "/first");
        house.assert_whole().await;
    }
}

/// Case 2: with another timestamp across midnight.
#[tokio::test]
async fn a_uuid_v7_is_one_event_on_whichever_day_it_is_said_to_be() {
    let house = House::new(Server::Pg18).await;
    let id = v7(0);
    let at = |hours: i64| (now() - hours.hours()).to_string();
    let event = |hours| house.event(&json!({"stream": "web", "subject": "/", "id": id, "at": at(hours)}));
    assert_eq!(house.submit(vec![event(0)]).await, [Answer::Stored]);
    assert_eq!(house.submit(vec![event(23)]).await, [Answer::Known]);
    assert_eq!(house.count(EVENTS).await, 1);
    house.assert_whole().await;
}

/// Case 2: in two batches at once, over two servers, half of the ids in common.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_servers_are_sent_at_once_is_stored_by_one() {
    for server in Server::ALL {
        let house = House::new(server).await;
        let other = house.other_lanes().await;
        let at = now();
        let events: Vec<_> = (0..300)
            .map(|i| house.click(&format!("/{}", i % 50), &format!("e{i}"), at))
            .collect();
        let mut backwards = events.clone();
        backwards.reverse();
        let (first, second) = tokio::join!(
            house.lanes.submit(house.tenant, events, None),
            other.submit(house.tenant, backwards, None)
        );
        let stored = |answers: &[Answer]| answers.iter().filter(|answer| **answer == Answer::Stored).count();
        assert_eq!(stored(&first) + stored(&second), 300, "{server:?}");
        assert_eq!(house.count(EVENTS).await, 300);
        house.assert_whole().await;
    }
}

/// Case 2: from two tenants.
#[tokio::test]
async fn one_id_of_two_tenants_is_two_events() {
    let house = House::new(Server::Pg15).await;
    let two = house.test.tenant("two").await;
    let body = json!({"stream": "web", "subject": "/", "id": v7(0), "actor": "203.0.113.9"});
    let (first, second) = tokio::join!(
        house.lanes.submit(house.tenant, vec![house.event(&body)], None),
        house.lanes.submit(two, vec![house.event_of(two, &body)], None)
    );
    assert_eq!((first, second), (vec![Answer::Stored], vec![Answer::Stored]));
    assert_eq!(
        house.count("SELECT count(DISTINCT actor) FROM counterfoil.event").await,
        2
    );
    house.assert_whole().await;
}

#[tokio::test]
async fn folding_changes_no_sum_and_leaves_nothing() {
    for server in Server::DIRECT {
        let house = House::new(server).await;
        let at = now();
        for round in 0..3 {
            let events = (0..100).map(|i| house.click(&format!("/{}", i % 7), &format!("{round}-{i}"), at));
            house.submit(events.collect()).await;
            house.assert_whole().await;
            // Seven subjects, and all of them.
            assert_eq!(house.fold.pass().await.unwrap(), 8);
            house.assert_whole().await;
            assert_eq!(house.count("SELECT count(*) FROM counterfoil.rollup_delta").await, 0);
        }
        assert_eq!(house.count("SELECT sum(n)::bigint FROM counterfoil.rollup").await, 600);
    }
}

/// Case 4. On one server, and on two: what both insert they insert in one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_4_two_writers_over_the_same_subjects_in_opposite_order_never_deadlock() {
    let house = House::new(Server::Pg18).await;
    let other = house.other_lanes().await;
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut round = 0;
    let mut stored = 0;
    while std::time::Instant::now() < until {
        round += 1;
        let at = now();
        let events: Vec<_> = (0..200)
            .map(|i| house.click(&format!("/{}", i % 50), &format!("{round}-{i}"), at))
            .collect();
        // Half of them are the same events, from both ends.
        let (mut one, mut two) = (events[..150].to_vec(), events[50..].to_vec());
        two.reverse();
        let (more_of_one, more_of_two) = (one.split_off(75), two.split_off(75));
        let answers = tokio::join!(
            house.lanes.submit(house.tenant, one, None),
            other.submit(house.tenant, two, None),
            house.lanes.submit(house.tenant, more_of_one, None),
            other.submit(house.tenant, more_of_two, None)
        );
        let all = [answers.0, answers.1, answers.2, answers.3].concat();
        assert!(
            all.iter()
                .all(|answer| matches!(answer, Answer::Stored | Answer::Known)),
            "{all:?}"
        );
        stored += all.iter().filter(|answer| **answer == Answer::Stored).count();
    }
    assert_eq!(stored, round * 200);
    assert_eq!(house.count(EVENTS).await, i64::try_from(stored).unwrap());
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(house.count(deadlocks).await, 0);
    house.assert_whole().await;
}

#[tokio::test]
async fn a_lane_that_is_shut_down_lands_what_it_has_taken_and_takes_nothing_more() {
    let house = House::new(Server::Pg15).await;
    let at = now();
    let submits = (0..40).map(|i| house.submit(vec![house.click("/", &format!("e{i}"), at)]));
    let all = futures_util::future::join_all(submits);
    let by = std::time::Instant::now() + std::time::Duration::from_secs(30);
    // The callers are polled first: all of them are in the line.
    let (answers, landed) = tokio::join!(biased; all, house.lanes.shutdown_by(by));
    assert!(landed);
    assert!(
        answers.iter().all(|answers| *answers == [Answer::Stored]),
        "{answers:?}"
    );
    let late = house.submit(vec![house.click("/", "late", at)]).await;
    assert_eq!(late, [Answer::ShuttingDown]);
    assert_eq!(house.count(EVENTS).await, 40);
}

/// Case 10. In every batch rows of the rollup would be updated fifty times slower after a while: no version that
/// the snapshot might see can be cleaned away. Deltas are appended, and folded now and then.
async fn slows_by_less_than_a_fifth_under_a_snapshot(held: std::time::Duration) {
    let house = House::new(Server::Pg15).await;
    let quiet = held / 6;
    let mut round = 0;
    let mut ingest = async |time: std::time::Duration| {
        let until = std::time::Instant::now() + time;
        let (mut took, mut folded) = (Vec::new(), std::time::Instant::now());
        while std::time::Instant::now() < until {
            round += 1;
            let at = now();
            let events: Vec<_> = (0..500)
                .map(|i| house.click(&format!("/{}", i % 50), &format!("{round}-{i}"), at))
                .collect();
            let begun = std::time::Instant::now();
            let answers = house.submit(events).await;
            took.push(begun.elapsed());
            assert!(answers.iter().all(|answer| *answer == Answer::Stored));
            if folded.elapsed() > std::time::Duration::from_secs(5) {
                house.fold.pass().await.unwrap();
                folded = std::time::Instant::now();
            }
        }
        took.sort();
        took[took.len() / 2]
    };
    ingest(quiet).await;
    let without = ingest(quiet).await;
    house
        .admin
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM counterfoil.rollup")
        .await
        .unwrap();
    ingest(held - 3 * quiet).await;
    let with = ingest(quiet).await;
    house.admin.batch_execute("COMMIT").await.unwrap();
    println!("a batch of 500 took {without:?} without the snapshot, and {with:?} at its end");
    // A fifth less a second is a quarter more for each.
    assert!(
        with.as_secs_f64() < 1.25 * without.as_secs_f64(),
        "{without:?} and {with:?}"
    );
    house.assert_whole().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_10_a_snapshot_held_for_a_minute_does_not_slow_hot_subjects() {
    slows_by_less_than_a_fifth_under_a_snapshot(std::time::Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "ten minutes: make soak"]
async fn case_10_a_snapshot_held_for_ten_minutes_does_not_slow_hot_subjects_soak() {
    slows_by_less_than_a_fifth_under_a_snapshot(std::time::Duration::from_secs(600)).await;
}
