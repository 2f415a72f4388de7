//! The rows a batch needs: made, locked and loaded once, changed in memory, written back once.

use std::any::Any;
use std::collections::HashMap;
use std::marker::PhantomData;

use counterfoil_pg::{Error, Scope, TenantId, Tid, Tx};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use std::sync::Arc;

use crate::pipeline;
use crate::table::{AppendTable, Changes, LockClass, Mode, Table, Wait};

/// The books of one batch, on a journalled overlay: [`Books::undo`] takes back what one intent
/// did, without a copy of the books for each.
pub struct Books {
    sheets: Vec<Box<dyn AnySheet>>,
    journals: Vec<Box<dyn AnyJournal>>,
    tenant: TenantId,
}

impl Books {
    pub(crate) fn new(tables: &[Arc<dyn AnyTable>], appends: &[Arc<dyn AnyAppend>]) -> Self {
        Self {
            sheets: tables.iter().map(|table| table.sheet()).collect(),
            journals: appends.iter().map(|append| append.journal()).collect(),
            tenant: TenantId(0),
        }
    }

    /// The row of the current tenant, or `None` where there is none.
    ///
    /// # Panics
    /// If the row was not among the needs of the batch.
    #[must_use]
    pub fn get<T: Table>(&self, key: &T::Key) -> Option<&T::Row> {
        let sheet = self.sheet::<T>();
        sheet.slots[sheet.find(self.tenant, key)].row.as_ref()
    }

    /// The row of the current tenant, to be changed.
    ///
    /// # Panics
    /// If the row was not among the needs of the batch, or only to be read.
    pub fn change<T: Table>(&mut self, key: &T::Key) -> Option<&mut T::Row> {
        let tenant = self.tenant;
        let sheet = self.sheet_mut::<T>();
        let at = sheet.find(tenant, key);
        assert!(
            sheet.slots[at].mode != Mode::Read,
            "a row of {} was needed only to be read",
            T::NAME
        );
        sheet.remember(at);
        sheet.slots[at].dirty = true;
        sheet.slots[at].row.as_mut()
    }

    /// Creates a row: fills one that was needed with [`Mode::Make`], or adds one with a fresh id,
    /// to be inserted.
    ///
    /// # Panics
    /// If the row exists, or was needed but not to be made.
    pub fn create<T: Table>(&mut self, key: T::Key, row: T::Row) {
        let tenant = self.tenant;
        let sheet = self.sheet_mut::<T>();
        match sheet.index.get(&(tenant, key.clone())).copied() {
            Some(at) => {
                let slot = &sheet.slots[at as usize];
                assert!(slot.row.is_none(), "a row of {} is created twice", T::NAME);
                assert!(
                    slot.origin == Origin::Made,
                    "a row of {} is created that was not needed to be made",
                    T::NAME
                );
                sheet.remember(at as usize);
                let slot = &mut sheet.slots[at as usize];
                slot.row = Some(row);
                slot.dirty = true;
            }
            None => {
                let at = sheet.add(tenant, key, Mode::Change);
                sheet.remember(at);
                let slot = &mut sheet.slots[at];
                slot.origin = Origin::Fresh;
                slot.row = Some(row);
                slot.dirty = true;
            }
        }
    }

    /// Appends a row to a table that is only ever appended to.
    pub fn append<A: AppendTable>(&mut self, row: A::Row) {
        let tenant = self.tenant;
        let journal = self
            .journals
            .iter_mut()
            .find_map(|journal| journal.as_any_mut().downcast_mut::<Journal<A>>())
            .expect("an append table is registered before a kind writes to it");
        journal.rows.push((tenant, row));
    }

    /// Declares a row of the current tenant.
    pub(crate) fn need<T: Table>(&mut self, key: &T::Key, mode: Mode) {
        let tenant = self.tenant;
        let sheet = self.sheet_mut::<T>();
        match sheet.index.get(&(tenant, key.clone())).copied() {
            Some(at) => {
                let slot = &mut sheet.slots[at as usize];
                slot.mode = slot.mode.max(mode);
            }
            None => {
                sheet.add(tenant, key.clone(), mode);
            }
        }
    }

    pub(crate) fn set_tenant(&mut self, tenant: TenantId) {
        self.tenant = tenant;
    }

    /// Starts the overlay of one intent.
    pub(crate) fn begin(&mut self) {
        for sheet in &mut self.sheets {
            sheet.begin();
        }
        for journal in &mut self.journals {
            journal.begin();
        }
    }

    /// Takes back all that happened since [`Self::begin`].
    pub(crate) fn undo(&mut self) {
        for sheet in &mut self.sheets {
            sheet.undo();
        }
        for journal in &mut self.journals {
            journal.undo();
        }
    }

    /// Makes, then locks, class by class.
    ///
    /// Making comes first for every class, since a statement that upserts rows which are not there
    /// yet loses updates: two transactions load "nothing", and the second overwrites the first.
    pub(crate) async fn lock(&mut self, scope: &Scope, tx: &Tx, wait: Wait) -> Result<(), Error> {
        for sheet in &mut self.sheets {
            sheet.make(scope, tx).await?;
        }
        // Pipelined, and sent, so executed, in this order: that of the lock classes.
        let locks = self.sheets.iter_mut().map(|sheet| sheet.lock(scope, tx, wait));
        pipeline::all(futures_util::future::join_all(locks).await)?;
        Ok(())
    }

    /// Whether any row may have to be made.
    pub(crate) fn makes(&self) -> bool {
        self.sheets.iter().any(|sheet| sheet.makes())
    }

    /// The tenants that may have rows made, in order.
    pub(crate) fn makers(&self) -> Vec<TenantId> {
        let mut makers: Vec<_> = self.sheets.iter().flat_map(|sheet| sheet.makers()).collect();
        makers.sort_unstable();
        makers.dedup();
        makers
    }

    /// Loads every row, and tells the tenants of which a row is there but held by somebody else.
    pub(crate) async fn load(&mut self, scope: &Scope, tx: &Tx, now: Timestamp) -> Result<Vec<TenantId>, Error> {
        let mut loads = Vec::with_capacity(self.sheets.len());
        for sheet in &mut self.sheets {
            if !sheet.is_empty() {
                loads.push(sheet.load(scope, tx, now));
            }
        }
        let mut held = Vec::new();
        for found in pipeline::all(futures_util::future::join_all(loads).await)? {
            held.extend(found);
        }
        held.sort_unstable();
        held.dedup();
        Ok(held)
    }

    /// Writes everything back, pipelined.
    pub(crate) async fn save(&self, scope: &Scope, tx: &Tx) -> Result<(), Error> {
        let sheets = self
            .sheets
            .iter()
            .filter(|sheet| !sheet.is_empty())
            .map(|sheet| sheet.save(scope, tx));
        let journals = self
            .journals
            .iter()
            .filter(|journal| !journal.is_empty())
            .map(|journal| journal.save(scope, tx));
        pipeline::all(futures_util::future::join_all(sheets.chain(journals)).await)?;
        Ok(())
    }

    /// Puts a row as if it had been locked and loaded.
    pub(crate) fn put<T: Table>(&mut self, key: T::Key, row: T::Row) {
        let tenant = self.tenant;
        let sheet = self.sheet_mut::<T>();
        let at = match sheet.index.get(&(tenant, key.clone())) {
            Some(at) => *at as usize,
            None => sheet.add(tenant, key, Mode::Change),
        };
        let slot = &mut sheet.slots[at];
        slot.origin = Origin::Stored;
        slot.row = Some(row);
    }

    /// For books without a database: rows that were to be made count as made.
    pub(crate) fn settle_needs(&mut self) {
        for sheet in &mut self.sheets {
            sheet.settle();
        }
    }

    fn sheet<T: Table>(&self) -> &Sheet<T> {
        self.sheets
            .iter()
            .find_map(|sheet| sheet.as_any().downcast_ref())
            .unwrap_or_else(|| panic!("the table {} is not registered", T::NAME))
    }

    fn sheet_mut<T: Table>(&mut self) -> &mut Sheet<T> {
        self.sheets
            .iter_mut()
            .find_map(|sheet| sheet.as_any_mut().downcast_mut())
            .unwrap_or_else(|| panic!("the table {} is not registered", T::NAME))
    }
}

/// Where the row in the database came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// No such row.
    Absent,
    /// It was there before.
    Stored,
    /// This transaction made it, with placeholder values.
    Made,
    /// It is to be inserted.
    Fresh,
}

struct Slot<T: Table> {
    tenant: TenantId,
    key: T::Key,
    row: Option<T::Row>,
    mode: Mode,
    origin: Origin,
    /// Where the row lies, once it is locked.
    place: Option<Tid>,
    dirty: bool,
    /// The last intent that touched it: its state before that is in the journal.
    epoch: u32,
}

/// What a slot was before the current intent touched it.
struct Before<T: Table> {
    at: usize,
    row: Option<T::Row>,
    origin: Origin,
    dirty: bool,
}

/// The rows of one table.
struct Sheet<T: Table> {
    slots: Vec<Slot<T>>,
    index: HashMap<(TenantId, T::Key), u32, foldhash::fast::RandomState>,
    before: Vec<Before<T>>,
    /// Slots below this were there when the current intent began.
    mark: usize,
    epoch: u32,
}

impl<T: Table> Default for Sheet<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            index: HashMap::default(),
            before: Vec::new(),
            mark: 0,
            epoch: 0,
        }
    }
}

impl<T: Table> Sheet<T> {
    fn find(&self, tenant: TenantId, key: &T::Key) -> usize {
        // The key is cloned to look it up under (tenant, key); keys are ids or short codes.
        match self.index.get(&(tenant, key.clone())) {
            Some(at) => *at as usize,
            None => panic!("a row of {} was not among the needs", T::NAME),
        }
    }

    fn add(&mut self, tenant: TenantId, key: T::Key, mode: Mode) -> usize {
        let at = self.slots.len();
        self.index.insert(
            (tenant, key.clone()),
            u32::try_from(at).expect("a batch has fewer than 2^32 rows"),
        );
        self.slots.push(Slot {
            tenant,
            key,
            row: None,
            mode,
            origin: Origin::Absent,
            place: None,
            dirty: false,
            epoch: 0,
        });
        at
    }

    fn remember(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        if slot.epoch != self.epoch {
            slot.epoch = self.epoch;
            self.before.push(Before {
                at,
                row: slot.row.clone(),
                origin: slot.origin,
                dirty: slot.dirty,
            });
        }
    }

    /// Slots in lock order.
    fn ordered(&self, wanted: impl Fn(&Slot<T>) -> bool) -> Vec<&Slot<T>> {
        let mut slots: Vec<_> = self.slots.iter().filter(|slot| wanted(slot)).collect();
        slots.sort_unstable_by(|a, b| (a.tenant, &a.key).cmp(&(b.tenant, &b.key)));
        slots
    }

    fn keys(&self, wanted: impl Fn(&Slot<T>) -> bool) -> Vec<(TenantId, T::Key)> {
        self.ordered(wanted)
            .into_iter()
            .map(|slot| (slot.tenant, slot.key.clone()))
            .collect()
    }

    fn at(&self, tenant: TenantId, key: T::Key) -> usize {
        *self
            .index
            .get(&(tenant, key))
            .unwrap_or_else(|| panic!("{} answered a key it was not asked for", T::NAME)) as usize
    }
}

/// A sheet with its row type erased.
pub(crate) trait AnySheet: Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn is_empty(&self) -> bool;
    fn makes(&self) -> bool;
    fn makers(&self) -> Vec<TenantId>;
    fn begin(&mut self);
    fn undo(&mut self);
    fn settle(&mut self);
    fn make<'a>(&'a mut self, scope: &'a Scope, tx: &'a Tx) -> BoxFuture<'a, Result<(), Error>>;
    fn lock<'a>(&'a mut self, scope: &'a Scope, tx: &'a Tx, wait: Wait) -> BoxFuture<'a, Result<(), Error>>;
    fn load<'a>(
        &'a mut self,
        scope: &'a Scope,
        tx: &'a Tx,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<TenantId>, Error>>;
    fn save<'a>(&'a self, scope: &'a Scope, tx: &'a Tx) -> BoxFuture<'a, Result<(), Error>>;
}

impl<T: Table> AnySheet for Sheet<T> {
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
    fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
    fn makes(&self) -> bool {
        self.slots.iter().any(|slot| slot.mode == Mode::Make)
    }
    fn makers(&self) -> Vec<TenantId> {
        self.slots
            .iter()
            .filter(|slot| slot.mode == Mode::Make)
            .map(|slot| slot.tenant)
            .collect()
    }

    fn begin(&mut self) {
        self.epoch += 1;
        self.before.clear();
        self.mark = self.slots.len();
    }

    fn undo(&mut self) {
        for before in self.before.drain(..).rev() {
            let slot = &mut self.slots[before.at];
            slot.row = before.row;
            slot.origin = before.origin;
            slot.dirty = before.dirty;
        }
        for slot in self.slots.drain(self.mark..) {
            self.index.remove(&(slot.tenant, slot.key));
        }
        self.epoch += 1;
    }

    fn settle(&mut self) {
        for slot in &mut self.slots {
            if slot.mode == Mode::Make && slot.origin == Origin::Absent {
                slot.origin = Origin::Made;
            }
        }
    }

    fn make<'a>(&'a mut self, scope: &'a Scope, tx: &'a Tx) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let keys = self.keys(|slot| slot.mode == Mode::Make);
            if keys.is_empty() {
                return Ok(());
            }
            for (tenant, key) in T::make(scope, tx, &keys).await? {
                let at = self.at(tenant, key);
                self.slots[at].origin = Origin::Made;
            }
            Ok(())
        })
    }

    fn lock<'a>(&'a mut self, scope: &'a Scope, tx: &'a Tx, wait: Wait) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let keys = self.keys(|slot| slot.mode != Mode::Read);
            if keys.is_empty() {
                return Ok(());
            }
            for (tenant, key, place) in T::lock(scope, tx, &keys, wait).await? {
                let at = self.at(tenant, key);
                self.slots[at].place = Some(place);
            }
            Ok(())
        })
    }

    fn load<'a>(
        &'a mut self,
        scope: &'a Scope,
        tx: &'a Tx,
        now: Timestamp,
    ) -> BoxFuture<'a, Result<Vec<TenantId>, Error>> {
        Box::pin(async move {
            // Rows this transaction made are known: they hold nothing but placeholders.
            let keys: Vec<_> = self
                .ordered(|slot| slot.origin != Origin::Made)
                .into_iter()
                .map(|slot| (slot.tenant, slot.key.clone(), slot.place))
                .collect();
            let mut held = Vec::new();
            if keys.is_empty() {
                return Ok(held);
            }
            for (tenant, key, row) in T::load(scope, tx, &keys, now).await? {
                let at = self.at(tenant, key);
                let slot = &mut self.slots[at];
                if slot.mode != Mode::Read && slot.place.is_none() {
                    // There, but not among the locked: skipped because somebody else holds it, or
                    // committed by somebody else between the two statements. Either way the tenant
                    // has to wait its turn.
                    held.push(tenant);
                    continue;
                }
                slot.origin = Origin::Stored;
                slot.row = Some(row);
            }
            Ok(held)
        })
    }

    fn save<'a>(&'a self, scope: &'a Scope, tx: &'a Tx) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let rows = |origin: Origin| -> Vec<(TenantId, &T::Key, &T::Row)> {
                self.ordered(|slot| slot.origin == origin && slot.dirty && slot.row.is_some())
                    .into_iter()
                    .filter_map(|slot| Some((slot.tenant, &slot.key, slot.row.as_ref()?)))
                    .collect()
            };
            let places = self
                .ordered(|slot| slot.origin == Origin::Stored && slot.dirty && slot.row.is_some())
                .into_iter()
                .map(|slot| slot.place.expect("only locked rows are changed"));
            let changes = Changes {
                update: rows(Origin::Stored),
                places: places.collect(),
                fill: rows(Origin::Made),
                insert: rows(Origin::Fresh),
                unmake: self
                    .ordered(|slot| slot.origin == Origin::Made && slot.row.is_none())
                    .into_iter()
                    .map(|slot| (slot.tenant, &slot.key))
                    .collect(),
            };
            if changes.update.is_empty()
                && changes.fill.is_empty()
                && changes.insert.is_empty()
                && changes.unmake.is_empty()
            {
                return Ok(());
            }
            T::save(scope, tx, &changes).await
        })
    }
}

/// The rows appended to one table.
struct Journal<A: AppendTable> {
    rows: Vec<(TenantId, A::Row)>,
    mark: usize,
}

pub(crate) trait AnyJournal: Send + Sync {
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn is_empty(&self) -> bool;
    fn begin(&mut self);
    fn undo(&mut self);
    fn save<'a>(&'a self, scope: &'a Scope, tx: &'a Tx) -> BoxFuture<'a, Result<(), Error>>;
}

impl<A: AppendTable> AnyJournal for Journal<A> {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
    fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
    fn begin(&mut self) {
        self.mark = self.rows.len();
    }
    fn undo(&mut self) {
        self.rows.truncate(self.mark);
    }
    fn save<'a>(&'a self, scope: &'a Scope, tx: &'a Tx) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(A::insert(scope, tx, &self.rows))
    }
}

/// A registered table: makes empty sheets.
pub(crate) trait AnyTable: Send + Sync {
    fn class(&self) -> (LockClass, &'static str);
    fn sheet(&self) -> Box<dyn AnySheet>;
}

pub(crate) struct TableOf<T>(PhantomData<fn() -> T>);

impl<T> Default for TableOf<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Table> AnyTable for TableOf<T> {
    fn class(&self) -> (LockClass, &'static str) {
        (T::CLASS, T::NAME)
    }
    fn sheet(&self) -> Box<dyn AnySheet> {
        Box::new(Sheet::<T>::default())
    }
}

/// A registered append table: makes empty journals.
pub(crate) trait AnyAppend: Send + Sync {
    fn journal(&self) -> Box<dyn AnyJournal>;
}

pub(crate) struct AppendOf<A>(PhantomData<fn() -> A>);

impl<A> Default for AppendOf<A> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<A: AppendTable> AnyAppend for AppendOf<A> {
    fn journal(&self) -> Box<dyn AnyJournal> {
        Box::new(Journal::<A> {
            rows: Vec::new(),
            mark: 0,
        })
    }
}
