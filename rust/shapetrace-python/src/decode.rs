//! Plain data becomes objects of a trace again.
//!
//! The Python side makes what is no container; parts are made before wholes. A node is made once,
//! unless it can change (lists, dictionaries, sets, and what holds one): those are made anew for
//! every mention, as they were before they were written down.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyList, PyString, PyTuple};
use shapetrace_core::entity::Entity;
use shapetrace_core::ir::{Program, Scope};
use shapetrace_format::{HostData, Node, NodeId};

use crate::encode::NO_INPUTS;
use crate::file::file_error;

/// The functions of `shapetrace_rs.files.restore`.
pub(crate) struct Restorer {
    /// `(word, arguments) -> object`
    object: Py<PyAny>,
    /// `(class, name, state) -> proxy`
    proxy: Py<PyAny>,
    /// `(symbol, args, kwargs, output, subsymbols, details) -> bound symbol`
    bound_symbol: Py<PyAny>,
    /// What no text may have in it: it is more than a text to the printer.
    quote_marker: String,
}

impl Restorer {
    pub(crate) fn from_python(restorer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let get = |name: &str| restorer.getattr(name).map(Bound::unbind);
        Ok(Self {
            object: get("object")?,
            proxy: get("proxy")?,
            bound_symbol: get("bound_symbol")?,
            quote_marker: restorer.getattr("quote_marker")?.extract()?,
        })
    }
}

/// The ops of the top level, the state of the trace, and the names that are taken.
pub(crate) type Restored<'py> = (Bound<'py, PyList>, Bound<'py, PyAny>, Vec<String>);

/// Makes the objects of a file.
pub(crate) fn decode<'py>(
    py: Python<'py>,
    program: &Program,
    host: &HostData,
    restorer: &Restorer,
) -> PyResult<Restored<'py>> {
    let mut decoder = Decoder::new(py, host, restorer);
    let mut names: Vec<String> =
        program.values().map(|value| program.value_name(value).into_owned()).filter(|name| name != NO_INPUTS).collect();
    let trace = decoder.build(host.trace)?.cast_into::<PyDict>().map_err(|_| {
        let message = "the state of the trace is no dictionary";
        file_error(py, message)
    })?;
    if let Some(others) = trace.get_item("names")? {
        names.extend(others.extract::<&str>()?.split_whitespace().map(str::to_owned));
        trace.del_item("names")?;
    }
    let mut made: Vec<Option<Bound<'py, PyAny>>> = vec![None; program.op_count()];
    // Innermost scopes first: an op is made of the ops inside it.
    for scope in program.scopes().rev() {
        for op in program.scope_ops(scope) {
            let inside = PyList::empty(py);
            if let Some(scope) = program.op_scope(op) {
                for op in program.scope_ops(scope) {
                    inside.append(made[op.index()].take())?;
                }
            }
            let host_op = &host.ops[op.index()];
            let bound_symbol = restorer.bound_symbol.bind(py).call1((
                decoder.build(host.symbols[program.symbol_id(op).index()])?,
                decoder.build(host_op.args)?,
                decoder.build(host_op.kwargs)?,
                decoder.build(host_op.output)?,
                inside,
                decoder.build(host_op.details)?,
            ))?;
            made[op.index()] = Some(bound_symbol);
        }
    }
    let top = PyList::empty(py);
    for op in program.scope_ops(Scope::TOP) {
        top.append(made[op.index()].take())?;
    }
    Ok((top, trace.into_any(), names))
}

struct Decoder<'a, 'py> {
    py: Python<'py>,
    host: &'a HostData,
    restorer: &'a Restorer,
    made: Vec<Option<Bound<'py, PyAny>>>,
    /// Nodes that are made anew for every mention.
    fresh: Vec<bool>,
}

impl<'a, 'py> Decoder<'a, 'py> {
    fn new(py: Python<'py>, host: &'a HostData, restorer: &'a Restorer) -> Self {
        let mut fresh = Vec::with_capacity(host.nodes.len());
        for (_, node) in host.nodes.iter() {
            let changes = match node {
                Node::List(_) | Node::Dict(_) => true,
                Node::Object(parts) if matches!(host.nodes.as_text(parts[0]), Some("set" | "OrderedDict")) => true,
                Node::Proxy(..) => false,
                node => node.children().iter().any(|child| fresh[child.index()]),
            };
            fresh.push(changes);
        }
        Self { py, host, restorer, made: vec![None; host.nodes.len()], fresh }
    }

    /// Nodes are nested at most `DEPTH_LIMIT` deep, and so is this function.
    fn build(&mut self, id: NodeId) -> PyResult<Bound<'py, PyAny>> {
        if let Some(made) = &self.made[id.index()] {
            return Ok(made.clone());
        }
        let py = self.py;
        let host = self.host;
        let object = match host.nodes.get(id) {
            Node::None => py.None().into_bound(py),
            Node::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
            Node::Int(int) => int.into_pyobject(py)?.into_any(),
            Node::BigInt(digits) => {
                let class = py.get_type::<pyo3::types::PyInt>();
                class.call1((&**digits,)).map_err(|error| file_error(py, &format!("an integer: {error}")))?
            }
            Node::Float(bits) => PyFloat::new(py, f64::from_bits(*bits)).into_any(),
            // Interned: names of attributes and of values come up again and again.
            Node::Text(text) if text.contains(&*self.restorer.quote_marker) => {
                let message =
                    format!("a text has {} in it, which becomes code where it is printed", self.restorer.quote_marker);
                return Err(file_error(py, &message));
            }
            Node::Text(text) => PyString::intern(py, text).into_any(),
            Node::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
            Node::Tuple(parts) => self.tuple(parts)?.into_any(),
            Node::List(parts) => {
                let list = PyList::empty(py);
                for &part in parts {
                    list.append(self.build(part)?)?;
                }
                list.into_any()
            }
            Node::Dict(parts) => {
                let dict = PyDict::new(py);
                for pair in parts.chunks_exact(2) {
                    let (key, value) = (self.build(pair[0])?, self.build(pair[1])?);
                    dict.set_item(key, value).map_err(|error| file_error(py, &format!("a key: {error}")))?;
                }
                dict.into_any()
            }
            Node::Object(parts) => {
                let arguments = self.tuple(&parts[1..])?;
                self.restorer.object.bind(py).call1((host.nodes.as_text(parts[0]), arguments))?
            }
            Node::Proxy(_, parts) => {
                let [class, name, state] = **parts else {
                    return Err(file_error(py, "a proxy has a class, a name and a state"));
                };
                let (name, state) = (self.build(name)?, self.build(state)?);
                self.restorer.proxy.bind(py).call1((host.nodes.as_text(class), name, state))?
            }
        };
        if !self.fresh[id.index()] {
            self.made[id.index()] = Some(object.clone());
        }
        Ok(object)
    }

    fn tuple(&mut self, parts: &[NodeId]) -> PyResult<Bound<'py, PyTuple>> {
        let parts = parts.iter().map(|&part| self.build(part)).collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(self.py, parts)
    }
}
