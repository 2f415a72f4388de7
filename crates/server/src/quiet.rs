//! Saying the same thing once in a while.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long the same thing is not said again.
const PAUSE: Duration = Duration::from_secs(10);

/// Whether a line that every request would write is to be written.
pub(crate) struct Quiet(Mutex<State>);

struct State {
    said: Option<Instant>,
    unsaid: u64,
}

impl Quiet {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State { said: None, unsaid: 0 }))
    }

    /// `Some`: say it, and how many times it was not said since the last time.
    pub(crate) fn speak(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        if state.said.is_some_and(|said| now < said + PAUSE) {
            state.unsaid += 1;
            return None;
        }
        state.said = Some(now);
        Some(std::mem::take(&mut state.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_said_and_the_next_after_a_pause_with_how_many_were_not() {
        let (quiet, start) = (Quiet::new(), Instant::now());
        assert_eq!(quiet.speak(start), Some(0));
        for second in 1..10 {
            assert_eq!(quiet.speak(start + Duration::from_secs(second)), None);
        }
        assert_eq!(quiet.speak(start + PAUSE), Some(9));
        assert_eq!(quiet.speak(start + PAUSE), None);
    }
}
