//! Events over real servers: stored once and counted once, whatever dies.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil_pg::TenantId;
use counterfoil_test::{PASSWORD, Server, TestCluster};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::Client;
use crate::harness::{Home, House, PATIENCE, Up, seed, until};
use crate::kills::Moment;

const CALLERS: u64 = 8;

/// Promise 7: buckets whose count is not what is stored. One statement, so one moment.
const WRONG: &str = "WITH stored AS (
        SELECT tenant_id, stream, coalesce(subject, '') AS subject, bucket, count(*) AS n
          FROM (SELECT tenant_id, stream, subject, to_timestamp(floor(extract(epoch FROM at) / 900) * 900) AS bucket
                  FROM counterfoil.event) AS event
         GROUP BY GROUPING SETS ((tenant_id, stream, subject, bucket), (tenant_id, stream, bucket))
     ), counted AS (
        SELECT tenant_id, stream, subject, bucket, sum(n) AS n
          FROM (SELECT tenant_id, stream, subject, bucket, n FROM counterfoil.rollup
                UNION ALL
                SELECT tenant_id, stream, subject, bucket, n FROM counterfoil.rollup_delta) AS part
         GROUP BY 1, 2, 3, 4
     )
     SELECT count(*) FROM stored FULL JOIN counted USING (tenant_id, stream, subject, bucket)
      WHERE stored.n IS DISTINCT FROM counted.n";

/// Stored, or aside until their partition is there.
const HELD: &str = "SELECT (SELECT count(*) FROM counterfoil.event) + (SELECT count(*) FROM counterfoil.event_spill)";

/// Callers that send arrays of events, and each array again until every one is stored or known.
struct Load {
    stop: Arc<AtomicBool>,
    place: watch::Sender<Option<SocketAddr>>,
    callers: JoinSet<u64>,
}

impl Load {
    fn start(tenants: &[TenantId], key: &str, seed: u64) -> Self {
        let (stop, place) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(None));
        let mut callers = JoinSet::new();
        for number in 0..CALLERS {
            let tenant = tenants[usize::try_from(number).unwrap() % tenants.len()];
            let (stop, places, key) = (Arc::clone(&stop), place.subscribe(), key.to_owned());
            let rng = StdRng::seed_from_u64(seed ^ number);
            callers.spawn(call(number, tenant, key, places, stop, rng));
        }
        Self { stop, place, callers }
    }

    /// How many different events were acknowledged.
    async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let ended = timeout(PATIENCE, self.callers.join_all()).await;
        ended.expect("every caller has its last answer").iter().sum()
    }
}

fn event(number: u64, n: u64, rng: &mut StdRng) -> Value {
    // Today and yesterday have partitions; nobody has made one for last week.
    let back = if rng.random_range(0..20) == 0 {
        7 * 86_400
    } else {
        rng.random_range(0..3_600)
    };
    let at = jiff::Timestamp::from_second(counterfoil_events::now().as_second() - back).unwrap();
    let subject = format!("/{}", rng.random_range(0..20));
    if rng.random_bool(0.5) {
        let ms = at.as_millisecond().unsigned_abs();
        let id = uuid::Builder::from_unix_timestamp_millis(ms, &rng.random()).into_uuid();
        json!({"stream": "web", "subject": subject, "id": id.to_string()})
    } else {
        json!({"stream": "web", "subject": subject, "id": format!("{number}-{n}"), "at": at.to_string()})
    }
}

async fn call(
    number: u64,
    tenant: TenantId,
    key: String,
    mut places: watch::Receiver<Option<SocketAddr>>,
    stop: Arc<AtomicBool>,
    mut rng: StdRng,
) -> u64 {
    let (mut n, mut acknowledged) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let mut open: Vec<Value> = Vec::new();
        for _ in 0..rng.random_range(1..=40) {
            n += 1;
            open.push(event(number, n, &mut rng));
        }
        let mut client: Option<Client> = None;
        while !open.is_empty() {
            let place = *places.wait_for(Option::is_some).await.unwrap();
            let address = place.expect("it was waited for");
            let client = match &mut client {
                Some(client) if client.address == address => client,
                other => other.insert(Client::new(address, tenant, &key)),
            };
            match client.try_post("/events", &Value::Array(open.clone())).await {
                Ok(answer) if answer.status == 200 => {
                    let answers = answer.items();
                    assert_eq!(answers.len(), open.len());
                    let before = open.len();
                    let mut answers = answers.iter();
                    open.retain(|_| match answers.next().unwrap()["status"].as_u64().unwrap() {
                        200 | 201 => false,
                        429 | 503 | 504 => true,
                        other => panic!("{other}"),
                    });
                    acknowledged += (before - open.len()) as u64;
                }
                Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.text()),
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }
    acknowledged
}

async fn nothing_is_lost_or_doubled(house: &House, acknowledged: u64) {
    until("what was aside has been taken in", async || {
        house.number("SELECT count(*) FROM counterfoil.event_spill").await == 0
    })
    .await;
    assert_eq!(house.number(WRONG).await, 0);
    assert_eq!(house.number(HELD).await.unsigned_abs(), acknowledged);
    assert!(acknowledged > 500, "that was no load: {acknowledged}");
    house.check().await;
}

/// Case 3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_3_kill_9_at_twenty_points_under_a_load_of_events_loses_nothing_and_doubles_nothing() {
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let house = House::new(Server::Pg18).await;
    let tenants = [house.tenant, house.test.tenant("two").await];
    let proxy = house.test.proxy().await;
    let home = house.home_behind(&proxy);
    let mut up = Up::start(&home, &[]).await;
    let load = Load::start(&tenants, &house.operator, seed);
    load.place.send_replace(Some(up.address));
    let mut inside = 0;
    for round in 1..=20 {
        let (moment, what) = Moment::random(&mut rng, &proxy, 2);
        let came = moment.came().await;
        inside += u32::from(came);
        println!("kill {round}: {what}{}", if came { "" } else { " (never came)" });
        load.place.send_replace(None);
        up.kill().await;
        let late = moment.after_the_kill(&proxy);
        // At every look.
        assert_eq!(house.number(WRONG).await, 0, "after kill {round}");
        up = Up::start(&home, &[]).await;
        load.place.send_replace(Some(up.address));
        if let Some(hold) = late {
            tokio::time::sleep(Duration::from_millis(rng.random_range(20..200))).await;
            hold.release();
        }
        let seen = proxy.seen().commits;
        until("the new server commits", async || proxy.seen().commits > seen + 3).await;
        assert_eq!(house.number(WRONG).await, 0, "under load after kill {round}");
    }
    assert!(inside >= 18, "only {inside} of 20 kills were inside of a transaction");
    nothing_is_lost_or_doubled(&house, load.end().await).await;
    up.stop().await;
}

/// Case 3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_3_postgres_stopped_immediate_under_a_load_of_events_loses_nothing_and_doubles_nothing() {
    let mut cluster = TestCluster::start(Server::Pg15, &[]).await;
    let database = cluster.database("clicks").await;
    let settings = cluster.settings("clicks");
    let home = Home::prepared(&settings.host, settings.port, "clicks", PASSWORD);
    let made = home.ok(&["tenant", "create", "one", "--format", "json"]).await;
    let tenant = TenantId(made.parse::<Value>().unwrap()["id"].as_i64().unwrap());
    let operator = home.ok(&["key", "create"]).await.trim().to_owned();
    let up = Up::start(&home, &[]).await;
    let load = Load::start(&[tenant], &operator, seed());
    load.place.send_replace(Some(up.address));
    let count = async || {
        let mut client = up.client(tenant, &operator);
        let report = client.get("/report?stream=web&grain=month&zone=UTC").await;
        let rows = report.json()["intervals"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row["count"].as_u64().unwrap()).sum::<u64>()
    };
    for _ in 0..3 {
        let before = count().await;
        until("the load goes on", async || count().await > before + 100).await;
        cluster.stop_immediately().await;
        cluster.restart().await;
        until("it is ready", async || {
            let mut client = up.client(tenant, &operator);
            client
                .send("GET", "/readyz", &[], b"")
                .await
                .is_ok_and(|answer| answer.status == 200)
        })
        .await;
    }
    let acknowledged = load.end().await;
    until("all of it is counted", async || count().await == acknowledged).await;
    let mut admin = cluster.admin();
    let admin = counterfoil_pg::connect_admin(admin.dbname("clicks"), &counterfoil_pg::Tls::default())
        .await
        .unwrap();
    #[allow(clippy::disallowed_methods, reason = "a look from outside")]
    let wrong: i64 = admin.query_one(WRONG, &[]).await.unwrap().get(0);
    assert_eq!(wrong, 0);
    up.stop().await;
    drop(database);
}

/// Case 3: the connection is lost before, at and after COMMIT, and in the middle. The callers are told what is
/// true: stored, since it is their own.
#[tokio::test]
async fn case_3_a_connection_cut_anywhere_is_an_event_stored_once_and_told_so() {
    let house = House::new(Server::Pg15).await;
    let proxy = house.test.proxy().await;
    let up = Up::start(&house.home_behind(&proxy), &[]).await;
    let mut client = house.client(&up);
    let lane = proxy.lane();
    let mut rng = StdRng::seed_from_u64(seed());
    let mut sent = Vec::new();
    for round in 0..6 {
        let fault = match round {
            0 => lane.cut_before_commit(1),
            1 => lane.cut_while_committing(1),
            2 => lane.cut_after_commit(1),
            n => lane.cut_mid_batch(n - 2),
        };
        let mut body = event(9, round, &mut rng);
        // Today, so that it counts at once.
        body["at"] = counterfoil_events::now().to_string().into();
        body["id"] = format!("cut-{round}").into();
        let answer = client.post("/events", &body).await;
        assert!(fault.has_fired() || round > 3, "round {round}");
        assert_eq!(
            (answer.status, &answer.json()["outcome"]),
            (201, &"stored".into()),
            "round {round}"
        );
        sent.push(body);
    }
    // Case 2: the reply was lost, and all of it is sent again.
    let again = client.post("/events", &Value::Array(sent)).await.items();
    assert!(again.iter().all(|item| item["outcome"] == "known"), "{again:?}");
    assert_eq!((house.number(HELD).await, house.number(WRONG).await), (6, 0));
    up.stop().await;
}

/// Case 5.
#[tokio::test]
async fn case_5_of_a_thousand_with_one_bad_item_nine_hundred_and_ninety_nine_land() {
    let house = House::new(Server::Pg18).await;
    let up = house.up().await;
    let mut client = house.client(&up);
    let mut rng = StdRng::seed_from_u64(seed());
    let now = counterfoil_events::now().to_string();
    let bad: [(&str, Vec<u8>, u64); 6] = [
        (
            "NUL",
            format!(r#"{{"stream":"web","subject":"a\u0000","id":"x","at":"{now}"}}"#).into(),
            400,
        ),
        (
            "a lone surrogate",
            format!(r#"{{"stream":"web","subject":"\ud800","id":"x","at":"{now}"}}"#).into(),
            400,
        ),
        (
            "no UTF-8",
            b"{\"stream\":\"web\",\"subject\":\"\xff\xfe\",\"id\":".to_vec(),
            400,
        ),
        (
            "70 KB of user agent",
            format!(
                r#"{{"stream":"web","subject":"/","id":"x","at":"{now}","properties":{{"agent":"{}"}}}}"#,
                "x".repeat(70_000)
            )
            .into(),
            413,
        ),
        (
            "the year 57000",
            br#"{"stream":"web","subject":"/","id":"x","at":"+57000-01-01T00:00:00Z"}"#.to_vec(),
            400,
        ),
        (
            "nested too deeply",
            format!(
                r#"{{"stream":"web","subject":"/","id":"x","at":"{now}","properties":{{"a":{}{}}}}}"#,
                "[".repeat(500),
                "]".repeat(500)
            )
            .into(),
            400,
        ),
    ];
    let mut statuses: HashMap<u64, usize> = HashMap::new();
    for (round, (what, bad, status)) in bad.into_iter().enumerate() {
        let mut body = Vec::new();
        for n in 0..1_000 {
            if n == 500 {
                body.extend_from_slice(&bad);
            } else {
                let mut event = event(round as u64, n, &mut rng);
                event["at"] = now.as_str().into();
                event["id"] = format!("{round}-{n}").into();
                body.extend_from_slice(event.to_string().as_bytes());
            }
            body.push(b'\n');
        }
        let path = client.path("/events");
        let answer = client
            .send("POST", &path, &[("content-type", "application/x-ndjson")], &body)
            .await
            .unwrap();
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        let items: Vec<Value> = answer.text().lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(items.len(), 1_000, "{what}");
        assert_eq!(items[500]["status"], status, "{what}: {}", items[500]);
        for item in items {
            *statuses.entry(item["status"].as_u64().unwrap()).or_default() += 1;
        }
    }
    assert_eq!(statuses.get(&201), Some(&5_994), "{statuses:?}");
    assert_eq!((house.number(HELD).await, house.number(WRONG).await), (5_994, 0));
    up.stop().await;
}
