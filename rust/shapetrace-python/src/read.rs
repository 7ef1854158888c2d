//! A list of bound symbols becomes a program.
//!
//! Every op is read once: its symbol is looked up by address, its arguments and output are walked
//! in place, and the names of proxies are interned. Nested scopes are entered with an explicit
//! stack, in the pre-order that the builder asks for.

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PySet, PyString, PyTuple, PyType};
use pyo3::PyTypeInfo;
use rustc_hash::FxHashMap;
use shapetrace_core::entity::{Entity, PackedOption};
use shapetrace_core::ir::{
    Number, NumberType, Op, OpFlags, Operand, Program, ProgramBuilder, ScalarOp, Symbol, SymbolData, SymbolFlags,
    Value, ValueKind,
};

use crate::flatten::{ProxyClass, ProxyKind, Types, Walk};
use crate::host::Host;
use crate::names::names;

/// So many symbols are remembered before all are forgotten.
const SYMBOL_LIMIT: usize = 4096;

/// One symbol seen before.
struct KnownSymbol {
    symbol: Symbol,
    /// Keeps the address taken.
    object: Py<PyAny>,
    /// What the `tags` of the symbol were: address and length. They are looked at again in every
    /// call, for a tag that was added since must not be missed.
    tags: (usize, isize),
    /// The call in which the tags were looked at last.
    checked: u64,
    /// Whether the symbol is remembered beyond the call.
    keep: bool,
}

/// What reading leaves behind for the rebuild.
#[derive(Default)]
pub(crate) struct Reading {
    /// The bound symbols, by op.
    pub(crate) bound_symbols: Vec<Py<PyAny>>,
    /// The first proxy seen for each value.
    pub(crate) proxies: Vec<Py<PyAny>>,
    /// Values by the address of the proxy; proxies in `proxies` or in the trace keep it taken.
    pub(crate) value_of_proxy: FxHashMap<*mut ffi::PyObject, Value>,
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

impl Reading {
    fn clear(&mut self) {
        self.bound_symbols.clear();
        self.proxies.clear();
        self.value_of_proxy.clear();
        self.value_of_name.clear();
        self.has_return = false;
        self.opaque_literals = 0;
    }
}

/// Reads lists of bound symbols; keeps what it learned of symbols and types for the next.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) types: Types,
    symbols: FxHashMap<*mut ffi::PyObject, KnownSymbol>,
    calls: u64,
    walk: Walk,
    program: Program,
    pub(crate) reading: Reading,
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
}

impl Reader {
    /// Gives the memory of a program back.
    pub(crate) fn recycle(&mut self, program: Program) {
        self.program = program;
        self.reading.clear();
        self.symbols.retain(|_, known| known.keep);
    }

    pub(crate) fn read<'py>(
        &mut self,
        host: &Host,
        bound_symbols: &Bound<'py, PyAny>,
        options: &ReadOptions<'_, 'py>,
    ) -> PyResult<Program> {
        let py = bound_symbols.py();
        self.reading.clear();
        self.calls += 1;
        if self.symbols.len() >= SYMBOL_LIMIT {
            self.symbols.clear();
            self.program = Program::default();
        }
        let mut builder = ProgramBuilder::recycle(std::mem::take(&mut self.program));
        builder.open_top_scope().map_err(invalid)?;
        let mut returned = Vec::new();
        // Scopes still to be read: an op with its subsymbols.
        let mut pending: Vec<(Op, Bound<'py, PyAny>)> = Vec::new();
        self.read_scope(host, &mut builder, bound_symbols, options, true, &mut returned, &mut pending)?;
        while let Some((owner, subsymbols)) = pending.pop() {
            builder.open_scope(owner).map_err(invalid)?;
            self.read_scope(host, &mut builder, &subsymbols, options, false, &mut returned, &mut pending)?;
        }
        for value in returned {
            builder.output(value).map_err(invalid)?;
        }
        if let Some(output) = options.output {
            self.mark_outputs(host, &mut builder, output.clone())?;
        }
        if let Some(needed) = options.needed {
            for variable in needed.iter() {
                // The set holds `Variable`s; a name that the trace does not know keeps nothing.
                let proxy = variable.getattr("proxy").unwrap_or(variable);
                self.mark_outputs(host, &mut builder, proxy)?;
            }
        }
        if options.full && builder.has_numbers() {
            self.read_shapes(py, host, &mut builder)?;
        }
        builder.finish().map_err(invalid)
    }

    #[allow(clippy::too_many_arguments)]
    fn read_scope<'py>(
        &mut self,
        host: &Host,
        builder: &mut ProgramBuilder,
        list: &Bound<'py, PyAny>,
        options: &ReadOptions<'_, 'py>,
        top: bool,
        returned: &mut Vec<Value>,
        pending: &mut Vec<(Op, Bound<'py, PyAny>)>,
    ) -> PyResult<()> {
        let first = pending.len();
        let mut visit = |reader: &mut Self, item: Bound<'py, PyAny>| -> PyResult<()> {
            let op = reader.read_op(host, builder, &item, options, top, returned)?;
            let subsymbols = item.getattr(&names(item.py()).subsymbols)?;
            if subsymbols.len()? > 0 {
                pending.push((op, subsymbols));
            }
            reader.reading.bound_symbols.push(item.unbind());
            Ok(())
        };
        if let Ok(list) = list.cast_exact::<PyList>() {
            for item in list.iter() {
                visit(self, item)?;
            }
        } else if let Ok(tuple) = list.cast_exact::<PyTuple>() {
            for item in tuple.iter() {
                visit(self, item)?;
            }
        } else {
            for item in list.try_iter()? {
                visit(self, item?)?;
            }
        }
        // The stack gives the last one first, the builder wants the first one first.
        pending[first..].reverse();
        Ok(())
    }

    fn read_op<'py>(
        &mut self,
        host: &Host,
        builder: &mut ProgramBuilder,
        item: &Bound<'py, PyAny>,
        options: &ReadOptions<'_, 'py>,
        top: bool,
        returned: &mut Vec<Value>,
    ) -> PyResult<Op> {
        let py = item.py();
        let names = names(py);
        if !item.is_exact_instance(host.bound_symbol.bind(py)) && !item.is_instance(host.bound_symbol.bind(py))? {
            let position = builder.op_count();
            return Err(host.invalid_trace(
                py,
                &format!("op {position} is {}, not a BoundSymbol", item.get_type().repr()?),
                None,
                None,
                "pass a trace, or a sequence of bound symbols",
            ));
        }
        let symbol_object = item.getattr(&names.sym)?;
        let (symbol, data) = self.symbol(host, builder, &symbol_object)?;
        let (symbol_flags, is_scalar) = data;
        let is_query = symbol_flags.contains(SymbolFlags::SHAPE_QUERY);
        let want_literals = is_scalar && options.full;
        let mut flags = OpFlags::empty();
        // Operands.
        let Self { types, walk, reading, .. } = self;
        let mut contents = Vec::new();
        let mut on_operand = |leaf: &Bound<'py, PyAny>, class: Option<ProxyClass>| -> PyResult<()> {
            if let Some(class) = class {
                let value = reading.value(builder, leaf, class, options.full)?;
                builder.push_operand(value.into());
                if class.kind == ProxyKind::Collection && options.full {
                    contents.push(leaf.getattr(&names.coll)?);
                }
            } else if want_literals {
                let number = literal(leaf).unwrap_or_else(|| {
                    reading.opaque_literals += 1;
                    Number::Opaque(reading.opaque_literals)
                });
                let constant = builder.constant(number).map_err(invalid)?;
                builder.push_operand(constant.into());
            }
            Ok(())
        };
        walk.leaves(types, host, item.getattr(&names.args)?, &mut on_operand)?;
        let kwargs = item.getattr(&names.kwargs)?;
        if let Ok(kwargs) = kwargs.cast::<PyDict>() {
            if !kwargs.is_empty() {
                flags |= OpFlags::KEYWORDS;
                walk.leaves(types, host, kwargs.clone().into_any(), &mut on_operand)?;
            }
        }
        // Results.
        let mut leaves = 0;
        let output = item.getattr(&names.output)?;
        let mut on_result = |leaf: &Bound<'py, PyAny>, class: Option<ProxyClass>| -> PyResult<()> {
            leaves += 1;
            if let Some(class) = class {
                let value = reading.value(builder, leaf, class, options.full)?;
                builder.push_result(value.into());
            } else {
                flags |= OpFlags::LITERAL_RESULT;
                if is_query {
                    builder.push_result(PackedOption::NONE);
                }
            }
            Ok(())
        };
        if output.is_none() {
            flags |= OpFlags::LITERAL_RESULT;
        } else {
            walk.leaves(types, host, output, &mut on_result)?;
            if leaves == 0 {
                flags |= OpFlags::EMPTY_RESULT;
            }
        }
        if options.full {
            reading.pin(builder, host, types, walk, contents, symbol_flags)?;
        }
        if top && symbol_flags.contains(SymbolFlags::RETURN) {
            if !reading.has_return {
                returned.extend(builder.open_operands().iter().filter_map(|operand| operand.value()));
            }
            reading.has_return = true;
        }
        // Tags of this very op.
        let tags = item.getattr(&names.tags)?;
        if let Ok(tags) = tags.cast::<PySet>() {
            if !tags.is_empty() && tags.contains(host.effect_tag.bind(py))? {
                flags |= OpFlags::EFFECT;
            }
        }
        if let Some(effects) = options.effects {
            let said = effects.call1((item,))?;
            if !said.is_none() {
                flags |= if said.is_truthy()? { OpFlags::EFFECT } else { OpFlags::NO_EFFECT };
            }
        }
        builder.finish_op(symbol, flags).map_err(invalid)
    }

    /// The id of a symbol, with its flags and whether it is arithmetic.
    fn symbol(
        &mut self,
        host: &Host,
        builder: &mut ProgramBuilder,
        object: &Bound<'_, PyAny>,
    ) -> PyResult<(Symbol, (SymbolFlags, bool))> {
        let calls = self.calls;
        if let Some(known) = self.symbols.get_mut(&object.as_ptr()) {
            if known.checked == calls || known.tags == tags_of(object)? {
                known.checked = calls;
                let data = builder.symbol_data(known.symbol);
                return Ok((known.symbol, (data.flags, data.scalar.is_some())));
            }
        }
        self.learn_symbol(host, builder, object)
    }

    #[cold]
    fn learn_symbol(
        &mut self,
        host: &Host,
        builder: &mut ProgramBuilder,
        object: &Bound<'_, PyAny>,
    ) -> PyResult<(Symbol, (SymbolFlags, bool))> {
        let facts = host.symbol_facts.bind(object.py()).call1((object,))?;
        let (name, bits, scalar, keep): (String, u16, Option<String>, bool) = facts.extract()?;
        let flags = SymbolFlags::from_bits_truncate(bits);
        let scalar = scalar.as_deref().and_then(ScalarOp::from_name);
        let symbol = builder.symbol(SymbolData { name, flags, scalar }).map_err(invalid)?;
        let known =
            KnownSymbol { symbol, object: object.clone().unbind(), tags: tags_of(object)?, checked: self.calls, keep };
        debug_assert!(known.object.as_ptr() == object.as_ptr());
        self.symbols.insert(object.as_ptr(), known);
        Ok((symbol, (flags, scalar.is_some())))
    }

    fn mark_outputs<'py>(
        &mut self,
        host: &Host,
        builder: &mut ProgramBuilder,
        output: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let Self { types, walk, reading, .. } = self;
        walk.leaves(types, host, output, &mut |leaf, class| {
            if let Some(class) = class {
                if let Some(value) = reading.find(leaf, class)? {
                    builder.output(value).map_err(invalid)?;
                }
            }
            Ok(())
        })
    }

    /// Which numbers stand in the shapes of tensors. A shape is looked at once a tensor.
    fn read_shapes(&mut self, py: Python<'_>, host: &Host, builder: &mut ProgramBuilder) -> PyResult<()> {
        for index in 0..self.reading.proxies.len() {
            let tensor = Value::from_index(index);
            if builder.value_kind(tensor) != ValueKind::Tensor {
                continue;
            }
            let proxy = self.reading.proxies[index].bind(py).clone();
            let shape = proxy.getattr(&names(py)._shape)?;
            let Self { types, walk, reading, .. } = self;
            let mut position = 0;
            walk.leaves(types, host, shape, &mut |leaf, class| {
                if let Some(class) = class {
                    if let Some(number) = reading.find(leaf, class)? {
                        builder.shape_mention(tensor, position, number).map_err(invalid)?;
                    }
                }
                position += 1;
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl Reading {
    /// The value that a proxy stands for.
    #[inline]
    fn value(
        &mut self,
        builder: &mut ProgramBuilder,
        proxy: &Bound<'_, PyAny>,
        class: ProxyClass,
        full: bool,
    ) -> PyResult<Value> {
        if let Some(&value) = self.value_of_proxy.get(&proxy.as_ptr()) {
            return Ok(value);
        }
        self.learn_value(builder, proxy, class, full)
    }

    fn learn_value(
        &mut self,
        builder: &mut ProgramBuilder,
        proxy: &Bound<'_, PyAny>,
        class: ProxyClass,
        full: bool,
    ) -> PyResult<Value> {
        let key = name_of(proxy, class)?;
        let value = if let Some(&value) = self.value_of_name.get(&key) {
            value
        } else {
            let (kind, hint) = kind_of(proxy, class, full)?;
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
    /// printer of their own make. Numbers and tensors that a collection holds, and that the op
    /// does not make itself, count as read.
    fn pin<'py>(
        &mut self,
        builder: &mut ProgramBuilder,
        host: &Host,
        types: &mut Types,
        walk: &mut Walk,
        contents: Vec<Bound<'py, PyAny>>,
        symbol: SymbolFlags,
    ) -> PyResult<()> {
        let mut held = Vec::new();
        for content in contents {
            walk.leaves(types, host, content, &mut |leaf, class| {
                if let Some(class) = class {
                    held.push(self.value(builder, leaf, class, true)?);
                }
                Ok(())
            })?;
        }
        for value in held {
            builder.pin(value).map_err(invalid)?;
            let unpacks = !symbol.contains(SymbolFlags::USUAL_PRINTER);
            if !unpacks && !builder.open_results().contains(&value.into()) {
                builder.push_operand(Operand::from(value));
            }
        }
        if symbol.contains(SymbolFlags::EFFECT) || !symbol.contains(SymbolFlags::USUAL_PRINTER) {
            builder.pin_open_results().map_err(invalid)?;
        }
        Ok(())
    }
}

fn name_of(proxy: &Bound<'_, PyAny>, class: ProxyClass) -> PyResult<NameKey> {
    let names = names(proxy.py());
    let name = proxy.getattr(if class.usual_name { &names._name } else { &names.name })?;
    let name = name
        .cast_into::<PyString>()
        .map_err(|error| PyTypeError::new_err(format!("the name of a proxy is not a string: {error}")))?;
    let hash = name.hash()?;
    Ok(NameKey(name.unbind(), hash))
}

fn kind_of(proxy: &Bound<'_, PyAny>, class: ProxyClass, full: bool) -> PyResult<(ValueKind, Option<Number>)> {
    match class.kind {
        ProxyKind::Tensor => Ok((ValueKind::Tensor, None)),
        ProxyKind::Collection | ProxyKind::Other => Ok((ValueKind::Other, None)),
        ProxyKind::Number if !full => Ok((ValueKind::Number(NumberType::Other), None)),
        ProxyKind::Number => {
            let names = names(proxy.py());
            let number_type = type_literal(&proxy.getattr(&names.python_type)?).unwrap_or(NumberType::Other);
            let hint = literal(&proxy.getattr(&names.value)?).filter(|hint| !matches!(hint, Number::Type(_)));
            Ok((ValueKind::Number(number_type), hint))
        }
    }
}

fn type_literal(object: &Bound<'_, PyAny>) -> Option<NumberType> {
    let py = object.py();
    let class = object.cast::<PyType>().ok()?;
    Some(if class.is(&PyBool::type_object(py)) {
        NumberType::Bool
    } else if class.is(&PyInt::type_object(py)) {
        NumberType::Int
    } else if class.is(&PyFloat::type_object(py)) {
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
