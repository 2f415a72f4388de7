//! The rows of one table in the books of a batch.

use std::any::Any;
use std::collections::HashMap;
use std::marker::PhantomData;

use counterfoil_pg::{Error, Scope, TenantId, Tx};
use futures_util::future::BoxFuture;
use jiff::Timestamp;

use crate::table::{Changes, LockClass, Mode, Table, Wait};

/// Where the row in the database came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// No such row.
    Absent,
    /// It was there before.
    Stored,
    /// This transaction made it, with placeholder values.
    Made,
    /// It is to be inserted.
    Fresh,
}

pub(crate) struct Slot<T: Table> {
    tenant: TenantId,
    key: T::Key,
    pub(crate) row: Option<T::Row>,
    pub(crate) mode: Mode,
    pub(crate) origin: Origin,
    locked: bool,
    /// What it was loaded as, if it changes.
    loaded: Option<T::Row>,
    pub(crate) dirty: bool,
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
pub(crate) struct Sheet<T: Table> {
    pub(crate) slots: Vec<Slot<T>>,
    pub(crate) index: HashMap<(TenantId, T::Key), u32, foldhash::fast::RandomState>,
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
    pub(crate) fn find(&self, tenant: TenantId, key: &T::Key) -> usize {
        // The key is cloned to look it up under (tenant, key); keys are ids or short codes.
        match self.index.get(&(tenant, key.clone())) {
            Some(at) => *at as usize,
            None => panic!("a row of {} was not among the needs", T::NAME),
        }
    }

    pub(crate) fn add(&mut self, tenant: TenantId, key: T::Key, mode: Mode) -> usize {
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
            locked: false,
            loaded: None,
            dirty: false,
            epoch: 0,
        });
        at
    }

    pub(crate) fn remember(&mut self, at: usize) {
        let slot = &mut self.slots[at];
        if slot.loaded.is_none() && slot.origin == Origin::Stored {
            slot.loaded.clone_from(&slot.row);
        }
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
    fn revised(&self) -> bool;
    fn carry(&mut self, before: &dyn Any, now: Timestamp) -> bool;
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
        locked: bool,
    ) -> BoxFuture<'a, Result<Vec<TenantId>, Error>>;
    fn save<'a>(&'a self, scope: &'a Scope, tx: &'a Tx) -> BoxFuture<'a, Result<(), Error>>;
    fn confirm<'a>(&'a self, scope: &'a Scope, tx: &'a Tx) -> BoxFuture<'a, Result<(), Error>>;
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
    fn revised(&self) -> bool {
        self.slots
            .iter()
            .all(|slot| slot.mode == Mode::Read || (T::REVISED && slot.mode == Mode::Change))
    }
    fn carry(&mut self, before: &dyn Any, now: Timestamp) -> bool {
        let before: &Self = before.downcast_ref().expect("sheets of books are in one order");
        for slot in &mut self.slots {
            let Some(at) = before.index.get(&(slot.tenant, slot.key.clone())) else {
                continue;
            };
            let from = &before.slots[*at as usize];
            if !from.dirty {
                continue;
            }
            let Some(row) = from.row.as_ref().and_then(|row| T::carried(row, now)) else {
                return false;
            };
            slot.origin = Origin::Stored;
            slot.row = Some(row);
        }
        true
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
            for (tenant, key) in T::lock(scope, tx, &keys, wait).await? {
                let at = self.at(tenant, key);
                self.slots[at].locked = true;
            }
            Ok(())
        })
    }

    fn load<'a>(
        &'a mut self,
        scope: &'a Scope,
        tx: &'a Tx,
        now: Timestamp,
        locked: bool,
    ) -> BoxFuture<'a, Result<Vec<TenantId>, Error>> {
        Box::pin(async move {
            // Rows this transaction made are known: they hold nothing but placeholders.
            let keys = self.keys(|slot| slot.origin != Origin::Made);
            let mut held = Vec::new();
            if keys.is_empty() {
                return Ok(held);
            }
            for (tenant, key, row) in T::load(scope, tx, &keys, now).await? {
                let at = self.at(tenant, key);
                let slot = &mut self.slots[at];
                if locked && slot.mode != Mode::Read && !slot.locked {
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
            let mut changes = Changes::<T> {
                update: Vec::new(),
                before: Vec::new(),
                fill: Vec::new(),
                insert: Vec::new(),
                unmake: Vec::new(),
            };
            for slot in self.ordered(|slot| slot.dirty || slot.origin == Origin::Made) {
                let (tenant, key) = (slot.tenant, &slot.key);
                match (slot.origin, &slot.row) {
                    (Origin::Stored, Some(row)) => {
                        changes.update.push((tenant, key, row));
                        let loaded = slot.loaded.as_ref().expect("it was kept before it changed");
                        changes.before.push(loaded);
                    }
                    (Origin::Made, Some(row)) => changes.fill.push((tenant, key, row)),
                    (Origin::Made, None) => changes.unmake.push((tenant, key)),
                    (Origin::Fresh, Some(row)) => changes.insert.push((tenant, key, row)),
                    (Origin::Absent, _) | (Origin::Stored | Origin::Fresh, None) => {}
                }
            }
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

    fn confirm<'a>(&'a self, scope: &'a Scope, tx: &'a Tx) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let unlocked = self.ordered(|slot| {
                slot.mode == Mode::Change && slot.origin == Origin::Stored && !slot.locked && !slot.dirty
            });
            if unlocked.is_empty() {
                return Ok(());
            }
            let rows: Vec<_> = unlocked
                .into_iter()
                .filter_map(|slot| Some((slot.tenant, &slot.key, slot.row.as_ref()?)))
                .collect();
            T::confirm(scope, tx, &rows).await
        })
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
