//! Answers of the database, believed for a short while.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

/// Remembers for `ttl` what was found and what was not, each up to a bound.
///
/// One question at a time is asked for one key. In the second half of an answer's life the first
/// caller asks again and the others go on with the old one, so that a busy key never stops its
/// callers. An error is never remembered.
pub(crate) struct Cache<K, V> {
    ttl: Duration,
    found: Bounded<K, V>,
    /// Apart, so that whoever tries made-up keys cannot drive real ones out.
    missed: Bounded<K, ()>,
    flights: Mutex<HashMap<K, Arc<Flight>>>,
}

/// One question under way. Holds the error that it ended in, for those who waited for it.
type Flight = tokio::sync::Mutex<Option<Arc<counterfoil_pg::Error>>>;

type Asked<V> = Result<Option<V>, Arc<counterfoil_pg::Error>>;

impl<K: Eq + Hash + Copy, V: Copy> Cache<K, V> {
    pub(crate) fn new(ttl: Duration, bound: usize) -> Self {
        Self {
            ttl,
            found: Bounded::new(bound),
            missed: Bounded::new(bound),
            flights: Mutex::default(),
        }
    }

    pub(crate) async fn get<F, A>(&self, key: K, ask: F) -> Asked<V>
    where
        F: FnOnce() -> A,
        A: Future<Output = Result<Option<V>, counterfoil_pg::Error>>,
    {
        let now = Instant::now();
        match self.known(key, now) {
            Some(known) if now < known.until - self.ttl / 2 => return Ok(known.value),
            // Still good: ask again, unless somebody does already.
            Some(known) => {
                let flight = self.flight(key);
                let Ok(turn) = flight.try_lock() else {
                    return Ok(known.value);
                };
                // Should that fail, the old answer is good until its time has come.
                return self.fly(key, &flight, turn, ask).await.or(Ok(known.value));
            }
            None => {}
        }
        let flight = self.flight(key);
        let turn = flight.lock().await;
        // Whoever was before us has answered for us, also if the answer is that it failed.
        if let Some(error) = &*turn {
            return Err(error.clone());
        }
        if let Some(known) = self.known(key, Instant::now()) {
            return Ok(known.value);
        }
        self.fly(key, &flight, turn, ask).await
    }

    async fn fly<F, A>(
        &self,
        key: K,
        flight: &Arc<Flight>,
        mut turn: tokio::sync::MutexGuard<'_, Option<Arc<counterfoil_pg::Error>>>,
        ask: F,
    ) -> Asked<V>
    where
        F: FnOnce() -> A,
        A: Future<Output = Result<Option<V>, counterfoil_pg::Error>>,
    {
        // Also when this future is dropped: whoever comes then begins anew.
        let _landing = Landing {
            cache: self,
            key,
            flight,
        };
        // The answer is as old as the question: what changes in between is not in it.
        let until = Instant::now() + self.ttl;
        match ask().await {
            Ok(Some(value)) => {
                self.missed.remove(key);
                self.found.insert(key, value, until);
                Ok(Some(value))
            }
            Ok(None) => {
                self.found.remove(key);
                self.missed.insert(key, (), until);
                Ok(None)
            }
            Err(error) => {
                let error = Arc::new(error);
                *turn = Some(error.clone());
                Err(error)
            }
        }
    }

    fn flight(&self, key: K) -> Arc<Flight> {
        self.flights.lock().entry(key).or_default().clone()
    }

    fn known(&self, key: K, now: Instant) -> Option<Known<Option<V>>> {
        let found = self.found.get(key).map(|known| Known {
            value: Some(known.value),
            until: known.until,
        });
        found
            .or_else(|| {
                self.missed.get(key).map(|known| Known {
                    value: None,
                    until: known.until,
                })
            })
            .filter(|known| now < known.until)
    }
}

/// Takes a flight off the board when it has ended, whatever way.
struct Landing<'a, K: Eq + Hash + Copy, V> {
    cache: &'a Cache<K, V>,
    key: K,
    flight: &'a Arc<Flight>,
}

impl<K: Eq + Hash + Copy, V> Drop for Landing<'_, K, V> {
    fn drop(&mut self) {
        let mut flights = self.cache.flights.lock();
        if flights
            .get(&self.key)
            .is_some_and(|listed| Arc::ptr_eq(listed, self.flight))
        {
            flights.remove(&self.key);
        }
    }
}

#[derive(Clone, Copy)]
struct Known<V> {
    value: V,
    until: Instant,
}

struct Bounded<K, V> {
    bound: usize,
    map: RwLock<HashMap<K, Known<V>>>,
}

impl<K: Eq + Hash + Copy, V: Copy> Bounded<K, V> {
    fn new(bound: usize) -> Self {
        Self {
            bound,
            map: RwLock::default(),
        }
    }

    fn get(&self, key: K) -> Option<Known<V>> {
        self.map.read().get(&key).copied()
    }

    fn insert(&self, key: K, value: V, until: Instant) {
        let mut map = self.map.write();
        if map.len() >= self.bound && !map.contains_key(&key) {
            let now = Instant::now();
            map.retain(|_, known| now < known.until);
            // Sweeping for the sake of a few would be done again at once: begin anew. What is
            // forgotten costs one question.
            if map.len() > self.bound / 4 * 3 {
                map.clear();
            }
        }
        map.insert(key, Known { value, until });
    }

    fn remove(&self, key: K) {
        // Mostly there is nothing, and readers need not be stopped for it.
        if self.map.read().contains_key(&key) {
            self.map.write().remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use counterfoil_pg::Error;
    use tokio::sync::Semaphore;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// A database that counts questions, and answers when it is let.
    struct Asked {
        count: AtomicU32,
        gate: Semaphore,
    }

    impl Asked {
        fn new(open: usize) -> Self {
            Self {
                count: AtomicU32::new(0),
                gate: Semaphore::new(open),
            }
        }

        async fn answer(&self, answer: Result<Option<u8>, Error>) -> Result<Option<u8>, Error> {
            self.count.fetch_add(1, Ordering::SeqCst);
            self.gate.acquire().await.expect("never closed").forget();
            answer
        }

        fn count(&self) -> u32 {
            self.count.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn what_was_found_and_what_was_not_are_remembered() {
        let cache = Cache::new(LONG, 8);
        let asked = Asked::new(100);
        for _ in 0..3 {
            assert_eq!(cache.get(1, || asked.answer(Ok(Some(7)))).await.unwrap(), Some(7));
            assert_eq!(cache.get(2, || asked.answer(Ok(None))).await.unwrap(), None);
        }
        assert_eq!(asked.count(), 2);
    }

    #[tokio::test]
    async fn an_answer_that_has_expired_is_asked_for_again() {
        let cache = Cache::new(Duration::ZERO, 8);
        let asked = Asked::new(100);
        assert_eq!(cache.get(1, || asked.answer(Ok(Some(7)))).await.unwrap(), Some(7));
        assert_eq!(cache.get(1, || asked.answer(Ok(None))).await.unwrap(), None);
        assert_eq!(asked.count(), 2);
    }

    #[tokio::test]
    async fn one_question_answers_everybody_who_waits() {
        let cache = Cache::new(LONG, 8);
        let asked = Asked::new(0);
        let callers = futures_util::future::join_all((0..10).map(|_| cache.get(1, || asked.answer(Ok(Some(7))))));
        // `biased` polls the callers first: all of them wait before there is an answer.
        let (answers, ()) = tokio::join!(biased; callers, async { asked.gate.add_permits(1) });
        assert!(answers.into_iter().all(|answer| answer.unwrap() == Some(7)));
        assert_eq!(asked.count(), 1);
        assert!(cache.flights.lock().is_empty());
    }

    #[tokio::test]
    async fn an_error_is_shared_by_those_who_waited_and_then_forgotten() {
        let cache = Cache::new(LONG, 8);
        let asked = Asked::new(0);
        let callers = futures_util::future::join_all((0..10).map(|_| cache.get(1, || asked.answer(Err(Error::Lost)))));
        // `biased` polls the callers first: all of them wait before there is an answer.
        let (answers, ()) = tokio::join!(biased; callers, async { asked.gate.add_permits(1) });
        assert!(answers.into_iter().all(|answer| answer.is_err()));
        assert_eq!(asked.count(), 1);
        asked.gate.add_permits(1);
        assert_eq!(cache.get(1, || asked.answer(Ok(Some(7)))).await.unwrap(), Some(7));
    }

    #[tokio::test]
    async fn a_caller_that_goes_away_leaves_its_question_to_the_next() {
        let cache = Cache::new(LONG, 8);
        let asked = Asked::new(0);
        {
            let mut gone = std::pin::pin!(cache.get(1, || asked.answer(Ok(Some(7)))));
            assert!(futures_util::poll!(gone.as_mut()).is_pending());
        }
        asked.gate.add_permits(1);
        assert_eq!(cache.get(1, || asked.answer(Ok(Some(8)))).await.unwrap(), Some(8));
    }

    #[tokio::test]
    async fn in_the_second_half_of_its_life_one_caller_asks_and_the_others_do_not_wait() {
        let cache: Cache<i32, u8> = Cache::new(LONG, 8);
        cache.found.insert(1, 7, Instant::now() + LONG / 4);
        let asked = Asked::new(0);
        let mut asking = std::pin::pin!(cache.get(1, || asked.answer(Ok(Some(8)))));
        assert!(futures_util::poll!(asking.as_mut()).is_pending());
        assert_eq!(cache.get(1, || asked.answer(Ok(Some(9)))).await.unwrap(), Some(7));
        asked.gate.add_permits(1);
        assert_eq!(asking.await.unwrap(), Some(8));
        assert_eq!(cache.get(1, || asked.answer(Ok(Some(9)))).await.unwrap(), Some(8));
        assert_eq!(asked.count(), 1);
    }

    #[tokio::test]
    async fn asking_again_in_vain_does_not_spoil_an_answer_that_is_still_good() {
        let cache: Cache<i32, u8> = Cache::new(LONG, 8);
        cache.found.insert(1, 7, Instant::now() + LONG / 4);
        let asked = Asked::new(1);
        assert_eq!(cache.get(1, || asked.answer(Err(Error::Lost))).await.unwrap(), Some(7));
        assert_eq!(asked.count(), 1);
    }

    #[tokio::test]
    async fn made_up_keys_fill_their_own_room_only_and_never_beyond_it() {
        let cache = Cache::new(LONG, 8);
        let asked = Asked::new(1000);
        assert_eq!(cache.get(-1, || asked.answer(Ok(Some(7)))).await.unwrap(), Some(7));
        for key in 0..100 {
            assert_eq!(cache.get(key, || asked.answer(Ok(None))).await.unwrap(), None);
            assert!(cache.missed.map.read().len() <= 8);
        }
        let before = asked.count();
        assert_eq!(cache.get(-1, || asked.answer(Ok(None))).await.unwrap(), Some(7));
        assert_eq!(asked.count(), before);
    }
}
