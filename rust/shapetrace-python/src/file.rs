//! Trace files, for Python.

use pyo3::prelude::*;
use shapetrace_format::{FormatError, TraceFile as Contents};

use crate::decode::{decode, Restored, Restorer};

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

/// A program and, if it was a trace of thunder, what thunder needs beside it.
#[pyclass(frozen, module = "shapetrace_rs._core")]
pub(crate) struct TraceFile {
    pub(crate) contents: Contents,
}

#[pymethods]
impl TraceFile {
    /// Whether a thunder trace can be made of it.
    #[getter]
    fn has_host_data(&self) -> bool {
        self.contents.host.is_some()
    }

    /// The ops of the top level, the state of the trace and the names that are taken.
    fn restore<'py>(&self, py: Python<'py>, restorer: &Bound<'py, PyAny>) -> PyResult<Restored<'py>> {
        let Some(host) = &self.contents.host else {
            return Err(file_error(py, "the file holds a program only, and no data of thunder"));
        };
        decode(py, &self.contents.program, host, &Restorer::from_python(restorer)?)
    }
}
