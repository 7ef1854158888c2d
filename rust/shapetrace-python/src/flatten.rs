//! Walking argument and output structures without making objects.
//!
//! Leaves come in the order of thunder's own flattening: sequences in order, dictionaries by
//! sorted key, dataclasses by sorted field name, slices as start, stop, step. What is none of
//! these natively goes through thunder's flattening.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyList, PySlice, PyString, PyTuple, PyType};
use pyo3::PyTypeInfo;

use crate::host::Host;
use crate::layout::Layout;
use crate::names::names;
use crate::table::Table;
use crate::trail::{Kind, Trail};

/// What an object of some type is to the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A leaf without a name.
    Literal,
    /// A leaf with a name.
    Proxy(ProxyClass),
    /// `tuple`, and classes that thunder walks like one.
    Tuple,
    /// `list`, and classes that thunder walks like one.
    List,
    /// `dict`
    Dict,
    /// `slice`
    Slice,
    /// A dataclass; its fields are in [`Types`].
    Dataclass(u32),
    /// Anything else that thunder can flatten.
    Other,
}

/// What is to be known of a proxy class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxyClass {
    pub(crate) kind: ProxyKind,
    /// The class has the usual `name`, which is the `_name` of the instance.
    pub(crate) usual_name: bool,
    /// Where instances keep `_name`, if that is known: an index into [`Types`].
    name_layout: Option<u16>,
    /// Where they keep what they are made of, likewise.
    content_layout: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyKind {
    Tensor,
    Number,
    Collection,
    Other,
}

/// The shapes of the types seen so far. Types are kept alive, so an address stays a type.
#[derive(Default)]
pub(crate) struct Types {
    /// Indices into `shapes`, by the address of the type.
    known: Table,
    /// None if it has to be asked for again.
    shapes: Vec<Option<Shape>>,
    kept: Vec<Py<PyType>>,
    /// Types of users that are leaves for now: they may be made dataclasses, or registered as
    /// containers, later.
    leaves_for_now: Vec<u32>,
    /// `int` was met, and is a literal.
    int_is_literal: bool,
    dataclasses: Vec<Vec<Py<PyString>>>,
    name_layouts: Vec<Layout<1>>,
    content_layouts: Vec<Layout<1>>,
    number_layouts: Vec<Layout<2>>,
    /// Whether attributes are read directly: see `layout`.
    pub(crate) direct: bool,
}

/// So many types are remembered before all are forgotten: programs that make types without end
/// must not make us hold them without end.
const TYPE_LIMIT: usize = 4096;

/// Structures with more parts than this are refused: one that contains itself would be walked for
/// ever.
const SIZE_LIMIT: usize = 1 << 24;

// SAFETY: the maps are only touched with the interpreter attached (every method takes `Python` or
// a bound object), and their keys are addresses that are compared, never followed.
unsafe impl Send for Types {}

impl Types {
    pub(crate) fn new(direct: bool) -> Self {
        Self { direct, ..Self::default() }
    }

    /// What the walk does with this object, if its type was met before.
    #[inline]
    pub(crate) fn known(&self, class: *mut ffi::PyTypeObject) -> Option<Shape> {
        self.shapes[self.known.get(class as usize)? as usize]
    }

    /// What the walk does with this object.
    #[inline]
    pub(crate) fn shape(&mut self, host: &Host, object: &Bound<'_, PyAny>) -> PyResult<Shape> {
        match self.known(object.get_type_ptr()) {
            Some(shape) => Ok(shape),
            None => self.classify(host, object),
        }
    }

    /// Forgets what may be different by now, and all types where too many were met. Call it between
    /// walks.
    pub(crate) fn refresh(&mut self) {
        if self.known.len() >= TYPE_LIMIT {
            *self = Self::new(self.direct);
        }
        for index in self.leaves_for_now.drain(..) {
            self.shapes[index as usize] = None;
        }
    }

    /// The name of a proxy, borrowed, if it can be had without running Python code.
    #[inline]
    pub(crate) fn name_directly(
        &self,
        py: Python<'_>,
        proxy: *mut ffi::PyObject,
        class: ProxyClass,
    ) -> Option<*mut ffi::PyObject> {
        let layout = &self.name_layouts[usize::from(class.name_layout?)];
        // SAFETY: the layout was found for the type of this proxy, which is alive; whether it is
        // still current is asked here.
        unsafe {
            let name = names(py).own_name.as_ptr();
            let [found] = if layout.is_current() { layout.read(proxy, &[name])? } else { return None };
            (ffi::Py_TYPE(found) == &raw mut ffi::PyUnicode_Type).then_some(found)
        }
    }

    /// The shape of a tensor proxy, or the collection of a collection proxy, borrowed, if it can be had
    /// without running Python code.
    #[inline]
    pub(crate) fn content_directly(
        &self,
        py: Python<'_>,
        proxy: *mut ffi::PyObject,
        class: ProxyClass,
    ) -> Option<*mut ffi::PyObject> {
        let name = content_name(py, class.kind)?;
        let layout = self.content_layouts.get(usize::from(class.content_layout?))?;
        // SAFETY: as for `name_directly`.
        unsafe { layout.is_current().then(|| layout.read(proxy, &[name]))?.map(|[content]| content) }
    }

    /// Value and type of a number proxy, borrowed, if they can be had without running Python code.
    #[inline]
    pub(crate) fn number_directly(
        &self,
        py: Python<'_>,
        proxy: *mut ffi::PyObject,
        class: ProxyClass,
    ) -> Option<[*mut ffi::PyObject; 2]> {
        let layout = self.number_layouts.get(usize::from(class.content_layout?))?;
        // SAFETY: as for `name_directly`.
        unsafe { layout.is_current().then(|| layout.read(proxy, &number_names(py)))? }
    }

    /// Whether an object is a proxy whose attributes are where they are expected.
    ///
    /// # Safety
    /// The interpreter is attached, and the object is alive.
    #[inline]
    pub(crate) unsafe fn has_layout(&self, object: *mut ffi::PyObject) -> bool {
        matches!(self.known(ffi::Py_TYPE(object)), Some(Shape::Proxy(class)) if class.name_layout.is_some())
    }

    /// Where the name of a proxy is, to ask for that memory.
    ///
    /// # Safety
    /// The interpreter is attached, and the object is alive.
    #[inline]
    pub(crate) unsafe fn name_place(&self, py: Python<'_>, object: *mut ffi::PyObject) -> Option<*mut ffi::PyObject> {
        let Some(Shape::Proxy(class)) = self.known(ffi::Py_TYPE(object)) else { return None };
        let layout = &self.name_layouts[usize::from(class.name_layout?)];
        let names = [names(py).own_name.as_ptr()];
        layout.is_current().then(|| layout.read(object, &names))?.map(|[name]| name)
    }

    #[cold]
    fn classify(&mut self, host: &Host, object: &Bound<'_, PyAny>) -> PyResult<Shape> {
        let py = object.py();
        let class = object.get_type();
        let is = |base: &Py<PyAny>| class.is_subclass(base.bind(py));
        let shape = if is(&host.proxy)? {
            let kind = if is(&host.number_proxy)? {
                ProxyKind::Number
            } else if is(&host.tensor_proxy)? {
                ProxyKind::Tensor
            } else if is(&host.collection_proxy)? {
                ProxyKind::Collection
            } else {
                ProxyKind::Other
            };
            let usual_name = class.getattr(&names(py).name)?.is(&host.proxy_name);
            let name_layout = if usual_name && self.direct { self.find_name_layout(&class) } else { None };
            let content_layout = if self.direct { self.find_content_layout(&class, kind) } else { None };
            Shape::Proxy(ProxyClass { kind, usual_name, name_layout, content_layout })
        } else if object.is_exact_instance_of::<PyTuple>() {
            Shape::Tuple
        } else if object.is_exact_instance_of::<PyList>() {
            Shape::List
        } else if object.is_exact_instance_of::<PyDict>() {
            Shape::Dict
        } else if object.is_exact_instance_of::<PySlice>() {
            Shape::Slice
        } else if object.is_instance_of::<PyType>() {
            Shape::Literal
        } else if let Some(fields) = dataclass_fields(&class)? {
            self.dataclasses.push(fields);
            Shape::Dataclass(self.dataclasses.len() as u32 - 1)
        } else if host.is_leaf.bind(py).call1((object,))?.is_truthy()? {
            Shape::Literal
        } else if object.is_instance_of::<PyTuple>() {
            Shape::Tuple
        } else if object.is_instance_of::<PyList>() {
            Shape::List
        } else {
            Shape::Other
        };
        if !class.is(object.get_type()) {
            let message = "an object in a trace changed its class while it was looked at";
            return Err(pyo3::exceptions::PyTypeError::new_err(message));
        }
        // The class was not known: only then is this called. Python code that ran meanwhile does
        // not come here with this object's tables.
        let index = if let Some(index) = self.known.get(class.as_ptr() as usize) {
            self.shapes[index as usize] = Some(shape);
            index
        } else {
            let index = self.shapes.len() as u32;
            self.known.insert(class.as_ptr() as usize, index);
            self.shapes.push(Some(shape));
            self.kept.push(class.clone().unbind());
            index
        };
        self.int_is_literal |= shape == Shape::Literal && class.is(PyInt::type_object(py));
        if shape == Shape::Literal && !is_settled(&class) {
            self.leaves_for_now.push(index);
        }
        Ok(shape)
    }

    fn find_name_layout(&mut self, class: &Bound<'_, PyType>) -> Option<u16> {
        let index = u16::try_from(self.name_layouts.len()).ok()?;
        let name = names(class.py()).own_name.as_ptr();
        // SAFETY: a class and an interned string.
        let layout = unsafe { Layout::find(class.as_type_ptr(), [name]) }?;
        self.name_layouts.push(layout);
        Some(index)
    }

    fn find_content_layout(&mut self, class: &Bound<'_, PyType>, kind: ProxyKind) -> Option<u16> {
        let (py, type_object) = (class.py(), class.as_type_ptr());
        // SAFETY: as for `find_name_layout`.
        unsafe {
            if kind == ProxyKind::Number {
                let index = u16::try_from(self.number_layouts.len()).ok()?;
                self.number_layouts.push(Layout::find(type_object, number_names(py))?);
                Some(index)
            } else {
                let index = u16::try_from(self.content_layouts.len()).ok()?;
                self.content_layouts.push(Layout::find(type_object, [content_name(py, kind)?])?);
                Some(index)
            }
        }
    }
}

/// The attribute in which a proxy keeps what it is made of.
fn content_name(py: Python<'_>, kind: ProxyKind) -> Option<*mut ffi::PyObject> {
    match kind {
        ProxyKind::Tensor => Some(names(py).own_shape.as_ptr()),
        ProxyKind::Collection => Some(names(py).coll.as_ptr()),
        ProxyKind::Number | ProxyKind::Other => None,
    }
}

/// The attributes of a number that are read.
fn number_names(py: Python<'_>) -> [*mut ffi::PyObject; 2] {
    [names(py).value.as_ptr(), names(py).python_type.as_ptr()]
}

/// Whether nobody will make a container of a class: the interpreter's own, thunder's, torch's.
fn is_settled(class: &Bound<'_, PyType>) -> bool {
    // SAFETY: a class, which is alive.
    let is_static = unsafe { (*class.as_type_ptr()).tp_flags & ffi::Py_TPFLAGS_HEAPTYPE == 0 };
    is_static
        || class.module().is_ok_and(|module| {
            let module = module.to_string_lossy();
            ["thunder", "torch", "builtins"].contains(&module.split('.').next().unwrap_or_default())
        })
}

fn dataclass_fields(class: &Bound<'_, PyType>) -> PyResult<Option<Vec<Py<PyString>>>> {
    let py = class.py();
    if !class.hasattr("__dataclass_fields__")? {
        return Ok(None);
    }
    let mut fields = Vec::new();
    for field in py.import("dataclasses")?.call_method1("fields", (class,))?.try_iter()? {
        fields.push(field?.getattr("name")?.cast_into::<PyString>()?);
    }
    fields.sort_by(|a, b| a.to_string_lossy().cmp(&b.to_string_lossy()));
    Ok(Some(fields.into_iter().map(Bound::unbind).collect()))
}

/// What is done with the leaves of a structure.
pub(crate) trait Leaves {
    /// Whether literals are more to it than leaves that are passed over.
    #[inline]
    fn wants_literals(&self) -> bool {
        true
    }

    /// Takes what was seen before and is known by its address; `false` if it is not.
    #[inline]
    fn take_known(&mut self, leaf: *mut ffi::PyObject) -> bool {
        let _ = leaf;
        false
    }

    /// Takes a leaf without running any Python code; `false` if that cannot be.
    fn take(&mut self, types: &Types, leaf: *mut ffi::PyObject, class: Option<ProxyClass>) -> bool;

    /// Takes a leaf that [`Leaves::take`] could not.
    ///
    /// # Errors
    /// What Python raised.
    fn ask(&mut self, host: &Host, leaf: &Bound<'_, PyAny>, class: Option<ProxyClass>) -> PyResult<()>;

    /// Makes our own what was borrowed so far, for Python code is about to run.
    fn hold(&mut self, py: Python<'_>);
}

/// Memory of a walk, reused.
///
/// Objects on the stack are borrowed from the containers that hold them. As long as no Python code
/// runs, nothing can take them away; before any does, [`Walk::hold`] makes all of them our own
/// until [`Walk::release`].
pub(crate) struct Walk {
    stack: Vec<*mut ffi::PyObject>,
    /// So much of the stack, from the bottom, is held already.
    held_below: usize,
    held: Vec<Py<PyAny>>,
    /// Attributes of the op that is being read; borrowed from it, like the stack.
    roots: [*mut ffi::PyObject; 6],
    roots_held: bool,
    /// What the walks went through, for who wants to know.
    pub(crate) trail: Trail,
}

impl Default for Walk {
    fn default() -> Self {
        Self {
            stack: Vec::new(),
            held_below: 0,
            held: Vec::new(),
            roots: [std::ptr::null_mut(); 6],
            roots_held: true,
            trail: Trail::default(),
        }
    }
}

impl Walk {
    /// Calls `leaves` for every leaf of the structure, in thunder's order; where that does not
    /// matter (`ordered` is false), dictionaries are walked as they are. Iterative: structures of
    /// any depth are walked on the heap.
    ///
    /// # Safety
    /// The interpreter is attached, and `root` stays alive until the walk ends even if Python
    /// code runs in between.
    #[inline]
    pub(crate) unsafe fn leaves(
        &mut self,
        py: Python<'_>,
        types: &mut Types,
        host: &Host,
        root: *mut ffi::PyObject,
        ordered: bool,
        leaves: &mut impl Leaves,
    ) -> PyResult<()> {
        let bottom = self.stack.len();
        if ffi::PyTuple_CheckExact(root) != 0 {
            // The arguments of nearly every op: leaves, in a tuple.
            let len = ffi::PyTuple_GET_SIZE(root);
            let child = |index| ffi::PyTuple_GET_ITEM(root, index);
            self.trail.note_container(root, Kind::Tuple, len, child);
            self.children(types, leaves, len, child);
        } else {
            self.trail.note_root(root);
            if quick(types, leaves, root) {
                return Ok(());
            }
            self.stack.push(root);
        }
        if self.stack.len() == bottom {
            return Ok(());
        }
        self.walk(py, types, host, bottom, ordered, leaves)
    }

    /// Walks what is on the stack above `bottom`.
    ///
    /// # Safety
    /// As for `leaves`.
    unsafe fn walk(
        &mut self,
        py: Python<'_>,
        types: &mut Types,
        host: &Host,
        bottom: usize,
        ordered: bool,
        leaves: &mut impl Leaves,
    ) -> PyResult<()> {
        let mut steps = 0;
        while self.stack.len() > bottom {
            if steps + (self.stack.len() - bottom) > SIZE_LIMIT {
                let message = format!("a structure in the trace has more than {SIZE_LIMIT} parts");
                let error = host.invalid_trace(py, &message, None, None, "see whether a container contains itself");
                return self.fail(bottom, error);
            }
            let object = self.stack.pop().expect("checked");
            self.held_below = self.held_below.min(self.stack.len());
            let class = ffi::Py_TYPE(object);
            let shape = if let Some(shape) = types.known(class) {
                shape
            } else {
                self.hold(py, object, leaves);
                match types.shape(host, &Bound::from_borrowed_ptr(py, object)) {
                    Ok(shape) => shape,
                    Err(error) => return self.fail(bottom, error),
                }
            };
            steps += 1;
            match shape {
                Shape::Literal | Shape::Proxy(_) => {
                    let class = if let Shape::Proxy(class) = shape { Some(class) } else { None };
                    if !leaves.take_known(object) && !leaves.take(types, object, class) {
                        self.hold(py, object, leaves);
                        if let Err(error) = leaves.ask(host, &Bound::from_borrowed_ptr(py, object), class) {
                            return self.fail(bottom, error);
                        }
                    }
                }
                Shape::Tuple => {
                    let len = ffi::PyTuple_GET_SIZE(object);
                    let child = |index| ffi::PyTuple_GET_ITEM(object, index);
                    self.trail.note_container(object, Kind::Tuple, len, child);
                    steps += self.children(types, leaves, len, child);
                }
                Shape::List => {
                    let len = ffi::PyList_GET_SIZE(object);
                    let child = |index| ffi::PyList_GET_ITEM(object, index);
                    self.trail.note_container(object, Kind::List, len, child);
                    steps += self.children(types, leaves, len, child);
                }
                Shape::Slice => {
                    let parts = slice_parts(object);
                    let child = |index: isize| parts[index.unsigned_abs()];
                    self.trail.note_container(object, Kind::Slice, 3, child);
                    steps += self.children(types, leaves, 3, child);
                }
                Shape::Dict if !ordered => {
                    let first = self.stack.len();
                    let (mut position, mut value) = (0, std::ptr::null_mut());
                    while ffi::PyDict_Next(object, &raw mut position, std::ptr::null_mut(), &raw mut value) != 0 {
                        self.stack.push(value);
                    }
                    let values = &self.stack[first..];
                    let value = |index: isize| values[index.unsigned_abs()];
                    self.trail.note_container(object, Kind::Dict, values.len() as isize, value);
                }
                shape => {
                    self.hold(py, object, leaves);
                    let mut children = Vec::new();
                    let bound = Bound::from_borrowed_ptr(py, object);
                    if let Err(error) = push_children(types, host, &bound, shape, &mut children) {
                        return self.fail(bottom, error);
                    }
                    self.stack.extend(children.iter().rev().map(Py::as_ptr));
                    self.held.append(&mut children);
                }
            }
        }
        Ok(())
    }

    /// Takes the children of a container in place, up to the first that needs more than a look;
    /// it and those behind it go to the stack. How many were taken.
    ///
    /// # Safety
    /// The container lives, has so many children, and no Python code runs.
    #[inline]
    unsafe fn children(
        &mut self,
        types: &Types,
        leaves: &mut impl Leaves,
        len: isize,
        child: impl Fn(isize) -> *mut ffi::PyObject,
    ) -> usize {
        let mut index = 0;
        while index < len && quick(types, leaves, child(index)) {
            index += 1;
        }
        if index < len {
            self.stack.extend((index..len).rev().map(child));
        }
        index.unsigned_abs()
    }

    #[cold]
    fn fail(&mut self, bottom: usize, error: PyErr) -> PyResult<()> {
        self.stack.truncate(bottom);
        Err(error)
    }

    /// Makes all that is on the stack, and `object`, our own.
    #[cold]
    unsafe fn hold(&mut self, py: Python<'_>, object: *mut ffi::PyObject, leaves: &mut impl Leaves) {
        leaves.hold(py);
        let new = self.stack[self.held_below..].iter();
        self.held.extend(new.map(|&object| Py::from_borrowed_ptr(py, object)));
        self.held_below = self.stack.len();
        self.held.push(Py::from_borrowed_ptr(py, object));
        self.hold_roots(py);
    }

    /// Says what the walk must hold, beside its stack, before Python code runs.
    #[inline]
    pub(crate) fn set_roots(&mut self, roots: [*mut ffi::PyObject; 6]) {
        self.roots = roots;
        self.roots_held = false;
    }

    /// Makes the roots our own.
    ///
    /// # Safety
    /// The interpreter is attached, and the roots are still alive.
    pub(crate) unsafe fn hold_roots(&mut self, py: Python<'_>) {
        if !std::mem::replace(&mut self.roots_held, true) {
            self.held.extend(self.roots.iter().map(|&root| Py::from_borrowed_ptr(py, root)));
        }
    }

    /// Keeps an object until [`Walk::release`].
    pub(crate) fn keep(&mut self, object: Py<PyAny>) {
        self.held.push(object);
    }

    /// Whether anything is held.
    #[inline]
    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Lets go of what was held, which may run Python code. Call it when no walk is under way.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.held_below = 0;
        self.roots_held = true;
        if !self.held.is_empty() {
            self.held.clear();
        }
    }
}

/// Start, stop and step.
///
/// # Safety
/// The object is a slice, alive.
pub(crate) unsafe fn slice_parts(object: *mut ffi::PyObject) -> [*mut ffi::PyObject; 3] {
    let slice = object.cast::<ffi::PySliceObject>();
    [(*slice).start, (*slice).stop, (*slice).step]
}

/// Takes a leaf that needs no more than a look; `false` for all else, which then is as it was.
///
/// # Safety
/// `object` is alive.
#[inline(always)]
#[allow(clippy::inline_always, reason = "once for every leaf of a trace")]
unsafe fn quick(types: &Types, leaves: &mut impl Leaves, object: *mut ffi::PyObject) -> bool {
    let class = ffi::Py_TYPE(object);
    if types.int_is_literal && class == &raw mut ffi::PyLong_Type && !leaves.wants_literals() {
        // Half of all leaves.
        return true;
    }
    leaves.take_known(object)
        || match types.known(class) {
            Some(Shape::Literal) => leaves.take(types, object, None),
            Some(Shape::Proxy(class)) => leaves.take(types, object, Some(class)),
            _ => false,
        }
}

// SAFETY: as for `Types`; between walks the stack is empty.
unsafe impl Send for Walk {}

/// The direct children of a container, in thunder's order.
pub(crate) fn push_children(
    types: &Types,
    host: &Host,
    object: &Bound<'_, PyAny>,
    shape: Shape,
    children: &mut Vec<Py<PyAny>>,
) -> PyResult<()> {
    let py = object.py();
    match shape {
        Shape::Literal | Shape::Proxy(_) => {}
        Shape::Tuple => {
            // SAFETY: the classification says that this is an instance of `tuple`.
            let tuple = unsafe { object.cast_unchecked::<PyTuple>() };
            children.extend(tuple.iter_borrowed().map(|item| item.to_owned().unbind()));
        }
        Shape::List => {
            // SAFETY: the classification says that this is an instance of `list`.
            let list = unsafe { object.cast_unchecked::<PyList>() };
            children.extend(list.iter().map(Bound::unbind));
        }
        Shape::Dict => {
            // SAFETY: the classification says that this is an instance of `dict`.
            let dict = unsafe { object.cast_unchecked::<PyDict>() };
            for (_, value) in sorted_items(dict) {
                children.push(value.unbind());
            }
        }
        Shape::Slice => {
            for name in ["start", "stop", "step"] {
                children.push(object.getattr(name)?.unbind());
            }
        }
        Shape::Dataclass(fields) => {
            for field in &types.dataclasses[fields as usize] {
                children.push(object.getattr(field.bind(py))?.unbind());
            }
        }
        Shape::Other => {
            for item in host.flatten.bind(py).call1((object,))?.try_iter()? {
                children.push(item?.unbind());
            }
        }
    }
    Ok(())
}

/// The items of a dictionary in the order of its sorted keys, as optree has it; in the order of
/// insertion where the keys are not all strings.
pub(crate) fn sorted_items<'py>(dict: &Bound<'py, PyDict>) -> Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let mut items: Vec<_> = dict.iter().collect();
    if items.len() > 1 {
        let keys: Option<Vec<String>> = items.iter().map(|(key, _)| key.extract::<String>().ok()).collect();
        if let Some(keys) = keys {
            let mut order: Vec<usize> = (0..items.len()).collect();
            order.sort_by(|&a, &b| keys[a].cmp(&keys[b]));
            items = order.into_iter().map(|index| items[index].clone()).collect();
        }
    }
    items
}
