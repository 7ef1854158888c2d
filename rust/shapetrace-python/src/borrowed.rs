//! Objects that are borrowed as long as no Python code runs, and our own from then on.
//!
//! A trace is read in one go, and as long as no Python code runs nobody can change it or let go
//! of anything in it. Counting references all the same would write to every object, twice. So
//! objects are noted by address, and before Python code may run (a call, an attribute that is
//! more than a field, giving up a reference, making an object that the garbage collector tracks)
//! [`Borrowed::hold`] takes references to all that were noted since the last time.

use pyo3::ffi;
use pyo3::prelude::*;

/// A list of objects, the first of which are our own.
#[derive(Default)]
pub(crate) struct Borrowed {
    objects: Vec<*mut ffi::PyObject>,
    /// So many objects, from the start, are our own.
    held: usize,
}

// SAFETY: the addresses are followed with the interpreter attached only, and given up as
// `Py<PyAny>` would be.
unsafe impl Send for Borrowed {}

impl Borrowed {
    /// Notes an object.
    ///
    /// # Safety
    /// The object lives until [`Borrowed::hold`] or [`Borrowed::clear`] is called.
    #[inline]
    pub(crate) unsafe fn push(&mut self, object: *mut ffi::PyObject) {
        self.objects.push(object);
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// The object at an index, borrowed.
    #[inline]
    pub(crate) fn pointer(&self, index: usize) -> *mut ffi::PyObject {
        self.objects[index]
    }

    /// The object at an index.
    #[inline]
    pub(crate) fn get<'py>(&self, py: Python<'py>, index: usize) -> Bound<'py, PyAny> {
        // SAFETY: the object is our own, or lives until Python code runs: see `push`.
        unsafe { Bound::from_borrowed_ptr(py, self.objects[index]) }
    }

    /// Makes all objects our own. Call it before Python code may run.
    #[inline]
    pub(crate) fn hold(&mut self, _py: Python<'_>) {
        for &object in &self.objects[self.held..] {
            // SAFETY: alive: see `push`; the interpreter is attached.
            unsafe { ffi::Py_INCREF(object) };
        }
        self.held = self.objects.len();
    }

    /// Whether any object is our own.
    pub(crate) fn holds_any(&self) -> bool {
        self.held > 0
    }

    /// Gives up the objects that are our own; the addresses stay, and may lead nowhere from now on.
    pub(crate) fn let_go(&mut self) {
        if self.held > 0 {
            let addresses = self.objects.clone();
            self.clear();
            self.objects = addresses;
        }
    }

    /// Forgets all objects, and gives up those that are our own.
    pub(crate) fn clear(&mut self) {
        let held = std::mem::take(&mut self.held);
        if held == 0 {
            self.objects.clear();
            return;
        }
        // Giving one up may run Python code, which must not meet a list that is half empty.
        let mut objects = std::mem::take(&mut self.objects);
        objects.truncate(held);
        Python::attach(|py| {
            for object in objects.drain(..) {
                // SAFETY: the reference was taken by `hold`.
                drop(unsafe { Py::<PyAny>::from_owned_ptr(py, object) });
            }
        });
        self.objects = objects;
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        self.clear();
    }
}
