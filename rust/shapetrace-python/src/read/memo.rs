//! The list that was read last, to know it again.
//!
//! Thunder often runs the pass on what it ran it on before. Such a list need not be read again, nor
//! do the passes run again, if nothing in it is different. Whether that is so is found by looking at
//! all that was looked at when it was read, from the outside in: the bound symbols of each list, their
//! attributes, the parts of each container, the classes of all of these, the names of the proxies,
//! tags of symbols, numbers. After any difference the list is read as if it were new. A comparison
//! is quicker than reading, as nothing is looked up and nothing is built, and it is known beforehand
//! where to look.
//!
//! What is kept from call to call is addresses, and no object of a trace is kept alive by them. An
//! address is followed only where it has just been found in a live object, so it does not matter that
//! another object may be there by now: what it is made of is compared as well. Only the names
//! of proxies, which are strings, are held, so that a name at the same address is the same name.
//!
//! Only a list that was read without running any Python code is remembered: what such code looks at
//! is not known here.

use pyo3::ffi;
use pyo3::prelude::*;
use shapetrace_core::entity::Entity;
use shapetrace_core::ir::{Op, OpFlags, Scope, Value, ValueKind};

use super::survey::items;
use super::{field_names, has_effect_tag, literal, number_facts, ReadOptions, Reader, FIELDS};
use crate::flatten::{ProxyKind, Shape};
use crate::host::Host;
use crate::layout::{prefetch, Layout};

/// Longer lists take more memory than is good to keep.
const MOST_OPS: usize = 1 << 16;

/// So many ops ahead the memory of an op is asked for.
const AHEAD: usize = 10;

/// What was found at one op.
#[derive(Clone, Copy)]
struct OpParts {
    parts: [*mut ffi::PyObject; FIELDS],
    /// Where the attributes were. Never followed.
    values: *const u8,
}

/// What the last list was made of, beside what is in the program, the reading and the trail.
#[derive(Default)]
pub(super) struct Memo {
    /// Every op that is read is noted.
    is_on: bool,
    /// What is noted is all that was looked at.
    is_whole: bool,
    /// Whether it was read for level "full".
    full: bool,
    /// Tells whether Python code ran.
    epoch: u64,
    ops: Vec<OpParts>,
    /// The symbols, as indices into what the reader knows of symbols.
    symbols: Vec<u32>,
}

impl Memo {
    /// Whether there is a list to be known again.
    pub(super) fn is_kept(&self) -> bool {
        self.is_whole
    }

    /// Notes an op and its attributes.
    ///
    /// # Safety
    /// `item` is alive, and has the layout of bound symbols.
    #[inline]
    pub(super) unsafe fn note_op(&mut self, item: *mut ffi::PyObject, parts: [*mut ffi::PyObject; FIELDS]) {
        if self.is_on {
            self.ops.push(OpParts { parts, values: Layout::<FIELDS>::values_of(item) });
            self.is_on = self.ops.len() <= MOST_OPS;
        }
    }

    #[inline]
    pub(super) fn note_symbol(&mut self, index: u32) {
        self.symbols.push(index);
    }
}

// SAFETY: see the module: addresses are followed with the interpreter attached, where live objects hold them.
unsafe impl Send for Memo {}

impl Reader {
    /// Begins to note what is read, if it is worth it.
    pub(super) fn start_memo(&mut self, list: &Bound<'_, PyAny>, options: &ReadOptions<'_, '_>) {
        // SAFETY: the caller has the list.
        let len = unsafe { items(list.as_ptr()) }.map_or(0, |(_, len)| len);
        let is_long = options.remember_from.is_some_and(|least| (least..=MOST_OPS).contains(&len));
        let is_on = is_long && options.are_plain() && self.layout.is_some();
        let memo = &mut self.memo;
        (memo.is_on, memo.is_whole, memo.full, memo.epoch) = (is_on, false, options.full, self.reading.epoch);
        memo.ops.clear();
        memo.symbols.clear();
        self.walk.trail.start(is_on);
    }

    /// Ends it, when all is read and no Python code has run since.
    pub(super) fn end_memo(&mut self, py: Python<'_>) {
        let no_code_ran = self.memo.epoch == self.reading.epoch;
        let memo = &mut self.memo;
        memo.is_whole = memo.is_on && no_code_ran && self.walk.trail.is_whole();
        memo.is_on = false;
        if memo.is_whole {
            self.reading.names.hold(py);
            self.reading.other_names.hold(py);
        } else {
            self.forget();
        }
    }

    /// Forgets the list.
    pub(crate) fn forget(&mut self) {
        self.memo.is_whole = false;
        self.walk.trail.start(false);
    }

    /// Whether this is the list that was read last, to be read in the same way, with nothing changed.
    /// If so, what was learned of it holds: the reading, and the program.
    pub(crate) fn recall(&self, host: &Host, list: &Bound<'_, PyAny>, options: &ReadOptions<'_, '_>) -> bool {
        // SAFETY: the caller has the list, and no Python code runs.
        self.memo.is_whole
            && options.are_plain()
            && options.full == self.memo.full
            && unsafe { self.is_unchanged(host, list) }
    }

    /// # Safety
    /// There is a memo.
    unsafe fn is_unchanged(&self, host: &Host, list: &Bound<'_, PyAny>) -> bool {
        self.ops_are_unchanged(host, list)
            && self.walk.trail.is_unchanged(list.py(), &self.types)
            && self.symbols_are_unchanged()
            && self.names_are_unchanged(list.py())
            && self.literals_are_unchanged(list.py())
    }

    /// Whether each scope has the bound symbols that it had, and these the attributes.
    unsafe fn ops_are_unchanged(&self, host: &Host, list: &Bound<'_, PyAny>) -> bool {
        let Some(layout) = self.layout.as_ref().filter(|layout| layout.is_current()) else { return false };
        let fields = field_names(list.py());
        let class = host.bound_symbol.as_ptr().cast();
        let program = &self.program;
        let addresses = &self.reading.bound_symbols;
        for scope in program.scopes() {
            let owner = program.scope_owner(scope);
            let list = owner.map_or(list.as_ptr(), |owner| self.memo.ops[owner.index()].parts[4]);
            let range = program.scope_range(scope);
            let Some((first, len)) = items(list) else { return false };
            if len != range.len() {
                return false;
            }
            let is_whole = self.memo.full || scope == Scope::TOP;
            for (index, op) in range.enumerate() {
                if let Some(later) = self.memo.ops.get(op + AHEAD) {
                    let object = addresses.pointer(op + AHEAD).cast::<u8>();
                    prefetch(object.wrapping_sub(32));
                    prefetch(object);
                    prefetch(later.values);
                    prefetch(later.values.wrapping_add(63));
                    let [_, _, kwargs, _, subsymbols, tags] = later.parts;
                    if is_whole {
                        prefetch(kwargs.cast());
                    }
                    prefetch(subsymbols.cast());
                    prefetch(tags.cast());
                }
                let item = *first.add(index);
                if item != addresses.pointer(op) || ffi::Py_TYPE(item) != class {
                    return false;
                }
                let parts = self.memo.ops[op].parts;
                if layout.read(item, &fields) != Some(parts) {
                    return false;
                }
                let [_, _, kwargs, _, subsymbols, tags] = parts;
                let op = Op::from_index(op);
                let flags = program.flags(op);
                if is_whole && has_keywords(kwargs) != flags.contains(OpFlags::KEYWORDS) {
                    return false;
                }
                match has_effect_tag(host, tags) {
                    Some(Ok(tagged)) if tagged == flags.contains(OpFlags::EFFECT) => {}
                    _ => return false,
                }
                if program.op_scope(op).is_none() && items(subsymbols).is_none_or(|(_, len)| len > 0) {
                    return false;
                }
            }
        }
        true
    }

    unsafe fn symbols_are_unchanged(&self) -> bool {
        self.memo.symbols.iter().all(|&index| {
            let known = &self.symbols[index as usize];
            known.object.as_ref().is_some_and(|object| self.tags_directly(object.as_ptr()) == Some(known.tags))
        })
    }

    /// Whether every proxy has the name that it had; what is known of numbers is compared as well.
    unsafe fn names_are_unchanged(&self, py: Python<'_>) -> bool {
        let (types, reading, program) = (&self.types, &self.reading, &self.program);
        let mut latest = (std::ptr::null_mut(), None);
        let mut named = |proxy: *mut ffi::PyObject, name: *mut ffi::PyObject| {
            let class = ffi::Py_TYPE(proxy);
            if class != latest.0 {
                latest = (class, types.known(class));
            }
            let Some(Shape::Proxy(class)) = latest.1 else { return None };
            (types.name_directly(py, proxy, class) == Some(name)).then_some(class)
        };
        (0..reading.others.len())
            .all(|index| named(reading.others.pointer(index), reading.other_names.pointer(index)).is_some())
            && (0..reading.proxies.len()).all(|index| {
                let proxy = reading.proxies.pointer(index);
                if index + 2 * AHEAD < reading.proxies.len() {
                    prefetch(reading.proxies.pointer(index + 2 * AHEAD).cast::<u8>().wrapping_sub(32));
                    let later = reading.proxies.pointer(index + AHEAD);
                    if types.has_layout(later) {
                        Layout::<1>::prefetch_values(later);
                    }
                }
                let Some(class) = named(proxy, reading.names.pointer(index)) else { return false };
                if !self.memo.full || class.kind != ProxyKind::Number {
                    return true;
                }
                let Some(facts) = types.number_directly(py, proxy, class) else { return false };
                let [number, python_type] = facts.map(|fact| Bound::from_borrowed_ptr(py, fact));
                let (number_type, hint) = number_facts(&number, &python_type);
                let value = Value::from_index(index);
                program.value_kind(value) == ValueKind::Number(number_type) && program.value_hint(value) == hint
            })
    }

    unsafe fn literals_are_unchanged(&self, py: Python<'_>) -> bool {
        let mut literals = self.reading.literals.iter();
        literals.all(|&(object, number)| literal(&Bound::from_borrowed_ptr(py, object)) == number)
    }
}

/// Whether what should be a dictionary is anything but an empty one.
///
/// # Safety
/// The object is alive.
#[inline]
unsafe fn has_keywords(kwargs: *mut ffi::PyObject) -> bool {
    ffi::PyDict_CheckExact(kwargs) == 0 || (*kwargs.cast::<ffi::PyDictObject>()).ma_used != 0
}

impl ReadOptions<'_, '_> {
    /// Whether the list alone says what is read.
    fn are_plain(&self) -> bool {
        self.output.is_none() && self.needed.is_none() && self.effects.is_none() && self.inputs.is_none()
    }
}
