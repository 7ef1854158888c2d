//! A map from dimensions (a tensor and a position) to entities.
//!
//! Tensors have few dimensions, and those of one tensor are asked for together: they stand side by
//! side, in a row that is made when the first of them is written. A position beyond the row, which
//! only a strange program has, goes to a hash map.

use rustc_hash::FxHashMap;

use crate::entity::{Entity, PackedOption};
use crate::ir::Value;

/// The widest row; a program may claim any position.
const MOST: u32 = 16;

/// Where a tensor has no row.
const NO_ROW: u32 = u32::MAX;

/// The map.
#[derive(Debug)]
pub(super) struct Dimensions<T: Entity> {
    /// Where the row of a tensor starts.
    starts: Vec<u32>,
    /// How many cells the row of a tensor has.
    widths: Vec<u8>,
    cells: Vec<PackedOption<T>>,
    beyond: FxHashMap<(Value, u32), T>,
}

impl<T: Entity> Default for Dimensions<T> {
    fn default() -> Self {
        Self { starts: Vec::new(), cells: Vec::new(), widths: Vec::new(), beyond: FxHashMap::default() }
    }
}

impl<T: Entity> Dimensions<T> {
    /// Makes the map empty and able to hold dimensions of values below `values`.
    pub(super) fn reset(&mut self, values: usize) {
        self.starts.clear();
        self.starts.resize(values, NO_ROW);
        self.widths.clear();
        self.widths.resize(values, 0);
        self.cells.clear();
        self.beyond.clear();
    }

    /// What is there for a dimension; if nothing is, what `make` gives. `width` is how many dimensions
    /// the tensor may have, as far as is known.
    pub(super) fn get_or_insert_with(
        &mut self,
        (tensor, position): (Value, u32),
        width: usize,
        make: impl FnOnce() -> T,
    ) -> T {
        let index = tensor.index();
        if self.starts[index] == NO_ROW {
            let width = (width.min(MOST as usize)) as u8;
            self.starts[index] = self.cells.len() as u32;
            self.widths[index] = width;
            self.cells.resize(self.cells.len() + usize::from(width), PackedOption::NONE);
        }
        if position >= u32::from(self.widths[index]) {
            return *self.beyond.entry((tensor, position)).or_insert_with(make);
        }
        let cell = &mut self.cells[(self.starts[index] + position) as usize];
        cell.get().unwrap_or_else(|| {
            let new = make();
            *cell = new.into();
            new
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_wherever_it_stands() {
        let mut map: Dimensions<Value> = Dimensions::default();
        for _ in 0..2 {
            map.reset(3);
            let value = Value::from_index;
            for (tensor, position, width) in
                [(0, 0, 2), (0, 1, 2), (0, 2, 2), (2, 7, 0), (2, 0, 9), (1, u32::MAX, 1), (1, 0, 40), (0, 9, 20)]
            {
                let key = (value(tensor), position);
                let own = value(tensor * 100 + position as usize % 100);
                assert_eq!(map.get_or_insert_with(key, width, || own), own, "new: {key:?}");
                assert_eq!(map.get_or_insert_with(key, width, || value(7)), own, "there: {key:?}");
            }
        }
    }
}
