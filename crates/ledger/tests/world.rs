//! A ledger without a database: rows in maps, loaded into books and written back batch by batch, as
//! the statements of `sql/` would do it.

use std::collections::BTreeMap;

use counterfoil_intent::{Kind, Kinds, Name, Outcome, Plan, Refusal};
use counterfoil_ledger::{
    AccountCode, AccountId, Asset, AssetCode, Assets, Balance, Balances, HoldAccount, HoldRow, HoldState, Holds,
    Source, Sources, TransferAccounts, TransferRow, Transfers,
};
use counterfoil_pg::TenantId;
use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;
use uuid::Uuid;

pub struct World {
    pub kinds: Kinds,
    pub now: Timestamp,
    pub assets: BTreeMap<AssetCode, Asset>,
    pub balances: BTreeMap<AccountId, Balance>,
    pub holds: BTreeMap<Uuid, HoldRow>,
    pub transfers: BTreeMap<Uuid, TransferRow>,
    pub sources: BTreeMap<Box<str>, Source>,
    ids: u128,
}

/// One transaction of a lane.
pub struct Batch<'a> {
    world: &'a mut World,
    plan: Plan,
}

/// What came of a body: the id it made, if it made one, and the whole reply; or why not.
#[derive(Debug)]
pub enum Came {
    Accepted {
        id: Option<Uuid>,
        reply: String,
    },
    /// Without the database: no stub.
    Invalid {
        code: &'static str,
        field: String,
    },
    Refused(Refusal),
}

impl Came {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Accepted { .. } => "accepted",
            Self::Invalid { code, .. } => code,
            Self::Refused(refusal) => refusal.code,
        }
    }

    #[track_caller]
    pub fn id(&self) -> Uuid {
        match self {
            Self::Accepted { id: Some(id), .. } => *id,
            other => panic!("nothing was made: {other:?}"),
        }
    }

    /// The result, as far as it tells anything but ids.
    pub fn tells(&self, text: &str) -> bool {
        matches!(self, Self::Accepted { reply, .. } if reply.replace('\\', "").contains(text))
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code(), "accepted", "{self:?}");
        self
    }
}

impl World {
    pub fn new() -> Self {
        let mut kinds = Kinds::new();
        counterfoil_ledger::register(&mut kinds);
        Self {
            kinds,
            now: "2026-01-31T12:00:00Z".parse().unwrap(),
            assets: BTreeMap::new(),
            balances: BTreeMap::new(),
            holds: BTreeMap::new(),
            transfers: BTreeMap::new(),
            sources: BTreeMap::new(),
            ids: 0,
        }
    }

    pub fn tick(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// Loads everything there is, as of now.
    pub fn batch(&mut self) -> Batch<'_> {
        let mut plan = Plan::new(&self.kinds, TenantId(1), self.now);
        for _ in 0..self.ids {
            plan.context.new_id();
        }
        for (key, row) in &self.assets {
            plan.put::<Assets>(*key, *row);
        }
        for (key, row) in &self.balances {
            plan.put::<Balances>(*key, self.load(*key, row));
        }
        for (id, row) in &self.holds {
            plan.put::<Holds>(*id, row.clone());
            plan.tell::<HoldAccount>(Name::Id(*id), *id, row.account);
        }
        for (id, row) in &self.transfers {
            plan.put::<Transfers>(*id, row.clone());
            let accounts = row.lines.iter().map(|line| line.account).collect();
            plan.tell::<TransferAccounts>(Name::Id(*id), *id, accounts);
        }
        for (key, row) in &self.sources {
            plan.put::<Sources>(key.clone(), row.clone());
        }
        Batch { world: self, plan }
    }

    /// What `balance_load.sql` does.
    fn load(&self, id: AccountId, stored: &Balance) -> Balance {
        self.load_at(self.now, id, stored)
    }

    fn load_at(&self, now: Timestamp, id: AccountId, stored: &Balance) -> Balance {
        let as_of = now.max(stored.changed_at);
        let active = || {
            self.holds
                .values()
                .filter(|hold| hold.account == id && hold.state == HoldState::Active)
        };
        let expiries = || active().filter_map(|hold| hold.expires_at);
        let earliest = expiries().min();
        assert!(
            earliest.is_none() || stored.next_expiry.is_some_and(|bound| bound <= earliest.unwrap()),
            "next_expiry {:?} is later than {earliest:?}",
            stored.next_expiry
        );
        let (expired, following) = if stored.next_expiry.is_some_and(|bound| bound <= as_of) {
            let past = active().filter(|hold| hold.expires_at.is_some_and(|at| at <= as_of));
            (past.map(HoldRow::rest).sum(), expiries().filter(|at| *at > as_of).min())
        } else {
            (0, stored.next_expiry)
        };
        Balance {
            expired,
            following,
            as_of,
            ..*stored
        }
    }

    /// One body in a batch of its own.
    pub fn run<K: Kind>(&mut self, json: &str) -> Came {
        let mut batch = self.batch();
        let came = batch.run::<K>(json);
        batch.save();
        came
    }

    #[track_caller]
    pub fn balance(&self, code: &str) -> Balance {
        self.load(AccountId::of(code), &self.balances[&AccountId::of(code)])
    }

    /// Everything that is stored, for "nothing has changed".
    pub fn picture(&self) -> String {
        let (a, b, c) = (&self.assets, &self.balances, &self.holds);
        format!("{a:?}{b:?}{c:?}{:?}{:?}", self.transfers, self.sources)
    }

    /// Promise 4, as `sql/check_*.sql` prove it.
    pub fn check(&self) {
        let mut posted: BTreeMap<AccountId, i128> = BTreeMap::new();
        for (id, transfer) in &self.transfers {
            let mut sums: BTreeMap<AssetCode, i128> = BTreeMap::new();
            for line in &transfer.lines {
                *sums.entry(self.balances[&line.account].asset).or_default() += line.amount;
                *posted.entry(line.account).or_default() += line.amount;
            }
            assert!(sums.values().all(|sum| *sum == 0), "the legs of {id} sum to {sums:?}");
            if let Some(original) = transfer.about.reverses {
                assert_eq!(self.transfers[&original].reversed_by, Some(*id));
            }
        }
        for (id, stored) in &self.balances {
            let balance = self.load(*id, stored);
            assert_eq!(
                balance.posted,
                posted.get(id).copied().unwrap_or_default(),
                "posted of {id:?}"
            );
            let active = self
                .holds
                .values()
                .filter(|hold| hold.account == *id && hold.state == HoldState::Active);
            assert_eq!(balance.held, active.map(HoldRow::rest).sum::<i128>(), "held of {id:?}");
            assert!(
                !balance.is_under_floor() && !balance.is_over_ceiling(),
                "limits of {balance:?}"
            );
        }
    }
}

impl Batch<'_> {
    pub fn run<K: Kind>(&mut self, json: &str) -> Came {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"));
        match K::parse(&raw) {
            Ok(body) => self.apply::<K>(&body, json),
            Err(invalid) => Came::Invalid {
                code: invalid.code,
                field: invalid.field,
            },
        }
    }

    /// Applies a body that never was JSON; `json` is only read for the account it opens.
    pub fn apply<K: Kind>(&mut self, body: &K::Body, json: &str) -> Came {
        let reply = match self.plan.apply::<K>(body) {
            Outcome::Accepted(reply) => format!("{reply:?}"),
            Outcome::Refused(refusal) => return Came::Refused(refusal),
        };
        let next = Uuid::from_u128(self.world.ids + 1);
        let books = &self.plan.books;
        let id = match K::NAME {
            "ledger.hold" => {
                let account = books.get::<Holds>(&next).unwrap().account;
                self.world
                    .holds
                    .insert(next, books.get::<Holds>(&next).unwrap().clone());
                self.plan.tell::<HoldAccount>(Name::Id(next), next, account);
                Some(next)
            }
            "ledger.import" if reply.contains("known") => None,
            "ledger.transfer" | "ledger.capture" | "ledger.reverse" | "ledger.import" => {
                let row = books.get::<Transfers>(&next).unwrap().clone();
                let accounts = row.lines.iter().map(|line| line.account).collect();
                self.world.transfers.insert(next, row);
                self.plan.tell::<TransferAccounts>(Name::Id(next), next, accounts);
                Some(next)
            }
            "ledger.asset" | "ledger.open" => {
                let json: serde_json::Value = serde_json::from_str(json).unwrap();
                if let Some(code) = json.get("account") {
                    let id = AccountCode::new(code.as_str().unwrap()).unwrap().id();
                    self.world.balances.insert(id, *books.get::<Balances>(&id).unwrap());
                } else {
                    let code = AssetCode::new(json["code"].as_str().unwrap()).unwrap();
                    self.world.assets.insert(code, *books.get::<Assets>(&code).unwrap());
                }
                None
            }
            _ => None,
        };
        if id.is_some() {
            self.world.ids += 1;
        }
        Came::Accepted { id, reply }
    }

    /// Keeps the row of a source that an import made.
    pub fn keep_source(&mut self, source: &str) {
        let row = self.plan.books.get::<Sources>(&source.into()).unwrap().clone();
        self.world.sources.insert(source.into(), row);
    }

    /// A row as it stands in the books.
    pub fn balance(&self, code: &str) -> Balance {
        *self.plan.books.get::<Balances>(&AccountId::of(code)).unwrap()
    }

    /// Writes back and commits.
    pub fn save(self) {
        let books = &self.plan.books;
        for (id, row) in &mut self.world.balances {
            let changed = books.get::<Balances>(id).unwrap();
            assert!(
                changed.version >= row.version && changed.changed_at >= row.changed_at,
                "{row:?} to {changed:?}"
            );
            // What an update is checked by: a change that kept the version could be overwritten.
            let said = |row: &Balance| {
                (
                    row.posted,
                    row.held,
                    row.floor,
                    row.ceiling,
                    row.closed_at,
                    row.changed_at,
                )
            };
            assert!(
                changed.version > row.version || said(changed) == said(row),
                "{row:?} to {changed:?}, and the version is the same"
            );
            *row = Balance {
                next_expiry: changed.stored_expiry(),
                expired: 0,
                following: None,
                ..*changed
            };
        }
        for (id, row) in &mut self.world.holds {
            row.clone_from(books.get::<Holds>(id).unwrap());
        }
        for (id, row) in &mut self.world.transfers {
            row.clone_from(books.get::<Transfers>(id).unwrap());
        }
        // The next batch, under way at the same time, takes the row over as loading it would give it.
        for (id, row) in &self.world.balances {
            for seconds in [0, 1, 30, 3_600, 100_000] {
                let later = self.world.now + SignedDuration::from_secs(seconds);
                let Some(carried) = books.get::<Balances>(id).unwrap().carried(later) else {
                    continue;
                };
                let loaded = self.world.load_at(later, *id, row);
                let Balance { following, .. } = loaded;
                assert_eq!(Balance { following, ..carried }, loaded, "{seconds} s later");
                // The next expiry may be said too early: a hold that is gone is not looked for.
                assert!(
                    following.is_none() || carried.following.is_some_and(|bound| bound <= following.unwrap()),
                    "{carried:?} for {loaded:?}"
                );
            }
        }
    }
}
