"""What the tests of traces share: ways to write traces by hand, to copy, print, compare and check them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import warnings
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings

with warnings.catch_warnings():
    # Thunder remarks at import that optional executors are missing.
    warnings.simplefilter("ignore")
    import thunder

from thunder.core import devices, dtypes, prims
from thunder.core.proxies import CONSTRAINT, FloatProxy, IntegerProxy, Proxy, TensorProxy, variableify
from thunder.core.symbol import Symbol, has_tags
from thunder.core.trace import TraceCtx, from_trace, tracectx

from shapetrace_rs.options import OptimizeOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LEVELS = ("full", "compat")
EFFECT = prims.OpTags.DONT_DCE
SHAPE = prims.PrimIDs.SHAPE

# The package has functions of the names of these modules.
optimize_module: Any = importlib.import_module("shapetrace_rs.optimize")
transform_common: Any = importlib.import_module("thunder.core.transform_common")

FUZZ = int(os.environ.get("SHAPETRACE_FUZZ", "0"))
"""How many times as many examples to try, at random; otherwise the same few examples in every run."""


def examples(count: int) -> Callable[[Any], Any]:
    """Settings for a property test: so many examples, or many more and random ones when `SHAPETRACE_FUZZ` is set."""
    return settings(
        max_examples=count * max(FUZZ, 1),
        derandomize=not FUZZ,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


# Writing traces.


def tensor(name: str, shape: Any = (2, 3)) -> TensorProxy:
    """A tensor proxy of this name; call it in the context of a trace. The shape may have numbers in it."""
    proxy = TensorProxy(name=name, shape=shape, device=devices.cpu, dtype=dtypes.float32, requires_grad=False)
    # Outside of a compile with symbolic values thunder would put values in the place of numbers.
    proxy._shape = tuple(shape)
    return proxy


def integer(name: str, value: int = 2) -> IntegerProxy:
    """A number proxy of this name for an int; call it in the context of a trace."""
    return IntegerProxy(name=name, value=value, constraint=CONSTRAINT.CONSTRAINABLE)


def boolean(name: str, value: bool = True) -> IntegerProxy:
    """A number proxy of this name for a bool; call it in the context of a trace."""
    return IntegerProxy(name=name, value=value, constraint=CONSTRAINT.CONSTRAINABLE)


def floating(name: str, value: float = 2.5) -> FloatProxy:
    """A number proxy of this name for a float; call it in the context of a trace."""
    return FloatProxy(name=name, value=value, constraint=CONSTRAINT.CONSTRAINABLE)


def symbol(name: str, *, primitive: bool = True, tags: Any = None, **fields: Any) -> Symbol:
    """A symbol that nobody knows, with nothing behind it."""
    return Symbol(name=name, meta=None, id=name, is_prim=primitive, tags=tags, **fields)


@contextlib.contextmanager
def new_trace() -> Iterator[TraceCtx]:
    """An empty trace, in whose context prims record themselves."""
    trace = TraceCtx()
    trace.args = ()
    with tracectx(trace):
        yield trace


def emit(trace: TraceCtx, sym: Symbol, *args: Any, output: Any, inside: Iterable[Any] = (), **kwargs: Any) -> Any:
    """Appends an op to a trace exactly as it is written here."""
    bound_symbol = sym.bind(*args, output=output, subsymbols=list(inside), **kwargs)
    trace.bound_symbols.append(bound_symbol)
    return bound_symbol


def finish(trace: TraceCtx, result: Any, *args: Any) -> TraceCtx:
    """Appends the return, and sets the arguments of the trace."""
    prims.python_return(result)
    trace.args = args
    return trace


# Looking at traces.


def op_names(trace_or_ops: Any) -> list[str]:
    """The names of the ops of a trace, or of a list, without those inside them."""
    return [op.sym.name for op in getattr(trace_or_ops, "bound_symbols", trace_or_ops)]


def find(trace: Any, name: str) -> Any:
    """The only op of this name at the top level."""
    (op,) = [op for op in trace.bound_symbols if op.sym.name == name]
    return op


def walk(trace_or_ops: Any) -> Iterator[Any]:
    """All ops, each before what is inside it."""
    stack = list(getattr(trace_or_ops, "bound_symbols", trace_or_ops))[::-1]
    while stack:
        op = stack.pop()
        yield op
        stack.extend(list(op.subsymbols)[::-1])


def total(trace_or_ops: Any) -> int:
    """How many ops there are, nested ones included."""
    return sum(1 for _ in walk(trace_or_ops))


def queries(trace_or_ops: Any) -> int:
    """How many shape queries there are, nested ones included."""
    return sum(op.sym.id is SHAPE for op in walk(trace_or_ops))


def shape_of(op: Any) -> Any:
    """The name of an op and of all inside it, as a tree."""
    return (op.sym.name, [shape_of(inside) for inside in op.subsymbols])


def shapes(trace: Any) -> list[Any]:
    """`shape_of` each op."""
    return [shape_of(op) for op in trace.bound_symbols]


def result_names(op: Any) -> list[Any]:
    """The results of an op: names of proxies, literals as they are."""
    return [getattr(leaf, "name", leaf) for leaf in op.flat_outs]


def made_names(trace_or_ops: Any) -> set[str]:
    """The names of all values that ops of the top level write."""
    ops = getattr(trace_or_ops, "bound_symbols", trace_or_ops)
    return {proxy.name for op in ops for proxy in op.flat_proxy_outs}


def needed_names(needed: Iterable[Any]) -> set[str]:
    """The names in a set of `Variable`s."""
    return {variable.proxy.name for variable in needed}


def variables(*proxies: Any) -> set[Any]:
    """A set as `needed_proxies` wants it."""
    return {variableify(proxy) for proxy in proxies}


def text(trace: Any) -> str:
    """A trace as thunder prints it, with all that is inside ops, without the provenance that tells the time."""
    lines = []
    with tracectx(trace):
        for op in trace.bound_symbols:
            lines.extend(op.python(indent=0, print_depth=-1))
    return "\n".join(lines)


def effects_in(trace: Any) -> list[str]:
    """The names of the ops that are tagged as having an effect, or contain one, in their order."""
    return [op.sym.name for op in trace.bound_symbols if has_tags(op, {EFFECT})]


def fingerprint(trace: Any) -> list[Any]:
    """All that an optimizer must not touch: objects by identity, containers by content, strings as they are."""
    kept: list[Any] = [id(trace.bound_symbols), trace.args, trace.kwargs, str(trace.get_provenance()), set(trace.names)]
    for op in walk(trace):
        kept.append((
            id(op), id(op.sym), id(op.args), id(op.kwargs), id(op.output), id(op.subsymbols),
            tuple(map(id, op.subsymbols)), op.header, frozenset(op.tags), id(op.tags), op.source_filename,
            id(op.source_positions), id(op._call_ctx), id(op._import_ctx), id(op._object_ctx), id(op._executor),
            structure(op.args), structure(op.kwargs), structure(op.output),
        ))  # fmt: skip
        for leaf in (*op.flat_proxy_args, *op.flat_proxy_outs):
            kept.append((id(leaf), leaf.name, structure(getattr(leaf, "_shape", None)), frozenset(leaf.tags)))
    return kept


def structure(value: Any) -> Any:
    """Containers by type and content, anything else by identity."""
    if isinstance(value, (tuple, list)):
        return (type(value), id(value), tuple(structure(item) for item in value))
    if isinstance(value, dict):
        return (type(value), id(value), tuple((id(key), structure(item)) for key, item in value.items()))
    if isinstance(value, slice):
        return (slice, id(value), structure((value.start, value.stop, value.step))[2])
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, Proxy)):
        fields = tuple((field.name, structure(getattr(value, field.name))) for field in dataclasses.fields(value))
        return (type(value), id(value), fields)
    return id(value)


def copied(trace: Any) -> Any:
    """A copy with bound symbols of its own, for passes that edit what they are given.

    What was one object is one object: thunder's pass compares bound symbols, and some are equal to themselves alone.
    """
    made: dict[int, Any] = {}

    def copy(op: Any) -> Any:
        if id(op) not in made:
            made[id(op)] = op.from_bsym(subsymbols=[copy(inside) for inside in op.subsymbols])
        return made[id(op)]

    result = from_trace(trace)
    result.bound_symbols = type(trace.bound_symbols)(copy(op) for op in trace.bound_symbols)
    return result


def undefined_uses(trace: Any, before: Any = None) -> set[tuple[str, ...]]:
    """Uses of values that nothing at hand defines: the path of ops that leads there, then the value.

    A scope has at hand what the op that owns it takes, and what it has defined itself. At the top level, only what
    some op defines later counts: anything else is an input.

    Args:
        trace: The trace to look at.
        before: What it was made of, if it was: that trace tells what is an input. A value whose definition is lost
            altogether is one to the result alone.
    """
    source = trace if before is None else before
    everything = {proxy.name for op in source.bound_symbols for proxy in op.flat_proxy_outs}
    inputs = set()
    for op in source.bound_symbols:
        inputs |= {proxy.name for proxy in op.flat_proxy_args} & {proxy.name for proxy in op.flat_proxy_outs}
    found: set[tuple[str, ...]] = set()
    inputs |= {proxy.name for op in trace.bound_symbols for proxy in op.flat_proxy_args} - everything
    pending: list[tuple[tuple[str, ...], list[Any], set[str]]] = [((), list(trace.bound_symbols), inputs)]
    while pending:
        path, ops, known = pending.pop()
        for op in ops:
            for proxy in op.flat_proxy_args:
                if proxy.name not in known:
                    found.add((*path, op.sym.name, proxy.name))
            known |= {proxy.name for proxy in op.flat_proxy_outs}
            if op.subsymbols:
                handed = {proxy.name for proxy in op.flat_proxy_args}
                pending.append(((*path, op.sym.name), list(op.subsymbols), handed))
    return found


# Running numbers.


@functools.cache
def python_function(primitive: Any) -> Callable[..., Any]:
    """What thunder's executor for Python calls for a primitive."""
    from thunder.executors import pythonex

    operation = pythonex.ex.implmap[primitive].symbol
    if operation._bind_postprocess is not None:
        holder = operation.bind(output=None)
        if holder._call_ctx:
            (function,) = holder._call_ctx.values()
            return function
    return getattr(operation.module, operation.name)


# Optimizing.


def optimized(trace: Any, needed: set[Any] | None = None, **options: Any) -> Any:
    """The optimized trace; the input is checked to be untouched, and the provenance to be what thunder looks for."""
    before = fingerprint(trace)
    result = optimize_module.run(trace, needed, OptimizeOptions(**options))[0]
    assert fingerprint(trace) == before, "the input was changed"
    assert str(result.get_provenance()).startswith("# Constructed by Dead Code Elimination (took ")
    return result


def assert_settled(trace: Any, needed: set[Any] | None = None, **options: Any) -> None:
    """Asserts that optimizing a trace hands back the very same ops."""
    again = optimize_module.run(trace, None if needed is None else set(needed), OptimizeOptions(**options))[0]
    assert len(again.bound_symbols) == len(trace.bound_symbols), "a second run removes more"
    for first, second in zip(trace.bound_symbols, again.bound_symbols, strict=True):
        assert first is second, f"a second run changes {first.sym.name}"


def assert_unchanged_ops_are_the_same_objects(before: Any, after: Any) -> None:
    """Asserts that an op that is the same afterwards, inside and out, is the same object.

    Shapes of what it takes and makes are compared too: an op whose argument carries another number is another op.
    """
    originals = {id(op) for op in walk(before)}

    def looks(op: Any) -> str:
        values = [[inside.args, inside.kwargs, inside.output] for inside in walk([op])]
        return f"{op.python(indent=0, print_depth=-1)} {values!r}"

    with tracectx(after):
        known = {looks(op) for op in before.bound_symbols}
        for op in after.bound_symbols:
            assert id(op) in originals or looks(op) not in known, f"made anew without a change: {looks(op)}"


def compiled_traces(function: Any, *inputs: Any, **jit_options: Any) -> Any:
    """A function compiled by thunder and called once."""
    compiled = thunder.jit(function, **jit_options)
    compiled(*inputs)
    return compiled


@contextlib.contextmanager
def relu_in_place(tags: Any = None) -> Iterator[tuple[Any, list[Any]]]:
    """An operator of a foreign executor that changes its argument and hands it back, and the executors to run it."""
    from thunder.extend import OperatorExecutor, deregister_executor, register_executor

    executor = OperatorExecutor("shapetrace_test_executor", version="1")
    register_executor(executor)
    try:
        operator = executor.register_operator("relu_", meta=lambda x: x, fn=lambda x: x.relu_(), tags=tags)
        yield operator, [executor, thunder.pytorch_executor]
    finally:
        deregister_executor(executor)
