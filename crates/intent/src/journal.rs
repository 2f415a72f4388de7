//! The rows that a batch appends, collected intent by intent and inserted once.

use std::any::Any;
use std::marker::PhantomData;

use counterfoil_pg::{Error, Scope, TenantId, Tx};
use futures_util::future::BoxFuture;

use crate::table::AppendTable;

/// The rows appended to one table.
pub(crate) struct Journal<A: AppendTable> {
    pub(crate) rows: Vec<(TenantId, A::Row)>,
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
