//! Immutable facts that a kind must know before it can say which rows it needs.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::future::Future;

use counterfoil_pg::{Error, Scope, TenantId, Tx};
use uuid::Uuid;

use crate::key::Key;

/// How an intent names what an earlier one made: by its id, or by the key of the intent that
/// made it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    Id(Uuid),
    Key(Key),
}

/// A kind of immutable fact about something with an id: which account a hold is on.
///
/// Facts are read without locks, so they must never change once their row is committed.
pub trait Fact: Send + Sync + Sized + 'static {
    /// The field of a result that carries the id: `hold`, `transfer`.
    const NOUN: &'static str;
    type Value: Send + Sync;

    /// Reads the facts of those ids that exist.
    fn read(
        scope: &Scope,
        tx: &Tx,
        ids: &[(TenantId, Uuid)],
    ) -> impl Future<Output = Result<Vec<(TenantId, Uuid, Self::Value)>, Error>> + Send;
}

/// What a kind asks to know.
#[derive(Debug, Default)]
pub struct Asks {
    pub(crate) tenant: Option<TenantId>,
    pub(crate) asked: Vec<(TypeId, TenantId, Name)>,
}

impl Asks {
    pub fn ask<F: Fact>(&mut self, name: &Name) {
        let tenant = self.tenant.expect("the tenant is set before a kind is asked");
        self.asked.push((TypeId::of::<F>(), tenant, name.clone()));
    }
}

/// What is known about a name.
#[derive(Debug)]
pub enum Found<'a, V> {
    /// Stored: its id and the fact.
    Stored(Uuid, &'a V),
    /// An earlier intent of this batch may make it. Its rows are among that intent's needs, and
    /// [`crate::Context::made`] tells the id once that intent has been applied.
    Earlier,
    /// Nothing of that name is stored, or the intent of that key made more than one.
    Missing,
}

pub(crate) enum Known {
    Stored(Uuid, Box<dyn Any + Send + Sync>),
    /// The same fact as the one under this id.
    Alias(Uuid),
    Earlier,
}

/// The facts asked for, of all intents of a batch.
#[derive(Default)]
pub struct Refs {
    pub(crate) tenant: Option<TenantId>,
    pub(crate) known: HashMap<(TypeId, TenantId, Name), Known>,
}

impl Refs {
    pub fn find<F: Fact>(&self, name: &Name) -> Found<'_, F::Value> {
        let tenant = self.tenant.expect("the tenant is set before a kind looks up its refs");
        let fact = TypeId::of::<F>();
        match self.known.get(&(fact, tenant, name.clone())) {
            None => Found::Missing,
            Some(Known::Earlier) => Found::Earlier,
            Some(Known::Alias(id)) => self.find::<F>(&Name::Id(*id)),
            Some(Known::Stored(id, value)) => {
                Found::Stored(*id, value.downcast_ref().expect("a fact is stored under its own type"))
            }
        }
    }

    pub(crate) fn alias(&mut self, fact: TypeId, tenant: TenantId, name: Name, id: Uuid) {
        self.known.insert((fact, tenant, name), Known::Alias(id));
    }
}
