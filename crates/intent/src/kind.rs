//! Kinds of intent, and their registry.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use counterfoil_pg::TenantId;
use jiff::Timestamp;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::books::Books;
use crate::error::Invalid;
use crate::hash::Fields;
use crate::journal::{AnyAppend, AppendOf};
use crate::key::Key;
use crate::refs::{Asks, Fact, Found, Name, Refs};
use crate::reply::Outcome;
use crate::sheet::{AnyTable, TableOf};
use crate::store::{AnyFact, FactOf};
use crate::table::{AppendTable, Mode, Table};

/// A sort of intent. `docs/howto/add-a-kind.md` builds one.
pub trait Kind: Send + Sync + 'static {
    /// As it is written in requests: `ledger.transfer`.
    const NAME: &'static str;
    /// Whether callers may send it. Those that only our own workers make are unknown to callers.
    const PUBLIC: bool = true;
    type Body: Send + Sync + 'static;

    /// Reads and checks the body: everything that can be known without the database.
    /// [`crate::Kinds::read_object`] turns JSON into a typed body with the path of a bad field.
    fn parse(raw: &RawValue) -> Result<Self::Body, Invalid>;

    /// The body in its normal form, field by field, always the same fields in the same order.
    fn fields(body: &Self::Body, fields: &mut Fields);

    /// Facts to be read before [`Self::needs`].
    fn refs(_body: &Self::Body, _asks: &mut Asks) {}

    /// The rows this intent may read, change or make.
    fn needs(body: &Self::Body, refs: &Refs, needs: &mut Needs<'_>);

    /// Applies the intent to the books. Pure: no clock, no randomness, no I/O but what `context`
    /// gives. A refusal or a panic undoes itself.
    fn apply(books: &mut Books, body: &Self::Body, refs: &Refs, context: &mut Context) -> Outcome;
}

/// Collects the rows an intent needs.
pub struct Needs<'a> {
    pub(crate) books: &'a mut Books,
}

impl Needs<'_> {
    pub fn row<T: Table>(&mut self, key: &T::Key, mode: Mode) {
        self.books.need::<T>(key, mode);
    }
}

/// What `apply` may know of the world.
pub struct Context {
    now: Timestamp,
    ids: Box<dyn FnMut(Timestamp) -> Uuid + Send>,
    pub(crate) tenant: TenantId,
    pub(crate) made: HashMap<(TenantId, Key), Vec<(&'static str, Uuid)>>,
}

impl Context {
    pub(crate) fn new(now: Timestamp, ids: Box<dyn FnMut(Timestamp) -> Uuid + Send>) -> Self {
        Self {
            now,
            ids,
            tenant: TenantId(0),
            made: HashMap::new(),
        }
    }

    /// The database's clock, read after locking. One reading serves the batch.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// A fresh UUIDv7 of the time `now`.
    pub fn new_id(&mut self) -> Uuid {
        (self.ids)(self.now)
    }

    /// The id of the one thing called [`Fact::NOUN`] that the intent of `key` made in this batch.
    #[must_use]
    pub fn made<F: Fact>(&self, key: &Key) -> Option<Uuid> {
        let made = self.made.get(&(self.tenant, key.clone()))?;
        let mut of_noun = made.iter().filter(|(noun, _)| *noun == F::NOUN);
        match (of_noun.next(), of_noun.next()) {
            (Some((_, id)), None) => Some(*id),
            _ => None,
        }
    }

    /// The id behind a name, whether stored or made earlier in this batch.
    #[must_use]
    pub fn resolve<F: Fact>(&self, refs: &Refs, name: &Name) -> Option<Uuid> {
        match (refs.find::<F>(name), name) {
            (Found::Stored(id, _), _) => Some(id),
            (Found::Earlier, Name::Key(key)) => self.made::<F>(key),
            _ => None,
        }
    }
}

/// A kind with its body's type erased.
pub(crate) trait AnyKind: Send + Sync {
    fn name(&self) -> &'static str;
    fn public(&self) -> bool;
    fn parse(&self, raw: &RawValue) -> Result<Box<dyn Any + Send + Sync>, Invalid>;
    fn fields(&self, body: &dyn Any, fields: &mut Fields);
    fn refs(&self, body: &dyn Any, asks: &mut Asks);
    fn needs(&self, body: &dyn Any, refs: &Refs, needs: &mut Needs<'_>);
    fn apply(&self, books: &mut Books, body: &dyn Any, refs: &Refs, context: &mut Context) -> Outcome;
}

struct KindOf<K>(std::marker::PhantomData<fn() -> K>);

fn body<K: Kind>(body: &dyn Any) -> &K::Body {
    body.downcast_ref().expect("a body is parsed by its own kind")
}

impl<K: Kind> AnyKind for KindOf<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }
    fn public(&self) -> bool {
        K::PUBLIC
    }
    fn parse(&self, raw: &RawValue) -> Result<Box<dyn Any + Send + Sync>, Invalid> {
        Ok(Box::new(K::parse(raw)?))
    }
    fn fields(&self, any: &dyn Any, fields: &mut Fields) {
        K::fields(body::<K>(any), fields);
    }
    fn refs(&self, any: &dyn Any, asks: &mut Asks) {
        K::refs(body::<K>(any), asks);
    }
    fn needs(&self, any: &dyn Any, refs: &Refs, needs: &mut Needs<'_>) {
        K::needs(body::<K>(any), refs, needs);
    }
    fn apply(&self, books: &mut Books, any: &dyn Any, refs: &Refs, context: &mut Context) -> Outcome {
        K::apply(books, body::<K>(any), refs, context)
    }
}

/// The registry: what this program can do, and the tables it does it with.
#[derive(Default, Clone)]
pub struct Kinds {
    kinds: HashMap<&'static str, Arc<dyn AnyKind>>,
    tables: Vec<Arc<dyn AnyTable>>,
    appends: Vec<Arc<dyn AnyAppend>>,
    facts: HashMap<TypeId, Arc<dyn AnyFact>>,
}

impl Kinds {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// # Panics
    /// If a kind of that name is registered already: two crates chose one name.
    pub fn kind<K: Kind>(&mut self) -> &mut Self {
        let before = self
            .kinds
            .insert(K::NAME, Arc::new(KindOf::<K>(std::marker::PhantomData)));
        assert!(before.is_none(), "the kind {} is registered twice", K::NAME);
        self
    }

    pub fn table<T: Table>(&mut self) -> &mut Self {
        self.tables.push(Arc::new(TableOf::<T>::default()));
        self.tables.sort_by_key(|table| table.class());
        self
    }

    pub fn append_table<A: AppendTable>(&mut self) -> &mut Self {
        self.appends.push(Arc::new(AppendOf::<A>::default()));
        self
    }

    pub fn fact<F: Fact>(&mut self) -> &mut Self {
        self.facts.insert(TypeId::of::<F>(), Arc::new(FactOf::<F>::default()));
        self
    }

    /// The names of the kinds that callers may send, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        let public = self.kinds.values().filter(|kind| kind.public());
        let mut names: Vec<_> = public.map(|kind| kind.name()).collect();
        names.sort_unstable();
        names
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<dyn AnyKind>> {
        self.kinds.get(name)
    }

    pub(crate) fn fact_of(&self, id: TypeId) -> &Arc<dyn AnyFact> {
        self.facts
            .get(&id)
            .expect("a fact is registered before a kind asks for it")
    }

    /// Empty books for a batch.
    #[must_use]
    pub fn books(&self) -> Books {
        Books::new(&self.tables, &self.appends)
    }

    /// Reads a JSON object into a typed body, as [`Self::read`] does. Nothing but an object: what a derived
    /// reader takes for a struct may also be an array of its fields in their order, which nobody has promised.
    ///
    /// # Errors
    /// `body_invalid`
    pub fn read_object<'a, B: serde::Deserialize<'a>>(raw: &'a RawValue) -> Result<B, Invalid> {
        if !raw.get().trim_start().starts_with('{') {
            return Err(Invalid::new("body_invalid", "", "a JSON object is expected here"));
        }
        Self::read(raw)
    }

    /// Reads JSON into a typed body; an error names the path of the bad field.
    pub fn read<'a, B: serde::Deserialize<'a>>(raw: &'a RawValue) -> Result<B, Invalid> {
        if let Ok(body) = serde_json::from_str(raw.get()) {
            return Ok(body);
        }
        // Only now, since tracking the path costs as much as the parsing.
        let mut reader = serde_json::Deserializer::from_str(raw.get());
        match serde_path_to_error::deserialize(&mut reader) {
            Ok(body) => Ok(body),
            Err(error) => {
                let path = error.path().to_string();
                let field = if path == "." { String::new() } else { path };
                let mut message = error.into_inner().to_string();
                // The line and column are of the body alone, not of what the caller sent.
                if let Some(at) = message.rfind(" at line ") {
                    message.truncate(at);
                }
                Err(Invalid::new("body_invalid", field, plain(message)))
            }
        }
    }
}

/// Names of our types say nothing to callers: what a struct is read from is an object.
fn plain(message: String) -> String {
    let Some((before, rest)) = message.split_once("expected struct ") else {
        return message;
    };
    let name = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
    // A struct can also be read from an array, which we do not advertise.
    let rest = rest[name..].trim_start_matches(|c: char| c != ',');
    format!("{before}expected an object{rest}")
}

/// For property tests of kinds without a database: loads rows by hand, then applies.
pub struct Plan {
    pub books: Books,
    pub refs: Refs,
    pub context: Context,
}

impl Plan {
    /// Books of `kinds` for one tenant at one time, with ids counted from one.
    #[must_use]
    pub fn new(kinds: &Kinds, tenant: TenantId, now: Timestamp) -> Self {
        let mut next = 0_u128;
        let ids = Box::new(move |_| {
            next += 1;
            Uuid::from_u128(next)
        });
        let mut books = kinds.books();
        books.set_tenant(tenant);
        let mut context = Context::new(now, ids);
        context.tenant = tenant;
        Self {
            books,
            refs: Refs {
                tenant: Some(tenant),
                ..Refs::default()
            },
            context,
        }
    }

    /// Moves the clock.
    pub fn set_now(&mut self, now: Timestamp) {
        self.context.now = now;
    }

    /// Puts a row into the books as if it had been locked and loaded.
    pub fn put<T: Table>(&mut self, key: T::Key, row: T::Row) {
        self.books.put::<T>(key, row);
    }

    /// Tells a fact as if it had been read.
    pub fn tell<F: Fact>(&mut self, name: Name, id: Uuid, value: F::Value) {
        let tenant = self.context.tenant;
        self.refs.known.insert(
            (TypeId::of::<F>(), tenant, name),
            crate::refs::Known::Stored(id, Box::new(value)),
        );
    }

    /// Needs and applies one body, as a batch would: rows it makes are made, a refusal or a panic
    /// is undone.
    pub fn apply<K: Kind>(&mut self, body: &K::Body) -> Outcome {
        K::needs(body, &self.refs, &mut Needs { books: &mut self.books });
        self.books.settle_needs();
        self.books.begin();
        let outcome = K::apply(&mut self.books, body, &self.refs, &mut self.context);
        if matches!(outcome, Outcome::Refused(_)) {
            self.books.undo();
        }
        outcome
    }
}
