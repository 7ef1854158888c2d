//! A hash table from words to ids that is emptied in constant time.
//!
//! Looking up objects by address is what reading does most, several times an op. A table of plain
//! words in one array, with the keys where they are compared, costs one line of memory and a few
//! instructions; and a trace of three ops must not pay for clearing what one of a million left.

use crate::layout::prefetch;

/// One place. It is taken if its stamp is that of the table.
#[derive(Clone, Copy, Default)]
struct Entry {
    key: usize,
    value: u32,
    stamp: u32,
}

/// Ids by address, or by hash. Open addressing with linear probing, at most half full.
pub(crate) struct Table {
    entries: Vec<Entry>,
    len: usize,
    /// The number of the current round; no entry of an earlier one counts.
    stamp: u32,
    /// How far a hash is shifted for the index of a place.
    shift: u32,
}

/// So many places a table has at least, and keeps when it is emptied.
const SMALL: usize = 256;

impl Default for Table {
    fn default() -> Self {
        Self::with_places(SMALL)
    }
}

impl Table {
    fn with_places(places: usize) -> Self {
        debug_assert!(places.is_power_of_two());
        Self { entries: vec![Entry::default(); places], len: 0, stamp: 1, shift: usize::BITS - places.ilog2() }
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Forgets all keys. A table that is far larger than what was in it gives its memory back.
    pub(crate) fn clear(&mut self) {
        if self.len == 0 {
            return;
        }
        if self.entries.len() > SMALL && self.entries.len() / 64 > self.len {
            *self = Self::default();
        } else if self.stamp == u32::MAX {
            self.entries.fill(Entry::default());
            self.stamp = 1;
        } else {
            self.stamp += 1;
        }
        self.len = 0;
    }

    /// The place where the search for a key begins.
    #[inline]
    fn start(&self, key: usize) -> usize {
        // Multiplying moves what differs to the upper bits; addresses differ in the lower ones.
        ((key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize) >> self.shift
    }

    #[inline]
    fn entry(&self, place: usize) -> &Entry {
        debug_assert!(self.entries.len().is_power_of_two());
        // SAFETY: the number of places is a power of two, so the mask keeps the index below it.
        unsafe { self.entries.get_unchecked(place & (self.entries.len() - 1)) }
    }

    /// Asks for the memory that the search for a key begins with.
    #[inline]
    pub(crate) fn prefetch(&self, key: usize) {
        prefetch(std::ptr::from_ref(self.entry(self.start(key))).cast());
    }

    /// The id of the first entry with this key that is accepted.
    #[inline]
    pub(crate) fn find(&self, key: usize, accept: impl Fn(u32) -> bool) -> Option<u32> {
        let mut place = self.start(key);
        loop {
            // There is always a free one.
            let entry = *self.entry(place);
            if entry.stamp != self.stamp {
                return None;
            }
            if entry.key == key && accept(entry.value) {
                return Some(entry.value);
            }
            place += 1;
        }
    }

    /// The id of a key that stands for one thing alone.
    #[inline]
    pub(crate) fn get(&self, key: usize) -> Option<u32> {
        self.find(key, |_| true)
    }

    /// Adds an entry behind those of the same key.
    #[inline]
    pub(crate) fn insert(&mut self, key: usize, value: u32) {
        if (self.len + 1) * 2 > self.entries.len() {
            self.grow();
        }
        self.put(key, value);
        self.len += 1;
    }

    #[inline]
    fn put(&mut self, key: usize, value: u32) {
        let mask = self.entries.len() - 1;
        let mut place = self.start(key);
        while self.entries[place & mask].stamp == self.stamp {
            place += 1;
        }
        self.entries[place & mask] = Entry { key, value, stamp: self.stamp };
    }

    #[cold]
    fn grow(&mut self) {
        let before = std::mem::replace(self, Self::with_places(self.entries.len() * 2));
        for entry in before.entries.iter().filter(|entry| entry.stamp == before.stamp) {
            self.put(entry.key, entry.value);
        }
        self.len = before.len;
    }
}
