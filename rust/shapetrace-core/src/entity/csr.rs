//! Many small lists in two arrays (compressed sparse rows).

/// Row `i` is `items[ends[i - 1]..ends[i]]`. Rows are appended in order and never grow afterwards.
#[derive(Clone, Debug)]
pub struct Csr<T> {
    ends: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Csr<T> {
    fn default() -> Self {
        Self { ends: Vec::new(), items: Vec::new() }
    }
}

impl<T: Copy> Csr<T> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All items of all rows, in order.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// The range that row `row` takes in [`Csr::items`].
    #[inline]
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        start as usize..self.ends[row] as usize
    }

    /// The items of one row.
    #[inline]
    pub fn row(&self, row: usize) -> &[T] {
        &self.items[self.range(row)]
    }

    /// Adds an item to the row that is being built.
    #[inline]
    pub fn push_item(&mut self, item: T) {
        self.items.push(item);
    }

    /// The items of the row that is being built.
    #[inline]
    pub fn open_row(&self) -> &[T] {
        &self.items[self.ends.last().map_or(0, |&end| end as usize)..]
    }

    /// Drops the items of the row that is being built.
    pub fn abandon_row(&mut self) {
        let start = self.items.len() - self.open_row().len();
        self.items.truncate(start);
    }

    /// Ends the row that is being built. `false` if the arrays outgrew `u32`.
    #[inline]
    pub fn end_row(&mut self) -> bool {
        self.ends.push(self.items.len() as u32);
        self.items.len() < u32::MAX as usize
    }

    /// Forgets all rows, keeping the memory.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.items.clear();
    }
}
