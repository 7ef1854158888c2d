//! Many small lists in two arrays (compressed sparse rows).

/// Row `i` is `items[starts[i]..starts[i + 1]]`. Rows are appended in order and never grow afterwards.
#[derive(Clone, Debug)]
pub struct Csr<T> {
    /// One more than there are rows: the last is where the row starts that is being built.
    starts: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Csr<T> {
    fn default() -> Self {
        Self { starts: vec![0], items: Vec::new() }
    }
}

impl<T: Copy> Csr<T> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All items of all rows, in order.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// The range that row `row` takes in [`Csr::items`].
    #[inline]
    pub fn range(&self, row: usize) -> std::ops::Range<usize> {
        let bounds = &self.starts[row..row + 2];
        bounds[0] as usize..bounds[1] as usize
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
        &self.items[self.starts[self.len()] as usize..]
    }

    /// Drops the items of the row that is being built.
    pub fn abandon_row(&mut self) {
        let start = self.items.len() - self.open_row().len();
        self.items.truncate(start);
    }

    /// Ends the row that is being built. `false` if the arrays outgrew `u32`.
    #[inline]
    pub fn end_row(&mut self) -> bool {
        self.starts.push(self.items.len() as u32);
        self.items.len() < u32::MAX as usize
    }

    /// Forgets all rows, keeping the memory.
    pub fn clear(&mut self) {
        self.starts.truncate(1);
        self.items.clear();
    }
}
