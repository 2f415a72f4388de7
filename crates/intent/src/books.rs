//! The rows a batch needs: made, locked and loaded once, changed in memory, written back once.

use std::sync::Arc;

use counterfoil_pg::{Error, Scope, TenantId, Tx};
use jiff::Timestamp;

use crate::journal::{AnyAppend, AnyJournal, Journal};
use crate::pipeline;
use crate::sheet::{AnySheet, AnyTable, Origin, Sheet};
use crate::table::{AppendTable, Mode, Table, Wait};

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

    /// Whether the batch can do without locking: whatever rows it may change have revisions.
    ///
    /// One row that has none is enough to lock all of them, or rows would be locked in another order
    /// than [`LockClass`]'s: that one before the updates, the others by them.
    pub(crate) fn revised(&self) -> bool {
        self.sheets.iter().all(|sheet| sheet.revised())
    }

    /// Takes over what a batch that has been committed in the meantime changed. Returns whether that
    /// was possible.
    pub(crate) fn carry(&mut self, before: &Self, now: Timestamp) -> bool {
        self.sheets
            .iter_mut()
            .zip(&before.sheets)
            .all(|(sheet, before)| sheet.carry(before.as_any(), now))
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

    /// Loads every row, and tells the tenants of which a row is there but held by somebody else,
    /// which can be known only where rows were `locked` before.
    pub(crate) async fn load(
        &mut self,
        scope: &Scope,
        tx: &Tx,
        now: Timestamp,
        locked: bool,
    ) -> Result<Vec<TenantId>, Error> {
        let mut loads = Vec::with_capacity(self.sheets.len());
        for sheet in &mut self.sheets {
            if !sheet.is_empty() {
                loads.push(sheet.load(scope, tx, now, locked));
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

    /// Writes the rows back, pipelined.
    pub(crate) async fn save(&self, scope: &Scope, tx: &Tx) -> Result<(), Error> {
        let sheets = self.sheets.iter().filter(|sheet| !sheet.is_empty());
        let saves = sheets.map(|sheet| sheet.save(scope, tx));
        pipeline::all(futures_util::future::join_all(saves).await)?;
        Ok(())
    }

    /// Inserts what was appended, pipelined.
    pub(crate) async fn append_all(&self, scope: &Scope, tx: &Tx) -> Result<(), Error> {
        let journals = self.journals.iter().filter(|journal| !journal.is_empty());
        let saves = journals.map(|journal| journal.save(scope, tx));
        pipeline::all(futures_util::future::join_all(saves).await)?;
        Ok(())
    }

    /// Sees to it that what was only read, without a lock, stays as it was until COMMIT.
    pub(crate) async fn confirm(&self, scope: &Scope, tx: &Tx) -> Result<(), Error> {
        let sheets = self.sheets.iter().filter(|sheet| !sheet.is_empty());
        let confirms = sheets.map(|sheet| sheet.confirm(scope, tx));
        pipeline::all(futures_util::future::join_all(confirms).await)?;
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
