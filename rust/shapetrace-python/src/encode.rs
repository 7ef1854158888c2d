//! Objects of a trace become plain data.
//!
//! Containers of Python's own are walked here. For everything else the Python side is asked, once
//! per object: it gives a word and arguments, or refuses.

use pyo3::exceptions::PyRecursionError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use rustc_hash::{FxHashMap, FxHashSet};
use shapetrace_core::entity::PackedOption;
use shapetrace_core::ir::{Program, Value};
use shapetrace_format::model::DEPTH_LIMIT;
use shapetrace_format::{HostData, HostOp, Node, NodeId, Nodes, TraceFile};

use crate::file::{file_error, format_error};
use crate::flatten::{ProxyClass, Shape};
use crate::host::Host;
use crate::names::names;
use crate::read::Reader;

/// The functions of `shapetrace_rs.files.describe`.
pub(crate) struct Describer {
    /// `(object) -> (word, arguments)`
    object: Py<PyAny>,
    /// `(proxy) -> (class, name, state)`
    proxy: Py<PyAny>,
    /// `(symbol) -> (word, *where it is found)`
    symbol: Py<PyAny>,
    /// `(bound symbol) -> what is particular of it`
    details: Py<PyAny>,
    /// What they raise for an object that cannot be kept
    not_plain: Py<PyAny>,
    /// `(error, bound symbol or None) -> error to raise`
    refuse: Py<PyAny>,
}

impl Describer {
    pub(crate) fn from_python(describer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let get = |name: &str| describer.getattr(name).map(Bound::unbind);
        Ok(Self {
            object: get("object")?,
            proxy: get("proxy")?,
            symbol: get("symbol")?,
            details: get("details")?,
            not_plain: get("not_plain")?,
            refuse: get("refuse")?,
        })
    }
}

/// What a trace has beside its ops.
pub(crate) struct Around<'py> {
    /// Versions, for people.
    pub(crate) about: Bound<'py, PyAny>,
    /// The state of the trace: a dictionary.
    pub(crate) trace: Bound<'py, PyDict>,
    /// All names that are taken.
    pub(crate) names: Vec<String>,
}

/// Makes a file of a program and of the objects that it was read from.
pub(crate) fn encode(
    py: Python<'_>,
    host: &Host,
    describer: &Describer,
    reader: &mut Reader,
    mut program: Program,
    around: &Around<'_>,
) -> PyResult<TraceFile> {
    reader.reading.hold(py);
    let value_names = names_of_values(py, reader)?;
    let known: FxHashSet<&str> = value_names.iter().map(String::as_str).collect();
    let mut other_names: Vec<&str> =
        around.names.iter().map(String::as_str).filter(|name| !known.contains(name)).collect();
    other_names.sort_unstable();
    let old_symbols = program.renumber_symbols();
    let mut encoder = Encoder {
        py,
        host,
        describer,
        reader,
        nodes: Nodes::default(),
        memory: FxHashMap::default(),
        kept: Vec::new(),
    };
    let symbols = encoder.symbols(&program, old_symbols.len())?;
    let mut ops = Vec::with_capacity(program.op_count());
    for index in 0..program.op_count() {
        let bound_symbol = encoder.reader.reading.bound_symbols.get(py, index);
        let op = encoder.op(&bound_symbol).map_err(|error| encoder.refused(error, Some(&bound_symbol)))?;
        ops.push(op);
    }
    let state = around.trace.copy()?;
    // One text: names have no spaces in them, for they are identifiers.
    state.set_item("names", other_names.join(" "))?;
    let trace = encoder.encode(&state, 0).map_err(|error| encoder.refused(error, None))?;
    let about = encoder.encode(&around.about, 0)?;
    let nodes = encoder.nodes;
    program.name_values(value_names);
    let file = TraceFile { program, host: Some(HostData { nodes, about, trace, symbols, ops }) };
    file.check().map_err(|error| format_error(py, &error))?;
    Ok(file)
}

/// The name of what says that a trace takes nothing.
pub(crate) const NO_INPUTS: &str = "(nothing)";

fn names_of_values(py: Python<'_>, reader: &Reader) -> PyResult<Vec<String>> {
    let name = |proxy: Bound<'_, PyAny>| {
        if proxy.is_none() {
            return Ok(NO_INPUTS.to_owned());
        }
        proxy.getattr(&names(py).name)?.extract()
    };
    let proxies = &reader.reading.proxies;
    (0..proxies.len()).map(|index| name(proxies.get(py, index))).collect()
}

struct Encoder<'a, 'py> {
    py: Python<'py>,
    host: &'a Host,
    describer: &'a Describer,
    reader: &'a mut Reader,
    nodes: Nodes,
    /// Objects that were asked for already; none while one is being described.
    memory: FxHashMap<*mut ffi::PyObject, Option<NodeId>>,
    /// Keeps their addresses taken.
    kept: Vec<Py<PyAny>>,
}

impl<'py> Encoder<'_, 'py> {
    fn refused(&self, error: PyErr, bound_symbol: Option<&Bound<'py, PyAny>>) -> PyErr {
        if !error.matches(self.py, self.describer.not_plain.bind(self.py)).unwrap_or(false) {
            return error;
        }
        match self.describer.refuse.call1(self.py, (error.value(self.py), bound_symbol)) {
            Ok(error) => PyErr::from_value(error.into_bound(self.py)),
            Err(error) => error,
        }
    }

    /// How each symbol is found, from the first op that applies it.
    fn symbols(&mut self, program: &Program, count: usize) -> PyResult<Vec<NodeId>> {
        let py = self.py;
        let mut symbols = Vec::with_capacity(count);
        for op in program.ops() {
            // Symbols are numbered by their first use.
            if shapetrace_core::entity::Entity::index(program.symbol_id(op)) == symbols.len() {
                let index = shapetrace_core::entity::Entity::index(op);
                let bound_symbol = self.reader.reading.bound_symbols.get(py, index);
                let symbol = bound_symbol.getattr(&names(py).sym)?;
                let place = self
                    .describer
                    .symbol
                    .bind(py)
                    .call1((symbol,))
                    .map_err(|error| self.refused(error, Some(&bound_symbol)))?;
                let mut parts = Vec::new();
                for part in place.cast::<PyTuple>()? {
                    parts.push(self.encode(&part, 0)?);
                }
                symbols.push(self.add(Node::Object(parts.into()))?);
            }
        }
        Ok(symbols)
    }

    fn op(&mut self, bound_symbol: &Bound<'py, PyAny>) -> PyResult<HostOp> {
        let py = self.py;
        let names = names(py);
        let args = self.encode(&bound_symbol.getattr(&names.args)?, 0)?;
        let kwargs = self.encode(&bound_symbol.getattr(&names.kwargs)?, 0)?;
        let output = self.encode(&bound_symbol.getattr(&names.output)?, 0)?;
        let details = self.describer.details.bind(py).call1((bound_symbol,))?.cast_into::<PyDict>()?;
        let filename = bound_symbol.getattr(&names.source_filename)?;
        if !filename.is_none() {
            let positions = bound_symbol.getattr(&names.source_positions)?;
            details.set_item("source", (filename, positions))?;
        }
        if bound_symbol.getattr(&names.subsymbols)?.is_exact_instance_of::<PyTuple>() {
            details.set_item("subsymbols", "tuple")?;
        }
        let details = self.encode(&details, 0)?;
        Ok(HostOp { args, kwargs, output, details })
    }

    fn add(&mut self, node: Node) -> PyResult<NodeId> {
        self.nodes.add(node).map_err(|error| format_error(self.py, &error))
    }

    fn encode(&mut self, object: &Bound<'py, PyAny>, depth: u32) -> PyResult<NodeId> {
        if depth > DEPTH_LIMIT {
            let message = format!("something nested more than {DEPTH_LIMIT} deep, or inside itself,");
            return Err(self.not_plain(&message));
        }
        if let Some(leaf) = leaf(object)? {
            return self.add(leaf);
        }
        if let Ok(tuple) = object.cast_exact::<PyTuple>() {
            let parts = self.parts(tuple.iter(), depth)?;
            return self.add(Node::Tuple(parts));
        }
        if let Ok(list) = object.cast_exact::<PyList>() {
            let parts = self.parts(list.iter(), depth)?;
            return self.add(Node::List(parts));
        }
        if let Ok(dict) = object.cast_exact::<PyDict>() {
            let items: Vec<_> = dict.iter().flat_map(|(key, value)| [key, value]).collect();
            let parts = self.parts(items.into_iter(), depth)?;
            return self.add(Node::Dict(parts));
        }
        if let Some(&known) = self.memory.get(&object.as_ptr()) {
            return known.ok_or_else(|| self.not_plain("something that is a part of itself"));
        }
        self.memory.insert(object.as_ptr(), None);
        self.kept.push(object.clone().unbind());
        let id = if let Shape::Proxy(class) = self.reader.types.shape(self.host, object)? {
            self.proxy(object, class, depth)?
        } else {
            let described = self.describer.object.bind(self.py).call1((object,))?;
            let (word, arguments): (Bound<'py, PyAny>, Bound<'py, PyTuple>) = described.extract()?;
            let parts = std::iter::once(word).chain(arguments.iter());
            let parts = self.parts(parts, depth)?;
            self.add(Node::Object(parts))?
        };
        self.memory.insert(object.as_ptr(), Some(id));
        Ok(id)
    }

    fn parts(&mut self, parts: impl Iterator<Item = Bound<'py, PyAny>>, depth: u32) -> PyResult<Box<[NodeId]>> {
        parts.map(|part| self.encode(&part, depth + 1)).collect()
    }

    fn proxy(&mut self, proxy: &Bound<'py, PyAny>, class: ProxyClass, depth: u32) -> PyResult<NodeId> {
        let value: PackedOption<Value> = self.reader.reading.find(proxy, class)?.into();
        let described = self.describer.proxy.bind(self.py).call1((proxy,))?;
        let parts = self.parts(described.cast::<PyTuple>()?.iter(), depth)?;
        self.add(Node::Proxy(value, parts))
    }

    #[cold]
    fn not_plain(&self, message: &str) -> PyErr {
        match self.describer.not_plain.call1(self.py, (message,)) {
            Ok(error) => PyErr::from_value(error.into_bound(self.py)),
            Err(error) => error,
        }
    }
}

/// What has no parts and is of one of Python's own types, exactly.
fn leaf(object: &Bound<'_, PyAny>) -> PyResult<Option<Node>> {
    Ok(Some(if object.is_none() {
        Node::None
    } else if let Ok(flag) = object.cast_exact::<PyBool>() {
        Node::Bool(flag.is_true())
    } else if object.is_exact_instance_of::<PyInt>() {
        match object.extract() {
            Ok(int) => Node::Int(int),
            // Hexadecimal first: Python refuses to write very long ones in decimal.
            Err(_) => Node::BigInt(big_int(object)?.into()),
        }
    } else if let Ok(float) = object.cast_exact::<PyFloat>() {
        Node::Float(float.value().to_bits())
    } else if let Ok(text) = object.cast_exact::<PyString>() {
        match text.to_str() {
            Ok(text) => Node::Text(text.into()),
            Err(_) => return Err(file_error(object.py(), "a text holds half a surrogate pair, which is no text")),
        }
    } else if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        Node::Bytes(bytes.as_bytes().into())
    } else {
        return Ok(None);
    }))
}

fn big_int(int: &Bound<'_, PyAny>) -> PyResult<String> {
    let digits = int.str().map_err(|error| {
        let message = format!("an integer is too long to be written down: {error}");
        PyRecursionError::new_err(message)
    })?;
    Ok(digits.to_str()?.to_owned())
}
