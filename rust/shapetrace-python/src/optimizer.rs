//! The class that Python calls.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Mutex;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet};
use shapetrace_core::analysis::effects::is_opaque;
use shapetrace_core::entity::Entity;
use shapetrace_core::ir::{Op, Reason, ScalarOp, Scope, Value};
use shapetrace_core::passes::shape_arithmetic::rules as arithmetic;
use shapetrace_core::passes::{Context, Level, Options, PASSES};
use shapetrace_core::verifier::{verify_form, Form};

use crate::apply::{fill_needed, Applier};
use crate::encode::{encode, Around, Describer};
use crate::equality::equal_bound_symbols;
use crate::file::TraceFile;
use crate::host::Host;
use crate::layout::direct_reads_work;
use crate::names::names;
use crate::read::{literal, ReadOptions, Reader};

/// What one call did. Calls are short, so what is not asked for is not made.
#[pyclass(frozen, module = "shapetrace_rs._core")]
pub(crate) struct CallStatistics {
    /// Top-level ops before.
    #[pyo3(get)]
    ops_in: usize,
    /// Top-level ops after.
    #[pyo3(get)]
    ops_out: usize,
    /// Ops in nested scopes before.
    #[pyo3(get)]
    nested_in: usize,
    /// Ops in nested scopes after.
    #[pyo3(get)]
    nested_out: usize,
    /// Ops removed, by reason.
    removed: [usize; Reason::ALL.len()],
    /// Ops made anew because they, or something inside them, changed.
    #[pyo3(get)]
    changed: usize,
    /// Numbers that another name or a literal stands for.
    #[pyo3(get)]
    renamed: usize,
    /// Whether the list was that of the call before, with nothing changed in it, and not read again.
    #[pyo3(get)]
    remembered: bool,
    /// Removed ops of foreign symbols that only hand back an argument.
    only_hands_back: Vec<Py<PyAny>>,
    /// Ops of foreign symbols that define no value and are not tagged: kept all the same.
    kept_for_effect: Vec<Py<PyAny>>,
    /// Nanoseconds for reading the trace.
    #[pyo3(get)]
    read_ns: u64,
    /// Nanoseconds for the passes.
    #[pyo3(get)]
    passes_ns: u64,
    /// Nanoseconds for making the answer.
    #[pyo3(get)]
    apply_ns: u64,
}

#[pymethods]
impl CallStatistics {
    /// How many ops were removed, for each reason that there was.
    #[getter]
    fn removed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let removed = PyDict::new(py);
        for (reason, &count) in Reason::ALL.iter().zip(&self.removed).filter(|&(_, &count)| count > 0) {
            removed.set_item(reason.name(), count)?;
        }
        Ok(removed)
    }

    /// Removed ops of foreign symbols that only hand back an argument.
    #[getter]
    fn only_hands_back<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.only_hands_back)
    }

    /// Ops of foreign symbols that define no value and are not tagged.
    #[getter]
    fn kept_for_effect<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, &self.kept_for_effect)
    }

    /// Nanoseconds for all three.
    #[getter]
    fn total_ns(&self) -> u64 {
        self.read_ns + self.passes_ns + self.apply_ns
    }

    fn __repr__(&self) -> String {
        format!(
            "CallStatistics(ops {} -> {}, nested {} -> {})",
            self.ops_in, self.ops_out, self.nested_in, self.nested_out
        )
    }
}

/// Something that the verifier found.
type Finding<'py> = (&'static str, String, Option<Bound<'py, PyAny>>, Option<String>, Option<Bound<'py, PyAny>>);

/// What `run` gives, with the details.
type Explanation<'py> = (Bound<'py, PyList>, CallStatistics, Bound<'py, PyList>, Bound<'py, PyDict>);

/// What happened to each op, and which numbers go by another name.
type Details<'py> = (Bound<'py, PyList>, Bound<'py, PyDict>);

/// What a caller wants to know of a call beside the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Nothing: no clock is read, which takes a tenth of what a list of one op does.
    Nothing,
    Statistics,
    Details,
}

/// Memory of one call, reused by the next.
struct Workspace {
    reader: Reader,
    context: Context,
}

/// Optimizes lists of bound symbols at one level.
#[pyclass(frozen, module = "shapetrace_rs._core")]
pub(crate) struct Optimizer {
    host: Host,
    level: Level,
    options: Options,
    effects: Option<Py<PyAny>>,
    /// Whether attributes are read where this interpreter keeps them.
    direct: bool,
    /// Lists of fewer ops are read as quickly as they are known again.
    remember_from: usize,
    /// Free workspaces. A call that runs while another does (another thread, or a predicate of
    /// the user that compiles something) finds none and makes its own.
    // In boxes: a workspace is large, and each call takes one out and puts it back.
    #[allow(clippy::vec_box, reason = "what is moved is the address")]
    workspaces: Mutex<Vec<Box<Workspace>>>,
}

#[pymethods]
impl Optimizer {
    #[new]
    #[pyo3(signature = (host, *, level, keep_random, keep_shape_numbers, floor_division, effects=None, direct=true, remember_from=16))]
    #[allow(clippy::fn_params_excessive_bools, clippy::too_many_arguments)] // keyword arguments, from Python
    fn new(
        host: &Bound<'_, PyAny>,
        level: &str,
        keep_random: bool,
        keep_shape_numbers: bool,
        floor_division: bool,
        effects: Option<Py<PyAny>>,
        direct: bool,
        remember_from: usize,
    ) -> PyResult<Self> {
        let Some(level) = Level::from_name(level) else {
            let message = format!("level is 'full' or 'compat', not {level:?}");
            return Err(pyo3::exceptions::PyValueError::new_err(message));
        };
        Ok(Self {
            host: Host::from_python(host)?,
            level,
            options: Options { keep_random, keep_shape_numbers, floor_division },
            effects,
            direct: direct && direct_reads_work(host.py()),
            remember_from,
            workspaces: Mutex::new(Vec::new()),
        })
    }

    /// Whether attributes are read where this interpreter keeps them, not through `getattr`.
    #[getter]
    fn direct(&self) -> bool {
        self.direct
    }

    /// Checks a sequence of bound symbols; all that is wrong, each as kind, message, bound symbol,
    /// name of the value, and the bound symbol that owns the scope.
    ///
    /// `inputs` is what the sequence takes; without it, whatever nothing defines is an input.
    /// `optimized` asks for the form that the optimizer leaves behind.
    #[pyo3(signature = (bound_symbols, inputs=None, optimized=false))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        bound_symbols: &Bound<'py, PyAny>,
        inputs: Option<&Bound<'py, PyAny>>,
        optimized: bool,
    ) -> PyResult<Vec<Finding<'py>>> {
        self.guard(py, |workspace| self.verify_in(py, &mut workspace.reader, bound_symbols, inputs, optimized))
    }

    /// Optimizes a sequence of bound symbols.
    ///
    /// `output` is what the sequence gives, for one that has no return. Returns the bound symbols
    /// that are left, as a new list, and the statistics.
    #[pyo3(signature = (bound_symbols, output=None, needed_proxies=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        bound_symbols: &Bound<'py, PyAny>,
        output: Option<&Bound<'py, PyAny>>,
        needed_proxies: Option<&Bound<'py, PySet>>,
    ) -> PyResult<(Bound<'py, PyList>, CallStatistics)> {
        self.guard(py, |workspace| {
            let (list, statistics, _) =
                self.run_in(py, workspace, bound_symbols, output, needed_proxies, Wanted::Statistics)?;
            Ok((list, statistics))
        })
    }

    /// As `run`, without the statistics: for lists of a few ops, which take no longer than to make an
    /// object.
    #[pyo3(signature = (bound_symbols, output=None, needed_proxies=None))]
    fn run_list<'py>(
        &self,
        py: Python<'py>,
        bound_symbols: &Bound<'py, PyAny>,
        output: Option<&Bound<'py, PyAny>>,
        needed_proxies: Option<&Bound<'py, PySet>>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.guard(py, |workspace| {
            Ok(self.run_in(py, workspace, bound_symbols, output, needed_proxies, Wanted::Nothing)?.0)
        })
    }

    /// As `run`, and says of each op what happened to it, and which numbers go by another name.
    #[pyo3(signature = (bound_symbols, output=None, needed_proxies=None))]
    fn explain<'py>(
        &self,
        py: Python<'py>,
        bound_symbols: &Bound<'py, PyAny>,
        output: Option<&Bound<'py, PyAny>>,
        needed_proxies: Option<&Bound<'py, PySet>>,
    ) -> PyResult<Explanation<'py>> {
        self.guard(py, |workspace| {
            let (list, statistics, details) =
                self.run_in(py, workspace, bound_symbols, output, needed_proxies, Wanted::Details)?;
            let (ops, renames) = details.expect("asked for");
            Ok((list, statistics, ops, renames))
        })
    }

    /// A trace as plain data.
    ///
    /// `inputs` is what the trace takes, `about` says who writes, `trace` is the state of the trace
    /// and `names` the names that are taken.
    #[allow(clippy::too_many_arguments, reason = "called from one place, in Python, by position")]
    fn record<'py>(
        &self,
        py: Python<'py>,
        bound_symbols: &Bound<'py, PyAny>,
        inputs: Option<&Bound<'py, PyAny>>,
        about: Bound<'py, PyAny>,
        trace: Bound<'py, PyDict>,
        names: Vec<String>,
        describer: &Bound<'py, PyAny>,
    ) -> PyResult<TraceFile> {
        let describer = Describer::from_python(describer)?;
        self.guard(py, |workspace| {
            let reader = &mut workspace.reader;
            let options =
                ReadOptions { full: true, output: None, needed: None, effects: None, inputs, remember_from: None };
            let program = reader.read(&self.host, bound_symbols, &options)?;
            let contents = encode(py, &self.host, &describer, reader, program, &Around { about, trace, names });
            // The reader's symbols went with the program.
            *reader = Reader::new(self.direct);
            Ok(TraceFile { contents: contents? })
        })
    }
}

impl Optimizer {
    /// Runs with a workspace, and turns a panic into a Python error.
    fn guard<T>(&self, py: Python<'_>, run: impl FnOnce(&mut Workspace) -> PyResult<T>) -> PyResult<T> {
        let mut workspace = self.take_workspace();
        match catch_unwind(AssertUnwindSafe(|| run(&mut workspace))) {
            Ok(Ok(answer)) => {
                self.give_workspace_back(workspace);
                Ok(answer)
            }
            // The workspace may be half done: it is dropped. What it knows of symbols would not fit
            // the program that was lost with it.
            Ok(Err(error)) => Err(error),
            Err(panic) => Err(self.internal_error(py, panic.as_ref())),
        }
    }

    fn take_workspace(&self) -> Box<Workspace> {
        self.workspaces
            .lock()
            .ok()
            .and_then(|mut free| free.pop())
            .unwrap_or_else(|| Box::new(Workspace { reader: Reader::new(self.direct), context: Context::default() }))
    }

    fn give_workspace_back(&self, workspace: Box<Workspace>) {
        if let Ok(mut free) = self.workspaces.lock() {
            if free.len() < 4 {
                free.push(workspace);
            }
        }
    }

    fn internal_error(&self, py: Python<'_>, panic: &(dyn std::any::Any + Send)) -> PyErr {
        let message = format!("the optimizer panicked: {}", panic_message(panic));
        match self.host.internal_error.call1(py, (message,)) {
            Ok(error) => PyErr::from_value(error.into_bound(py)),
            Err(error) => error,
        }
    }

    fn verify_in<'py>(
        &self,
        py: Python<'py>,
        reader: &mut Reader,
        bound_symbols: &Bound<'py, PyAny>,
        inputs: Option<&Bound<'py, PyAny>>,
        optimized: bool,
    ) -> PyResult<Vec<Finding<'py>>> {
        let options =
            ReadOptions { full: true, output: None, needed: None, effects: None, inputs, remember_from: None };
        let program = reader.read(&self.host, bound_symbols, &options)?;
        let form = if optimized { Form::Optimized } else { Form::Traced };
        reader.reading.hold(py);
        let bound_symbol = |op: Op| reader.reading.bound_symbols.get(py, op.index());
        let mut findings = Vec::new();
        for error in verify_form(&program, form) {
            let value = match error.value {
                Some(value) => {
                    Some(reader.reading.proxies.get(py, value.index()).getattr(&names(py).name)?.extract::<String>()?)
                }
                None => None,
            };
            let owner = program.scope_owner(error.scope).map(bound_symbol);
            findings.push((error.kind.name(), error.kind.to_string(), error.op.map(bound_symbol), value, owner));
        }
        reader.recycle(program);
        Ok(findings)
    }

    fn run_in<'py>(
        &self,
        py: Python<'py>,
        workspace: &mut Workspace,
        bound_symbols: &Bound<'py, PyAny>,
        output: Option<&Bound<'py, PyAny>>,
        needed: Option<&Bound<'py, PySet>>,
        wanted: Wanted,
    ) -> PyResult<(Bound<'py, PyList>, CallStatistics, Option<Details<'py>>)> {
        let now = || (wanted != Wanted::Nothing).then(Instant::now);
        let started = now();
        let Workspace { reader, context } = workspace;
        let effects = self.effects.as_ref().map(|effects| effects.bind(py));
        let full = self.level == Level::Full;
        let options =
            ReadOptions { full, output, needed, effects, inputs: None, remember_from: Some(self.remember_from) };
        // What was found in the same list the last time holds: the program, and the edits too.
        let is_remembered = reader.recall(&self.host, bound_symbols, &options);
        let program =
            if is_remembered { reader.take_program() } else { reader.read(&self.host, bound_symbols, &options)? };
        if !reader.reading.has_return && output.is_none() && needed.is_none() && program.op_count() > 0 {
            let message = "the trace has no return, so nothing says which values are needed";
            let hint = "end the trace with prims.python_return, pass needed_proxies, or use dce_bsyms with an output";
            return Err(match self.host.missing_return_error.call1(py, (message, py.None(), py.None(), hint)) {
                Ok(error) => PyErr::from_value(error.into_bound(py)),
                Err(error) => error,
            });
        }
        let read = now();
        let (mut failure, mut were_compared) = (None, false);
        let passes_hold = is_remembered && !reader.ops_were_compared;
        let Reader { types, reading, .. } = reader;
        let mut equal = |a: Op, b: Op| {
            were_compared = true;
            reading.hold(py);
            let (a, b) = (reading.bound_symbols.get(py, a.index()), reading.bound_symbols.get(py, b.index()));
            equal_bound_symbols(types, &self.host, &a, &b).unwrap_or_else(|error| {
                failure.get_or_insert(error);
                false
            })
        };
        if !passes_hold {
            context.run_with(&program, self.level, &self.options, &mut equal);
            reader.ops_were_compared = were_compared;
        }
        let edits = context.edits();
        if let Some(error) = failure {
            return Err(error);
        }
        let passed = now();
        // What the report names is our own before the first object is made.
        let bound_symbol = |op: Op| reader.reading.bound_symbols.get(py, op.index()).unbind();
        let only_hands_back: Vec<_> = edits.only_hands_back().iter().copied().map(bound_symbol).collect();
        let mut kept_for_effect = Vec::new();
        if full {
            let ops = program.ops().filter(|&op| edits.is_kept(op) && is_opaque(&program, op));
            kept_for_effect.extend(ops.map(bound_symbol));
        }
        let explain = wanted == Wanted::Details;
        if explain || needed.is_some() {
            reader.reading.hold(py);
        }
        let mut applier = Applier::new(py, &self.host, &program, edits, reader);
        let list = applier.run()?;
        let details = if explain { Some((applier.details(context.effects())?, applier.renames()?)) } else { None };
        if let Some(needed) = needed {
            fill_needed(&self.host, &program, edits, reader, !full, needed)?;
        }
        let finished = now();
        let top = program.scope_ops(Scope::TOP).len();
        let nested = program.op_count() - top;
        let mut removed = [0; Reason::ALL.len()];
        for (count, &reason) in removed.iter_mut().zip(Reason::ALL) {
            *count = edits.removed_count(reason);
        }
        let nested_out = program.op_count() - removed.iter().sum::<usize>() - list.len();
        let is_new = |value: &Value| edits.replacement(*value).is_some();
        let renamed = if edits.has_replacements() { program.values().filter(is_new).count() } else { 0 };
        let is_changed = |op: &Op| edits.is_kept(*op) && edits.is_changed(*op);
        let changed = if edits.any_changed() { program.ops().filter(is_changed).count() } else { 0 };
        let statistics = CallStatistics {
            ops_in: top,
            ops_out: list.len(),
            nested_in: nested,
            nested_out,
            removed,
            changed,
            renamed,
            remembered: is_remembered,
            only_hands_back,
            kept_for_effect,
            read_ns: nanoseconds(started, read),
            passes_ns: nanoseconds(read, passed),
            apply_ns: nanoseconds(passed, finished),
        };
        reader.recycle(program);
        Ok((list, statistics, details))
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}

/// From one time to another; none if the clock was not read.
fn nanoseconds(start: Option<Instant>, end: Option<Instant>) -> u64 {
    let elapsed = start.zip(end).map_or(0, |(start, end)| end.duration_since(start).as_nanos());
    u64::try_from(elapsed).unwrap_or(u64::MAX)
}

/// The passes: name, sentence, levels.
#[pyfunction]
pub(crate) fn passes() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let level_name = |level: &Level| match level {
        Level::Compat => "compat",
        Level::Full => "full",
    };
    PASSES.iter().map(|pass| (pass.name, pass.description, pass.levels.iter().map(level_name).collect())).collect()
}

/// The rules of the shape arithmetic: name, operations, condition.
#[pyfunction]
pub(crate) fn rules() -> Vec<(&'static str, Vec<&'static str>, &'static str)> {
    arithmetic::RULES
        .iter()
        .map(|rule| (rule.name, rule.ops.iter().map(|op| op.name()).collect(), rule.condition))
        .collect()
}

/// The reasons for which an op is removed, in the order of reports.
#[pyfunction]
pub(crate) fn reasons() -> Vec<&'static str> {
    Reason::ALL.iter().map(|reason| reason.name()).collect()
}

/// What the optimizer takes the result of scalar arithmetic on literals to be; none where it does
/// not compute. For tests against Python's own arithmetic.
#[pyfunction]
pub(crate) fn evaluate_scalar(
    py: Python<'_>,
    name: &str,
    a: &Bound<'_, PyAny>,
    b: &Bound<'_, PyAny>,
) -> PyResult<Option<Py<PyAny>>> {
    use shapetrace_core::ir::Number;
    let Some(op) = ScalarOp::from_name(name) else {
        return Err(pyo3::exceptions::PyValueError::new_err(format!("no scalar operation is called {name:?}")));
    };
    let (Some(a), Some(b)) = (literal(a), literal(b)) else { return Ok(None) };
    Ok(match arithmetic::evaluate(op, a, b) {
        Some(Number::Bool(flag)) => Some(flag.into_pyobject(py)?.to_owned().into_any().unbind()),
        Some(Number::Int(int)) => Some(int.into_pyobject(py)?.into_any().unbind()),
        Some(Number::Float(float)) => Some(float.into_pyobject(py)?.into_any().unbind()),
        _ => None,
    })
}
