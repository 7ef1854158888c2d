//! The Python module `shapetrace_rs._core`: reads thunder traces into programs, runs the
//! optimizer, and rebuilds the ops that changed. No algorithm lives here.

mod apply;
mod borrowed;
mod copies;
mod decode;
mod encode;
mod equality;
mod file;
mod flatten;
mod host;
mod layout;
mod names;
mod optimizer;
mod read;
mod table;
mod trail;

use pyo3::prelude::*;

/// Native part of `shapetrace_rs`.
// Objects are read without taking references, and that no other thread runs meanwhile is what makes it sound.
#[cfg(Py_GIL_DISABLED)]
compile_error!("free-threaded builds of Python are not supported: the native module relies on the global lock");

#[pymodule(gil_used = true)]
mod _core {
    #[pymodule_export]
    use crate::file::TraceFile;
    #[pymodule_export]
    use crate::optimizer::{evaluate_scalar, passes, reasons, rules, CallStatistics, Optimizer};

    use super::{PyModule, PyModuleMethods, PyResult};
    use pyo3::Bound;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("debug_build", cfg!(debug_assertions))?;
        module.add("max_file_bytes", crate::file::max_file_bytes())
    }
}
