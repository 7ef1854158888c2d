//! Trace files, for Python.

use std::panic::{catch_unwind, AssertUnwindSafe};

use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict};
use shapetrace_core::entity::Entity;
use shapetrace_core::ir::{Op, OpStatus, Scope};
use shapetrace_core::passes::{Context, Level, Options};
use shapetrace_core::text::{op_lines_within, print_within};
use shapetrace_core::verifier::{verify_form, Form};
use shapetrace_format::binary::{self, Limits};
use shapetrace_format::difference::{difference, Difference};
use shapetrace_format::statistics::statistics;
use shapetrace_format::{optimize, text, FormatError, HostData, Node, NodeId, TraceFile as Contents};

use crate::decode::{decode, Restored, Restorer};
use crate::optimizer::panic_message;

/// Neither form of a file has more bytes.
pub(crate) fn max_file_bytes() -> u64 {
    Limits::default().file_bytes.max(text::MAX_SOURCE_BYTES as u64)
}

/// So many characters of the line of an op go into what the verifier finds.
const LONGEST_LINE: usize = 1_000;

/// A `TraceFileError`.
pub(crate) fn file_error(py: Python<'_>, message: &str) -> PyErr {
    let error = py
        .import("shapetrace_rs.errors")
        .and_then(|errors| errors.getattr("TraceFileError"))
        .and_then(|class| class.call1((message,)));
    match error {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// The error of the format as a Python error.
pub(crate) fn format_error(py: Python<'_>, error: &FormatError) -> PyErr {
    file_error(py, &error.to_string())
}

fn internal_error(py: Python<'_>, panic: &(dyn std::any::Any + Send)) -> PyErr {
    let error = py
        .import("shapetrace_rs.errors")
        .and_then(|errors| errors.getattr("InternalError"))
        .and_then(|class| class.call1((format!("working on a trace file panicked: {}", panic_message(panic)),)));
    match error {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// Runs without the interpreter, and turns a panic into an `InternalError`.
fn guarded<T: Send>(py: Python<'_>, run: impl FnOnce() -> Result<T, String> + Send) -> PyResult<T> {
    match py.detach(|| catch_unwind(AssertUnwindSafe(run))) {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(message)) => Err(file_error(py, &message)),
        Err(panic) => Err(internal_error(py, panic.as_ref())),
    }
}

fn too_much_text() -> String {
    format!("the text would have more than {} bytes", text::MAX_SOURCE_BYTES)
}

/// Cuts off what nobody reads of the line of an op.
fn shorten(line: &mut String) {
    if let Some((end, _)) = line.char_indices().nth(LONGEST_LINE) {
        line.truncate(end);
        line.push_str(" ...");
    }
}

/// A program and, if it was a trace of thunder, what thunder needs beside it.
#[pyclass(frozen, module = "shapetrace_rs._core")]
pub(crate) struct TraceFile {
    pub(crate) contents: Contents,
}

/// One op that went: its line, its reason, and where it is from.
type Removal = (String, &'static str, Option<String>);

/// What the verifier found: kind, message, line of the op, name of the value, line of the owner,
/// and where the op is from.
type Finding = (&'static str, String, Option<String>, Option<String>, Option<String>, Option<String>);

#[pymethods]
impl TraceFile {
    /// Reads either form. Bytes that are neither are taken for text, and the error says so.
    #[staticmethod]
    fn read(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        let contents = guarded(py, || {
            if data.is_empty() {
                return Err("the file is empty".to_owned());
            }
            if binary::is_binary(data) {
                return binary::read(data, &Limits::default()).map_err(|error| error.to_string());
            }
            let source = std::str::from_utf8(data)
                .map_err(|error| format!("neither a trace file nor text: byte {} is not UTF-8", error.valid_up_to()))?;
            text::parse(source).map_err(|error| error.to_string())
        })?;
        Ok(Self { contents })
    }

    /// The small form.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = guarded(py, || binary::write(&self.contents).map_err(|error| error.to_string()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The form to read; with the program alone if `host` is false.
    #[pyo3(signature = (host=true))]
    fn to_text(&self, py: Python<'_>, host: bool) -> PyResult<String> {
        guarded(py, || {
            if !host {
                let text = print_within(&self.contents.program, text::MAX_SOURCE_BYTES);
                return text.ok_or_else(too_much_text);
            }
            text::print_within(&self.contents, text::MAX_SOURCE_BYTES).map_err(|error| error.to_string())
        })
    }

    /// Whether a thunder trace can be made of it.
    #[getter]
    fn has_host_data(&self) -> bool {
        self.contents.host.is_some()
    }

    /// Whether nothing says which values are needed, so that nothing can be removed.
    #[getter]
    fn lacks_return(&self) -> bool {
        optimize::lacks_return(&self.contents.program)
    }

    /// The ops at the top level, and those inside others.
    #[getter]
    fn op_counts(&self) -> (usize, usize) {
        let program = &self.contents.program;
        let top_level = program.scope_ops(Scope::TOP).len();
        (top_level, program.op_count() - top_level)
    }

    /// Who wrote it: names and versions.
    #[getter]
    fn about<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let about = PyDict::new(py);
        if let Some(host) = &self.contents.host {
            for pair in host.nodes.get(host.about).children().chunks_exact(2) {
                if let (Some(name), Some(version)) = (host.nodes.as_text(pair[0]), host.nodes.as_text(pair[1])) {
                    about.set_item(name, version)?;
                }
            }
        }
        Ok(about)
    }

    /// The file optimized, and what went.
    #[pyo3(signature = (*, level, keep_random=false, keep_shape_numbers=false, floor_division=true))]
    fn optimize(
        &self,
        py: Python<'_>,
        level: &str,
        keep_random: bool,
        keep_shape_numbers: bool,
        floor_division: bool,
    ) -> PyResult<(Self, Vec<Removal>)> {
        let Some(level) = Level::from_name(level) else {
            let message = format!("level is 'full' or 'compat', not {level:?}");
            return Err(pyo3::exceptions::PyValueError::new_err(message));
        };
        let program = &self.contents.program;
        if optimize::lacks_return(program) {
            let message = "the trace has no return, so nothing says which values are needed";
            return Err(file_error(py, message));
        }
        let options = Options { keep_random, keep_shape_numbers, floor_division };
        guarded(py, || {
            let mut context = Context::default();
            let contents =
                optimize::optimize(&self.contents, &mut context, level, &options).map_err(|error| error.to_string())?;
            let sources = self.sources();
            let lines = op_lines_within(program, text::MAX_SOURCE_BYTES).ok_or_else(too_much_text)?;
            let mut removals = Vec::new();
            for (op, line) in program.ops().zip(lines) {
                if let OpStatus::Removed(reason) = context.edits().status(op) {
                    removals.push((line, reason.name(), sources.of(op)));
                }
            }
            Ok((Self { contents }, removals))
        })
    }

    /// All that is wrong with the program.
    #[pyo3(signature = (optimized=false))]
    fn verify(&self, py: Python<'_>, optimized: bool) -> PyResult<Vec<Finding>> {
        guarded(py, || {
            let program = &self.contents.program;
            let form = if optimized { Form::Optimized } else { Form::Traced };
            let errors = verify_form(program, form);
            if errors.is_empty() {
                return Ok(Vec::new());
            }
            let sources = self.sources();
            let mut lines = op_lines_within(program, text::MAX_SOURCE_BYTES).ok_or_else(too_much_text)?;
            // One op can have as many faults as operands, and each fault has its line.
            lines.iter_mut().for_each(shorten);
            let line = |op: Op| lines[op.index()].clone();
            Ok(errors
                .into_iter()
                .map(|error| {
                    let owner = program.scope_owner(error.scope);
                    (
                        error.kind.name(),
                        error.kind.to_string(),
                        error.op.map(line),
                        error.value.map(|value| program.value_name(value).into_owned()),
                        owner.map(line),
                        error.op.or(owner).and_then(|op| sources.of(op)),
                    )
                })
                .collect())
        })
    }

    /// What is in it, in groups of counts.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = guarded(py, || Ok(statistics(&self.contents)))?;
        let groups = PyDict::new(py);
        let ops = [("top_level", found.top_level_ops), ("inside", found.nested_ops)];
        let structure = [
            ("scopes", found.scopes),
            ("deepest_scope", found.deepest_scope),
            ("operands", found.operands),
            ("results", found.results),
        ];
        groups.set_item("ops", ops.into_py_dict(py)?)?;
        groups.set_item("structure", structure.into_py_dict(py)?)?;
        groups.set_item("kinds", found.kinds.into_py_dict(py)?)?;
        groups.set_item("values", found.values.into_py_dict(py)?)?;
        groups.set_item("removable", found.removable.into_py_dict(py)?)?;
        groups.set_item("symbols", found.symbols.into_py_dict(py)?)?;
        Ok(groups)
    }

    /// In what it differs from another: the unified form, empty if in nothing, and a sentence.
    #[pyo3(signature = (other, name, other_name, *, context=3, host=true))]
    #[allow(clippy::too_many_arguments, reason = "named in Python")]
    fn difference(
        &self,
        py: Python<'_>,
        other: &Bound<'_, Self>,
        name: &str,
        other_name: &str,
        context: usize,
        host: bool,
    ) -> PyResult<(String, String)> {
        let other = &other.get().contents;
        let found = guarded(py, || {
            difference(&self.contents, other, (name, other_name), context, host).map_err(|error| error.to_string())
        })?;
        let what = if found.host_only { "the programs are the same; of thunder's data" } else { "of the program" };
        let Difference { removed, added, common, .. } = found;
        let summary = format!("{what}: {removed} lines in {name} only, {added} in {other_name} only, {common} in both");
        Ok((found.unified, summary))
    }

    /// The ops of the top level, the state of the trace and the names that are taken.
    fn restore<'py>(&self, py: Python<'py>, restorer: &Bound<'py, PyAny>) -> PyResult<Restored<'py>> {
        let Some(host) = &self.contents.host else {
            return Err(file_error(py, "the file holds a program only, and no data of thunder"));
        };
        decode(py, &self.contents.program, host, &Restorer::from_python(restorer)?)
    }
}

impl TraceFile {
    fn sources(&self) -> Sources<'_> {
        let program = &self.contents.program;
        let Some(host) = &self.contents.host else { return Sources { host: None, nearest: Vec::new() } };
        let mut nearest: Vec<Option<NodeId>> = Vec::with_capacity(program.op_count());
        // Owners come before what is inside them.
        for op in program.ops() {
            let owner = program.scope_owner(program.scope_of(op));
            let own = entry(host, host.ops[op.index()].details, "source");
            nearest.push(own.or_else(|| owner.and_then(|owner| nearest[owner.index()])));
        }
        Sources { host: Some(host), nearest }
    }
}

/// Where ops are from, or the nearest op around them that knows.
struct Sources<'a> {
    host: Option<&'a HostData>,
    nearest: Vec<Option<NodeId>>,
}

impl Sources<'_> {
    /// File and line, as `shapetrace_rs.files.describe` writes them.
    fn of(&self, op: Op) -> Option<String> {
        let nodes = &self.host?.nodes;
        let [file, positions] = *nodes.get(self.nearest[op.index()]?).children() else { return None };
        let file = nodes.as_text(file)?;
        match nodes.get(positions).children().get(1).map(|&line| nodes.get(line)) {
            Some(Node::Int(line)) => Some(format!("{file}:{line}")),
            _ => Some(file.to_owned()),
        }
    }
}

/// The value of a key in a dictionary.
fn entry(host: &HostData, dict: NodeId, key: &str) -> Option<NodeId> {
    let pairs = host.nodes.get(dict).children().chunks_exact(2);
    pairs.into_iter().find(|pair| host.nodes.as_text(pair[0]) == Some(key)).map(|pair| pair[1])
}
