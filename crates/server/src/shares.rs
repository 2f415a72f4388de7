//! What tenants may have at once of something that there is only so much of.

use std::collections::HashMap;
use std::sync::Arc;

use counterfoil_pg::TenantId;
use parking_lot::Mutex;

/// So much for all, and so much of it for one tenant. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Shares(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all: usize,
    each: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Tenants that have something.
    of: HashMap<TenantId, usize>,
}

/// Why there is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spent {
    /// The tenant has as much as one may have.
    Own,
    /// Everything is taken.
    All,
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    of: Shares,
    tenant: TenantId,
    amount: usize,
}

impl Shares {
    pub(crate) fn new(all: usize, each: usize) -> Self {
        Self(Arc::new(Inner {
            all,
            each,
            taken: Mutex::default(),
        }))
    }

    pub(crate) fn take(&self, tenant: TenantId, amount: usize) -> Result<Share, Spent> {
        let mut share = Share {
            of: self.clone(),
            tenant,
            amount: 0,
        };
        share.grow(amount)?;
        Ok(share)
    }
}

impl Share {
    /// Takes more, until it is `amount`.
    pub(crate) fn grow(&mut self, amount: usize) -> Result<(), Spent> {
        let more = amount.saturating_sub(self.amount);
        if more == 0 {
            return Ok(());
        }
        let Inner { all, each, taken } = &*self.of.0;
        let mut taken = taken.lock();
        let own = taken.of.get(&self.tenant).copied().unwrap_or_default();
        if own + more > *each {
            return Err(Spent::Own);
        }
        if taken.all + more > *all {
            return Err(Spent::All);
        }
        taken.all += more;
        taken.of.insert(self.tenant, own + more);
        self.amount = amount;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.of.0.taken.lock();
        taken.all -= self.amount;
        if let Some(own) = taken.of.get_mut(&self.tenant) {
            *own -= self.amount;
            if *own == 0 {
                taken.of.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TenantId = TenantId(1);
    const B: TenantId = TenantId(2);
    const C: TenantId = TenantId(3);

    #[test]
    fn one_tenant_has_its_part_and_all_of_them_no_more_than_there_is() {
        let shares = Shares::new(8, 4);
        let mut a = shares.take(A, 3).unwrap();
        assert_eq!(shares.take(A, 2).unwrap_err(), Spent::Own);
        a.grow(4).unwrap();
        a.grow(2).unwrap();
        assert_eq!(a.grow(5), Err(Spent::Own));
        let b = shares.take(B, 4).unwrap();
        assert_eq!(shares.take(C, 1).unwrap_err(), Spent::All);
        drop(a);
        let _c = shares.take(C, 4).unwrap();
        assert_eq!(shares.take(A, 1).unwrap_err(), Spent::All);
        drop(b);
        shares.take(A, 4).unwrap();
    }

    #[test]
    fn who_has_nothing_is_forgotten() {
        let shares = Shares::new(8, 4);
        drop(shares.take(A, 4));
        let _ = shares.take(B, 5);
        let taken = shares.0.taken.lock();
        assert!(taken.of.is_empty() && taken.all == 0, "{taken:?}");
    }
}
