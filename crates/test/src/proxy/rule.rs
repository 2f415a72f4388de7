//! What a proxy waits for, and what it does then.

use std::sync::Arc;

use counterfoil_pg::Role;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::wire::Message;

/// What has gone from clients to the server so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Connections that got as far as naming their user.
    pub connections: u64,
    /// Simple queries, transaction control included.
    pub queries: u64,
    pub begins: u64,
    pub commits: u64,
    pub rollbacks: u64,
    pub parses: u64,
    /// Those of `parses` that name the statement: fatal behind a pooler in transaction mode.
    pub named_parses: u64,
    pub binds: u64,
    pub executes: u64,
    /// Requests to cancel a statement.
    pub cancels: u64,
}

/// One message, and where in its transaction it is.
pub(crate) struct Event<'a> {
    pub user: &'a str,
    pub message: &'a Message,
    /// Executes of this connection since its last BEGIN, this one included.
    pub executes: u64,
    pub what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Begin,
    Commit,
    Rollback,
    Query,
    Parse,
    Bind,
    Execute,
    Other,
}

impl What {
    pub(crate) fn of(message: &Message) -> Self {
        match message.kind {
            b'Q' => {
                let text = message.first_string();
                let word = text
                    .split(|c: char| !c.is_ascii_alphabetic())
                    .find(|word| !word.is_empty())
                    .unwrap_or("");
                match word.to_ascii_uppercase().as_str() {
                    "BEGIN" | "START" => Self::Begin,
                    "COMMIT" | "END" => Self::Commit,
                    "ROLLBACK" | "ABORT" => Self::Rollback,
                    _ => Self::Query,
                }
            }
            b'P' => Self::Parse,
            b'B' => Self::Bind,
            b'E' => Self::Execute,
            _ => Self::Other,
        }
    }

    pub(crate) fn count(self, message: &Message, seen: &mut Seen) {
        seen.queries += u64::from(message.kind == b'Q');
        match self {
            Self::Begin => seen.begins += 1,
            Self::Commit => seen.commits += 1,
            Self::Rollback => seen.rollbacks += 1,
            Self::Parse => {
                seen.parses += 1;
                seen.named_parses += u64::from(!message.first_string().is_empty());
            }
            Self::Bind => seen.binds += 1,
            Self::Execute => seen.executes += 1,
            Self::Query | Self::Other => {}
        }
    }
}

/// What a rule waits for.
#[derive(Debug, Clone)]
pub(crate) enum When {
    Commit,
    /// The n-th Execute of a transaction.
    ExecuteInTransaction(u64),
    /// A Query or a Parse with this in its text.
    Text(String),
}

impl When {
    fn matches(&self, event: &Event<'_>) -> bool {
        match self {
            Self::Commit => event.what == What::Commit,
            Self::ExecuteInTransaction(n) => event.what == What::Execute && event.executes == *n,
            Self::Text(text) => match event.message.kind {
                b'Q' => event.message.first_string().contains(text),
                b'P' => event.message.second_string().contains(text),
                _ => false,
            },
        }
    }
}

/// What a rule does.
#[derive(Debug, Clone)]
pub(crate) enum Then {
    /// Cut before the message goes on.
    CutBefore,
    /// Send it on, then cut. What the server makes of it is open.
    CutAfterSending,
    /// Send it on, wait until the server has done it, throw the reply away, cut.
    CutInsteadOfReply,
    Hold(watch::Receiver<bool>),
}

/// A rule on its way to its moment.
#[derive(Debug)]
pub(crate) struct Rule {
    user: Option<&'static str>,
    when: When,
    /// How many more matches until it fires.
    left: u64,
    then: Then,
    fired: watch::Sender<bool>,
}

/// What a fired rule asks of its connection.
pub(crate) struct Order {
    pub then: Then,
    pub fired: watch::Sender<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct Rules(Mutex<Vec<Rule>>);

impl Rules {
    /// Shows a message to every rule. The first whose moment has come is taken off the list; another
    /// that was due at the same message stays due for the next.
    pub(crate) fn show(&self, event: &Event<'_>) -> Option<Order> {
        let mut rules = self.0.lock();
        let mut due = None;
        for (i, rule) in rules.iter_mut().enumerate() {
            if rule.user.is_some_and(|user| user != event.user) || !rule.when.matches(event) {
                continue;
            }
            if rule.left > 1 {
                rule.left -= 1;
            } else if due.is_none() {
                due = Some(i);
            }
        }
        let rule = rules.remove(due?);
        Some(Order {
            then: rule.then,
            fired: rule.fired,
        })
    }
}

/// Arms rules for the connections of one role, or of any.
#[derive(Debug, Clone)]
pub struct Faults {
    pub(crate) rules: Arc<Rules>,
    pub(crate) user: Option<Role>,
}

impl Faults {
    /// Cuts before the n-th COMMIT from now is sent on: the transaction is rolled back.
    #[must_use]
    pub fn cut_before_commit(&self, nth: u64) -> Fault {
        self.arm(When::Commit, nth, Then::CutBefore)
    }

    /// Cuts after the server has executed the n-th COMMIT from now, and drops its reply: the
    /// transaction is committed (or COMMIT failed), and the client cannot know.
    #[must_use]
    pub fn cut_after_commit(&self, nth: u64) -> Fault {
        self.arm(When::Commit, nth, Then::CutInsteadOfReply)
    }

    /// Cuts right after sending the n-th COMMIT from now on: what becomes of it is open.
    #[must_use]
    pub fn cut_while_committing(&self, nth: u64) -> Fault {
        self.arm(When::Commit, nth, Then::CutAfterSending)
    }

    /// Cuts the next transaction that sends its n-th Execute, right after that one. The first of
    /// every transaction is the look at what the session has set.
    #[must_use]
    pub fn cut_mid_batch(&self, nth: u64) -> Fault {
        self.arm(When::ExecuteInTransaction(nth), 1, Then::CutAfterSending)
    }

    /// Cuts before the n-th statement from now whose text has `text` in it. A statement's text is
    /// sent when it is prepared: with names, once for each connection.
    #[must_use]
    pub fn cut_before_text(&self, text: &str, nth: u64) -> Fault {
        self.arm(When::Text(text.to_owned()), nth, Then::CutBefore)
    }

    /// Holds the n-th COMMIT from now, and what its client sends after it, until it is released.
    #[must_use]
    pub fn hold_commit(&self, nth: u64) -> Hold {
        self.arm_hold(When::Commit, nth)
    }

    /// Holds the next transaction that comes to its n-th Execute, before that one.
    #[must_use]
    pub fn hold_mid_batch(&self, nth: u64) -> Hold {
        self.arm_hold(When::ExecuteInTransaction(nth), 1)
    }

    /// Holds the n-th statement from now whose text has `text` in it (see
    /// [`Self::cut_before_text`]).
    #[must_use]
    pub fn hold_text(&self, text: &str, nth: u64) -> Hold {
        self.arm_hold(When::Text(text.to_owned()), nth)
    }

    fn arm_hold(&self, when: When, nth: u64) -> Hold {
        let (release, released) = watch::channel(false);
        Hold {
            fault: self.arm(when, nth, Then::Hold(released)),
            release,
        }
    }

    fn arm(&self, when: When, nth: u64, then: Then) -> Fault {
        let (fired, waiting) = watch::channel(false);
        let user = self.user.map(Role::name);
        self.rules.0.lock().push(Rule {
            user,
            when,
            left: nth.max(1),
            then,
            fired,
        });
        Fault { fired: waiting }
    }
}

/// An armed fault. Dropping it leaves it armed.
#[derive(Debug)]
pub struct Fault {
    fired: watch::Receiver<bool>,
}

impl Fault {
    /// Waits until it has happened.
    pub async fn fired(&self) {
        let mut fired = self.fired.clone();
        fired
            .wait_for(|fired| *fired)
            .await
            .expect("the proxy is gone, and its moment never came");
    }

    #[must_use]
    pub fn has_fired(&self) -> bool {
        *self.fired.borrow()
    }
}

/// An armed hold. Dropping it lets the message go.
#[derive(Debug)]
pub struct Hold {
    fault: Fault,
    release: watch::Sender<bool>,
}

impl Hold {
    /// Waits until a message is being held.
    pub async fn reached(&self) {
        self.fault.fired().await;
    }

    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.fault.has_fired()
    }

    /// Lets it go.
    pub fn release(self) {
        self.release.send_replace(true);
    }
}
