//! A list of bound symbols becomes a program.
//!
//! Every op is read once: its symbol is looked up by address, its arguments and output are walked
//! in place, and the names of proxies are interned. Nested scopes are entered with an explicit
//! stack, in the pre-order that the builder asks for.
//!
//! Reading is the most expensive part of the whole optimizer, and most of that is waiting for
//! memory: a bound symbol is spread over half a dozen objects. So attributes are read where they
//! are kept (`layout`), what is about to be read is asked for ahead of time, no Python object is
//! made per op, and none is written to: references are counted only where Python code runs while
//! a trace is read (`borrowed`).
//!
//! A list that is the one of the call before, with nothing changed in it, is not read again: see
//! [`memo`].

mod memo;
mod survey;

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PySet, PyString, PyType};
use pyo3::PyTypeInfo;
use shapetrace_core::entity::{Entity, PackedOption};
use shapetrace_core::error::BuildError;
use shapetrace_core::ir::{
    Constant, Number, NumberType, Op, OpFlags, Operand, Program, ProgramBuilder, ScalarOp, Symbol, SymbolData,
    SymbolFlags, Value, ValueKind,
};

use crate::borrowed::Borrowed;
use crate::flatten::{Leaves, ProxyClass, ProxyKind, Shape, Types, Walk};
use crate::host::Host;
use crate::layout::{self, prefetch, Layout};
use crate::names::names;
use crate::table::Table;
use memo::Memo;
use survey::{items, Survey, View};

/// So many symbols are remembered before all are forgotten.
const SYMBOL_LIMIT: usize = 4096;

/// Ops nested deeper than this are refused: one that contains itself would be read for ever.
const NESTING_LIMIT: u32 = 1 << 18;

/// More ops than this are refused: ops that share what is inside them may be few objects and more ops
/// than any memory holds.
const OP_LIMIT: usize = 1 << 24;

/// Shorter lists are read without a survey: there is not much to wait for.
const SURVEY_FROM: usize = 16;

/// One symbol seen before.
struct KnownSymbol {
    symbol: Symbol,
    flags: SymbolFlags,
    is_scalar: bool,
    /// Keeps the address taken, as long as the symbol is found by it.
    object: Option<Py<PyAny>>,
    /// What the `tags` of the symbol were. They are looked at again in every call, for a tag that was
    /// added or exchanged since must not be missed.
    tags: Tags,
    /// The call in which the tags were looked at last.
    checked: u64,
}

/// What reading leaves behind for the rebuild.
///
/// The objects are borrowed until [`Reading::hold`] is called, and it must be before Python code
/// may run.
#[derive(Default)]
pub(crate) struct Reading {
    /// The bound symbols, by op.
    pub(crate) bound_symbols: Borrowed,
    /// The first proxy seen for each value.
    pub(crate) proxies: Borrowed,
    /// The name of each value: a string.
    names: Borrowed,
    /// Proxies that are not the first of their value, and their names.
    others: Borrowed,
    other_names: Borrowed,
    /// Literals that arithmetic reads, and what it takes them for.
    literals: Vec<(*mut ffi::PyObject, Option<Number>)>,
    /// Scopes still to be read.
    pending: Vec<Pending>,
    /// So many of the pending scopes, from the bottom, have their list in `lists`.
    pending_held: usize,
    /// The list that is being read, or null.
    open_list: *mut ffi::PyObject,
    /// Lists of bound symbols that are our own.
    lists: Vec<Py<PyAny>>,
    /// Values by the address of the proxy, see [`Reading::known`]. Every proxy in it is alive until
    /// the end of the call: it is in `proxies` or in `others`.
    value_of_proxy: Table,
    /// Values by the hash of the name.
    value_of_name: Table,
    /// How often Python code may have run: what was read of an object before may be different now.
    epoch: u64,
    /// Whether there was a return at the top level.
    pub(crate) has_return: bool,
    /// Literals seen that arithmetic does not understand: no two are taken to be equal.
    opaque_literals: u32,
}

// SAFETY: as for `Borrowed`; addresses that are there between calls are those of a memo.
unsafe impl Send for Reading {}

/// A scope still to be read.
#[derive(Clone, Copy)]
struct Pending {
    /// The op that it is inside of.
    owner: Op,
    /// Its bound symbols, as borrowed as all else.
    list: *mut ffi::PyObject,
    /// How deep it is.
    depth: u32,
}

/// A bit in the values of `value_of_proxy`: a collection at level "full", which is asked for what
/// it holds each time that an op reads it. Ids of values have 31 bits.
const COLLECTION: u32 = 1 << 31;

/// The hash of a string. Strings keep theirs, so this runs no Python code and cannot fail.
///
/// # Safety
/// The interpreter is attached and `name` is a string.
#[inline]
#[allow(clippy::cast_sign_loss, reason = "it is the bits that count")]
unsafe fn hash_of(name: *mut ffi::PyObject) -> usize {
    let kept = (*name.cast::<ffi::PyASCIIObject>()).hash;
    if kept == -1 {
        ffi::PyObject_Hash(name) as usize
    } else {
        kept as usize
    }
}

impl Reading {
    fn clear(&mut self) {
        self.bound_symbols.clear();
        self.proxies.clear();
        self.names.clear();
        self.others.clear();
        self.other_names.clear();
        self.literals.clear();
        self.pending.clear();
        self.pending_held = 0;
        self.open_list = std::ptr::null_mut();
        self.lists.clear();
        self.value_of_proxy.clear();
        self.value_of_name.clear();
        self.has_return = false;
        self.opaque_literals = 0;
        self.epoch += 1;
    }

    /// Gives up what is our own but the names. Addresses stay, and may lead nowhere from now on.
    fn let_go(&mut self) {
        self.bound_symbols.let_go();
        self.proxies.let_go();
        self.others.let_go();
        self.lists.clear();
        self.pending.clear();
        self.pending_held = 0;
        self.open_list = std::ptr::null_mut();
    }

    /// Makes our own what is borrowed. Call it before Python code may run.
    #[inline(never)]
    pub(crate) fn hold(&mut self, py: Python<'_>) {
        self.epoch += 1;
        self.bound_symbols.hold(py);
        self.proxies.hold(py);
        self.names.hold(py);
        self.others.hold(py);
        self.other_names.hold(py);
        // SAFETY: all lists are alive: no Python code ran since they were noted, or they are held.
        unsafe {
            let new = self.pending[self.pending_held..].iter().map(|pending| pending.list);
            self.lists.extend(new.map(|list| Py::from_borrowed_ptr(py, list)));
            self.pending_held = self.pending.len();
            if !self.open_list.is_null() {
                self.lists.push(Py::from_borrowed_ptr(py, self.open_list));
                self.open_list = std::ptr::null_mut();
            }
        }
    }

    /// The scope to be read next.
    #[inline]
    fn next_scope(&mut self) -> Option<Pending> {
        let next = self.pending.pop()?;
        if self.pending_held > self.pending.len() {
            // Its list is held already, to the end of the call.
            self.pending_held = self.pending.len();
            self.open_list = std::ptr::null_mut();
        } else {
            self.open_list = next.list;
        }
        Some(next)
    }

    /// The value of a proxy that was seen before, by its address; whether it is asked for what it
    /// holds.
    #[inline]
    fn known(&self, proxy: *mut ffi::PyObject) -> Option<(Value, bool)> {
        let found = self.value_of_proxy.get(proxy as usize)?;
        Some((Value::from_index((found & !COLLECTION) as usize), found & COLLECTION != 0))
    }

    /// The value of a proxy that was seen before, by its address.
    #[inline]
    pub(crate) fn value_of(&self, proxy: &Bound<'_, PyAny>) -> Option<Value> {
        self.known(proxy.as_ptr()).map(|(value, _)| value)
    }

    /// The value of this name.
    ///
    /// # Safety
    /// The interpreter is attached and `name` is a string.
    #[inline]
    unsafe fn named(&self, name: *mut ffi::PyObject, hash: usize) -> Option<Value> {
        let same = |value: u32| {
            let other = self.names.pointer(value as usize);
            other == name || ffi::PyUnicode_Compare(other, name) == 0
        };
        self.value_of_name.find(hash, same).map(|value| Value::from_index(value as usize))
    }
}

/// The attributes of a bound symbol that are read, in this order.
const FIELDS: usize = 6;

/// Their names, as interned strings.
fn field_names(py: Python<'_>) -> [*mut ffi::PyObject; FIELDS] {
    let names = names(py);
    [&names.sym, &names.args, &names.kwargs, &names.output, &names.subsymbols, &names.tags].map(Py::as_ptr)
}

/// Reads lists of bound symbols; keeps what it learned of symbols and types for the next.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) types: Types,
    layout: Option<Layout<FIELDS>>,
    /// Indices into `symbols`, by address.
    symbol_index: Table,
    symbols: Vec<KnownSymbol>,
    /// Those that are not remembered beyond the call.
    passing_symbols: Vec<usize>,
    calls: u64,
    walk: Walk,
    survey: Survey,
    program: Program,
    pub(crate) reading: Reading,
    memo: Memo,
    /// Whether the passes looked at more of the last list than what was read: they compared ops.
    pub(crate) ops_were_compared: bool,
    collections: Collections,
}

/// The collections that an op reads: the proxies, and what they hold.
#[derive(Default)]
struct Collections {
    proxies: Borrowed,
    contents: Borrowed,
}

impl Collections {
    fn clear(&mut self) {
        self.proxies.clear();
        self.contents.clear();
    }

    fn hold(&mut self, py: Python<'_>) {
        self.proxies.hold(py);
        self.contents.hold(py);
    }

    /// # Safety
    /// As for [`Borrowed::push`].
    unsafe fn push(&mut self, proxy: *mut ffi::PyObject, content: *mut ffi::PyObject) {
        self.proxies.push(proxy);
        self.contents.push(content);
    }
}

// SAFETY: as for `Types`: addresses are compared, never followed, and only with the interpreter
// attached.
unsafe impl Send for Reader {}

/// What the caller wants beside the ops.
pub(crate) struct ReadOptions<'a, 'py> {
    /// Read what only level "full" needs: literals of arithmetic, shapes, what collections hold.
    pub(crate) full: bool,
    /// The output of the list, where it has no return.
    pub(crate) output: Option<&'a Bound<'py, PyAny>>,
    /// `needed_proxies`
    pub(crate) needed: Option<&'a Bound<'py, PySet>>,
    /// The user's predicate on bound symbols.
    pub(crate) effects: Option<&'a Bound<'py, PyAny>>,
    /// What the list takes, if that is to be checked.
    pub(crate) inputs: Option<&'a Bound<'py, PyAny>>,
    /// From how many ops on to keep what it takes to know the list again; none if it is never to be.
    pub(crate) remember_from: Option<usize>,
}

/// What one call reads with.
struct Call<'a, 'py> {
    py: Python<'py>,
    host: &'a Host,
    options: &'a ReadOptions<'a, 'py>,
    builder: ProgramBuilder,
    /// Names of the attributes.
    fields: [*mut ffi::PyObject; FIELDS],
    /// The values of the first return.
    returned: Vec<Value>,
    /// How deep the scope is that is being read.
    depth: u32,
}

impl<'py> Call<'_, 'py> {
    /// What is needed to look at ops of the top level, or of others.
    fn view<'a>(
        &'a self,
        layout: &'a Layout<FIELDS>,
        types: &'a Types,
        reading: &'a Reading,
        top: bool,
    ) -> View<'a, 'py> {
        let Reading { value_of_proxy, value_of_name, .. } = reading;
        let class = self.host.bound_symbol.as_ptr().cast();
        let whole = self.options.full || top;
        let (py, names, effect_tag_hash) = (self.py, &self.fields, self.host.effect_tag_hash);
        View { py, layout, names, class, effect_tag_hash, types, value_of_proxy, value_of_name, whole }
    }
}

impl Reader {
    pub(crate) fn new(direct: bool) -> Self {
        Self { types: Types::new(direct), ..Self::default() }
    }

    /// The program of the list that was known again.
    pub(crate) fn take_program(&mut self) -> Program {
        std::mem::take(&mut self.program)
    }

    /// Gives the memory of a program back.
    pub(crate) fn recycle(&mut self, program: Program) {
        self.program = program;
        if self.memo.is_kept() {
            self.reading.let_go();
        } else {
            self.reading.clear();
        }
        self.walk.release();
        // Symbols of one compile only: their ids stay taken, but nothing leads to them any more.
        for index in std::mem::take(&mut self.passing_symbols) {
            self.symbols[index].object = None;
        }
    }

    fn forget_symbols(&mut self) {
        self.passing_symbols.clear();
        self.symbol_index.clear();
        self.symbols.clear();
        self.program = Program::default();
    }

    pub(crate) fn read<'py>(
        &mut self,
        host: &Host,
        bound_symbols: &Bound<'py, PyAny>,
        options: &ReadOptions<'_, 'py>,
    ) -> PyResult<Program> {
        let py = bound_symbols.py();
        self.reading.clear();
        self.walk.release();
        self.collections.clear();
        self.types.refresh();
        self.calls += 1;
        if self.symbols.len() >= SYMBOL_LIMIT {
            self.forget_symbols();
        }
        let fields = field_names(py);
        // SAFETY: a class that `host` keeps alive, and interned strings.
        unsafe {
            if self.types.direct && !self.layout.is_some_and(|layout| layout.is_current()) {
                self.layout = Layout::find(host.bound_symbol.as_ptr().cast(), fields);
            }
        }
        self.start_memo(bound_symbols, options);
        // SAFETY: the caller has the list.
        let is_long = unsafe { items(bound_symbols.as_ptr()) }.is_some_and(|(_, len)| len >= SURVEY_FROM);
        self.survey.start(is_long && self.layout.is_some());
        let builder = ProgramBuilder::recycle(std::mem::take(&mut self.program));
        let mut call = Call { py, host, options, builder, fields, returned: Vec::new(), depth: 0 };
        call.builder.open_top_scope().map_err(invalid)?;
        // SAFETY: the caller has the list.
        unsafe { self.read_scope(&mut call, bound_symbols.as_ptr(), true)? };
        while let Some(Pending { owner, list, depth }) = self.reading.next_scope() {
            if depth > NESTING_LIMIT {
                let message = format!("ops are nested more than {NESTING_LIMIT} deep");
                return Err(host.invalid_trace(py, &message, None, None, "see whether an op contains itself"));
            }
            if call.builder.op_count() + self.reading.pending.len() > OP_LIMIT {
                let message = format!("there are more than {OP_LIMIT} ops");
                let hint = "see whether ops share what is inside them, over and over";
                return Err(host.invalid_trace(py, &message, None, None, hint));
            }
            call.depth = depth;
            call.builder.open_scope(owner).map_err(invalid)?;
            // SAFETY: the list is alive: no Python code ran since it was noted, or it is held.
            unsafe {
                if self.survey.is_over(call.builder.op_count()) {
                    self.look_at_lists(&call, list);
                }
                self.read_scope(&mut call, list, false)?;
            }
        }
        let Call { mut builder, returned, .. } = call;
        for value in returned {
            builder.output(value).map_err(invalid)?;
        }
        if let Some(output) = options.output {
            self.mark(host, &mut builder, output, ProgramBuilder::output)?;
        }
        if let Some(inputs) = options.inputs {
            self.mark(host, &mut builder, inputs, ProgramBuilder::input)?;
            if !builder.has_inputs() {
                // One input that nothing uses says that inputs are declared, and that there are none.
                let unused = builder.value(ValueKind::Other).map_err(invalid)?;
                // SAFETY: `None` lives as long as the interpreter.
                unsafe {
                    self.reading.proxies.push(py.None().as_ptr());
                    self.reading.names.push(py.None().as_ptr());
                }
                builder.input(unused).map_err(invalid)?;
            }
        }
        if let Some(needed) = options.needed {
            self.reading.hold(py);
            // As any iterable: code of the user may run, and a set that changes under it is an error.
            for variable in needed.try_iter()? {
                let variable = variable?;
                // The set holds `Variable`s; a name that the trace does not know keeps nothing.
                let proxy = match variable.getattr("proxy") {
                    Err(error) if error.is_instance_of::<PyAttributeError>(py) => variable,
                    proxy => proxy?,
                };
                self.mark(host, &mut builder, &proxy, ProgramBuilder::output)?;
            }
        }
        if options.full && builder.has_numbers() {
            self.read_shapes(py, host, &mut builder)?;
        }
        self.end_memo(py);
        builder.finish().map_err(invalid)
    }

    /// # Safety
    /// `list` is alive until Python code runs, and after that if it is held by then: it is the
    /// caller's, or `open_list` or one of `lists`.
    unsafe fn read_scope(&mut self, call: &mut Call<'_, '_>, list: *mut ffi::PyObject, top: bool) -> PyResult<()> {
        let py = call.py;
        let first = self.reading.pending.len();
        if ffi::PyList_CheckExact(list) != 0 {
            let mut index = 0;
            // The length is asked each time: code of the user that runs in between could change it.
            while index < ffi::PyList_GET_SIZE(list).unsigned_abs() {
                if self.survey.is_over(call.builder.op_count()) {
                    let (items, len) = items(list).expect("a list");
                    self.look_at_items(call, (items.add(index), len - index), top);
                }
                self.read_item(call, ffi::PyList_GET_ITEM(list, index as ffi::Py_ssize_t), top)?;
                index += 1;
            }
        } else if ffi::PyTuple_CheckExact(list) != 0 {
            for index in 0..ffi::PyTuple_GET_SIZE(list) {
                self.read_item(call, ffi::PyTuple_GET_ITEM(list, index), top)?;
            }
        } else {
            // Each step of the iterator is Python code, and gives an object that nobody else may have.
            self.reading.hold(py);
            for item in Bound::from_borrowed_ptr(py, list).try_iter()? {
                let item = item?;
                let read = self.read_item(call, item.as_ptr(), top);
                self.reading.hold(py);
                read?;
            }
        }
        if self.reading.pending_held > first {
            // Those that are held must stay below those that are not.
            self.reading.hold(py);
        }
        // The stack gives the last one first, the builder wants the first one first.
        self.reading.pending[first..].reverse();
        Ok(())
    }

    /// Looks at the next ops of a list.
    ///
    /// # Safety
    /// The items are so many, and alive.
    #[inline(never)]
    unsafe fn look_at_items(&mut self, call: &Call<'_, '_>, items: (*const *mut ffi::PyObject, usize), top: bool) {
        let Self { survey, layout: Some(layout), types, reading, .. } = self else { return };
        let view = call.view(layout, types, reading, top);
        survey.look_at_items(&view, (call.builder.op_count(), reading.epoch), items);
    }

    /// Looks at the ops of a list inside an op, and of the lists that are read after it.
    ///
    /// # Safety
    /// The list and those of the pending scopes are alive.
    #[inline(never)]
    unsafe fn look_at_lists(&mut self, call: &Call<'_, '_>, list: *mut ffi::PyObject) {
        let Self { survey, layout: Some(layout), types, reading, .. } = self else { return };
        let view = call.view(layout, types, reading, false);
        let later = reading.pending.iter().rev().map(|pending| pending.list);
        let lists = std::iter::once(list).chain(later);
        survey.look_at_lists(&view, (call.builder.op_count(), reading.epoch), lists);
    }

    /// Makes our own what is borrowed. Call it before Python code may run.
    ///
    /// # Safety
    /// The interpreter is attached, and the roots of the walk are alive.
    unsafe fn hold(&mut self, py: Python<'_>) {
        self.reading.hold(py);
        self.walk.hold_roots(py);
    }

    /// # Safety
    /// `item` is alive until Python code runs.
    unsafe fn read_item(&mut self, call: &mut Call<'_, '_>, item: *mut ffi::PyObject, top: bool) -> PyResult<()> {
        let py = call.py;
        let op = call.builder.op_count();
        self.reading.bound_symbols.push(item);
        let direct = match (self.survey.get(op, item, self.reading.epoch), &self.layout) {
            (None, Some(layout)) if ffi::Py_TYPE(item).cast() == call.host.bound_symbol.as_ptr() => {
                layout.read(item, &call.fields)
            }
            (found, _) => found,
        };
        let parts = match direct {
            Some(parts) => {
                self.memo.note_op(item, parts);
                parts
            }
            None => self.ask_for_parts(call, item)?,
        };
        let op = self.read_op(call, item, parts, top)?;
        let subsymbols = parts[4];
        let is_empty = if ffi::PyList_CheckExact(subsymbols) != 0 {
            ffi::PyList_GET_SIZE(subsymbols) == 0
        } else if ffi::PyTuple_CheckExact(subsymbols) != 0 {
            ffi::PyTuple_GET_SIZE(subsymbols) == 0
        } else {
            self.hold(py);
            Bound::from_borrowed_ptr(py, subsymbols).len()? == 0
        };
        if !is_empty {
            if ffi::PyList_CheckExact(subsymbols) != 0 {
                prefetch((*subsymbols.cast::<ffi::PyListObject>()).ob_item.cast());
            }
            self.reading.pending.push(Pending { owner: op, list: subsymbols, depth: call.depth + 1 });
        }
        if self.walk.holds_any() {
            // What the walk lets go of may be all that keeps a proxy, or the list of the next scope.
            self.reading.hold(py);
        }
        self.walk.release();
        Ok(())
    }

    /// The attributes of a bound symbol by way of `getattr`; the walk keeps them alive.
    ///
    /// # Safety
    /// `item` is alive.
    #[cold]
    unsafe fn ask_for_parts(
        &mut self,
        call: &mut Call<'_, '_>,
        item: *mut ffi::PyObject,
    ) -> PyResult<[*mut ffi::PyObject; FIELDS]> {
        let py = call.py;
        // The item is our own from here on.
        self.reading.hold(py);
        let item = Bound::from_borrowed_ptr(py, item);
        if !item.is_instance(call.host.bound_symbol.bind(py))? {
            let position = call.builder.op_count();
            return Err(call.host.invalid_trace(
                py,
                &format!("op {position} is {}, not a BoundSymbol", item.get_type().repr()?),
                None,
                None,
                "pass a trace, or a sequence of bound symbols",
            ));
        }
        let mut parts = [std::ptr::null_mut(); FIELDS];
        for (part, field) in parts.iter_mut().zip(call.fields) {
            // The names are interned strings.
            let name = Bound::from_borrowed_ptr(py, field).cast_into_unchecked::<PyString>();
            let attribute = item.getattr(name)?;
            *part = attribute.as_ptr();
            self.walk.keep(attribute.unbind());
        }
        Ok(parts)
    }

    /// # Safety
    /// `parts` are the attributes of `item`, which is alive.
    unsafe fn read_op(
        &mut self,
        call: &mut Call<'_, '_>,
        item: *mut ffi::PyObject,
        parts: [*mut ffi::PyObject; FIELDS],
        top: bool,
    ) -> PyResult<Op> {
        let py = call.py;
        let [symbol, args, kwargs, output, _, tags] = parts;
        self.walk.set_roots(parts);
        let index = self.symbol(call, symbol)?;
        let KnownSymbol { symbol, flags: symbol_flags, is_scalar, .. } = self.symbols[index];
        let full = call.options.full;
        let mut flags = OpFlags::empty();
        if has_effect_tag(call.host, tags).unwrap_or_else(|| self.ask_for_tag(call, tags))? {
            flags |= OpFlags::EFFECT;
        }
        let Self { types, walk, reading, collections, .. } = self;
        if !full && !top {
            // Inside ops, level "compat" asks only what has an effect and what defines nothing.
            let mut any = AnyProxy { found: false, reading };
            walk.leaves(py, types, call.host, output, false, &mut any)?;
            flags.set(OpFlags::UNREAD_RESULT, any.found);
            return call.builder.finish_own_op(symbol, flags).map_err(invalid);
        }
        let mut operands =
            OperandLeaves { builder: &mut call.builder, reading, collections, full, want_literals: is_scalar && full };
        walk.leaves(py, types, call.host, args, false, &mut operands)?;
        if ffi::PyDict_CheckExact(kwargs) == 0 || (*kwargs.cast::<ffi::PyDictObject>()).ma_used != 0 {
            flags |= OpFlags::KEYWORDS;
            walk.leaves(py, types, call.host, kwargs, false, &mut operands)?;
        }
        if output == ffi::Py_None() {
            flags |= OpFlags::LITERAL_RESULT;
        } else {
            let is_query = symbol_flags.contains(SymbolFlags::SHAPE_QUERY);
            let mut results = ResultLeaves {
                builder: &mut call.builder,
                reading,
                full,
                keep_places: is_query,
                count: 0,
                literals: false,
            };
            walk.leaves(py, types, call.host, output, true, &mut results)?;
            flags.set(OpFlags::LITERAL_RESULT, results.literals);
            flags.set(OpFlags::EMPTY_RESULT, results.count == 0);
        }
        if full && collections.contents.len() > 0 {
            flags |= OpFlags::FIXED_NAMES;
            let reads_all = symbol_flags.contains(SymbolFlags::USUAL_PRINTER);
            reading.look_into_collections(call, types, walk, collections, reads_all)?;
        }
        if top && symbol_flags.contains(SymbolFlags::RETURN) {
            if !reading.has_return {
                let operands = call.builder.open_operands().iter();
                call.returned.extend(operands.filter_map(|operand| operand.value()));
            }
            reading.has_return = true;
        }
        if let Some(effects) = call.options.effects {
            reading.hold(py);
            walk.hold_roots(py);
            let said = effects.call1((Bound::from_borrowed_ptr(py, item),))?;
            if !said.is_none() {
                flags |= if said.is_truthy()? { OpFlags::EFFECT } else { OpFlags::NO_EFFECT };
            }
        }
        call.builder.finish_own_op(symbol, flags).map_err(invalid)
    }

    /// What is known of a symbol, as an index.
    ///
    /// # Safety
    /// The symbol is alive, and among the roots of the walk.
    #[inline]
    unsafe fn symbol(&mut self, call: &mut Call<'_, '_>, object: *mut ffi::PyObject) -> PyResult<usize> {
        let symbols = &self.symbols;
        // One that was forgotten, or learned again, is still in the table.
        let found = self.symbol_index.find(object as usize, |index| symbols[index as usize].object.is_some());
        if let Some(index) = found {
            if symbols[index as usize].checked == self.calls {
                return Ok(index as usize);
            }
        }
        self.look_at_symbol(call, object, found)
    }

    /// What is known of a symbol that this call did not have before.
    ///
    /// # Safety
    /// As for `symbol`.
    #[inline(never)]
    unsafe fn look_at_symbol(
        &mut self,
        call: &mut Call<'_, '_>,
        object: *mut ffi::PyObject,
        found: Option<u32>,
    ) -> PyResult<usize> {
        let tags = if let Some(tags) = self.tags_directly(object) {
            tags
        } else {
            self.hold(call.py);
            tags_of(&Bound::from_borrowed_ptr(call.py, object))?
        };
        if let Some(index) = found {
            let known = &mut self.symbols[index as usize];
            if known.tags == tags {
                known.checked = self.calls;
                self.memo.note_symbol(index);
                return Ok(index as usize);
            }
        }
        self.hold(call.py);
        let symbol = Bound::from_borrowed_ptr(call.py, object);
        let index = self.learn_symbol(call.host, &mut call.builder, &symbol, tags)?;
        if let Some(before) = found {
            // A symbol whose tags changed takes a new place, which keeps the object.
            self.symbols[before as usize].object = None;
        }
        Ok(index)
    }

    /// What [`tags_of`] gives, if that can be told without running Python code.
    ///
    /// # Safety
    /// The symbol is alive.
    unsafe fn tags_directly(&self, symbol: *mut ffi::PyObject) -> Option<Tags> {
        if !self.types.direct {
            return None;
        }
        let name = names(Python::assume_attached()).tags.as_ptr();
        let class = ffi::Py_TYPE(symbol);
        let get_attribute = (*class).tp_getattro? as usize;
        if (*class).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE == 0
            || get_attribute != ffi::PyObject_GenericGetAttr as *const () as usize
        {
            return None;
        }
        // A slot of the class itself: no other descriptor is asked, and no dictionary.
        let slot = ffi::PyDict_GetItemWithError((*class).tp_dict, name);
        if slot.is_null() || ffi::Py_TYPE(slot) != &raw mut ffi::PyMemberDescr_Type {
            ffi::PyErr_Clear();
            return None;
        }
        let object = ffi::PyObject_GetAttr(symbol, name);
        if object.is_null() {
            // Not set: whoever asks in Python gets the error.
            ffi::PyErr_Clear();
            return None;
        }
        // A slot that holds an object keeps it, so giving ours up frees nothing; one of another kind makes
        // an object for the asking.
        let is_kept = ffi::Py_REFCNT(object) > 1;
        ffi::Py_DECREF(object);
        if !is_kept {
            return None;
        }
        let mut tags = Tags::default();
        if ffi::PyList_CheckExact(object) != 0 {
            (0..ffi::PyList_GET_SIZE(object)).for_each(|index| tags.add(ffi::PyList_GET_ITEM(object, index)));
        } else if ffi::PyTuple_CheckExact(object) != 0 {
            (0..ffi::PyTuple_GET_SIZE(object)).for_each(|index| tags.add(ffi::PyTuple_GET_ITEM(object, index)));
        } else if object != ffi::Py_None() {
            return None;
        }
        Some(tags)
    }

    #[cold]
    fn learn_symbol(
        &mut self,
        host: &Host,
        builder: &mut ProgramBuilder,
        object: &Bound<'_, PyAny>,
        tags: Tags,
    ) -> PyResult<usize> {
        let facts = host.symbol_facts.bind(object.py()).call1((object,))?;
        let (name, bits, scalar, keep): (String, u16, Option<String>, bool) = facts.extract()?;
        let flags = SymbolFlags::from_bits_truncate(bits);
        let scalar = scalar.as_deref().and_then(ScalarOp::from_name);
        let symbol = builder.symbol(SymbolData { name, flags, scalar }).map_err(invalid)?;
        let known = KnownSymbol {
            symbol,
            flags,
            is_scalar: scalar.is_some(),
            object: Some(object.clone().unbind()),
            // What they were before: one that another thread adds meanwhile shows in the next call.
            tags,
            checked: self.calls,
        };
        let index = self.symbols.len();
        self.symbol_index.insert(object.as_ptr() as usize, index as u32);
        self.symbols.push(known);
        if !keep {
            self.passing_symbols.push(index);
        }
        Ok(index)
    }

    /// Marks the values of a structure, those that the program has, in the builder.
    fn mark(
        &mut self,
        host: &Host,
        builder: &mut ProgramBuilder,
        structure: &Bound<'_, PyAny>,
        mark: fn(&mut ProgramBuilder, Value) -> Result<(), BuildError>,
    ) -> PyResult<()> {
        let Self { types, walk, reading, .. } = self;
        let mut leaves = MarkLeaves { builder, reading, mark };
        // SAFETY: `structure` is the caller's.
        let result = unsafe { walk.leaves(structure.py(), types, host, structure.as_ptr(), true, &mut leaves) };
        if walk.holds_any() {
            reading.hold(structure.py());
        }
        walk.release();
        result
    }

    /// Which numbers stand in the shapes of tensors. A shape is looked at once a tensor.
    fn read_shapes(&mut self, py: Python<'_>, host: &Host, builder: &mut ProgramBuilder) -> PyResult<()> {
        for index in 0..self.reading.proxies.len() {
            let tensor = Value::from_index(index);
            if builder.value_kind(tensor) != ValueKind::Tensor {
                continue;
            }
            let proxy = self.reading.proxies.pointer(index);
            // SAFETY: the proxy is alive: no Python code ran since it was noted, or it is held.
            unsafe {
                let content = match self.types.known(ffi::Py_TYPE(proxy)) {
                    Some(Shape::Proxy(class)) => self.types.content_directly(py, proxy, class),
                    _ => None,
                };
                let shape = if let Some(shape) = content {
                    self.walk.trail.note_content(proxy, shape);
                    shape
                } else {
                    self.reading.hold(py);
                    let shape = Bound::from_borrowed_ptr(py, proxy).getattr(&names(py).own_shape)?;
                    self.walk.keep(shape.clone().unbind());
                    shape.as_ptr()
                };
                self.walk.set_roots([shape; FIELDS]);
                let Self { types, walk, reading, .. } = self;
                let mut leaves = ShapeLeaves { builder, reading, tensor, position: 0 };
                walk.leaves(py, types, host, shape, true, &mut leaves)?;
            }
            if self.walk.holds_any() {
                self.reading.hold(py);
            }
            self.walk.release();
        }
        Ok(())
    }

    /// Whether the tags of this very op say that it has an effect, asked of Python.
    ///
    /// # Safety
    /// `tags` is alive, and one of the roots of the walk.
    #[cold]
    unsafe fn ask_for_tag(&mut self, call: &Call<'_, '_>, tags: *mut ffi::PyObject) -> PyResult<bool> {
        self.hold(call.py);
        let tagged = Bound::from_borrowed_ptr(call.py, tags).contains(call.host.effect_tag.bind(call.py))?;
        Ok(tagged)
    }
}

/// Whether the tags of an op say that it has an effect, if that can be told without running Python
/// code: the hash of an enum member is a function in Python.
///
/// # Safety
/// `tags` is alive, and the interpreter is attached.
#[inline]
unsafe fn has_effect_tag(host: &Host, tags: *mut ffi::PyObject) -> Option<PyResult<bool>> {
    if ffi::Py_TYPE(tags) != &raw mut ffi::PySet_Type {
        return None;
    }
    if ffi::PySet_GET_SIZE(tags) == 0 {
        return Some(Ok(false));
    }
    if layout::is_surely_not_in_set(tags, host.effect_tag_hash) {
        return Some(Ok(false));
    }
    let (mut position, mut key, mut hash) = (0, std::ptr::null_mut(), 0);
    while ffi::_PySet_NextEntry(tags, &raw mut position, &raw mut key, &raw mut hash) != 0 {
        if key == host.effect_tag.as_ptr() {
            return Some(Ok(true));
        }
        // As a set does: `==` is asked only where the hashes are the same.
        if hash == host.effect_tag_hash {
            return None;
        }
    }
    Some(Ok(false))
}

/// Whether there is any proxy among the leaves.
struct AnyProxy<'a> {
    found: bool,
    reading: &'a mut Reading,
}

impl Leaves for AnyProxy<'_> {
    #[inline]
    fn take(&mut self, _: &Types, _: *mut ffi::PyObject, class: Option<ProxyClass>) -> bool {
        self.found |= class.is_some();
        true
    }

    fn ask(&mut self, _: &Host, _: &Bound<'_, PyAny>, _: Option<ProxyClass>) -> PyResult<()> {
        Ok(())
    }

    fn hold(&mut self, py: Python<'_>) {
        self.reading.hold(py);
    }
}

/// The values among the leaves, those that the program has, are marked in the builder.
struct MarkLeaves<'a> {
    builder: &'a mut ProgramBuilder,
    reading: &'a mut Reading,
    mark: fn(&mut ProgramBuilder, Value) -> Result<(), BuildError>,
}

impl Leaves for MarkLeaves<'_> {
    #[inline]
    fn take(&mut self, types: &Types, leaf: *mut ffi::PyObject, class: Option<ProxyClass>) -> bool {
        let Some(class) = class else { return true };
        let mut value = self.reading.known(leaf).map(|(value, _)| value);
        if value.is_none() {
            // SAFETY: the interpreter is attached while a trace is read, and the leaf is alive.
            unsafe {
                let Some(name) = types.name_directly(Python::assume_attached(), leaf, class) else { return false };
                value = self.reading.named(name, hash_of(name));
            }
        }
        value.is_none_or(|value| (self.mark)(self.builder, value).is_ok())
    }

    fn ask(&mut self, _: &Host, leaf: &Bound<'_, PyAny>, class: Option<ProxyClass>) -> PyResult<()> {
        let Some(class) = class else { return Ok(()) };
        if let Some(value) = self.reading.find(leaf, class)? {
            (self.mark)(self.builder, value).map_err(invalid)?;
        }
        Ok(())
    }

    fn hold(&mut self, py: Python<'_>) {
        self.reading.hold(py);
    }
}

/// The leaves of arguments become operands.
struct OperandLeaves<'a> {
    builder: &'a mut ProgramBuilder,
    reading: &'a mut Reading,
    collections: &'a mut Collections,
    full: bool,
    want_literals: bool,
}

impl Leaves for OperandLeaves<'_> {
    #[inline]
    fn wants_literals(&self) -> bool {
        self.want_literals
    }

    #[inline]
    fn take_known(&mut self, leaf: *mut ffi::PyObject) -> bool {
        let Some((value, false)) = self.reading.known(leaf) else { return false };
        self.builder.push_operand(value.into());
        true
    }

    #[inline]
    fn take(&mut self, types: &Types, leaf: *mut ffi::PyObject, class: Option<ProxyClass>) -> bool {
        let Some(class) = class else { return !self.want_literals || self.take_literal(leaf) };
        let mut content = None;
        if class.kind == ProxyKind::Collection && self.full {
            // SAFETY: the interpreter is attached while a trace is read.
            content = types.content_directly(unsafe { Python::assume_attached() }, leaf, class);
            if content.is_none() {
                return false;
            }
        }
        let value = match self.reading.known(leaf) {
            Some((value, _)) => value,
            None => match self.reading.value(types, self.builder, leaf, class, self.full) {
                Some(value) => value,
                None => return false,
            },
        };
        if let Some(content) = content {
            // SAFETY: the proxy is alive, and keeps it.
            unsafe { self.collections.push(leaf, content) };
        }
        self.builder.push_operand(value.into());
        true
    }

    fn ask(&mut self, _: &Host, leaf: &Bound<'_, PyAny>, class: Option<ProxyClass>) -> PyResult<()> {
        let operand: Operand = if let Some(class) = class {
            if class.kind == ProxyKind::Collection && self.full {
                let content = leaf.getattr(&names(leaf.py()).coll)?;
                // SAFETY: both are held before they are given up here.
                unsafe { self.collections.push(leaf.as_ptr(), content.as_ptr()) };
                self.collections.hold(leaf.py());
            }
            self.reading.ask_for_value(self.builder, leaf, class, self.full)?.into()
        } else {
            self.constant(leaf)?.into()
        };
        self.builder.push_operand(operand);
        Ok(())
    }

    fn hold(&mut self, py: Python<'_>) {
        self.reading.hold(py);
        self.collections.hold(py);
    }
}

impl OperandLeaves<'_> {
    /// A literal among the operands of arithmetic. Looking at it runs no Python code.
    #[inline(never)]
    fn take_literal(&mut self, leaf: *mut ffi::PyObject) -> bool {
        // SAFETY: the interpreter is attached while a trace is read, and the leaf is alive.
        let leaf = unsafe { Bound::from_borrowed_ptr(Python::assume_attached(), leaf) };
        let Ok(constant) = self.constant(&leaf) else { return false };
        self.builder.push_operand(constant.into());
        true
    }

    fn constant(&mut self, leaf: &Bound<'_, PyAny>) -> PyResult<Constant> {
        let understood = literal(leaf);
        self.reading.literals.push((leaf.as_ptr(), understood));
        let number = understood.unwrap_or_else(|| {
            self.reading.opaque_literals += 1;
            Number::Opaque(self.reading.opaque_literals)
        });
        self.builder.constant(number).map_err(invalid)
    }
}

/// The leaves of an output become results.
struct ResultLeaves<'a> {
    builder: &'a mut ProgramBuilder,
    reading: &'a mut Reading,
    full: bool,
    /// Literals take a slot as well: the place of a result means something.
    keep_places: bool,
    count: usize,
    literals: bool,
}

impl Leaves for ResultLeaves<'_> {
    #[inline]
    fn take_known(&mut self, leaf: *mut ffi::PyObject) -> bool {
        let Some((value, _)) = self.reading.known(leaf) else { return false };
        self.builder.push_result(value.into());
        self.count += 1;
        true
    }

    #[inline]
    fn take(&mut self, types: &Types, leaf: *mut ffi::PyObject, class: Option<ProxyClass>) -> bool {
        if let Some(class) = class {
            let Some(value) = self.reading.value(types, self.builder, leaf, class, self.full) else { return false };
            self.builder.push_result(value.into());
        } else {
            self.literals = true;
            if self.keep_places {
                self.builder.push_result(PackedOption::NONE);
            }
        }
        self.count += 1;
        true
    }

    fn ask(&mut self, _: &Host, leaf: &Bound<'_, PyAny>, class: Option<ProxyClass>) -> PyResult<()> {
        if let Some(class) = class {
            let value = self.reading.ask_for_value(self.builder, leaf, class, self.full)?;
            self.builder.push_result(value.into());
        }
        self.count += 1;
        Ok(())
    }

    fn hold(&mut self, py: Python<'_>) {
        self.reading.hold(py);
    }
}

impl Reading {
    /// The value that a proxy stands for that is not known by its address, if that can be told
    /// without running Python code.
    #[inline]
    fn value(
        &mut self,
        types: &Types,
        builder: &mut ProgramBuilder,
        proxy: *mut ffi::PyObject,
        class: ProxyClass,
        full: bool,
    ) -> Option<Value> {
        // SAFETY: the interpreter is attached while a trace is read; `name_directly` gives a string,
        // and the proxy and its name live until Python code runs.
        unsafe {
            let py = Python::assume_attached();
            let name = types.name_directly(py, proxy, class)?;
            let mut number = None;
            if full && class.kind == ProxyKind::Number {
                let [value, python_type] = types.number_directly(py, proxy, class)?;
                number = Some(number_facts(
                    &Bound::from_borrowed_ptr(py, value),
                    &Bound::from_borrowed_ptr(py, python_type),
                ));
            }
            self.learn_value(builder, proxy, class, full, name, number).ok()
        }
    }

    /// The value that a proxy stands for. All that is borrowed is held before and after.
    #[cold]
    fn ask_for_value(
        &mut self,
        builder: &mut ProgramBuilder,
        proxy: &Bound<'_, PyAny>,
        class: ProxyClass,
        full: bool,
    ) -> PyResult<Value> {
        if let Some(value) = self.value_of(proxy) {
            return Ok(value);
        }
        let name = name_of(proxy, class)?;
        let mut number = None;
        if full && class.kind == ProxyKind::Number {
            let names = names(proxy.py());
            let python_type = proxy.getattr(&names.python_type)?;
            number = Some(number_facts(&proxy.getattr(&names.value)?, &python_type));
        }
        // SAFETY: both are alive, and held before anything else is done.
        let value = unsafe { self.learn_value(builder, proxy.as_ptr(), class, full, name.as_ptr(), number) };
        self.hold(proxy.py());
        value
    }

    /// # Safety
    /// The proxy and its name, a string, live until Python code runs.
    unsafe fn learn_value(
        &mut self,
        builder: &mut ProgramBuilder,
        proxy: *mut ffi::PyObject,
        class: ProxyClass,
        full: bool,
        name: *mut ffi::PyObject,
        number: Option<(NumberType, Option<Number>)>,
    ) -> PyResult<Value> {
        let hash = hash_of(name);
        let value = if let Some(value) = self.named(name, hash) {
            self.others.push(proxy);
            self.other_names.push(name);
            value
        } else {
            let kind = number.map_or_else(|| kind_of(class), |(number_type, _)| ValueKind::Number(number_type));
            let value = builder.value(kind).map_err(invalid)?;
            if let Some((_, Some(hint))) = number {
                builder.hint(value, hint).map_err(invalid)?;
            }
            self.proxies.push(proxy);
            self.names.push(name);
            self.value_of_name.insert(hash, value.index() as u32);
            value
        };
        let is_asked = full && class.kind == ProxyKind::Collection;
        self.value_of_proxy.insert(proxy as usize, value.index() as u32 | if is_asked { COLLECTION } else { 0 });
        Ok(value)
    }

    /// The value that a proxy stands for, if the program has it.
    pub(crate) fn find(&self, proxy: &Bound<'_, PyAny>, class: ProxyClass) -> PyResult<Option<Value>> {
        if let Some(value) = self.value_of(proxy) {
            return Ok(Some(value));
        }
        let name = name_of(proxy, class)?;
        // SAFETY: `name_of` gives a string.
        Ok(unsafe { self.named(name.as_ptr(), hash_of(name.as_ptr())) })
    }

    /// Learns what collections hold. If the op reads all of it, what it does not unpack counts as read.
    #[cold]
    #[inline(never)]
    fn look_into_collections(
        &mut self,
        call: &mut Call<'_, '_>,
        types: &mut Types,
        walk: &mut Walk,
        collections: &mut Collections,
        reads_all: bool,
    ) -> PyResult<()> {
        for index in 0..collections.contents.len() {
            let (proxy, content) = (collections.proxies.pointer(index), collections.contents.pointer(index));
            let held = {
                let mut leaves =
                    ContentLeaves { builder: &mut call.builder, reading: self, collections, held: Vec::new() };
                // SAFETY: both live until Python code runs, and are held before.
                unsafe {
                    walk.trail.note_content(proxy, content);
                    walk.leaves(call.py, types, call.host, content, true, &mut leaves)?;
                }
                leaves.held
            };
            for value in held {
                if reads_all && !call.builder.open_results().contains(&value.into()) {
                    call.builder.push_operand(value.into());
                }
            }
        }
        if collections.contents.holds_any() {
            // What is let go of may be all that keeps a proxy, and letting go may run any code.
            self.hold(call.py);
            // SAFETY: the op is alive, and so is all that it keeps.
            unsafe { walk.hold_roots(call.py) };
        }
        collections.clear();
        Ok(())
    }
}

/// The leaves of what a collection holds become values.
struct ContentLeaves<'a> {
    builder: &'a mut ProgramBuilder,
    reading: &'a mut Reading,
    collections: &'a mut Collections,
    held: Vec<Value>,
}

impl Leaves for ContentLeaves<'_> {
    #[inline]
    fn take_known(&mut self, leaf: *mut ffi::PyObject) -> bool {
        let Some((value, _)) = self.reading.known(leaf) else { return false };
        self.held.push(value);
        true
    }

    fn take(&mut self, types: &Types, leaf: *mut ffi::PyObject, class: Option<ProxyClass>) -> bool {
        let Some(class) = class else { return true };
        let Some(value) = self.reading.value(types, self.builder, leaf, class, true) else { return false };
        self.held.push(value);
        true
    }

    fn ask(&mut self, _: &Host, leaf: &Bound<'_, PyAny>, class: Option<ProxyClass>) -> PyResult<()> {
        if let Some(class) = class {
            self.held.push(self.reading.ask_for_value(self.builder, leaf, class, true)?);
        }
        Ok(())
    }

    fn hold(&mut self, py: Python<'_>) {
        self.reading.hold(py);
        self.collections.hold(py);
    }
}

/// The numbers among the dimensions of a tensor, those that the program has.
struct ShapeLeaves<'a> {
    builder: &'a mut ProgramBuilder,
    reading: &'a mut Reading,
    tensor: Value,
    position: u32,
}

impl ShapeLeaves<'_> {
    fn mention(&mut self, number: Option<Value>) -> PyResult<()> {
        if let Some(number) = number {
            self.builder.shape_mention(self.tensor, self.position, number).map_err(invalid)?;
        }
        self.position += 1;
        Ok(())
    }
}

impl Leaves for ShapeLeaves<'_> {
    #[inline]
    fn take(&mut self, types: &Types, leaf: *mut ffi::PyObject, class: Option<ProxyClass>) -> bool {
        let mut number = None;
        if let Some(class) = class {
            number = self.reading.known(leaf).map(|(value, _)| value);
            if number.is_none() {
                // SAFETY: the interpreter is attached while a trace is read, and the leaf is alive.
                unsafe {
                    let Some(name) = types.name_directly(Python::assume_attached(), leaf, class) else { return false };
                    number = self.reading.named(name, hash_of(name));
                    self.reading.others.push(leaf);
                    self.reading.other_names.push(name);
                    if let Some(value) = number {
                        self.reading.value_of_proxy.insert(leaf as usize, value.index() as u32);
                    }
                }
            }
        }
        self.mention(number).is_ok()
    }

    fn ask(&mut self, _: &Host, leaf: &Bound<'_, PyAny>, class: Option<ProxyClass>) -> PyResult<()> {
        let number = class.map_or(Ok(None), |class| self.reading.find(leaf, class))?;
        self.mention(number)
    }

    fn hold(&mut self, py: Python<'_>) {
        self.reading.hold(py);
    }
}

fn name_of<'py>(proxy: &Bound<'py, PyAny>, class: ProxyClass) -> PyResult<Bound<'py, PyString>> {
    let names = names(proxy.py());
    let name = proxy.getattr(if class.usual_name { &names.own_name } else { &names.name })?;
    let name = name
        .cast_into::<PyString>()
        .map_err(|error| PyTypeError::new_err(format!("the name of a proxy is not a string: {error}")))?;
    // A class of the user's may hash and compare as it likes: the text counts, and nothing else.
    // SAFETY: the interpreter is attached; this gives a new reference to a string, or an error.
    let text = unsafe { Bound::from_owned_ptr_or_err(name.py(), ffi::PyUnicode_FromObject(name.as_ptr())) }?;
    Ok(text.cast_into::<PyString>()?)
}

fn kind_of(class: ProxyClass) -> ValueKind {
    match class.kind {
        ProxyKind::Tensor => ValueKind::Tensor,
        ProxyKind::Collection | ProxyKind::Other => ValueKind::Other,
        ProxyKind::Number => ValueKind::Number(NumberType::Other),
    }
}

/// What is known of a number: its type, and the value that it had when the trace was made. Runs no
/// Python code.
fn number_facts(value: &Bound<'_, PyAny>, python_type: &Bound<'_, PyAny>) -> (NumberType, Option<Number>) {
    let number_type = type_literal(python_type).unwrap_or(NumberType::Other);
    (number_type, literal(value).filter(|hint| !matches!(hint, Number::Type(_))))
}

fn type_literal(object: &Bound<'_, PyAny>) -> Option<NumberType> {
    let py = object.py();
    let class = object.cast::<PyType>().ok()?;
    Some(if class.is(PyBool::type_object(py)) {
        NumberType::Bool
    } else if class.is(PyInt::type_object(py)) {
        NumberType::Int
    } else if class.is(PyFloat::type_object(py)) {
        NumberType::Float
    } else {
        return None;
    })
}

/// A literal as arithmetic sees it, if it does. Only exact types count: a subclass may compute
/// otherwise. Runs no Python code, and makes no object.
pub(crate) fn literal(object: &Bound<'_, PyAny>) -> Option<Number> {
    if let Ok(flag) = object.cast_exact::<PyBool>() {
        Some(Number::Bool(flag.is_true()))
    } else if object.is_exact_instance_of::<PyInt>() {
        let mut overflow = 0;
        // SAFETY: an `int`: this says that it is too large, and raises nothing.
        let int = unsafe { ffi::PyLong_AsLongLongAndOverflow(object.as_ptr(), &raw mut overflow) };
        (overflow == 0).then_some(Number::Int(int))
    } else if let Ok(float) = object.cast_exact::<PyFloat>() {
        Some(Number::Float(float.value()))
    } else {
        type_literal(object).map(Number::Type)
    }
}

/// What the tags of a symbol are. They live as long as the interpreter, so their addresses say which.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Tags {
    count: usize,
    hash: usize,
}

impl Tags {
    #[inline]
    fn add(&mut self, tag: *mut ffi::PyObject) {
        self.count += 1;
        self.hash = (self.hash.rotate_left(5) ^ tag as usize).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// What the tags of a symbol are, asked of Python.
fn tags_of(symbol: &Bound<'_, PyAny>) -> PyResult<Tags> {
    let object = symbol.getattr(&names(symbol.py()).tags)?;
    let mut tags = Tags::default();
    if !object.is_none() {
        for tag in object.try_iter()? {
            tags.add(tag?.as_ptr());
        }
    }
    Ok(tags)
}

/// The builder's refusal as a Python error.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn invalid(error: shapetrace_core::error::BuildError) -> PyErr {
    pyo3::exceptions::PyOverflowError::new_err(error.to_string())
}
