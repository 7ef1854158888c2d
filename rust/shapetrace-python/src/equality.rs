//! Equality of bound symbols as thunder's own pass has it, for level "compat".
//!
//! thunder compares symbol, arguments and output, proxies by name, and takes no two bound symbols
//! with keyword arguments for equal. Constants are compared here only if they are plain data: a
//! user's object is equal to itself alone, for its `==` may raise, or answer with an array.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyDict, PyEllipsis, PyFloat, PyInt, PyList, PyNone, PyString, PyTuple};

use crate::flatten::{push_children, sorted_items, Shape, Types};
use crate::host::Host;
use crate::names::names;

/// Whether thunder takes two bound symbols for equal.
pub(crate) fn equal_bound_symbols(
    types: &mut Types,
    host: &Host,
    a: &Bound<'_, PyAny>,
    b: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    if a.is(b) {
        return Ok(true);
    }
    let names = names(a.py());
    for side in [a, b] {
        if side.getattr(&names.kwargs)?.len()? > 0 {
            return Ok(false);
        }
    }
    let (sym_a, sym_b) = (a.getattr(&names.sym)?, b.getattr(&names.sym)?);
    if !sym_a.is(&sym_b) && !sym_a.eq(&sym_b)? {
        return Ok(false);
    }
    Ok(equal(types, host, a.getattr(&names.args)?, b.getattr(&names.args)?)?
        && equal(types, host, a.getattr(&names.output)?, b.getattr(&names.output)?)?)
}

/// Structural equality, with a stack: no depth is too deep.
fn equal<'py>(types: &mut Types, host: &Host, a: Bound<'py, PyAny>, b: Bound<'py, PyAny>) -> PyResult<bool> {
    let py = a.py();
    let names = names(py);
    let mut stack = vec![(a, b)];
    while let Some((a, b)) = stack.pop() {
        if a.is(&b) {
            continue;
        }
        let (shape_a, shape_b) = (types.shape(host, &a)?, types.shape(host, &b)?);
        match (shape_a, shape_b) {
            (Shape::Proxy(_), Shape::Proxy(_)) => {
                let (name_a, name_b) = (a.getattr(&names.name)?, b.getattr(&names.name)?);
                if !name_a.eq(&name_b)? {
                    return Ok(false);
                }
            }
            (Shape::Literal, Shape::Literal) => {
                if !(is_plain(&a) && is_plain(&b) && a.eq(&b)?) {
                    return Ok(false);
                }
            }
            (Shape::Dict, Shape::Dict) => {
                let (a, b) = (a.cast::<PyDict>()?, b.cast::<PyDict>()?);
                let (a, b) = (sorted_items(a), sorted_items(b));
                if a.len() != b.len() {
                    return Ok(false);
                }
                for ((key_a, value_a), (key_b, value_b)) in a.into_iter().zip(b) {
                    stack.push((key_a, key_b));
                    stack.push((value_a, value_b));
                }
            }
            _ if a.get_type().is(b.get_type()) => {
                let (mut children_a, mut children_b) = (Vec::new(), Vec::new());
                push_children(types, host, &a, shape_a, &mut children_a)?;
                push_children(types, host, &b, shape_b, &mut children_b)?;
                if children_a.len() != children_b.len() {
                    return Ok(false);
                }
                let pairs = children_a.into_iter().zip(children_b);
                stack.extend(pairs.map(|(a, b)| (a.into_bound(py), b.into_bound(py))));
            }
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Data whose `==` answers with a bool and runs no user code.
fn is_plain(object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyString>()
        || object.is_exact_instance_of::<PyNone>()
        || object.is_exact_instance_of::<PyComplex>()
        || object.is_exact_instance_of::<PyBytes>()
        || object.is_exact_instance_of::<PyEllipsis>()
        || object.is_exact_instance_of::<PyTuple>()
        || object.is_exact_instance_of::<PyList>()
        || is_of_thunder(object)
}

/// thunder's own devices and dtypes compare as plain data.
fn is_of_thunder(object: &Bound<'_, PyAny>) -> bool {
    object.get_type().module().is_ok_and(|module| {
        module.to_string_lossy().starts_with("thunder.core.")
            || module.to_string_lossy() == "torch"
                && object
                    .get_type()
                    .name()
                    .is_ok_and(|name| ["dtype", "device", "memory_format"].contains(&&*name.to_string_lossy()))
    })
}
