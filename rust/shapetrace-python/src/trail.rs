//! What the walks of a list of bound symbols went through, to tell later whether they would go through
//! the same again. `read/memo.rs` uses it to know a list again.

use pyo3::ffi;
use pyo3::prelude::*;

use crate::flatten::{slice_parts, Shape, Types};
use crate::layout::prefetch;

/// How the parts of a container are found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tuple,
    List,
    /// The values of a dictionary, in its own order.
    Dict,
    Slice,
    /// What a proxy is made of: see [`Types::content_directly`].
    Content,
}

/// A container that was walked.
#[derive(Clone, Copy)]
struct Container {
    object: *mut ffi::PyObject,
    class: *mut ffi::PyTypeObject,
    kind: Kind,
    len: u32,
}

/// Something that was met, and what it was an instance of.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part {
    object: *mut ffi::PyObject,
    class: *mut ffi::PyTypeObject,
}

impl Part {
    /// # Safety
    /// The object is alive.
    #[inline]
    unsafe fn of(object: *mut ffi::PyObject) -> Self {
        Self { object, class: ffi::Py_TYPE(object) }
    }
}

/// What walks went through: addresses only, to tell later whether the same walks would meet the same
/// leaves again.
#[derive(Default)]
pub(crate) struct Trail {
    is_on: bool,
    /// The containers, each behind the one that it was found in.
    containers: Vec<Container>,
    /// Their parts, one container's behind the other's.
    parts: Vec<Part>,
    /// Where walks began, if not with a tuple.
    roots: Vec<Part>,
}

/// Longer trails are not kept: they would take more memory than they are worth.
const TRAIL_LIMIT: usize = 1 << 19;

impl Trail {
    /// Forgets what there is, and notes from now on what is walked, or nothing.
    pub(crate) fn start(&mut self, is_on: bool) {
        self.is_on = is_on;
        self.containers.clear();
        self.parts.clear();
        self.roots.clear();
    }

    /// Whether all since the start was noted.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_on
    }

    /// # Safety
    /// The container is alive and has these parts.
    #[inline]
    pub(crate) unsafe fn note_container(
        &mut self,
        object: *mut ffi::PyObject,
        kind: Kind,
        len: isize,
        child: impl Fn(isize) -> *mut ffi::PyObject,
    ) {
        if !self.is_on {
            return;
        }
        if self.parts.len() + len.unsigned_abs() > TRAIL_LIMIT {
            *self = Self::default();
            return;
        }
        self.containers.push(Container { object, class: ffi::Py_TYPE(object), kind, len: len.unsigned_abs() as u32 });
        self.parts.extend((0..len).map(|index| Part::of(child(index))));
    }

    /// Notes what a proxy is made of, before that is walked.
    ///
    /// # Safety
    /// Both are alive, and the proxy was met before.
    pub(crate) unsafe fn note_content(&mut self, proxy: *mut ffi::PyObject, content: *mut ffi::PyObject) {
        self.note_container(proxy, Kind::Content, 1, |_| content);
    }

    /// # Safety
    /// The object is alive.
    #[inline]
    pub(crate) unsafe fn note_root(&mut self, root: *mut ffi::PyObject) {
        if self.is_on {
            self.roots.push(Part::of(root));
        }
    }

    /// Whether every container has the parts that it had, and all are of the classes that they were of.
    /// Runs no Python code.
    ///
    /// # Safety
    /// The interpreter is attached, and the objects at which the walks began are the same ones, alive.
    pub(crate) unsafe fn is_unchanged(&self, py: Python<'_>, types: &Types) -> bool {
        // What is looked at is alive: a root, or a part of a container that has the parts that it had.
        let mut parts = self.parts.as_slice();
        for (index, &Container { object, class, kind, len }) in self.containers.iter().enumerate() {
            if let Some(later) = self.containers.get(index + 12) {
                prefetch(later.object.cast());
            }
            if ffi::Py_TYPE(object) != class {
                return false;
            }
            let len = len as usize;
            let (own, rest) = parts.split_at(len);
            parts = rest;
            for later in parts.iter().skip(24).take(len) {
                prefetch(later.object.cast());
            }
            let same = |index: usize, child: *mut ffi::PyObject| child == own[index].object;
            let unchanged = match kind {
                Kind::Tuple => {
                    ffi::PyTuple_GET_SIZE(object).unsigned_abs() == len
                        && (0..len).all(|index| same(index, ffi::PyTuple_GET_ITEM(object, index as isize)))
                }
                Kind::List => {
                    ffi::PyList_GET_SIZE(object).unsigned_abs() == len
                        && (0..len).all(|index| same(index, ffi::PyList_GET_ITEM(object, index as isize)))
                }
                Kind::Dict => {
                    let (mut position, mut value) = (0, std::ptr::null_mut());
                    let mut index = 0;
                    while index < len
                        && ffi::PyDict_Next(object, &raw mut position, std::ptr::null_mut(), &raw mut value) != 0
                        && same(index, value)
                    {
                        index += 1;
                    }
                    index == len && ffi::PyDict_Size(object).unsigned_abs() == len
                }
                Kind::Slice => slice_parts(object).into_iter().enumerate().all(|(index, part)| same(index, part)),
                Kind::Content => match types.known(class) {
                    Some(Shape::Proxy(class)) => {
                        types.content_directly(py, object, class).is_some_and(|content| same(0, content))
                    }
                    _ => false,
                },
            };
            if !unchanged || !own.iter().all(|part| ffi::Py_TYPE(part.object) == part.class) {
                return false;
            }
        }
        self.roots.iter().all(|part| ffi::Py_TYPE(part.object) == part.class)
    }
}

// SAFETY: addresses are followed with the interpreter attached only, and where `is_unchanged` has
// found them in live objects.
unsafe impl Send for Trail {}
