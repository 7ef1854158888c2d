"""What the drop-in must not touch: fusions, which are compiled functions, and how nvFuser's executor calls it."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
from nvfuser_harness import compile_both, compile_passes, nvfuser_executor
from nvfuser_programs import compile_program
from thunder.core import prims
from thunder.core.proxies import NumberProxy, Proxy, TensorProxy
from thunder.core.trace import TraceCtx, from_trace, tracectx
from thunder.executors.passes import del_last_used

import shapetrace_rs
from cuda_programs import FUNCTIONS, MODULES
from fake_cuda import CONSTANT, DROP_IN, SYMBOLIC, Compiled

CASES = [pytest.param(name, cache, id=f"{name}, {cache}") for name in FUNCTIONS for cache in (CONSTANT, SYMBOLIC)]
CASES += [pytest.param(name, CONSTANT, id=f"{name}, {CONSTANT}") for name in MODULES]


def _compile(name: str, cache: str) -> Compiled:
    """One of the programs with gradients, compiled with the drop-in."""
    return compile_program(name, cache=cache, grad=True, drop_in=DROP_IN)


def _names(proxies: Any) -> list[str]:
    return [proxy.name for proxy in proxies]


def _constants(op: Any) -> list[Any]:
    return [argument for argument in op.flat_args if not isinstance(argument, Proxy)]


@pytest.mark.parametrize(("name", "cache"), CASES)
def test_fusions_are_called_as_they_were_compiled(name: str, cache: str) -> None:
    """A fusion's call context, arguments, results and ops are those that its function was made from, in order.

    Up to the names of values: thunder renames some after the fusion was made, inside and outside alike.
    """
    compiled = _compile(name, cache)
    assert compiled.fusions
    for fusion in compiled.fusions:
        (called, function), *others = fusion._call_ctx.items()
        assert called == fusion.sym.name
        assert not others
        made_from = inspect.getclosurevars(function.get_fd.__wrapped__).nonlocals
        renamed = dict(zip(_names(made_from["sorted_unique_inputs"]), _names(fusion.args), strict=True))
        for made, op in zip(made_from["bsyms"], fusion.subsymbols, strict=True):
            assert op.sym is made.sym
            assert _names(op.flat_proxy_args) == [renamed[name] for name in _names(made.flat_proxy_args)]
            assert _constants(op) == _constants(made)
            renamed.update(zip(_names(made.flat_proxy_outs), _names(op.flat_proxy_outs), strict=True))
        assert _names(fusion.output) == [renamed[name] for name in _names(made_from["sorted_unique_outputs"])]


@pytest.mark.parametrize(("name", "cache"), CASES)
def test_fusions_have_the_arguments_they_need(name: str, cache: str) -> None:
    """The executor drops the inputs that dead code elimination does not report as needed: no more, and no fewer."""
    for fusion in _compile(name, cache).fusions:
        defined: set[str] = set()
        used: set[str] = set()
        for op in fusion.subsymbols:
            used.update(proxy.name for proxy in op.flat_proxy_args if proxy.name not in defined)
            defined.update(_names(op.flat_proxy_outs))
        assert set(_names(fusion.args)) == used
        assert set(_names(fusion.output)) <= defined
        assert len(set(_names(fusion.args))) == len(fusion.args)


@pytest.mark.parametrize(("name", "cache"), CASES)
def test_no_fusion_gives_a_number(name: str, cache: str) -> None:
    """A fusion cannot hand out numbers, so a number that is used elsewhere has to be made outside of fusions."""
    for fusion in _compile(name, cache).fusions:
        assert all(isinstance(out, TensorProxy) for out in fusion.output)
        assert all(isinstance(argument, TensorProxy | NumberProxy) for argument in fusion.args)


@pytest.mark.parametrize("level", ["full", "compat"])
@pytest.mark.parametrize("cache", [CONSTANT, SYMBOLIC])
def test_another_pass_leaves_fusions_alone(cache: str, level: str) -> None:
    """Optimizing a trace with fusions gives the same objects, with the same ops and the same call context."""
    for trace in _compile("gated", cache).final:
        before = [(fusion, fusion.subsymbols, fusion._call_ctx) for fusion in _fusions(trace)]
        optimized = shapetrace_rs.optimize(_without_deletions(trace), level=level, strict=True)
        after = _fusions(optimized)
        assert len(before) == len(after) > 0
        for (fusion, ops, context), kept in zip(before, after, strict=True):
            assert kept is fusion
            assert kept.subsymbols is ops
            assert kept._call_ctx is context


def test_dead_fusion_goes_and_unused_result_stays() -> None:
    """A fusion that nothing uses is removed; one of whose results something is used keeps all of them, in order."""
    trace = _without_deletions(_compile("gated", SYMBOLIC).final[1])
    *ops, returned = trace.bound_symbols
    several = next(fusion for fusion in _fusions(trace) if len(fusion.output) > 1)
    dead = from_trace(trace)
    dead.bound_symbols = [*ops, returned.from_bsym(args=((),))]
    assert not _fusions(shapetrace_rs.optimize(dead, strict=True))

    for wanted in several.output:
        one = from_trace(trace)
        one.bound_symbols = [*ops, returned.from_bsym(args=((wanted,),))]
        kept = next(
            fusion for fusion in _fusions(shapetrace_rs.optimize(one, strict=True)) if fusion.sym is several.sym
        )
        assert kept is several


def test_the_executor_calls_the_drop_in() -> None:
    """The executor's module is hooked although it was imported late, and it gets the needed values it asks for."""
    implementation = importlib.import_module("thunder.executors.nvfuserex_impl")
    function, args = FUNCTIONS["gated"].build()
    with shapetrace_rs.enabled(**DROP_IN), shapetrace_rs.record_calls() as calls:
        assert implementation.dce.__module__ == "shapetrace_rs._hooks"
        compile_passes(function, args, cache=SYMBOLIC, grad=True)
    assert implementation.dce.__module__ == "thunder.core.transform_common"
    callers = {call.caller for call in calls}
    assert "executors.nvfuserex_impl._dce_bsyms" in callers
    assert "executors.nvfuserex_impl.fusion_pass" in callers


@pytest.mark.parametrize("drop_in", [DROP_IN, {"level": "compat", "strict": True}], ids=["full", "compat"])
def test_unused_inputs_are_not_needed(drop_in: dict[str, Any]) -> None:
    """What the executor does for each fusion: it gives ops and results, and gets back what they need."""
    executor = nvfuser_executor()
    fusion = _compile("softmax", CONSTANT).fusions[0]
    ops, results, given = list(fusion.subsymbols), list(fusion.output), list(fusion.args)
    with tracectx(TraceCtx()):
        inputs = [TensorProxy(like=given[0], name="unused"), *given]
    with shapetrace_rs.enabled(**drop_in):
        kept = executor._dce_bsyms(inputs, results, list(ops))
    assert inputs == given
    assert len(kept) == len(ops)
    assert all(op is before for op, before in zip(kept, ops, strict=True))

    # The first op alone: the executor passes a list, which becomes the list of what is needed.
    inputs = list(given)
    with shapetrace_rs.enabled(**drop_in):
        kept = executor._dce_bsyms(inputs, list(ops[0].flat_proxy_outs), list(ops))
    assert [op.sym.name for op in kept] == [ops[0].sym.name]
    assert _names(inputs) == _names(ops[0].flat_proxy_args)


def test_both_ways_name_the_fusions_alike() -> None:
    """Names and order of the fusions come from their place in the trace, as with stock thunder."""
    function, args = MODULES["mlp module"].build()
    stock, ours = compile_both(function, args)
    assert [fusion.sym.name for fusion in ours.fusions] == [fusion.sym.name for fusion in stock.fusions]


def _fusions(trace: Any) -> list[Any]:
    return [bsym for bsym in trace.bound_symbols if bsym.sym.is_fusion]


def _without_deletions(trace: Any) -> Any:
    """A trace as it was before thunder told it when to free its tensors."""
    copy = from_trace(trace)
    copy.bound_symbols = [bsym for bsym in trace.bound_symbols if bsym.sym.id is not prims.PrimIDs.DEL]
    assert all(isinstance(proxy, Proxy) for bsym in copy.bound_symbols for proxy in bsym.flat_proxy_args)
    assert len(del_last_used(copy).bound_symbols) >= len(copy.bound_symbols)
    return copy


@pytest.mark.parametrize("form", [shapetrace_rs.dumps, shapetrace_rs.dumps_text])
@pytest.mark.parametrize("cache", [CONSTANT, SYMBOLIC])
def test_fusions_are_made_again_from_a_file(cache: str, form: Any) -> None:
    """A trace that comes back from a file has fusions of the same ops, with functions made of these."""
    compiled = _compile("softmax", cache)
    for trace in compiled.final:
        loaded = shapetrace_rs.loads(form(trace))
        assert str(loaded) == str(trace)
        fusions = [op for op in loaded.bound_symbols if op.sym.is_fusion]
        before = [op for op in trace.bound_symbols if op.sym.is_fusion]
        for fusion, original in zip(fusions, before, strict=True):
            (called, function), *others = fusion._call_ctx.items()
            assert (called, others) == (fusion.sym.name, [])
            assert fusion.sym.executor is original.sym.executor
            made_from = inspect.getclosurevars(function.get_fd.__wrapped__).nonlocals
            assert made_from["bsyms"] == tuple(fusion.subsymbols) or list(made_from["bsyms"]) == list(fusion.subsymbols)
            assert _names(fusion.args) == _names(made_from["sorted_unique_inputs"]) == _names(original.args)
            assert _names(fusion.output) == _names(made_from["sorted_unique_outputs"]) == _names(original.output)
