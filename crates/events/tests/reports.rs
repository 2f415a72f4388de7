//! What is reported is what a naive count over raw events gives.

use counterfoil_events::report::{self, Ask, Grain, Span};
use counterfoil_pg::{Role, Scope};
use counterfoil_test::Server;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

use crate::house::House;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// An event every seven minutes and a bit, and some at the very edges.
async fn fill(house: &House, span: Span) {
    let mut events = Vec::new();
    let mut time = span.from - 2.hours();
    while time < span.to + 2.hours() {
        let subject = format!("/{}", events.len() % 3);
        events.push(house.click(&subject, &format!("e{}", events.len()), time));
        time += 433.seconds();
    }
    for minute in 0..3 {
        let edge = at("2009-11-01T02:29:59.999999Z") + minute.minutes();
        events.push(house.click("/edge", &format!("edge-{minute}"), edge));
    }
    let days: Vec<_> = (-2..400)
        .map(|day| span.from + (24 * day).hours())
        .take_while(|day| *day < span.to + 48.hours())
        .collect();
    house.days.make(&house.db, days).await.unwrap();
    for chunk in events.chunks(2_000) {
        house.submit(chunk.to_vec()).await;
    }
}

/// Case 7.
#[tokio::test]
async fn days_of_odd_zones_are_what_a_naive_count_gives() {
    let cases = [
        ("Asia/Kolkata", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
        ("Asia/Kathmandu", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
        ("America/St_Johns", "2009-10-31T00:00:00Z", "2009-11-03T12:00:00Z"),
        ("America/St_Johns", "2009-03-07T00:00:00Z", "2009-03-10T12:00:00Z"),
        ("America/St_Johns", "2024-11-02T00:00:00Z", "2024-11-05T00:00:00Z"),
        ("Australia/Lord_Howe", "2024-04-05T00:00:00Z", "2024-04-09T00:00:00Z"),
        ("Australia/Lord_Howe", "2024-10-04T00:00:00Z", "2024-10-08T00:00:00Z"),
        ("Antarctica/Casey", "2010-03-03T00:00:00Z", "2010-03-07T00:00:00Z"),
        ("Europe/Berlin", "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z"),
        ("Europe/Berlin", "2026-10-24T00:00:00Z", "2026-10-27T00:00:00Z"),
    ];
    for server in Server::DIRECT {
        for (name, from, to) in cases {
            let house = House::new(server).await;
            // Whatever they are set to.
            house
                .admin
                .batch_execute("SET TimeZone = 'Pacific/Marquesas'")
                .await
                .unwrap();
            let span = Span {
                from: at(from),
                to: at(to),
            };
            fill(&house, span).await;
            let zone = TimeZone::get(name).unwrap();
            for folded in [false, true] {
                if folded {
                    house.fold.pass().await.unwrap();
                }
                let scope = Scope::Tenant(house.tenant);
                let tx = house.db.pool(Role::Report).begin(&scope).await.unwrap();
                let ask = Ask {
                    stream: "web".to_owned(),
                    subject: None,
                    grain: Grain::Day,
                    week_start: report::weekday("monday").unwrap(),
                    zone: zone.clone(),
                    from: Some(span.from),
                    to: Some(span.to),
                };
                let days = report::series(&scope, &tx, house.tenant, ask).await.unwrap().unwrap();
                let days: Vec<_> = days
                    .rows
                    .iter()
                    .map(|day| (day.start.date().to_string(), day.n))
                    .collect();
                let naive = house
                    .admin
                    .query(
                        "SELECT (at AT TIME ZONE $1)::date::text, count(*) FROM counterfoil.event
                          WHERE at >= $2 AND at < $3 GROUP BY 1 ORDER BY 1",
                        &[&name, &span.from, &span.to],
                    )
                    .await
                    .unwrap();
                let naive: Vec<(String, i64)> = naive.iter().map(|row| (row.get(0), row.get(1))).collect();
                assert_eq!(days, naive, "{server:?} {name} {from} folded {folded}");
                tx.rollback().await;
            }
        }
    }
}

#[tokio::test]
async fn the_first_subjects_of_a_span_that_cuts_buckets_are_what_a_naive_count_gives() {
    let house = House::new(Server::Pg18).await;
    let span = Span {
        from: at("2009-10-31T20:00:01Z"),
        to: at("2009-11-01T02:31:30Z"),
    };
    fill(&house, span).await;
    let scope = Scope::Tenant(house.tenant);
    let tx = house.db.pool(Role::Report).begin(&scope).await.unwrap();
    let ends = (Some(span.from), Some(span.to));
    let top = report::top(&scope, &tx, house.tenant, "web", ends, 10).await.unwrap();
    let naive = house
        .admin
        .query(
            "SELECT subject, count(*) FROM counterfoil.event WHERE at >= $1 AND at < $2 GROUP BY 1 ORDER BY 2 DESC, 1",
            &[&span.from, &span.to],
        )
        .await
        .unwrap();
    let naive: Vec<(String, i64)> = naive.iter().map(|row| (row.get(0), row.get(1))).collect();
    let top: Vec<_> = top
        .rows
        .into_iter()
        .map(|subject| (subject.subject, subject.n))
        .collect();
    assert_eq!(top, naive);
    assert_eq!(top.len(), 4);
    tx.rollback().await;
}
