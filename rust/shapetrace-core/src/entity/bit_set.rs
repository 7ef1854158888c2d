//! A set of dense indices.

/// One bit per index; memory is reused between programs.
#[derive(Clone, Debug, Default)]
pub struct BitSet {
    words: Vec<u64>,
}

impl BitSet {
    /// Makes the set empty and able to hold indices below `len`.
    pub fn reset(&mut self, len: usize) {
        self.words.clear();
        self.words.resize(len.div_ceil(64), 0);
    }

    /// Adds `index`; `true` if it was not there before.
    ///
    /// # Panics
    /// If `index` is not below the length given to [`BitSet::reset`], rounded up to 64.
    #[inline]
    pub fn insert(&mut self, index: usize) -> bool {
        let word = &mut self.words[index / 64];
        let bit = 1 << (index % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Adds all of another set, as far as both reach.
    pub fn insert_all(&mut self, of: &Self) {
        for (word, of) in self.words.iter_mut().zip(&of.words) {
            *word |= of;
        }
    }

    /// The members, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(index, &word)| {
            let lowest_out = |&word: &u64| Some(word & word.wrapping_sub(1)).filter(|&rest| rest != 0);
            let rests = std::iter::successors(Some(word).filter(|&word| word != 0), lowest_out);
            rests.map(move |rest| index * 64 + rest.trailing_zeros() as usize)
        })
    }

    /// Takes `index` out, if it is there.
    #[inline]
    pub fn remove(&mut self, index: usize) {
        if let Some(word) = self.words.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    /// Whether `index` is in the set; indices out of range are not.
    #[inline]
    pub fn contains(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// How many members the set has.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set has no member.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::BitSet;

    #[test]
    fn members_are_found_and_reset_forgets_them() {
        let mut set = BitSet::default();
        set.reset(130);
        assert!(set.is_empty());
        assert!(set.insert(0) && set.insert(64) && set.insert(129));
        assert!(!set.insert(64), "a second insert is not new");
        assert_eq!(set.len(), 3);
        set.remove(64);
        set.remove(100_000);
        assert!(set.insert(64), "what was taken out is new again");
        assert!(set.contains(129) && !set.contains(128) && !set.contains(100_000));
        let mut other = BitSet::default();
        other.reset(130);
        other.insert(1);
        other.insert_all(&set);
        assert_eq!(other.iter().collect::<Vec<_>>(), [0, 1, 64, 129]);
        set.reset(10);
        assert!(set.is_empty() && set.iter().next().is_none() && !set.contains(0));
    }
}
