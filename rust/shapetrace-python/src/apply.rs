//! The edit list becomes a list of bound symbols. Only ops that changed are made anew; all others
//! come back as the very same objects, and nothing that was passed in is written to.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyTuple};
use rustc_hash::FxHashMap;
use shapetrace_core::analysis::effects::Effects;
use shapetrace_core::entity::Entity;
use shapetrace_core::ir::{EditList, Number, NumberType, Op, OpStatus, Operand, Program, Scope, SymbolFlags, Value};

use crate::copies::Changes;
use crate::flatten::{push_children, ProxyKind, Shape};
use crate::host::Host;
use crate::names::names;
use crate::read::Reader;

/// Structures of arguments deeper than this are refused where one must be made anew.
const DEPTH_LIMIT: usize = 500;

/// What takes the place of a leaf (told whether it is a proxy), if anything does.
type Exchange<'f, 'py, A> = dyn FnMut(&mut A, &Bound<'py, PyAny>, bool) -> PyResult<Option<Bound<'py, PyAny>>> + 'f;

pub(crate) struct Applier<'a, 'py> {
    py: Python<'py>,
    host: &'a Host,
    program: &'a Program,
    edits: &'a EditList,
    reader: &'a mut Reader,
    /// Tensors whose shape mentions a replaced number, made anew once.
    reshaped: FxHashMap<Value, Py<PyAny>>,
    /// Ops made anew, for the list that their owner holds.
    rebuilt: FxHashMap<Op, Py<PyAny>>,
}

impl<'a, 'py> Applier<'a, 'py> {
    pub(crate) fn new(
        py: Python<'py>,
        host: &'a Host,
        program: &'a Program,
        edits: &'a EditList,
        reader: &'a mut Reader,
    ) -> Self {
        Self { py, host, program, edits, reader, reshaped: FxHashMap::default(), rebuilt: FxHashMap::default() }
    }

    /// The bound symbols of the top level.
    pub(crate) fn run(&mut self) -> PyResult<Bound<'py, PyList>> {
        if !self.edits.any_changed() {
            return self.list(Scope::TOP);
        }
        // Making an op anew is Python code.
        self.reader.reading.hold(self.py);
        // Innermost scopes first, so that an op finds what is inside it made already.
        for scope in self.program.scopes().rev() {
            let made_anew = match self.program.scope_owner(scope) {
                None => true,
                Some(owner) => self.edits.is_kept(owner) && self.edits.is_changed(owner),
            };
            if made_anew {
                for op in self.program.scope_ops(scope) {
                    if self.edits.is_kept(op) && self.edits.is_changed(op) {
                        let bound_symbol = self.rebuild(op)?;
                        self.rebuilt.insert(op, bound_symbol);
                    }
                }
            }
        }
        self.list(Scope::TOP)
    }

    /// Each op, scope by scope: before, after (none if it is gone), index of the op that owns its
    /// scope (none at the top level), what happened, whether it must stay for an effect.
    pub(crate) fn details(&self, effects: &Effects) -> PyResult<Bound<'py, PyList>> {
        let py = self.py;
        let details = PyList::empty(py);
        for scope in self.program.scopes() {
            let owner = self.program.scope_owner(scope).map(Entity::index);
            for op in self.program.scope_ops(scope) {
                let before = self.reader.reading.bound_symbols.get(py, op.index());
                let (after, word) = match self.edits.status(op) {
                    OpStatus::Removed(reason) => (None, reason.name()),
                    OpStatus::Kept => match self.rebuilt.get(&op) {
                        Some(rebuilt) => (Some(rebuilt.bind(py).clone()), "changed"),
                        None => (Some(before.clone()), "kept"),
                    },
                };
                details.append((before, after, owner, word, effects.has_effect(op)))?;
            }
        }
        Ok(details)
    }

    /// What stands for the numbers that go by another name now: names and literals, by name.
    pub(crate) fn renames(&self) -> PyResult<Bound<'py, PyDict>> {
        let renames = PyDict::new(self.py);
        for value in self.program.values() {
            if let Some(operand) = self.edits.replacement(value) {
                let name = &names(self.py).name;
                let before = self.reader.reading.proxies.get(self.py, value.index()).getattr(name)?;
                let after = match operand.value() {
                    Some(value) => self.reader.reading.proxies.get(self.py, value.index()).getattr(name)?,
                    None => self.operand(operand)?.repr()?.into_any(),
                };
                renames.set_item(before, after)?;
            }
        }
        Ok(renames)
    }

    fn list(&self, scope: Scope) -> PyResult<Bound<'py, PyList>> {
        let originals = &self.reader.reading.bound_symbols;
        let none_rebuilt = self.rebuilt.is_empty();
        // Making a list may run the garbage collector, and that anything: what goes in comes first.
        let mut items = Vec::with_capacity(self.program.scope_range(scope).len());
        for op in self.program.scope_ops(scope).filter(|&op| self.edits.is_kept(op)) {
            let rebuilt = if none_rebuilt { None } else { self.rebuilt.get(&op) };
            items.push(rebuilt.map_or_else(|| originals.get(self.py, op.index()), |op| op.bind(self.py).clone()));
        }
        PyList::new(self.py, items)
    }

    fn rebuild(&mut self, op: Op) -> PyResult<Py<PyAny>> {
        let py = self.py;
        let names = names(py);
        let original = self.reader.reading.bound_symbols.get(py, op.index());
        let mut changes = Changes::default();
        if let Some(rewrite) = self.edits.rewrite(op).copied() {
            changes.sym = Some(self.host.scalar_symbol.bind(py).call1((rewrite.scalar.name(),))?);
            let mut operands = Vec::new();
            for operand in rewrite.operands {
                operands.push(self.operand(operand)?);
            }
            changes.args = Some(PyTuple::new(py, operands)?.into_any());
        } else if self.edits.has_replacements() {
            let mut rename = |applier: &mut Self, leaf: &Bound<'py, PyAny>, is_proxy: bool| {
                if is_proxy {
                    applier.replacement(leaf)
                } else {
                    Ok(None)
                }
            };
            changes.args = self.map(&original.getattr(&names.args)?, &mut rename, 0)?;
            changes.kwargs = self.map(&original.getattr(&names.kwargs)?, &mut rename, 0)?;
        }
        let mut slots = self.program.result_range(op);
        if self.edits.has_replacements() || slots.any(|slot| self.edits.is_dropped(slot)) {
            changes.output = self.output(op, &original.getattr(&names.output)?)?;
        }
        if let Some(scope) = self.program.op_scope(op) {
            let differs = |op: Op| !self.edits.is_kept(op) || self.edits.is_changed(op);
            if self.program.scope_ops(scope).any(differs) {
                changes.subsymbols = Some(self.list(scope)?.into_any());
            }
        }
        Ok(changes.apply(self.host, &original)?.unbind())
    }

    /// The output of an op as it is written from now on, if it is another.
    fn output(&mut self, op: Op, before: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut slot = self.program.result_range(op).start;
        let counts_literals = self.program.symbol_flags(op).contains(SymbolFlags::SHAPE_QUERY);
        let mut write = |applier: &mut Self, leaf: &Bound<'py, PyAny>, is_proxy: bool| {
            let this = slot;
            slot += usize::from(is_proxy || counts_literals);
            if !is_proxy {
                Ok(None)
            } else if applier.edits.is_dropped(this) {
                applier.dropped(leaf).map(Some)
            } else {
                applier.replacement(leaf)
            }
        };
        self.map(before, &mut write, 0)
    }

    /// What stands in a result slot that is no longer written: a number as its value, as thunder
    /// writes it, so that it prints as `_`.
    fn dropped(&self, proxy: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let value = self.reader.reading.value_of(proxy);
        let is_number = value.is_some_and(|value| self.program.value_kind(value).is_number());
        if is_number {
            proxy.getattr(&names(self.py).value)
        } else {
            Ok(self.py.None().into_bound(self.py))
        }
    }

    /// What stands for a proxy from now on, if that is something else.
    fn replacement(&mut self, proxy: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(value) = self.reader.reading.value_of(proxy) else { return Ok(None) };
        if let Some(operand) = self.edits.replacement(value) {
            return self.operand(operand).map(Some);
        }
        if self.edits.is_reshaped(value) {
            return self.reshape(value, proxy).map(Some);
        }
        Ok(None)
    }

    fn operand(&self, operand: Operand) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        if let Some(value) = operand.value() {
            return Ok(self.reader.reading.proxies.get(py, value.index()));
        }
        let constant = operand.constant().expect("an operand is a value or a constant");
        Ok(match self.edits.literal_of(constant) {
            Number::Bool(flag) => PyBool::new(py, flag).to_owned().into_any(),
            Number::Int(int) => int.into_pyobject(py)?.into_any(),
            Number::Float(float) => float.into_pyobject(py)?.into_any(),
            Number::Type(NumberType::Bool) => py.get_type::<PyBool>().into_any(),
            Number::Type(NumberType::Int) => py.get_type::<PyInt>().into_any(),
            Number::Type(NumberType::Float) => py.get_type::<PyFloat>().into_any(),
            other => return Err(self.internal(&format!("the literal {other} has no Python object"))),
        })
    }

    fn internal(&self, message: &str) -> PyErr {
        match self.host.internal_error.call1(self.py, (message,)) {
            Ok(error) => PyErr::from_value(error.into_bound(self.py)),
            Err(error) => error,
        }
    }

    /// A tensor proxy of the same name whose shape speaks of the numbers that are left.
    fn reshape(&mut self, value: Value, proxy: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(made) = self.reshaped.get(&value) {
            return Ok(made.bind(self.py).clone());
        }
        let shape = proxy.getattr(&names(self.py).own_shape)?;
        let mut rename = |applier: &mut Self, leaf: &Bound<'py, PyAny>, is_proxy: bool| {
            if is_proxy {
                applier.number_in_shape(leaf)
            } else {
                Ok(None)
            }
        };
        let shape = self.map(&shape, &mut rename, 0)?.unwrap_or(shape);
        let made = self.host.reshape.bind(self.py).call1((proxy, shape))?;
        self.reshaped.insert(value, made.clone().unbind());
        Ok(made)
    }

    /// A number in a shape: another object than in the ops, perhaps, but of the same name.
    fn number_in_shape(&mut self, proxy: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Shape::Proxy(class) = self.reader.types.shape(self.host, proxy)? else { return Ok(None) };
        if class.kind != ProxyKind::Number {
            return Ok(None);
        }
        match self.reader.reading.find(proxy, class)?.and_then(|value| self.edits.replacement(value)) {
            Some(operand) => self.operand(operand).map(Some),
            None => Ok(None),
        }
    }

    /// A structure with some of its leaves exchanged; none if no leaf was. Leaves come in the
    /// order in which they were read.
    fn map(
        &mut self,
        object: &Bound<'py, PyAny>,
        leaf: &mut Exchange<'_, 'py, Self>,
        depth: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = self.py;
        if depth > DEPTH_LIMIT {
            let message = format!("arguments nested more than {DEPTH_LIMIT} deep cannot be made anew");
            return Err(self.host.invalid_trace(py, &message, None, None, "flatten the arguments of the op"));
        }
        let shape = self.reader.types.shape(self.host, object)?;
        match shape {
            Shape::Literal => leaf(self, object, false),
            Shape::Proxy(_) => leaf(self, object, true),
            Shape::Dict if object.is_exact_instance_of::<PyDict>() => {
                let dict = object.cast::<PyDict>()?;
                let mut copy = None;
                for (key, value) in crate::flatten::sorted_items(dict) {
                    if let Some(value) = self.map(&value, leaf, depth + 1)? {
                        // A copy keeps the order of insertion.
                        let copy = match &copy {
                            Some(copy) => copy,
                            None => copy.insert(dict.copy()?),
                        };
                        copy.set_item(key, value)?;
                    }
                }
                Ok(copy.map(Bound::into_any))
            }
            shape => {
                let mut children = Vec::new();
                push_children(&self.reader.types, self.host, object, shape, &mut children)?;
                let mut changed = false;
                let mut items = Vec::with_capacity(children.len());
                for child in children {
                    let child = child.into_bound(py);
                    match self.map(&child, leaf, depth + 1)? {
                        Some(item) => {
                            changed = true;
                            items.push(item);
                        }
                        None => items.push(child),
                    }
                }
                if !changed {
                    return Ok(None);
                }
                self.make(object, items).map(Some)
            }
        }
    }

    /// A container like `object` with these direct children.
    fn make(&self, object: &Bound<'py, PyAny>, items: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        if object.is_exact_instance_of::<PyTuple>() {
            return Ok(PyTuple::new(py, items)?.into_any());
        }
        if object.is_exact_instance_of::<PyList>() {
            return Ok(PyList::new(py, items)?.into_any());
        }
        self.host.unflatten.bind(py).call1((object, PyList::new(py, items)?))
    }
}

/// Adds a `Variable` for every value that the kept ops of the top level read.
pub(crate) fn fill_needed(
    host: &Host,
    program: &Program,
    edits: &EditList,
    reader: &mut Reader,
    compat: bool,
    needed: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = needed.py();
    reader.reading.hold(py);
    let mut seen = vec![false; program.value_count()];
    let mut add = |value: Value| -> PyResult<()> {
        if !std::mem::replace(&mut seen[value.index()], true) {
            let proxy = reader.reading.proxies.get(py, value.index());
            needed.call_method1("add", (host.variable.bind(py).call1((proxy,))?,))?;
        }
        Ok(())
    };
    for &value in program.outputs() {
        add(value)?;
    }
    for op in program.scope_ops(Scope::TOP).rev() {
        for value in edits.values_needed_by(program, op, compat) {
            add(value)?;
        }
    }
    Ok(())
}
