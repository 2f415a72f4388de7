//! Case 6: killed inside of batches, over and over, under load. Callers send the same keys again,
//! and promises 1, 2, 4 and 9 hold.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil_pg::TenantId;
use counterfoil_test::{Fault, FaultProxy, Hold, PASSWORD, Server, TestCluster};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::Client;
use crate::harness::{Home, House, PATIENCE, Up, fund, open_books, seed, transfer};

/// How many callers there are, each with transfers of its own.
const CALLERS: u64 = 12;

/// Callers that never give up: each sends arrays of one to eight transfers, and each array again
/// under the same keys until every item of it has an answer that says what happened.
struct Load {
    stop: Arc<AtomicBool>,
    /// Where the server is now; it moves when it is killed.
    place: watch::Sender<Option<SocketAddr>>,
    callers: JoinSet<Told>,
}

/// What one caller was told.
struct Told {
    tenant: TenantId,
    /// Key, and the transfer or the refusal.
    answers: Vec<(String, Result<String, String>)>,
    first: u64,
    replayed: u64,
}

impl Load {
    fn start(tenants: &[TenantId], key: &str, seed: u64) -> Self {
        let (stop, place) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(None));
        let mut callers = JoinSet::new();
        for number in 0..CALLERS {
            let tenant = tenants[usize::try_from(number).unwrap() % tenants.len()];
            let (stop, places, key) = (Arc::clone(&stop), place.subscribe(), key.to_owned());
            callers.spawn(call(
                number,
                tenant,
                key,
                places,
                stop,
                StdRng::seed_from_u64(seed ^ number),
            ));
        }
        Self { stop, place, callers }
    }

    fn at(&self, up: &Up) {
        self.place.send_replace(Some(up.address));
    }

    fn away(&self) {
        self.place.send_replace(None);
    }

    async fn end(self) -> Vec<Told> {
        self.stop.store(true, Ordering::Relaxed);
        timeout(PATIENCE, self.callers.join_all())
            .await
            .expect("every caller has its last answer")
    }
}

async fn call(
    number: u64,
    tenant: TenantId,
    key: String,
    mut places: watch::Receiver<Option<SocketAddr>>,
    stop: Arc<AtomicBool>,
    mut rng: StdRng,
) -> Told {
    let mut told = Told {
        tenant,
        answers: Vec::new(),
        first: 0,
        replayed: 0,
    };
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut open: HashMap<String, Value> = HashMap::new();
        for _ in 0..rng.random_range(1..=8) {
            n += 1;
            let key = format!("{number}-{n}");
            // Some of them are refused: two accounts have floors, and little on them.
            let accounts = ["bank", "till", "shop"];
            let from = rng.random_range(0..3);
            let to = (from + rng.random_range(1..3)) % 3;
            let amount = rng.random_range(1..=50).to_string();
            open.insert(key.clone(), transfer(&key, accounts[from], accounts[to], &amount));
        }
        let mut client: Option<Client> = None;
        while !open.is_empty() {
            let place = *places.wait_for(Option::is_some).await.unwrap();
            let address = place.expect("it was waited for");
            let client = match &mut client {
                Some(client) if client.address == address => client,
                other => other.insert(Client::new(address, tenant, &key)),
            };
            let array = open.values().cloned().collect();
            // No answer: the connection broke, and nobody knows. Then the same again.
            match client.try_post("/intents", &Value::Array(array)).await {
                Ok(answer) if answer.status == 200 => told.take(&answer.items(), &mut open),
                Ok(answer) => assert_eq!(answer.status, 503, "{}", answer.text()),
                Err(_) => {
                    // A server that was killed is not asked ten thousand times a second.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
        }
    }
    told
}

impl Told {
    fn take(&mut self, items: &[Value], open: &mut HashMap<String, Value>) {
        for item in items {
            let key = item["key"].as_str().unwrap();
            let answer = match item["status"].as_u64().unwrap() {
                200 | 201 => Ok(item["result"]["transfer"].as_str().unwrap().to_owned()),
                409 => Err(item["code"].as_str().unwrap().to_owned()),
                // Not done, or nobody knows: the same key again.
                429 | 503 | 504 => continue,
                other => panic!("{other}: {item}"),
            };
            if item["replayed"] == true {
                self.replayed += 1;
            } else {
                self.first += 1;
            }
            assert!(
                open.remove(key).is_some(),
                "an answer to a question nobody asked: {item}"
            );
            self.answers.push((key.to_owned(), answer));
        }
    }
}

/// What was told is what is there, once.
#[allow(clippy::disallowed_methods, reason = "a look from outside")]
async fn promises_hold(admin: &counterfoil_pg::Client, before: u64, told: &[Told]) {
    let rows = admin
        .query(
            "SELECT tenant_id, encode(substring(key FROM 2), 'escape'), accepted, result->>'transfer', result->>'code'
             FROM counterfoil.stub WHERE kind = 'ledger.transfer' AND encode(substring(key FROM 2), 'escape') LIKE '%-%'",
            &[],
        )
        .await
        .unwrap();
    let mut stubs: HashMap<(i64, String), Result<String, String>> = HashMap::new();
    for row in rows {
        let answer = if row.get(2) { Ok(row.get(3)) } else { Err(row.get(4)) };
        let twice = stubs.insert((row.get(0), row.get(1)), answer);
        assert!(twice.is_none(), "two stubs of {}", row.get::<_, String>(1));
    }
    let (mut accepted, mut refused) = (0, 0);
    for caller in told {
        for (key, answer) in &caller.answers {
            let stub = stubs.remove(&(caller.tenant.0, key.clone()));
            assert_eq!(stub.as_ref(), Some(answer), "what {key} was told, and its stub");
            match answer {
                Ok(_) => accepted += 1,
                Err(_) => refused += 1,
            }
        }
    }
    // Callers asked until they had an answer, so nothing is there that nobody was told of.
    assert!(stubs.keys().all(|(_, key)| key.starts_with("fresh-")), "{stubs:?}");
    let count = |table: &str| format!("SELECT count(*) FROM counterfoil.{table}");
    let transfers: i64 = admin.query_one(&count("ledger_transfer"), &[]).await.unwrap().get(0);
    let entries: i64 = admin.query_one(&count("ledger_entry"), &[]).await.unwrap().get(0);
    assert_eq!(
        (transfers.unsigned_abs(), entries.unsigned_abs()),
        (accepted + before, 2 * (accepted + before))
    );
    let below = "SELECT count(*) FROM counterfoil.ledger_entry e JOIN counterfoil.ledger_balance b
        USING (tenant_id, account_id) WHERE e.posted < b.floor";
    assert_eq!(admin.query_one(below, &[]).await.unwrap().get::<_, i64>(0), 0);
    let (first, replayed) = told
        .iter()
        .fold((0, 0), |(f, r), told| (f + told.first, r + told.replayed));
    println!("{accepted} accepted, {refused} refused; {first} first answers, {replayed} replays");
    assert!(accepted > 100 && refused > 0, "that was no load");
}

/// A moment inside of a batch.
pub enum Moment {
    /// Before some statement of it is sent on.
    Statement(Hold),
    /// Before COMMIT is sent on. What becomes of it is decided after the kill.
    Commit(Hold, Fate),
    /// COMMIT was executed, and its reply will never come.
    Committed(Fault),
}

/// Of a COMMIT that was under way when its server was killed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fate {
    /// It never arrives.
    Lost,
    /// It arrives at once.
    Arrives,
    /// It arrives when the next server is at work already, and the callers have sent all of it again.
    ArrivesLate,
}

impl Moment {
    /// One of those that a transaction of so many statements has.
    pub fn random(rng: &mut StdRng, proxy: &FaultProxy, statements: u64) -> (Self, String) {
        match rng.random_range(0..10) {
            0..5 => {
                let n = rng.random_range(1..=statements);
                (
                    Self::Statement(proxy.lane().hold_mid_batch(n)),
                    format!("before statement {n}"),
                )
            }
            choice @ 5..8 => {
                let fate = [Fate::Lost, Fate::Arrives, Fate::ArrivesLate][choice - 5];
                (
                    Self::Commit(proxy.lane().hold_commit(rng.random_range(1..=5)), fate),
                    format!("at COMMIT, {fate:?}"),
                )
            }
            _ => {
                let nth = rng.random_range(1..=5);
                (
                    Self::Committed(proxy.lane().cut_after_commit(nth)),
                    "after COMMIT".to_owned(),
                )
            }
        }
    }

    /// What becomes of it once its server is dead: perhaps it is still on its way.
    pub fn after_the_kill(self, proxy: &FaultProxy) -> Option<Hold> {
        match self {
            Self::Commit(hold, Fate::ArrivesLate) => Some(hold),
            Self::Commit(hold, Fate::Arrives) => {
                hold.release();
                None
            }
            // Whatever was held is thrown away with its connection.
            Self::Statement(hold) | Self::Commit(hold, Fate::Lost) => {
                proxy.cut_all();
                drop(hold);
                None
            }
            Self::Committed(_) => None,
        }
    }

    /// Whether it came within the time that a busy server needs for a few batches.
    pub async fn came(&self) -> bool {
        let patience = Duration::from_secs(2);
        match self {
            Self::Statement(hold) | Self::Commit(hold, _) => timeout(patience, hold.reached()).await.is_ok(),
            Self::Committed(fault) => timeout(patience, fault.fired()).await.is_ok(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_6_kill_9_at_twenty_points_inside_of_batches_loses_nothing_and_doubles_nothing() {
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let house = House::new(Server::Pg18).await;
    let tenants = [
        house.tenant,
        house.test.tenant("two").await,
        house.test.tenant("three").await,
    ];
    let proxy = house.test.proxy().await;
    let home = house.home_behind(&proxy);
    let mut up = Up::start(&home, &[]).await;
    for tenant in tenants {
        let mut client = up.client(tenant, &house.operator);
        open_books(&mut client, &["till", "shop"]).await;
        fund(&mut client, "till", "100").await;
    }
    let load = Load::start(&tenants, &house.operator, seed);
    load.at(&up);
    let mut inside = 0;
    for round in 1..=20 {
        let (moment, what) = Moment::random(&mut rng, &proxy, 10);
        let came = moment.came().await;
        inside += u32::from(came);
        println!("kill {round}: {what}{}", if came { "" } else { " (never came)" });
        load.away();
        up.kill().await;
        let late = moment.after_the_kill(&proxy);
        up = Up::start(&home, &[]).await;
        load.at(&up);
        if let Some(hold) = late {
            // Callers are back, and some of them wait for the twin of their own batch.
            tokio::time::sleep(Duration::from_millis(rng.random_range(20..200))).await;
            hold.release();
        }
        // The next kill meets a server that is at work.
        let seen = proxy.seen().commits;
        crate::harness::until("the new server commits", async || proxy.seen().commits > seen + 3).await;
    }
    assert!(inside >= 18, "only {inside} of 20 kills were inside of a batch");
    let told = load.end().await;
    promises_hold(&house.admin, 3, &told).await;
    house.check().await;
    up.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_6_kill_9_at_any_time_while_a_second_server_goes_on_loses_nothing_and_doubles_nothing() {
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let house = House::new(Server::Pg15).await;
    let tenants = [house.tenant, house.test.tenant("two").await];
    let proxy = house.test.proxy().await;
    let home = house.home_behind(&proxy);
    let (mut up, other) = (Up::start(&home, &[]).await, house.up().await);
    for tenant in tenants {
        let mut client = up.client(tenant, &house.operator);
        open_books(&mut client, &["till", "shop"]).await;
        fund(&mut client, "till", "100").await;
    }
    let load = Load::start(&tenants, &house.operator, seed);
    for round in 0..8 {
        load.at(&up);
        // Some lane is in its transaction, as the database has it; every other time its COMMIT is
        // under way, and arrives when the other server has the same keys.
        let commit = (round % 2 == 1).then(|| proxy.lane().hold_commit(3));
        if let Some(commit) = &commit {
            timeout(PATIENCE, commit.reached()).await.expect("a third COMMIT");
        }
        tokio::time::sleep(Duration::from_millis(rng.random_range(20..120))).await;
        let busy = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND usename = 'counterfoil_lane'
             AND xact_start IS NOT NULL",
            house.test.name
        );
        crate::harness::until("a lane is in a transaction", async || house.number(&busy).await > 0).await;
        up.kill_now();
        // Retries go through another server, while the transactions of the killed one may still end.
        load.at(&other);
        up.ended().await;
        tokio::time::sleep(Duration::from_millis(rng.random_range(20..120))).await;
        drop(commit);
        up = Up::start(&home, &[]).await;
    }
    let told = load.end().await;
    promises_hold(&house.admin, 2, &told).await;
    house.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_6_postgres_stopped_immediate_under_a_server_loses_nothing_and_doubles_nothing() {
    let seed = seed();
    let mut cluster = TestCluster::start(Server::Pg18, &[]).await;
    let database = cluster.database("shop").await;
    let settings = cluster.settings("shop");
    let home = Home::prepared(&settings.host, settings.port, "shop", PASSWORD);
    let tenant = TenantId(
        home.ok(&["tenant", "create", "one", "--format", "json"])
            .await
            .parse::<Value>()
            .unwrap()["id"]
            .as_i64()
            .unwrap(),
    );
    let operator = home.ok(&["key", "create"]).await.trim().to_owned();
    let up = Up::start(&home, &[]).await;
    let mut client = up.client(tenant, &operator);
    open_books(&mut client, &["till", "shop"]).await;
    fund(&mut client, "till", "100").await;
    let load = Load::start(&[tenant], &operator, seed);
    load.at(&up);
    for _ in 0..3 {
        let told = client.get("/accounts/bank").await.json()["version"].as_i64().unwrap();
        let mut asking = client.clone();
        crate::harness::until("the load goes on", async || {
            let answer = asking.clone().get("/accounts/bank").await;
            answer.status == 200 && answer.json()["version"].as_i64().unwrap() > told + 20
        })
        .await;
        asking.key.clear();
        cluster.stop_immediately().await;
        // The server lives on without its database, and says so.
        assert!(asking.is_alive().await);
        crate::harness::until("it is not ready", async || {
            let answer = asking.clone().send("GET", "/readyz", &[], b"").await;
            // What went wrong is in the log: it names roles and addresses, and anybody may ask.
            answer.is_ok_and(|answer| answer.status == 503 && !answer.text().contains("counterfoil_"))
        })
        .await;
        cluster.restart().await;
        crate::harness::until("it is ready", async || {
            asking
                .clone()
                .send("GET", "/readyz", &[], b"")
                .await
                .is_ok_and(|answer| answer.status == 200)
        })
        .await;
    }
    let told = load.end().await;
    let mut admin = cluster.admin();
    let admin = counterfoil_pg::connect_admin(admin.dbname("shop"), &counterfoil_pg::Tls::default())
        .await
        .unwrap();
    promises_hold(&admin, 1, &told).await;
    let ended = home.run(&["check"]).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    up.stop().await;
    drop(database);
}

#[tokio::test]
async fn case_6_a_connection_cut_before_at_and_after_commit_and_in_mid_batch_is_a_first_answer_over_http() {
    let house = House::new(Server::Pg15).await;
    let proxy = house.test.proxy().await;
    let up = Up::start(&house.home_behind(&proxy), &[]).await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till"]).await;
    let lane = proxy.lane();
    let mut arms: Vec<(String, Box<dyn Fn() -> Fault>)> = vec![
        ("before COMMIT".to_owned(), Box::new(|| lane.cut_before_commit(1))),
        (
            "while COMMIT is under way".to_owned(),
            Box::new(|| lane.cut_while_committing(1)),
        ),
        ("after COMMIT".to_owned(), Box::new(|| lane.cut_after_commit(1))),
    ];
    for nth in 1..=8 {
        let lane = &lane;
        arms.push((format!("at statement {nth}"), Box::new(move || lane.cut_mid_batch(nth))));
    }
    for (n, (what, arm)) in arms.iter().enumerate() {
        let fault = arm();
        let body = json!({ "key": format!("k{n}"), "from": "bank", "to": "till", "amount": "1" });
        let answer = client.post("/transfers", &body).await;
        assert_eq!(
            (answer.status, answer.replayed()),
            (201, false),
            "{what}: {}",
            answer.text()
        );
        assert!(fault.has_fired(), "{what}");
        let again = client.post("/transfers", &body).await;
        assert_eq!((again.status, again.text()), (200, answer.text()), "{what}");
    }
    assert_eq!(house.transfers().await, 11);
    assert_eq!(client.account("till", "posted").await, "11.00");
    house.check().await;
}
