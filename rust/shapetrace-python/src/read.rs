//! A list of bound symbols becomes a program.
//!
//! Every op is read once: its symbol is looked up by address, its arguments and output are walked
//! in place, and the names of proxies are interned. Nested scopes are entered with an explicit
//! stack, in the pre-order that the builder asks for.
//!
//! Reading is the most expensive part of the whole optimizer, and most of that is waiting for
//! memory: a bound symbol is spread over half a dozen objects. So attributes are read where they
//! are kept (`layout`), what is about to be read is asked for ahead of time, and no Python object
//! is made per op.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PySet, PyString, PyTuple, PyType};
use pyo3::PyTypeInfo;
use rustc_hash::FxHashMap;
use shapetrace_core::entity::{Entity, PackedOption};
use shapetrace_core::error::BuildError;
use shapetrace_core::ir::{
    Number, NumberType, Op, OpFlags, Operand, Program, ProgramBuilder, ScalarOp, Symbol, SymbolData, SymbolFlags,
    Value, ValueKind,
};

use crate::flatten::{Leaves, ProxyClass, ProxyKind, Slowly, Types, Walk};
use crate::host::Host;
use crate::layout::{prefetch, Layout};
use crate::names::names;

/// So many symbols are remembered before all are forgotten.
const SYMBOL_LIMIT: usize = 4096;

/// Ops nested deeper than this are refused: one that contains itself would be read for ever.
const NESTING_LIMIT: u32 = 1 << 18;

/// So many bound symbols ahead the next ones are asked for, step by step; see `ask_for_op`.
const AHEAD: [usize; 4] = [8, 5, 3, 1];

/// One symbol seen before.
struct KnownSymbol {
    symbol: Symbol,
    flags: SymbolFlags,
    is_scalar: bool,
    /// Keeps the address taken, as long as the symbol is found by it.
    object: Option<Py<PyAny>>,
    /// What the `tags` of the symbol were: address and length. They are looked at again in every
    /// call, for a tag that was added since must not be missed.
    tags: (usize, isize),
    /// The call in which the tags were looked at last.
    checked: u64,
}

/// What reading leaves behind for the rebuild.
#[derive(Default)]
pub(crate) struct Reading {
    /// The bound symbols, by op.
    pub(crate) bound_symbols: Vec<Py<PyAny>>,
    /// The first proxy seen for each value.
    pub(crate) proxies: Vec<Py<PyAny>>,
    /// Values by the address of the proxy. Every proxy in it is alive until the end of the call:
    /// it is in `proxies`, in `others`, or held by a bound symbol that is read in one go.
    pub(crate) value_of_proxy: FxHashMap<*mut ffi::PyObject, Value>,
    /// Proxies that are not the first of their value.
    others: Vec<Py<PyAny>>,
    value_of_name: FxHashMap<NameKey, Value>,
    /// Whether there was a return at the top level.
    pub(crate) has_return: bool,
    /// Literals seen that arithmetic does not understand: no two are taken to be equal.
    opaque_literals: u32,
}

/// A name, compared by content with the hash that Python computed once.
struct NameKey(Py<PyString>, isize);

impl std::hash::Hash for NameKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_isize(self.1);
    }
}
impl PartialEq for NameKey {
    fn eq(&self, other: &Self) -> bool {
        if self.0.as_ptr() == other.0.as_ptr() {
            return true;
        }
        // SAFETY: both are strings, and the interpreter is attached wherever names are compared.
        self.1 == other.1 && unsafe { ffi::PyUnicode_Compare(self.0.as_ptr(), other.0.as_ptr()) == 0 }
    }
}
impl Eq for NameKey {}

impl NameKey {
    /// # Safety
    /// The interpreter is attached and `name` is a string.
    unsafe fn new(py: Python<'_>, name: *mut ffi::PyObject) -> Self {
        // Strings keep their hash; this cannot fail.
        let hash = ffi::PyObject_Hash(name);
        Self(Bound::from_borrowed_ptr(py, name).cast_into_unchecked::<PyString>().unbind(), hash)
    }
}

/// Empties a map. Clearing takes time linear in the capacity, so one large trace must not make
/// every small one behind it pay: then the memory is given back instead.
fn clear<K, V>(map: &mut FxHashMap<K, V>) {
    if map.capacity() > 1024 && map.capacity() / 16 > map.len() {
        *map = FxHashMap::default();
    } else {
        map.clear();
    }
}

impl Reading {
    fn clear(&mut self) {
        self.bound_symbols.clear();
        self.proxies.clear();
        self.others.clear();
        clear(&mut self.value_of_proxy);
        clear(&mut self.value_of_name);
        self.has_return = false;
        self.opaque_literals = 0;
    }
}

/// The attributes of a bound symbol that are read, in this order.
const FIELDS: usize = 6;

/// Reads lists of bound symbols; keeps what it learned of symbols and types for the next.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) types: Types,
    layout: Option<Layout<FIELDS>>,
    symbol_index: FxHashMap<*mut ffi::PyObject, usize>,
    symbols: Vec<KnownSymbol>,
    /// Those that are not remembered beyond the call.
    passing_symbols: Vec<usize>,
    calls: u64,
    walk: Walk,
    program: Program,
    pub(crate) reading: Reading,
    contents: Vec<Py<PyAny>>,
}

// SAFETY: as for `Types`: addresses are compared, never followed, and only with the interpreter
// attached.
unsafe impl Send for Reader {}

/// What the caller wants beside the ops.
pub(crate) struct ReadOptions<'a, 'py> {
    /// Read what only level "full" needs: literals of arithmetic, shapes, pinned names.
    pub(crate) full: bool,
    /// The output of the list, where it has no return.
    pub(crate) output: Option<&'a Bound<'py, PyAny>>,
    /// `needed_proxies`
    pub(crate) needed: Option<&'a Bound<'py, PySet>>,
    /// The user's predicate on bound symbols.
    pub(crate) effects: Option<&'a Bound<'py, PyAny>>,
    /// What the list takes, if that is to be checked.
    pub(crate) inputs: Option<&'a Bound<'py, PyAny>>,
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
    /// Scopes still to be read: an op with its subsymbols, and how deep they are.
    pending: Vec<(Op, Bound<'py, PyAny>, u32)>,
    /// How deep the scope is that is being read.
    depth: u32,
}

impl Reader {
    pub(crate) fn new(direct: bool) -> Self {
        Self { types: Types::new(direct), ..Self::default() }
    }

    /// Gives the memory of a program back.
    pub(crate) fn recycle(&mut self, program: Program) {
        self.program = program;
        self.reading.clear();
        self.walk.release();
        // Symbols of one compile only: their ids stay taken, but nothing leads to them any more.
        for index in std::mem::take(&mut self.passing_symbols) {
            if let Some(object) = self.symbols[index].object.take() {
                self.symbol_index.remove(&object.as_ptr());
            }
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
        self.contents.clear();
        self.types.limit();
        self.calls += 1;
        if self.symbols.len() >= SYMBOL_LIMIT {
            self.forget_symbols();
        }
        let names = names(py);
        let fields = [&names.sym, &names.args, &names.kwargs, &names.output, &names.subsymbols, &names.tags];
        let fields = fields.map(Py::as_ptr);
        // SAFETY: a class that `host` keeps alive, and interned strings.
        unsafe {
            if self.types.direct && !self.layout.is_some_and(|layout| layout.is_current()) {
                self.layout = Layout::find(host.bound_symbol.as_ptr().cast(), fields);
            }
        }
        let builder = ProgramBuilder::recycle(std::mem::take(&mut self.program));
        let mut call = Call { py, host, options, builder, fields, returned: Vec::new(), pending: Vec::new(), depth: 0 };
        call.builder.open_top_scope().map_err(invalid)?;
        self.read_scope(&mut call, bound_symbols, true)?;
        while let Some((owner, subsymbols, depth)) = call.pending.pop() {
            if depth > NESTING_LIMIT {
                let message = format!("ops are nested more than {NESTING_LIMIT} deep");
                return Err(host.invalid_trace(py, &message, None, None, "see whether an op contains itself"));
            }
            call.depth = depth;
            self.ask_for_scopes(&call);
            call.builder.open_scope(owner).map_err(invalid)?;
            self.read_scope(&mut call, &subsymbols, false)?;
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
                self.reading.proxies.push(py.None());
                builder.input(unused).map_err(invalid)?;
            }
        }
        if let Some(needed) = options.needed {
            for variable in needed.iter() {
                // The set holds `Variable`s; a name that the trace does not know keeps nothing.
                let proxy = variable.getattr("proxy").unwrap_or(variable);
                self.mark(host, &mut builder, &proxy, ProgramBuilder::output)?;
            }
        }
        if options.full && builder.has_numbers() {
            self.read_shapes(py, host, &mut builder)?;
        }
        builder.finish().map_err(invalid)
    }

    fn read_scope<'py>(&mut self, call: &mut Call<'_, 'py>, list: &Bound<'py, PyAny>, top: bool) -> PyResult<()> {
        let first = call.pending.len();
        if let Ok(list) = list.cast_exact::<PyList>() {
            let mut index = 0;
            // The length is asked each time: code of the user that runs in between could change it.
            while index < list.len() {
                // SAFETY: `index` is below the length.
                let item = unsafe {
                    let items = list.as_ptr();
                    let at = |index: usize| ffi::PyList_GET_ITEM(items, index as ffi::Py_ssize_t);
                    self.ask_ahead(call, index, list.len(), at);
                    Bound::from_borrowed_ptr(call.py, at(index))
                };
                self.read_item(call, item, top)?;
                index += 1;
            }
        } else if let Ok(tuple) = list.cast_exact::<PyTuple>() {
            for item in tuple.iter() {
                self.read_item(call, item, top)?;
            }
        } else {
            for item in list.try_iter()? {
                self.read_item(call, item?, top)?;
            }
        }
        // The stack gives the last one first, the builder wants the first one first.
        call.pending[first..].reverse();
        Ok(())
    }

    /// Asks for the memory that the next bound symbols of a scope are in.
    #[inline]
    unsafe fn ask_ahead(
        &self,
        call: &Call<'_, '_>,
        index: usize,
        len: usize,
        at: impl Fn(usize) -> *mut ffi::PyObject,
    ) {
        if self.layout.is_none() {
            return;
        }
        for (step, distance) in AHEAD.into_iter().enumerate() {
            if index + distance < len {
                self.ask_for_op(call, at(index + distance), step);
            }
        }
    }

    /// Asks for the memory of the scopes that come next: most have one or two ops, too few to
    /// look ahead inside them.
    #[inline]
    fn ask_for_scopes(&self, call: &Call<'_, '_>) {
        if self.layout.is_none() {
            return;
        }
        let list =
            |back: usize| call.pending.get(call.pending.len().checked_sub(back)?).map(|(_, list, _)| list.as_ptr());
        if let Some(list) = list(AHEAD[0] + 2) {
            prefetch(list.cast());
        }
        for (step, distance) in AHEAD.into_iter().enumerate() {
            let Some(list) = list(distance) else { continue };
            // SAFETY: the list is alive; that it is a list and has an item is asked first.
            unsafe {
                if ffi::PyList_CheckExact(list) != 0 && ffi::PyList_GET_SIZE(list) > 0 {
                    self.ask_for_op(call, ffi::PyList_GET_ITEM(list, 0), step);
                }
            }
        }
    }

    /// Asks for the memory of one op: step 0 for the object, 1 for where its attributes are, 2 for
    /// what they point to, 3 for what the first arguments point to.
    ///
    /// # Safety
    /// `item` is alive.
    #[inline]
    unsafe fn ask_for_op(&self, call: &Call<'_, '_>, item: *mut ffi::PyObject, step: usize) {
        if step == 0 {
            prefetch(item.cast::<u8>().wrapping_sub(32));
            prefetch(item.cast());
            return;
        }
        if ffi::Py_TYPE(item).cast() != call.host.bound_symbol.as_ptr() {
            return;
        }
        if step == 1 {
            Layout::<FIELDS>::prefetch_values(item);
            return;
        }
        let Some([_, args, kwargs, output, subsymbols, tags]) =
            self.layout.and_then(|layout| layout.read(item, call.fields))
        else {
            return;
        };
        if step == 2 {
            for part in [args, kwargs, output, subsymbols, tags] {
                prefetch(part.cast());
            }
        } else if ffi::PyTuple_CheckExact(args) != 0 {
            for index in 0..ffi::PyTuple_GET_SIZE(args).min(3) {
                prefetch(ffi::PyTuple_GET_ITEM(args, index).cast());
            }
        }
    }

    fn read_item<'py>(&mut self, call: &mut Call<'_, 'py>, item: Bound<'py, PyAny>, top: bool) -> PyResult<()> {
        let py = call.py;
        // SAFETY: `item` is alive; its attributes are either borrowed from it, and taken as our
        // own before Python code can run, or our own from the start.
        unsafe {
            let usual = item.get_type_ptr().cast() == call.host.bound_symbol.as_ptr();
            if !usual && !item.is_instance(call.host.bound_symbol.bind(py))? {
                let position = call.builder.op_count();
                return Err(call.host.invalid_trace(
                    py,
                    &format!("op {position} is {}, not a BoundSymbol", item.get_type().repr()?),
                    None,
                    None,
                    "pass a trace, or a sequence of bound symbols",
                ));
            }
            let direct =
                if usual { self.layout.and_then(|layout| layout.read(item.as_ptr(), call.fields)) } else { None };
            let parts = match direct {
                Some(parts) => parts,
                None => self.ask_for_parts(&item, call.fields)?,
            };
            let op = self.read_op(call, &item, parts, top)?;
            let subsymbols = parts[4];
            let is_empty = if ffi::PyList_CheckExact(subsymbols) != 0 {
                ffi::PyList_GET_SIZE(subsymbols) == 0
            } else if ffi::PyTuple_CheckExact(subsymbols) != 0 {
                ffi::PyTuple_GET_SIZE(subsymbols) == 0
            } else {
                Bound::from_borrowed_ptr(py, subsymbols).len()? == 0
            };
            if !is_empty {
                call.pending.push((op, Bound::from_borrowed_ptr(py, subsymbols), call.depth + 1));
            }
        }
        self.reading.bound_symbols.push(item.unbind());
        self.walk.release();
        Ok(())
    }

    /// The attributes of a bound symbol by way of `getattr`; the walk keeps them alive.
    #[cold]
    fn ask_for_parts(
        &mut self,
        item: &Bound<'_, PyAny>,
        fields: [*mut ffi::PyObject; FIELDS],
    ) -> PyResult<[*mut ffi::PyObject; FIELDS]> {
        let mut parts = [std::ptr::null_mut(); FIELDS];
        for (part, field) in parts.iter_mut().zip(fields) {
            // SAFETY: the names are interned strings.
            let name = unsafe { Bound::from_borrowed_ptr(item.py(), field).cast_into_unchecked::<PyString>() };
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
        item: &Bound<'_, PyAny>,
        parts: [*mut ffi::PyObject; FIELDS],
        top: bool,
    ) -> PyResult<Op> {
        let py = call.py;
        let [symbol, args, kwargs, output, _, tags] = parts;
        let index = self.symbol(call, symbol, parts)?;
        let KnownSymbol { symbol, flags: symbol_flags, is_scalar, .. } = self.symbols[index];
        let full = call.options.full;
        let mut flags = OpFlags::empty();
        let Self { types, walk, reading, contents, .. } = self;
        walk.set_roots(parts);
        if !full && !top {
            // Inside ops, level "compat" asks only what has an effect and what defines nothing.
            let mut any = AnyProxy(false);
            walk.leaves(py, types, call.host, output, false, &mut any)?;
            flags.set(OpFlags::UNREAD_RESULT, any.0);
            flags |= own_tags(call, walk, tags)?;
            return call.builder.finish_op(symbol, flags).map_err(invalid);
        }
        let mut operands =
            OperandLeaves { builder: &mut call.builder, reading, contents, full, want_literals: is_scalar && full };
        walk.leaves(py, types, call.host, args, false, &mut operands)?;
        if ffi::PyDict_CheckExact(kwargs) == 0 || ffi::PyDict_Size(kwargs) != 0 {
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
        let own_printer = !symbol_flags.contains(SymbolFlags::USUAL_PRINTER);
        if full && (own_printer || symbol_flags.contains(SymbolFlags::EFFECT) || !contents.is_empty()) {
            reading.pin(call, types, walk, contents, symbol_flags)?;
        }
        if top && symbol_flags.contains(SymbolFlags::RETURN) {
            if !reading.has_return {
                let operands = call.builder.open_operands().iter();
                call.returned.extend(operands.filter_map(|operand| operand.value()));
            }
            reading.has_return = true;
        }
        flags |= own_tags(call, walk, tags)?;
        if let Some(effects) = call.options.effects {
            walk.hold_roots(py);
            let said = effects.call1((item,))?;
            if !said.is_none() {
                flags |= if said.is_truthy()? { OpFlags::EFFECT } else { OpFlags::NO_EFFECT };
            }
        }
        call.builder.finish_op(symbol, flags).map_err(invalid)
    }

    /// What is known of a symbol, as an index.
    #[inline]
    unsafe fn symbol(
        &mut self,
        call: &mut Call<'_, '_>,
        object: *mut ffi::PyObject,
        parts: [*mut ffi::PyObject; FIELDS],
    ) -> PyResult<usize> {
        if let Some(&index) = self.symbol_index.get(&object) {
            let known = &mut self.symbols[index];
            if known.checked == self.calls {
                return Ok(index);
            }
            self.walk.set_roots(parts);
            self.walk.hold_roots(call.py);
            if known.tags == tags_of(&Bound::from_borrowed_ptr(call.py, object))? {
                known.checked = self.calls;
                return Ok(index);
            }
        }
        self.walk.set_roots(parts);
        self.walk.hold_roots(call.py);
        self.learn_symbol(call.host, &mut call.builder, &Bound::from_borrowed_ptr(call.py, object))
    }

    #[cold]
    fn learn_symbol(
        &mut self,
        host: &Host,
        builder: &mut ProgramBuilder,
        object: &Bound<'_, PyAny>,
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
            tags: tags_of(object)?,
            checked: self.calls,
        };
        let index = self.symbols.len();
        // A symbol whose tags changed takes a new place; the old one keeps its object until then.
        self.symbol_index.insert(object.as_ptr(), index);
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
        let mut on_leaf = Slowly(|leaf: &Bound<'_, PyAny>, class: Option<ProxyClass>| {
            if let Some(class) = class {
                if let Some(value) = reading.find(leaf, class)? {
                    mark(builder, value).map_err(invalid)?;
                }
            }
            Ok(())
        });
        // SAFETY: `structure` is our own.
        let result = unsafe { walk.leaves(structure.py(), types, host, structure.as_ptr(), true, &mut on_leaf) };
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
            let shape = self.reading.proxies[index].bind(py).getattr(&names(py).own_shape)?;
            let Self { types, walk, reading, .. } = self;
            let mut position = 0;
            let mut mention = Slowly(|leaf: &Bound<'_, PyAny>, class: Option<ProxyClass>| {
                if let Some(class) = class {
                    if let Some(number) = reading.find(leaf, class)? {
                        builder.shape_mention(tensor, position, number).map_err(invalid)?;
                    }
                }
                position += 1;
                Ok(())
            });
            // SAFETY: `shape` is our own.
            unsafe { walk.leaves(py, types, host, shape.as_ptr(), true, &mut mention)? };
            walk.release();
        }
        Ok(())
    }
}

/// The effect that the tags of this very op give it.
///
/// # Safety
/// `tags` is alive, and one of the roots of the walk.
#[inline]
unsafe fn own_tags(call: &Call<'_, '_>, walk: &mut Walk, tags: *mut ffi::PyObject) -> PyResult<OpFlags> {
    if ffi::Py_TYPE(tags) == &raw mut ffi::PySet_Type && ffi::PySet_Size(tags) == 0 {
        return Ok(OpFlags::empty());
    }
    walk.hold_roots(call.py);
    let tagged = Bound::from_borrowed_ptr(call.py, tags).contains(call.host.effect_tag.bind(call.py))?;
    Ok(if tagged { OpFlags::EFFECT } else { OpFlags::empty() })
}

/// Whether there is any proxy among the leaves.
struct AnyProxy(bool);

impl Leaves for AnyProxy {
    #[inline]
    fn take(&mut self, _: &Types, _: *mut ffi::PyObject, class: Option<ProxyClass>) -> bool {
        self.0 |= class.is_some();
        true
    }

    fn ask(&mut self, _: &Host, _: &Bound<'_, PyAny>, _: Option<ProxyClass>) -> PyResult<()> {
        Ok(())
    }
}

/// The leaves of arguments become operands.
struct OperandLeaves<'a> {
    builder: &'a mut ProgramBuilder,
    reading: &'a mut Reading,
    contents: &'a mut Vec<Py<PyAny>>,
    full: bool,
    want_literals: bool,
}

impl Leaves for OperandLeaves<'_> {
    #[inline]
    fn take(&mut self, types: &Types, leaf: *mut ffi::PyObject, class: Option<ProxyClass>) -> bool {
        let Some(class) = class else { return !self.want_literals };
        if class.kind == ProxyKind::Collection && self.full {
            return false;
        }
        let Some(value) = self.reading.value(types, self.builder, leaf, class, self.full) else { return false };
        self.builder.push_operand(value.into());
        true
    }

    fn ask(&mut self, _: &Host, leaf: &Bound<'_, PyAny>, class: Option<ProxyClass>) -> PyResult<()> {
        let operand: Operand = if let Some(class) = class {
            if class.kind == ProxyKind::Collection && self.full {
                self.contents.push(leaf.getattr(&names(leaf.py()).coll)?.unbind());
            }
            self.reading.ask_for_value(self.builder, leaf, class, self.full)?.into()
        } else {
            let number = literal(leaf).unwrap_or_else(|| {
                self.reading.opaque_literals += 1;
                Number::Opaque(self.reading.opaque_literals)
            });
            self.builder.constant(number).map_err(invalid)?.into()
        };
        self.builder.push_operand(operand);
        Ok(())
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
}

impl Reading {
    /// The value that a proxy stands for, if that can be told without running Python code.
    #[inline]
    fn value(
        &mut self,
        types: &Types,
        builder: &mut ProgramBuilder,
        proxy: *mut ffi::PyObject,
        class: ProxyClass,
        full: bool,
    ) -> Option<Value> {
        if let Some(&value) = self.value_of_proxy.get(&proxy) {
            return Some(value);
        }
        if full && class.kind == ProxyKind::Number {
            return None;
        }
        // SAFETY: the interpreter is attached while a trace is read.
        let py = unsafe { Python::assume_attached() };
        let name = types.name_directly(py, proxy, class)?;
        // SAFETY: `name_directly` gives a string, and `proxy` is alive.
        unsafe {
            let key = NameKey::new(py, name);
            let proxy = Bound::from_borrowed_ptr(py, proxy);
            self.learn_value(builder, &proxy, key, kind_of(class), None).ok()
        }
    }

    /// The value that a proxy stands for.
    #[cold]
    fn ask_for_value(
        &mut self,
        builder: &mut ProgramBuilder,
        proxy: &Bound<'_, PyAny>,
        class: ProxyClass,
        full: bool,
    ) -> PyResult<Value> {
        if let Some(&value) = self.value_of_proxy.get(&proxy.as_ptr()) {
            return Ok(value);
        }
        let key = name_of(proxy, class)?;
        let (mut kind, mut hint) = (kind_of(class), None);
        if full && class.kind == ProxyKind::Number {
            let names = names(proxy.py());
            let number_type = type_literal(&proxy.getattr(&names.python_type)?).unwrap_or(NumberType::Other);
            kind = ValueKind::Number(number_type);
            hint = literal(&proxy.getattr(&names.value)?).filter(|hint| !matches!(hint, Number::Type(_)));
        }
        self.learn_value(builder, proxy, key, kind, hint)
    }

    fn learn_value(
        &mut self,
        builder: &mut ProgramBuilder,
        proxy: &Bound<'_, PyAny>,
        key: NameKey,
        kind: ValueKind,
        hint: Option<Number>,
    ) -> PyResult<Value> {
        let value = if let Some(&value) = self.value_of_name.get(&key) {
            self.others.push(proxy.clone().unbind());
            value
        } else {
            let value = builder.value(kind).map_err(invalid)?;
            if let Some(hint) = hint {
                builder.hint(value, hint).map_err(invalid)?;
            }
            self.proxies.push(proxy.clone().unbind());
            self.value_of_name.insert(key, value);
            value
        };
        self.value_of_proxy.insert(proxy.as_ptr(), value);
        Ok(value)
    }

    /// The value that a proxy stands for, if the program has it.
    pub(crate) fn find(&self, proxy: &Bound<'_, PyAny>, class: ProxyClass) -> PyResult<Option<Value>> {
        if let Some(&value) = self.value_of_proxy.get(&proxy.as_ptr()) {
            return Ok(Some(value));
        }
        Ok(self.value_of_name.get(&name_of(proxy, class)?).copied())
    }

    /// Pins what must keep its name: what collections hold, and what ops with an effect or with a
    /// printer of their own make. Values that a collection holds, and that the op does not unpack,
    /// count as read.
    fn pin(
        &mut self,
        call: &mut Call<'_, '_>,
        types: &mut Types,
        walk: &mut Walk,
        contents: &mut Vec<Py<PyAny>>,
        symbol: SymbolFlags,
    ) -> PyResult<()> {
        let own_printer = !symbol.contains(SymbolFlags::USUAL_PRINTER);
        for content in contents.drain(..) {
            let mut held = Vec::new();
            let mut note = Slowly(|leaf: &Bound<'_, PyAny>, class: Option<ProxyClass>| {
                if let Some(class) = class {
                    held.push(self.ask_for_value(&mut call.builder, leaf, class, true)?);
                }
                Ok(())
            });
            // SAFETY: `content` is our own.
            unsafe { walk.leaves(call.py, types, call.host, content.as_ptr(), true, &mut note)? };
            for value in held {
                call.builder.pin(value).map_err(invalid)?;
                if !own_printer && !call.builder.open_results().contains(&value.into()) {
                    call.builder.push_operand(value.into());
                }
            }
        }
        if own_printer || symbol.contains(SymbolFlags::EFFECT) {
            call.builder.pin_open_results().map_err(invalid)?;
        }
        Ok(())
    }
}

fn name_of(proxy: &Bound<'_, PyAny>, class: ProxyClass) -> PyResult<NameKey> {
    let names = names(proxy.py());
    let name = proxy.getattr(if class.usual_name { &names.own_name } else { &names.name })?;
    let name = name
        .cast_into::<PyString>()
        .map_err(|error| PyTypeError::new_err(format!("the name of a proxy is not a string: {error}")))?;
    let hash = name.hash()?;
    Ok(NameKey(name.unbind(), hash))
}

fn kind_of(class: ProxyClass) -> ValueKind {
    match class.kind {
        ProxyKind::Tensor => ValueKind::Tensor,
        ProxyKind::Collection | ProxyKind::Other => ValueKind::Other,
        ProxyKind::Number => ValueKind::Number(NumberType::Other),
    }
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
/// otherwise.
pub(crate) fn literal(object: &Bound<'_, PyAny>) -> Option<Number> {
    if let Ok(flag) = object.cast_exact::<PyBool>() {
        Some(Number::Bool(flag.is_true()))
    } else if object.is_exact_instance_of::<PyInt>() {
        object.extract().ok().map(Number::Int)
    } else if object.is_exact_instance_of::<PyFloat>() {
        object.extract().ok().map(Number::Float)
    } else {
        type_literal(object).map(Number::Type)
    }
}

/// Where the tags of a symbol are and how many.
fn tags_of(symbol: &Bound<'_, PyAny>) -> PyResult<(usize, isize)> {
    let tags = symbol.getattr(&names(symbol.py()).tags)?;
    let len = if tags.is_none() { 0 } else { tags.len()? as isize };
    Ok((tags.as_ptr() as usize, len))
}

/// The builder's refusal as a Python error.
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn invalid(error: shapetrace_core::error::BuildError) -> PyErr {
    pyo3::exceptions::PyOverflowError::new_err(error.to_string())
}
