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
