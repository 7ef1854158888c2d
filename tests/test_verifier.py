"""The verifier names what is wrong with a trace, where, and finds nothing in traces that are sound."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import thunder
import torch
from hypothesis import given

import shapetrace_rs
from number_programs import Program, number_programs
from shapetrace_rs.errors import InvalidTraceError
from trace_strategies import Drawn, traces
from trace_tools import (
    LEVELS,
    TraceCtx,
    emit,
    examples,
    find,
    fingerprint,
    finish,
    integer,
    new_trace,
    optimized,
    prims,
    symbol,
    tensor,
)


def kinds(trace: Any, **options: Any) -> list[tuple[str, str | None]]:
    """The kinds of all findings, with the values that they are about."""
    return [(finding.kind, finding.value) for finding in shapetrace_rs.verify(trace, **options)]


def broken_trace() -> Any:
    """A trace in which an op reads what nothing makes, at a known line."""
    with new_trace() as trace:
        a, ghost = tensor("a"), tensor("ghost")
        prims.unpack_trivial(a, name="a")
        r = prims.sin(ghost)
        op = find(trace, "sin")
        op.source_filename, op.source_positions = "model.py", SimpleNamespace(lineno=17)
        prims.cos(ghost)
        return finish(trace, r, a)


def test_value_that_nothing_makes() -> None:
    """The finding names the value, the first op that reads it, and its line."""
    trace = broken_trace()
    before = fingerprint(trace)
    first = shapetrace_rs.verify(trace)[0]
    assert fingerprint(trace) == before
    assert (first.kind, first.value, first.op, first.scope) == ("undefined_value", "ghost", find(trace, "sin"), None)
    assert (first.filename, first.line) == ("model.py", 17)
    assert "sin: ghost:" in str(first)
    assert "(model.py:17)" in str(first)


def test_value_that_is_made_too_late() -> None:
    """A use in front of the definition is told from a use without any."""
    with new_trace() as trace:
        a, m, r = tensor("a"), tensor("m"), tensor("r")
        emit(trace, prims.sin, m, output=r)
        emit(trace, prims.cos, a, output=m)
        finish(trace, r, a)
    assert kinds(trace) == [("used_before_definition", "m")]


def test_scope_that_sees_too_much() -> None:
    """An inner op that reads an outer value which its owner does not take is found, with the owner."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        i0, i1 = integer("i0"), integer("i1", 3)
        emit(trace, prims.shape, a, output=(i0, i1))
        owner = emit(trace, symbol("outer", primitive=False), a, output=r, inside=[symbol("use").bind(a, i0, output=r)])
        finish(trace, r, a)
    (finding,) = shapetrace_rs.verify(trace)
    assert finding.value == "i0"
    assert finding.scope is owner
    assert finding.op is owner.subsymbols[0]
    assert "inside outer" in str(finding)


def test_return_that_is_not_last() -> None:
    """Ops behind the return never run."""
    with new_trace() as trace:
        a = tensor("a")
        finish(trace, prims.sin(a), a)
        prims.cos(a)
    assert [kind for kind, _ in kinds(trace)] == ["return_not_last"]


def test_value_that_is_made_twice() -> None:
    """That is thunder's daily bread, but not what level "full" leaves."""
    with new_trace() as trace:
        a, s = tensor("a"), tensor("s")
        emit(trace, prims.sin, a, output=s)
        emit(trace, prims.sin, a, output=s)
        finish(trace, s, a)
    assert kinds(trace) == []
    assert [value for _, value in kinds(trace, optimized=True)] == ["s"]
    assert kinds(optimized(trace), optimized=True) == []


def test_what_is_no_trace() -> None:
    """The error says what was expected."""
    with pytest.raises(InvalidTraceError, match="expected a thunder trace, not list"):
        shapetrace_rs.verify([])
    assert shapetrace_rs.verify(TraceCtx()) == []


@pytest.mark.parametrize("level", LEVELS)
def test_strict_mode_refuses_what_cannot_run(level: str) -> None:
    """By default a broken trace is optimized as far as it goes; in strict mode the value and its reader are named."""
    trace = broken_trace()
    assert optimized(trace, level=level).bound_symbols
    with pytest.raises(InvalidTraceError, match="ghost") as caught:
        shapetrace_rs.optimize(trace, level=level, strict=True)
    assert "sin" in str(caught.value)
    assert "model.py:17" in str(caught.value)
    assert caught.value.value == "ghost"


def test_debug_builds_verify_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects those who work on the optimizer: a debug build looks at every answer."""
    shapetrace_rs.optimize(broken_trace())
    monkeypatch.setattr(shapetrace_rs._core, "debug_build", True)
    with pytest.raises(InvalidTraceError, match="ghost"):
        shapetrace_rs.optimize(broken_trace())


def test_strict_mode_in_a_compile() -> None:
    """Whole compiles pass in strict mode, so all that the optimizer leaves in them is sound."""

    def function(x: Any, w: Any) -> Any:
        return torch.nn.functional.linear(x.reshape(-1, x.shape[-1]), w).softmax(-1).sum()

    for cache in ("constant values", "symbolic values"):
        with shapetrace_rs.enabled(strict=True):
            compiled = thunder.jit(function, cache=cache)
            compiled(torch.ones(2, 3, 4), torch.ones(5, 4, requires_grad=True)).backward()
        for trace in (*thunder.last_traces(compiled), *thunder.last_backward_traces(compiled)):
            if "Dead Code" in str(trace.get_provenance()):
                assert [finding for finding in shapetrace_rs.verify(trace) if finding.scope is None] == []


def test_use_whose_late_definition_goes() -> None:
    """What came in broken is not blamed on the optimizer, though it may be broken in another way afterwards."""
    with new_trace() as trace:
        late = tensor("late")
        emit(trace, symbol("f"), late, output=tensor("r"))
        emit(trace, symbol("pair"), output=(late, tensor("other")))
        finish(trace, find(trace, "f").output)
    assert kinds(trace) == [("used_before_definition", "late")]
    with pytest.raises(InvalidTraceError, match="broken before"):
        shapetrace_rs.optimize(trace, strict=True)


def test_no_answer_is_worse_than_its_question(caplog: pytest.LogCaptureFixture) -> None:
    """The optimizer breaks nothing: a value that is used wrongly in its answer was used wrongly in the trace."""
    caplog.set_level(logging.ERROR, logger="shapetrace_rs")

    @given(traces())
    @examples(200)
    def compare(drawn: Drawn) -> None:
        came_in = {value for _, value in kinds(drawn.trace)}
        result = optimized(drawn.trace, set(drawn.needed or ()))
        assert {value for _, value in kinds(result)} <= came_in

    compare()


@pytest.mark.parametrize("level", LEVELS)
def test_strict_mode_blames_no_one_for_what_came_in(level: str, caplog: pytest.LogCaptureFixture) -> None:
    """Strict mode never says of a random trace that the optimizer broke it: what is broken came in broken."""
    caplog.set_level(logging.ERROR, logger="shapetrace_rs")
    outcomes = set()

    @given(traces())
    @examples(500)
    def optimize(drawn: Drawn) -> None:
        if level == "compat" and drawn.features & {"collection", "nested collection"}:
            return  # Thunder does not take what a collection holds for read, so at this level it may go.
        try:
            shapetrace_rs.optimize(drawn.trace, set(drawn.needed or ()), level=level, strict=True)
            outcomes.add("sound")
        except InvalidTraceError:
            assert kinds(drawn.trace)
            outcomes.add("broken")

    optimize()
    assert outcomes == {"sound", "broken"}


@given(number_programs())
@examples(60)
def test_number_programs_are_sound_before_and_after(program: Program) -> None:
    """Nothing is found in a sound program, and nothing in what becomes of it, in the stricter form of level "full"."""
    assert kinds(program.trace) == []
    assert kinds(optimized(program.trace), optimized=True) == []
