//! Attribute names, interned once per process.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;

/// Interned attribute names of thunder's objects.
pub(crate) struct Names {
    pub(crate) sym: Py<PyString>,
    pub(crate) args: Py<PyString>,
    pub(crate) kwargs: Py<PyString>,
    pub(crate) output: Py<PyString>,
    pub(crate) subsymbols: Py<PyString>,
    pub(crate) tags: Py<PyString>,
    pub(crate) source_filename: Py<PyString>,
    pub(crate) source_positions: Py<PyString>,
    pub(crate) name: Py<PyString>,
    pub(crate) own_name: Py<PyString>,
    pub(crate) own_shape: Py<PyString>,
    pub(crate) value: Py<PyString>,
    pub(crate) python_type: Py<PyString>,
    pub(crate) coll: Py<PyString>,
}

static NAMES: PyOnceLock<Names> = PyOnceLock::new();

/// The interned names.
pub(crate) fn names(py: Python<'_>) -> &Names {
    NAMES.get_or_init(py, || {
        let intern = |name: &str| PyString::intern(py, name).unbind();
        Names {
            sym: intern("sym"),
            args: intern("args"),
            kwargs: intern("kwargs"),
            output: intern("output"),
            subsymbols: intern("subsymbols"),
            tags: intern("tags"),
            source_filename: intern("source_filename"),
            source_positions: intern("source_positions"),
            name: intern("name"),
            own_name: intern("_name"),
            own_shape: intern("_shape"),
            value: intern("value"),
            python_type: intern("python_type"),
            coll: intern("coll"),
        }
    })
}
