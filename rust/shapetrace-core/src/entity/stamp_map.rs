//! A map over dense keys that is emptied in constant time.

/// Each entry holds the round in which it was written; [`StampMap::clear`] starts a new round.
///
/// Scopes are visited one after the other with the same keys (values), so clearing by writing
/// every entry would make a program of many small scopes quadratic.
#[derive(Clone, Debug, Default)]
pub struct StampMap {
    entries: Vec<(u32, u32)>,
    round: u32,
}

impl StampMap {
    /// Makes the map empty and able to hold keys below `len`.
    pub fn reset(&mut self, len: usize) {
        self.entries.clear();
        self.entries.resize(len, (0, 0));
        self.round = 1;
    }

    /// Makes the map empty.
    #[inline]
    pub fn clear(&mut self) {
        if self.round == u32::MAX {
            self.entries.fill((0, 0));
            self.round = 0;
        }
        self.round += 1;
    }

    /// Makes the map empty and able to hold keys below `len`; takes memory the first time only.
    #[inline]
    pub fn clear_for(&mut self, len: usize) {
        if self.entries.len() < len {
            self.entries.resize(len, (0, 0));
        }
        self.clear();
    }

    /// The value of `key`, if it was written since the last clear.
    #[inline]
    pub fn get(&self, key: usize) -> Option<u32> {
        let (round, value) = self.entries[key];
        (round == self.round).then_some(value)
    }

    /// Whether `key` was written since the last clear.
    #[inline]
    pub fn contains(&self, key: usize) -> bool {
        self.entries[key].0 == self.round
    }

    /// Takes `key` out; whether it was there.
    #[inline]
    pub fn remove(&mut self, key: usize) -> bool {
        let there = self.contains(key);
        if there {
            // No round has this number: the first is 1.
            self.entries[key].0 = 0;
        }
        there
    }

    /// Writes `key`.
    #[inline]
    pub fn insert(&mut self, key: usize, value: u32) {
        self.entries[key] = (self.round, value);
    }
}

#[cfg(test)]
mod tests {
    use super::StampMap;

    #[test]
    fn a_cleared_map_forgets_even_when_the_round_wraps() {
        let mut map = StampMap::default();
        map.reset(3);
        map.insert(1, 7);
        assert_eq!((map.get(1), map.get(2)), (Some(7), None));
        map.round = u32::MAX;
        map.insert(2, 9);
        map.clear();
        assert_eq!((map.get(1), map.get(2)), (None, None));
        map.insert(0, 1);
        assert!(map.contains(0));
        assert!(map.remove(0) && !map.remove(0) && !map.contains(0));
    }
}
