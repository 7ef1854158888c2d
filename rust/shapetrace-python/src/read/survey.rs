//! A look at the bound symbols that are read next, for their memory to be there by then.
//!
//! A bound symbol is spread over half a dozen objects, each of which says where the next one is, and
//! its proxies are spread likewise. Who reads one symbol after the other waits for the memory at each
//! of these steps. Here some dozens of symbols take each step together: what the next step needs is
//! asked for, for all of them, before the first takes it. No more than some dozens, for what is read
//! next should not lie far apart.
//!
//! What was found is noted, in the order in which it will be read. No Python code runs here.

use pyo3::ffi;
use pyo3::prelude::*;

use super::{hash_of, FIELDS};
use crate::flatten::Types;
use crate::layout::{self, prefetch, Layout};
use crate::table::Table;

/// So many ops are looked at together, or somewhat more with what is inside them.
pub(super) const WINDOW: usize = 64;

/// Where there are more ops than this inside of so few, they are looked at list by list.
const LIMIT: usize = 64 * WINDOW;

/// A bound symbol.
#[derive(Clone, Copy)]
pub(super) struct Found {
    item: *mut ffi::PyObject,
    parts: [*mut ffi::PyObject; FIELDS],
    /// Where the first of those inside it is, and how many there are.
    inside: (u32, u32),
}

/// What is needed to look at bound symbols.
pub(super) struct View<'a, 'py> {
    pub(super) py: Python<'py>,
    pub(super) layout: &'a Layout<FIELDS>,
    pub(super) names: &'a [*mut ffi::PyObject; FIELDS],
    pub(super) class: *mut ffi::PyTypeObject,
    pub(super) effect_tag_hash: isize,
    pub(super) types: &'a Types,
    pub(super) value_of_proxy: &'a Table,
    pub(super) value_of_name: &'a Table,
    /// Arguments and results are read, not only whether there are results.
    pub(super) whole: bool,
}

/// The bound symbols that are read next.
pub(super) struct Survey {
    /// Each list in one piece, and those inside it behind it.
    found: Vec<Found>,
    /// Indices into `found`, in the order of the ops.
    order: Vec<u32>,
    /// Names of what is made.
    names: Vec<*mut ffi::PyObject>,
    /// Lists still to be put in order: where they begin, and how long they are.
    lists: Vec<(u32, u32)>,
    /// The number of the first op, and of the first that is not here any more.
    first: usize,
    end: usize,
    /// Tells whether Python code ran since.
    epoch: u64,
    /// What is inside of ops was too much.
    is_flat: bool,
}

impl Default for Survey {
    fn default() -> Self {
        let (found, order, names, lists) = Default::default();
        Self { found, order, names, lists, first: 0, end: usize::MAX, epoch: 0, is_flat: false }
    }
}

impl Survey {
    /// Forgets all. Nothing is looked at from now on, if that is not wanted.
    pub(super) fn start(&mut self, is_wanted: bool) {
        self.order.clear();
        self.end = if is_wanted { 0 } else { usize::MAX };
        self.is_flat = false;
    }

    /// Whether all that was looked at has been read.
    #[inline]
    pub(super) fn is_over(&self, op: usize) -> bool {
        op >= self.end
    }

    /// The attributes of a bound symbol that is op number `op`, if they are known.
    #[inline]
    pub(super) fn get(&self, op: usize, item: *mut ffi::PyObject, epoch: u64) -> Option<[*mut ffi::PyObject; FIELDS]> {
        let &index = self.order.get(op.wrapping_sub(self.first))?;
        let found = &self.found[index as usize];
        (found.item == item && self.epoch == epoch).then_some(found.parts)
    }

    /// Looks at some ops of one list, without what is inside them.
    ///
    /// # Safety
    /// The interpreter is attached, `items` are so many objects, alive, and the layout is the current
    /// one of the class.
    pub(super) unsafe fn look_at_items(
        &mut self,
        view: &View<'_, '_>,
        (op, epoch): (usize, u64),
        (items, len): (*const *mut ffi::PyObject, usize),
    ) {
        self.begin(op, epoch);
        let len = len.min(WINDOW);
        self.add(items, len);
        self.lists.push((0, len as u32));
        let is_plain = self.look_from(view, 0);
        self.finish(view, is_plain);
    }

    /// Looks at ops in lists that are read one behind the other, each with all that is inside its ops.
    ///
    /// # Safety
    /// As for `look_at_items`, for each list.
    pub(super) unsafe fn look_at_lists(
        &mut self,
        view: &View<'_, '_>,
        (op, epoch): (usize, u64),
        lists: impl Iterator<Item = *mut ffi::PyObject>,
    ) {
        if self.is_flat {
            return;
        }
        self.begin(op, epoch);
        for list in lists {
            let Some((items, len)) = items(list) else { break };
            if self.found.len() + len > WINDOW {
                break;
            }
            self.lists.push((self.found.len() as u32, len as u32));
            self.add(items, len);
        }
        self.lists.reverse();
        let mut level = 0;
        let mut is_plain = true;
        while is_plain && level < self.found.len() {
            let next = self.found.len();
            is_plain = self.look_from(view, level) && self.add_inside(level);
            level = next;
        }
        self.is_flat = self.found.len() > LIMIT;
        self.finish(view, is_plain);
    }

    fn begin(&mut self, op: usize, epoch: u64) {
        self.found.clear();
        self.order.clear();
        self.lists.clear();
        self.first = op;
        self.end = op;
        self.epoch = epoch;
    }

    unsafe fn add(&mut self, items: *const *mut ffi::PyObject, len: usize) {
        let parts = [std::ptr::null_mut(); FIELDS];
        self.found.extend((0..len).map(|index| Found { item: *items.add(index), parts, inside: (0, 0) }));
    }

    /// Reads the attributes of what was added last. Whether all of it are plain bound symbols.
    unsafe fn look_from(&mut self, view: &View<'_, '_>, level: usize) -> bool {
        let found = &mut self.found[level..];
        for found in &*found {
            prefetch(found.item.cast::<u8>().wrapping_sub(32));
            prefetch(found.item.cast());
        }
        for found in &*found {
            if ffi::Py_TYPE(found.item) != view.class {
                return false;
            }
            let place = Layout::<FIELDS>::values_of(found.item);
            prefetch(place);
            prefetch(place.wrapping_add(63));
        }
        for found in found {
            let Some(parts) = view.layout.read(found.item, view.names) else { return false };
            let [_, args, kwargs, output, subsymbols, tags] = parts;
            prefetch(subsymbols.cast());
            prefetch(tags.cast());
            prefetch(tags.cast::<u8>().wrapping_add(40));
            prefetch(output.cast());
            if view.whole {
                prefetch(args.cast());
                prefetch(kwargs.cast());
            }
            found.parts = parts;
        }
        true
    }

    /// Adds what is inside of what was added last; whether that are lists and tuples, and not too many.
    unsafe fn add_inside(&mut self, level: usize) -> bool {
        let end = self.found.len();
        for found in &self.found[level..] {
            let list = found.parts[4];
            if ffi::PyList_CheckExact(list) != 0 {
                prefetch((*list.cast::<ffi::PyListObject>()).ob_item.cast());
            }
        }
        for index in level..end {
            let Some((items, len)) = items(self.found[index].parts[4]) else { return false };
            self.found[index].inside = (self.found.len() as u32, len as u32);
            self.add(items, len);
            if self.found.len() > LIMIT {
                return false;
            }
        }
        true
    }

    /// Puts what was found in order, and asks for the memory of what it leads to.
    unsafe fn finish(&mut self, view: &View<'_, '_>, is_plain: bool) {
        if !is_plain {
            // What is not plain is slow to read anyway: no other look, each time from one op further on.
            self.end = self.first + self.found.len().min(WINDOW);
            return;
        }
        while let Some((first, len)) = self.lists.pop() {
            let bottom = self.lists.len();
            for index in first..first + len {
                self.order.push(index);
                let inside = self.found[index as usize].inside;
                if inside.1 > 0 {
                    self.lists.push(inside);
                }
            }
            self.lists[bottom..].reverse();
        }
        self.end = self.first + self.order.len();
        for found in &self.found {
            let [_, args, _, output, _, tags] = found.parts;
            layout::prefetch_set_entry(tags, view.effect_tag_hash);
            if view.whole {
                first_items(args, |leaf| prefetch(leaf.cast()));
                first_items(output, |leaf| prefetch(leaf.cast::<u8>().wrapping_sub(32)));
            }
            first_items(output, |leaf| prefetch(leaf.cast()));
        }
        if !view.whole {
            return;
        }
        for found in &self.found {
            first_items(found.parts[3], |leaf| {
                if view.types.has_layout(leaf) {
                    Layout::<1>::prefetch_values(leaf);
                }
            });
        }
        self.names.clear();
        for found in &self.found {
            first_items(found.parts[3], |leaf| {
                view.value_of_proxy.prefetch(leaf as usize);
                if let Some(name) = view.types.name_place(view.py, leaf) {
                    prefetch(name.cast());
                    self.names.push(name);
                }
            });
        }
        for &name in &self.names {
            if ffi::Py_TYPE(name) == &raw mut ffi::PyUnicode_Type {
                view.value_of_name.prefetch(hash_of(name));
            }
        }
    }
}

// SAFETY: addresses are followed with the interpreter attached, before any Python code runs.
unsafe impl Send for Survey {}

/// Calls `take` for an object that is no tuple, or for the first items of a tuple.
///
/// # Safety
/// The object is alive, and the interpreter is attached.
#[inline]
unsafe fn first_items(object: *mut ffi::PyObject, mut take: impl FnMut(*mut ffi::PyObject)) {
    if ffi::PyTuple_CheckExact(object) == 0 {
        return take(object);
    }
    for index in 0..ffi::PyTuple_GET_SIZE(object).min(4) {
        take(ffi::PyTuple_GET_ITEM(object, index));
    }
}

/// The items of a list or tuple, and how many there are.
///
/// # Safety
/// `list` is alive; what is returned holds until Python code runs.
#[inline]
pub(super) unsafe fn items(list: *mut ffi::PyObject) -> Option<(*const *mut ffi::PyObject, usize)> {
    if ffi::PyList_CheckExact(list) != 0 {
        Some(((*list.cast::<ffi::PyListObject>()).ob_item.cast_const(), ffi::PyList_GET_SIZE(list).unsigned_abs()))
    } else if ffi::PyTuple_CheckExact(list) != 0 {
        let items = &raw const (*list.cast::<ffi::PyTupleObject>()).ob_item;
        Some((items.cast(), ffi::PyTuple_GET_SIZE(list).unsigned_abs()))
    } else {
        None
    }
}
