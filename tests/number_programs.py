"""Random programs of numbers: shapes, a user's numbers and arithmetic, in nested scopes, and what they compute.

The programs are recorded as thunder records them, with thunder's own rules for the types of results, and are run
with the functions of thunder's executor for Python, scope by scope: an op inside another sees what its owner was
given, and nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st
from thunder.core.langctxs import Languages, langctx
from thunder.core.proxies import CONSTRAINT, IntegerProxy, NumberProxy
from thunder.core.trace import get_tracectx

from trace_tools import SHAPE, boolean, emit, floating, integer, new_trace, prims, python_function, symbol, tensor

INTS = [0, 1, 2, 3, 4, 7, -1, -2, -3, 12, 2**31]
DIMENSIONS = [0, 1, 2, 3, 4, 6]

OPERATIONS = {
    "add": prims.add,
    "sub": prims.sub,
    "mul": prims.mul,
    "div": prims.div,
    "py_floordiv": prims.py_floordiv,
    "remainder": prims.remainder,
    "fmod": prims.fmod,
    "eq": prims.eq,
    "ne": prims.ne,
    "lt": prims.lt,
    "le": prims.le,
    "gt": prims.gt,
    "ge": prims.ge,
    "bitwise_and": prims.bitwise_and,
    "bitwise_or": prims.bitwise_or,
    "bitwise_xor": prims.bitwise_xor,
    "pow": prims.pow,
    "signbit": prims.signbit,
    "neg": prims.neg,
    "py_abs": prims.py_abs,
    "to bool": prims.convert_element_type,
    "to int": prims.convert_element_type,
    "to float": prims.convert_element_type,
    # As Python code says it; thunder records these as several ops.
    "a // b": None,
    "a % b": None,
    "a / b": None,
    "a ** 2": None,
}
UNARY = {"signbit", "neg", "py_abs"}
TYPES = {"to bool": bool, "to int": int, "to float": float}


class Program:
    """A trace of numbers, and other inputs to try it on."""

    def __init__(self, trace: Any, inputs: list[dict[str, Any]]) -> None:
        self.trace, self.inputs = trace, inputs

    def __repr__(self) -> str:
        """The lines of the trace and the inputs, for the report of a failure."""
        from trace_tools import text

        return f"\n{text(self.trace)}\ninputs: {self.inputs}"


def _record(draw: Any, values: list[Any], depth: int) -> None:
    """Records some ops in the scope that is open, and adds what they make to the values."""
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from([*OPERATIONS, "query", "query", "again", "scope", "scope", "a // b", "a // b"]))
        if kind == "query":
            dimensions = [value for value in values if hasattr(value, "dimension_of")]
            if dimensions:
                owner = draw(st.sampled_from(dimensions)).dimension_of
                record_query(owner, draw(st.booleans()))
        elif kind == "again":
            ops = get_tracectx().peek_scope()
            if ops:
                op = draw(st.sampled_from(ops))
                ops.append(op.from_bsym())
        elif kind == "scope":
            if depth < 2:
                _record_scope(draw, values, depth)
        else:
            result = _operate(draw, kind, values)
            if isinstance(result, NumberProxy):
                values.append(result)


def record_query(owner: Any, known: bool) -> tuple[Any, ...]:
    """Records a query of a tensor, under the names of its shape or under new ones."""
    trace = get_tracectx()
    if known:
        numbers = tuple(owner._shape)
    else:
        numbers = tuple(
            IntegerProxy(value=number.value, constraint=CONSTRAINT.CONSTRAINABLE) for number in owner._shape
        )
    trace.peek_scope().append(prims.shape.bind(owner, output=numbers))
    return numbers


def _record_scope(draw: Any, values: list[Any], depth: int) -> None:
    trace = get_tracectx()
    given = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4, unique_by=id))
    tensors = {id(value.dimension_of): value.dimension_of for value in given if hasattr(value, "dimension_of")}
    inner = list(given)
    ops: list[Any] = []
    trace.push_scope(ops)
    for owner in tensors.values():
        if draw(st.booleans()):
            inner.extend(record_query(owner, draw(st.booleans())))
    _record(draw, inner, depth + 1)
    trace.pop_scope()
    made = [value for value in inner[len(given) :] if isinstance(value, NumberProxy)]
    results = draw(st.lists(st.sampled_from(made), max_size=2, unique_by=id)) if made else []
    composite = symbol("composite", primitive=False)
    op = composite.bind(*tensors.values(), *given, output=tuple(results), subsymbols=ops)
    trace.peek_scope().append(op)
    values.extend(results)


def _operate(draw: Any, kind: str, values: list[Any]) -> Any:
    a = draw(st.sampled_from(values))
    b = draw(st.one_of(st.sampled_from(values), st.sampled_from([0, 1, 2, -1, -2, True, 1.0])))
    if draw(st.integers(0, 9)) == 0:
        a, b = b, a
    if kind in ("a ** 2", "pow"):
        b = draw(st.sampled_from([0, 1, 2]))
    scopes = get_tracectx().scopes
    ops, depth = scopes[-1], len(scopes)
    before = len(ops)
    try:
        if kind in TYPES:
            return prims.convert_element_type(a, TYPES[kind])
        if kind in UNARY:
            return OPERATIONS[kind](a)
        if OPERATIONS[kind] is not None:
            return OPERATIONS[kind](a, b)
        with langctx(Languages.CLANG):
            if kind == "a // b":
                return a // b
            if kind == "a % b":
                return a % b
            return a / b if kind == "a / b" else a**b
    except (ArithmeticError, TypeError, ValueError, RuntimeError, NotImplementedError, AttributeError):
        # Thunder does not record this: division by what is zero now, floats where ints belong, two literals.
        del scopes[depth:], ops[before:]
        return None


@st.composite
def number_programs(draw: Any) -> Program:
    """Random programs over two tensors with symbolic dimensions and five numbers of the user."""
    with new_trace() as trace:
        shapes = [[draw(st.sampled_from(DIMENSIONS)) for _ in range(2)] for _ in range(2)]
        values: list[Any] = []
        tensors = []
        for index, shape in enumerate(shapes):
            numbers = [integer(f"i{index}{position}", value) for position, value in enumerate(shape)]
            tensors.append(tensor(f"t{index}", numbers))
            for number in numbers:
                number.dimension_of = tensors[-1]
            values.extend(numbers)
        user = [integer(f"n{index}", draw(st.sampled_from(INTS))) for index in range(3)]
        user += [boolean("p", draw(st.booleans())), floating("x", draw(st.sampled_from([0.0, -0.0, 2.5, -1.0])))]
        for value in (*tensors, *user):
            emit(trace, prims.unpack_trivial, value, output=value, name=value.name)
        for owner in tensors:
            emit(trace, prims.shape, owner, output=tuple(owner._shape))
        values.extend(user)
        _record(draw, values, 0)
        _record(draw, values, 0)
        returned = draw(st.lists(st.sampled_from(values), min_size=1, max_size=5))
        emit(trace, prims.python_return, tuple(returned), output=None)
        trace.args = (*tensors, *user)
    recorded = dict(zip(("t0", "t1"), map(tuple, shapes), strict=True)) | {value.name: value.value for value in user}
    inputs = [recorded]
    for _ in range(4):
        inputs.append({
            **{name: tuple(draw(st.sampled_from(DIMENSIONS)) for _ in range(2)) for name in ("t0", "t1")},
            **{f"n{index}": draw(st.sampled_from(INTS)) for index in range(3)},
            "p": draw(st.booleans()),
            "x": draw(st.sampled_from([0.0, -0.0, 2.5, -1.0, float("inf"), float("nan")])),
        })  # fmt: skip
    return Program(trace, inputs)


class Failed:
    """What stands for a number that could not be computed, and for all that is computed from it."""


FAILED = Failed()


def run(trace: Any, given: dict[str, Any]) -> list[Any]:
    """What the trace returns for these shapes and numbers: `FAILED` where Python's arithmetic raises."""
    known = {
        name: torch.empty(value, device="meta") if isinstance(value, tuple) else value for name, value in given.items()
    }
    returned: list[Any] = []
    _run_ops(trace.bound_symbols, known, returned)
    return returned


def _run_ops(ops: Any, known: dict[str, Any], returned: list[Any]) -> None:
    for op in ops:
        if op.sym.id is prims.PrimIDs.UNPACK_TRIVIAL:
            continue
        arguments = [known[leaf.name] if hasattr(leaf, "name") else leaf for leaf in op.flat_args]
        if op.sym.id is prims.PrimIDs.RETURN:
            returned.extend(arguments)
        elif op.sym.name == "composite":
            inside = {proxy.name: known[proxy.name] for proxy in op.flat_proxy_args}
            _run_ops(op.subsymbols, inside, returned)
            known.update({proxy.name: inside[proxy.name] for proxy in op.flat_proxy_outs})
        else:
            results = _compute(op, arguments)
            for out, result in zip(op.flat_outs, results, strict=True):
                if hasattr(out, "name"):
                    known[out.name] = result


def _compute(op: Any, arguments: list[Any]) -> list[Any]:
    if op.sym.id is SHAPE:
        return list(arguments[0].shape)
    if any(argument is FAILED for argument in arguments):
        return [FAILED]
    try:
        return [python_function(op.sym.id)(*arguments)]
    except (ArithmeticError, ValueError, TypeError):
        return [FAILED]
