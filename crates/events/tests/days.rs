//! Partitions, and what comes before they do.

use counterfoil_events::Answer;
use counterfoil_test::Server;
use jiff::{Timestamp, ToSpan as _};

use crate::house::{House, now};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Case 9.
#[tokio::test]
async fn an_event_of_a_day_without_a_partition_is_stored_aside_and_counted_when_it_is_taken_in() {
    for server in Server::DIRECT {
        let house = House::new(server).await;
        let event = || house.click("/", "e1", at("2015-05-17T10:05:03Z"));
        assert_eq!(house.submit(vec![event()]).await, [Answer::Stored]);
        assert_eq!(house.submit(vec![event()]).await, [Answer::Known]);
        assert_eq!(house.count("SELECT count(*) FROM counterfoil.event_spill").await, 1);
        assert_eq!(house.count("SELECT count(*) FROM counterfoil.event").await, 0);
        house.assert_whole().await;

        let kept = house.days.keep(&house.db).await.unwrap();
        assert_eq!((kept.made.len(), kept.taken, kept.known), (1, 1, 0), "{kept:?}");
        assert_eq!(house.count("SELECT count(*) FROM counterfoil.event_spill").await, 0);
        assert_eq!(house.count("SELECT count(*) FROM counterfoil.event").await, 1);
        assert_eq!(house.submit(vec![event()]).await, [Answer::Known]);
        house.assert_whole().await;
    }
}

/// One server has not heard of a partition that the other writes into.
#[tokio::test]
async fn what_is_in_its_partition_already_is_not_counted_again_when_it_is_taken_in() {
    let house = House::new(Server::Pg18).await;
    let event = || house.click("/", "e1", at("2015-05-17T10:05:03Z"));
    house.submit(vec![event()]).await;
    house.days.make(&house.db, [at("2015-05-17T00:00:00Z")]).await.unwrap();
    house.submit(vec![event()]).await;
    let kept = house.days.keep(&house.db).await.unwrap();
    assert_eq!((kept.taken, kept.known), (1, 1));
    assert_eq!(house.count("SELECT count(*) FROM counterfoil.event").await, 1);
    house.assert_whole().await;
}

#[tokio::test]
async fn a_partition_that_is_gone_costs_a_second_try() {
    let house = House::new(Server::Pg15).await;
    house.days.make(&house.db, [at("2015-05-17T00:00:00Z")]).await.unwrap();
    house
        .admin
        .batch_execute(
            "DROP TABLE counterfoil.event_20150517; DELETE FROM counterfoil.event_day WHERE day = '2015-05-17'",
        )
        .await
        .unwrap();
    let event = house.click("/", "e1", at("2015-05-17T10:05:03Z"));
    assert_eq!(house.submit(vec![event]).await, [Answer::Stored]);
    assert_eq!(house.count("SELECT count(*) FROM counterfoil.event_spill").await, 1);
}

/// Case 9: ten clients insert while partitions are attached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_partitions_are_attached() {
    for server in Server::DIRECT {
        let house = House::new(server).await;
        let today = now();
        let clients = (0..10).map(|client| {
            let house = &house;
            async move {
                for round in 0..20 {
                    // Today, and a day of long ago whose partition is made meanwhile.
                    let past = at("2015-01-01T12:00:00Z") + (24 * round).hours();
                    let events = [today, past].map(|at| house.click("/", &format!("{client}-{round}"), at));
                    let answers = house.submit(events.to_vec()).await;
                    assert_eq!(answers, [Answer::Stored, Answer::Stored]);
                }
            }
        });
        let keeper = async {
            for day in 0..20 {
                let past = at("2015-01-01T12:00:00Z") + (24 * day).hours();
                house.days.make(&house.db, [past]).await.unwrap();
            }
        };
        tokio::join!(futures_util::future::join_all(clients), keeper);
        while house.days.keep(&house.db).await.unwrap().more {}
        assert_eq!(house.count("SELECT count(*) FROM counterfoil.event_spill").await, 0);
        assert_eq!(
            house.count("SELECT count(*) FROM counterfoil.event").await,
            400,
            "{server:?}"
        );
        house.assert_whole().await;
    }
}

/// Case 6. The bucket and the day follow the event's time, the partition its id, and every question finds it.
#[tokio::test]
async fn case_6_an_event_whose_id_is_of_another_day_is_counted_for_its_own() {
    use counterfoil_events::report::{self, Ask, Grain};
    use counterfoil_pg::{Role, Scope};
    use jiff::tz::TimeZone;
    use serde_json::json;

    for server in Server::DIRECT {
        let house = House::new(server).await;
        // Noon, so that no hour of the test lies on the edge of a day; its id is of twenty hours before.
        let noon = at(&format!("{}T12:07:30Z", now().strftime("%Y-%m-%d"))) - 24.hours();
        let ms = (noon - 20.hours()).as_millisecond().unsigned_abs();
        let id = uuid::Builder::from_unix_timestamp_millis(ms, &[3; 10])
            .into_uuid()
            .to_string();
        house.days.make(&house.db, [noon - 24.hours()]).await.unwrap();
        let event = json!({"stream": "web", "subject": "/", "id": id, "at": noon.to_string()});
        assert_eq!(house.submit(vec![house.event(&event)]).await, [Answer::Stored]);

        let partition: String = house
            .admin
            .query_one("SELECT tableoid::regclass::text FROM counterfoil.event", &[])
            .await
            .unwrap()
            .get(0);
        let of_the_id = (noon - 20.hours()).strftime("%Y%m%d").to_string();
        assert!(partition.ends_with(&of_the_id), "{partition}, not of {of_the_id}");
        let scope = Scope::Tenant(house.tenant);
        let tx = house.db.pool(Role::Report).begin(&scope).await.unwrap();
        // By whole buckets, and by an edge that cuts its bucket, which is found in the raw events.
        for (from, to, n) in [
            (noon - 12.hours(), noon + 12.hours(), 1),
            (noon, noon + 1.minute(), 1),
            (noon + 1.second(), noon + 1.minute(), 0),
            (noon - 1.minute(), noon, 0),
        ] {
            let ask = Ask {
                stream: "web".to_owned(),
                subject: Some("/".to_owned()),
                grain: Grain::Month,
                week_start: report::weekday("monday").unwrap(),
                zone: TimeZone::UTC,
                from: Some(from),
                to: Some(to),
            };
            let found = report::series(&scope, &tx, house.tenant, ask).await.unwrap().unwrap();
            let found: i64 = found.rows.iter().map(|row| row.n).sum();
            assert_eq!(found, n, "{server:?} from {from} to {to}");
            let ends = (Some(from), Some(to));
            let top = report::top(&scope, &tx, house.tenant, "web", ends, 10).await.unwrap();
            assert_eq!(top.rows.iter().map(|row| row.n).sum::<i64>(), n, "{from} to {to}");
        }
        tx.rollback().await;
        house.assert_whole().await;
    }
}

/// Case 6: an hour that the clocks showed twice is two moments.
#[tokio::test]
async fn case_6_one_id_at_both_hours_of_a_daylight_saving_fold_is_two_events() {
    use serde_json::json;
    let house = House::new(Server::Pg15).await;
    let event = |time: &str| house.event(&json!({"stream": "web", "subject": "/", "id": "e", "at": time}));
    let (first, second) = ("2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00");
    house.days.make(&house.db, [at(first)]).await.unwrap();
    let answers = house.submit(vec![event(first), event(second), event(first)]).await;
    assert_eq!(answers, [Answer::Stored, Answer::Stored, Answer::Known]);
    // To the microsecond one moment is one event, however many digits it is told with.
    let (fine, finer) = ("2026-10-24T23:59:59.999999Z", "2026-10-24T23:59:59.9999999Z");
    house.days.make(&house.db, [at(fine)]).await.unwrap();
    assert_eq!(
        house.submit(vec![event(fine), event(finer)]).await,
        [Answer::Stored, Answer::Known]
    );
    house.assert_whole().await;
}
