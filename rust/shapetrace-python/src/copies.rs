//! Bound symbols that differ from others in some fields.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet, PyString, PyType};

use crate::host::Host;
use crate::names::names;

/// The fields that may differ; none that stays as it is.
#[derive(Default)]
pub(crate) struct Changes<'py> {
    pub(crate) sym: Option<Bound<'py, PyAny>>,
    pub(crate) args: Option<Bound<'py, PyAny>>,
    pub(crate) kwargs: Option<Bound<'py, PyAny>>,
    pub(crate) output: Option<Bound<'py, PyAny>>,
    pub(crate) subsymbols: Option<Bound<'py, PyAny>>,
}

impl<'py> Changes<'py> {
    /// A bound symbol like another, with these changes; nothing is written to the other one.
    ///
    /// The symbols of thunder's class are made as it makes them, field by field, without running its
    /// Python code: that costs several times as much as all else that is done for an op. Anything
    /// else, and an op of another symbol, is made by the host.
    pub(crate) fn apply(self, host: &Host, original: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = original.py();
        let class = host.bound_symbol.bind(py);
        match &host.fields {
            Some(fields) if self.sym.is_none() && original.get_type().is(class) => fields.copy(class, original, self),
            _ => host.rebuild.bind(py).call1((original, self.into_dict(py)?)),
        }
    }

    fn into_dict(self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        let names = names(py);
        let fields = [&names.sym, &names.args, &names.kwargs, &names.output, &names.subsymbols];
        for (name, value) in fields.into_iter().zip(self.in_order()) {
            if let Some(value) = value {
                dict.set_item(name, value)?;
            }
        }
        Ok(dict)
    }

    fn in_order(self) -> [Option<Bound<'py, PyAny>>; 5] {
        [self.sym, self.args, self.kwargs, self.output, self.subsymbols]
    }
}

/// The fields of a bound symbol, in the order in which its class sets them.
pub(crate) struct CopiedFields {
    copied: Vec<Py<PyString>>,
    /// `None` in each new one.
    empty: Vec<Py<PyString>>,
}

impl CopiedFields {
    /// From what the host says: the names of the ones and the others. None if it does not know them,
    /// or they do not begin with those that [`Changes`] has.
    pub(crate) fn from_python(fields: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = fields.py();
        let Some((copied, empty)) = fields.extract::<Option<(Vec<String>, Vec<String>)>>()? else { return Ok(None) };
        if !copied.starts_with(&["sym", "args", "kwargs", "output", "subsymbols"].map(String::from)) {
            return Ok(None);
        }
        let intern = |names: Vec<String>| names.iter().map(|name| PyString::intern(py, name).unbind()).collect();
        Ok(Some(Self { copied: intern(copied), empty: intern(empty) }))
    }

    fn copy<'py>(
        &self,
        class: &Bound<'py, PyType>,
        original: &Bound<'py, PyAny>,
        changes: Changes<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = original.py();
        let tags = names(py).tags.as_ptr();
        // SAFETY: the host has found that `object.__new__` makes the instances of the class, and this is what it does.
        let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class.as_type_ptr(), 0))? };
        let mut changes = changes.in_order().into_iter();
        for name in &self.copied {
            let value = match changes.next().flatten() {
                Some(value) => value,
                None => original.getattr(name)?,
            };
            let value = if name.as_ptr() == tags { copy_of_set(&value)? } else { value };
            set(&made, name, &value)?;
        }
        for name in &self.empty {
            set(&made, name, py.None().bind(py))?;
        }
        Ok(made)
    }
}

/// What `object.__setattr__` does.
fn set(object: &Bound<'_, PyAny>, name: &Py<PyString>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: all three are alive, and the interpreter is attached.
    let status = unsafe { ffi::PyObject_GenericSetAttr(object.as_ptr(), name.as_ptr(), value.as_ptr()) };
    if status < 0 {
        return Err(PyErr::fetch(object.py()));
    }
    Ok(())
}

fn copy_of_set<'py>(set: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if !set.is_exact_instance_of::<PySet>() {
        return set.call_method0("copy");
    }
    // SAFETY: the set is alive; the result is a new reference, or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(set.py(), ffi::PySet_New(set.as_ptr())) }
}
