//! Walking argument and output structures without making objects.
//!
//! Leaves come in the order of thunder's own flattening: sequences in order, dictionaries by
//! sorted key, dataclasses by sorted field name, slices as start, stop, step. What is none of
//! these natively goes through thunder's flattening.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySlice, PyString, PyTuple, PyType};
use rustc_hash::FxHashMap;

use crate::host::Host;
use crate::names::names;

/// What an object of some type is to the walk.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// A leaf without a name.
    Literal,
    /// A leaf with a name.
    Proxy(ProxyClass),
    /// `tuple`, and classes that thunder walks like one.
    Tuple,
    /// `list`, and classes that thunder walks like one.
    List,
    /// `dict`, and classes that thunder walks like one.
    Dict,
    /// `slice`
    Slice,
    /// A dataclass, with its field names sorted.
    Dataclass(std::sync::Arc<[Py<PyString>]>),
    /// Anything else that thunder can flatten.
    Other,
}

/// What is to be known of a proxy class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProxyClass {
    pub(crate) kind: ProxyKind,
    /// The class has the usual `name`, which is the `_name` of the instance.
    pub(crate) usual_name: bool,
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
    known: FxHashMap<*mut ffi::PyTypeObject, (Shape, Option<Py<PyType>>)>,
}

/// So many types are remembered before all are forgotten: programs that make types without end
/// must not make us hold them without end.
const TYPE_LIMIT: usize = 4096;

// SAFETY: the map is only touched with the interpreter attached (every method takes `Python` or a
// bound object), and its keys are addresses that are compared, never followed.
unsafe impl Send for Types {}

impl Types {
    /// What the walk does with this object.
    #[inline]
    pub(crate) fn shape(&mut self, host: &Host, object: &Bound<'_, PyAny>) -> PyResult<Shape> {
        let address = object.get_type_ptr();
        if let Some((shape, _)) = self.known.get(&address) {
            return Ok(shape.clone());
        }
        self.classify(host, object)
    }

    #[cold]
    fn classify(&mut self, host: &Host, object: &Bound<'_, PyAny>) -> PyResult<Shape> {
        let py = object.py();
        let class = object.get_type();
        if self.known.len() >= TYPE_LIMIT {
            self.known.clear();
        }
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
            Shape::Proxy(ProxyClass { kind, usual_name })
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
            Shape::Dataclass(fields.into())
        } else if host.is_leaf.bind(py).call1((object,))?.is_truthy()? {
            Shape::Literal
        } else if object.is_instance_of::<PyTuple>() {
            Shape::Tuple
        } else if object.is_instance_of::<PyList>() {
            Shape::List
        } else {
            Shape::Other
        };
        self.known.insert(object.get_type_ptr(), (shape.clone(), Some(class.unbind())));
        Ok(shape)
    }
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

/// Memory of a walk, reused.
#[derive(Default)]
pub(crate) struct Walk {
    stack: Vec<Py<PyAny>>,
}

impl Walk {
    /// Calls `leaf` for every leaf of the structure, in thunder's order. Iterative: structures of
    /// any depth are walked on the heap.
    pub(crate) fn leaves<'py>(
        &mut self,
        types: &mut Types,
        host: &Host,
        root: Bound<'py, PyAny>,
        leaf: &mut dyn FnMut(&Bound<'py, PyAny>, Option<ProxyClass>) -> PyResult<()>,
    ) -> PyResult<()> {
        let py = root.py();
        let bottom = self.stack.len();
        self.stack.push(root.unbind());
        let result = self.drain(py, types, host, bottom, leaf);
        self.stack.truncate(bottom);
        result
    }

    fn drain<'py>(
        &mut self,
        py: Python<'py>,
        types: &mut Types,
        host: &Host,
        bottom: usize,
        leaf: &mut dyn FnMut(&Bound<'py, PyAny>, Option<ProxyClass>) -> PyResult<()>,
    ) -> PyResult<()> {
        while self.stack.len() > bottom {
            let object = self.stack.pop().expect("checked").into_bound(py);
            match types.shape(host, &object)? {
                Shape::Literal => leaf(&object, None)?,
                Shape::Proxy(class) => leaf(&object, Some(class))?,
                shape => {
                    let children = self.stack.len();
                    push_children(host, &object, &shape, &mut self.stack)?;
                    self.stack[children..].reverse();
                }
            }
        }
        Ok(())
    }
}

/// The direct children of a container, in thunder's order.
pub(crate) fn push_children(
    host: &Host,
    object: &Bound<'_, PyAny>,
    shape: &Shape,
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
            for field in fields.iter() {
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
