//! A set of dense keys that is emptied in constant time.

/// Each key holds the round in which it was added; [`StampSet::clear`] starts a new round.
///
/// Scopes are visited one after the other with the same keys (values), so clearing by writing
/// every key would make a program of many small scopes quadratic.
#[derive(Clone, Debug, Default)]
pub struct StampSet {
    rounds: Vec<u32>,
    round: u32,
}

impl StampSet {
    /// Makes the set empty and able to hold keys below `len`.
    pub fn reset(&mut self, len: usize) {
        self.rounds.clear();
        self.rounds.resize(len, 0);
        self.round = 1;
    }

    /// Makes the set empty.
    #[inline]
    pub fn clear(&mut self) {
        if self.round == u32::MAX {
            self.rounds.fill(0);
            self.round = 0;
        }
        self.round += 1;
    }

    /// Makes the set empty and able to hold keys below `len`; takes memory the first time only.
    #[inline]
    pub fn clear_for(&mut self, len: usize) {
        if self.rounds.len() < len {
            self.rounds.resize(len, 0);
        }
        self.clear();
    }

    /// Whether `key` was added since the last clear.
    #[inline]
    pub fn contains(&self, key: usize) -> bool {
        self.rounds[key] == self.round
    }

    /// Takes `key` out; whether it was there.
    #[inline]
    pub fn remove(&mut self, key: usize) -> bool {
        let there = self.rounds[key] == self.round;
        if there {
            // No round has this number: the first is 1.
            self.rounds[key] = 0;
        }
        there
    }

    /// Adds `key`; whether it was not there before.
    #[inline]
    pub fn insert(&mut self, key: usize) -> bool {
        let new = self.rounds[key] != self.round;
        self.rounds[key] = self.round;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::StampSet;

    #[test]
    fn a_cleared_set_forgets_even_when_the_round_wraps() {
        let mut set = StampSet::default();
        set.reset(3);
        assert!(set.insert(1) && !set.insert(1), "a second time is not new");
        assert!(set.contains(1) && !set.contains(2));
        set.round = u32::MAX;
        assert!(!set.contains(1) && set.insert(2));
        set.clear();
        assert!(!set.contains(1) && !set.contains(2));
        assert!(set.insert(0) && set.contains(0));
        assert!(set.remove(0) && !set.remove(0) && !set.contains(0));
        set.clear_for(5);
        assert!(set.insert(4) && !set.contains(0));
    }
}
