"""Level "full" changes no result: number programs run before and after, on the recorded inputs and on others."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from thunder.core.proxies import CollectionProxy, NumberProxy

import shapetrace_rs
from number_programs import FAILED, OPERATIONS, Program, number_programs, run
from trace_strategies import Drawn, traces
from trace_tools import (
    assert_settled,
    assert_unchanged_ops_are_the_same_objects,
    effects_in,
    examples,
    op_names,
    optimized,
    prims,
    text,
    total,
    undefined_uses,
    walk,
)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Random traces are full of ops that look like in-place ops; the words about them are tested elsewhere."""
    caplog.set_level(logging.ERROR, logger="shapetrace_rs")


def same(a: Any, b: Any) -> bool:
    """Whether two results are alike to the type, the sign of zero, and NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)


def test_numbers_are_what_they_were() -> None:
    """Every number is the same after the optimization, for every shape and every number of the user.

    Where the program as recorded raises, a number that is not needed for the result need not be computed any more.
    """
    seen: set[str] = set()
    failures = 0
    fewer = 0

    @given(number_programs(), st.booleans())
    @examples(250)
    def compare(program: Program, floor_division: bool) -> None:
        nonlocal failures, fewer
        trace = program.trace
        result = optimized(trace, floor_division=floor_division)
        fewer += total(result) < total(trace)
        for given_ in program.inputs:
            before, after = run(trace, given_), run(result, given_)
            failures += FAILED in before
            for old, new in zip(before, after, strict=True):
                assert old is FAILED or same(old, new), f"{old!r} became {new!r} for {given_}\n{text(result)}"
        assert not undefined_uses(result, trace)
        assert_settled(result, floor_division=floor_division)
        seen.update(op.sym.name for op in walk(trace))
        event("nested" if "composite" in op_names(trace) else "flat")

    compare()
    recorded = {name for name, operation in OPERATIONS.items() if operation is not None and not name.startswith("to ")}
    recorded |= {"convert_element_type", "composite", "shape"}
    assert recorded <= seen, recorded - seen
    assert failures > 3
    assert fewer > 100


@given(traces(well_formed=True))
@examples(300)
def test_structure_of_random_traces(drawn: Drawn) -> None:
    """What holds of every answer, whatever the trace.

    Every effect stays, in order; the return stays; nothing is reordered; no use is left without its definition that
    had one; nothing is changed that need not be; a second run finds nothing more.
    """
    trace = drawn.trace
    result = optimized(trace, drawn.needed)
    assert effects_in(result) == effects_in(trace)
    assert result.bound_symbols[-1].sym.id is prims.PrimIDs.RETURN
    assert result.bound_symbols[-1] is trace.bound_symbols[-1]
    before = iter(op_names(trace))
    assert all(name in before for name in op_names(result)), "the order changed"
    assert undefined_uses(result, trace) <= undefined_uses(trace)
    assert_unchanged_ops_are_the_same_objects(trace, result)
    assert_settled(result, drawn.needed)


@given(traces())
@examples(200)
def test_broken_traces(drawn: Drawn) -> None:
    """Also of a trace that is broken: no error, no effect lost, no new break, and nothing left to do."""
    trace, needed = drawn.trace, drawn.needed
    result = optimized(trace, needed)
    assert effects_in(result) == effects_in(trace)
    assert undefined_uses(result, trace) <= undefined_uses(trace)
    assert_settled(result, needed)


@given(traces(well_formed=True))
@examples(150)
def test_no_more_ops_than_compat(drawn: Drawn) -> None:
    """Full leaves at most what thunder's rules leave, but for what exists for its effect alone.

    And but for what is in a collection that an op takes whole: to full these values are read, to thunder they are not.
    """
    harmless = {prims.PrimIDs.RETURN, prims.PrimIDs.COMMENT, prims.PrimIDs.DEL}
    if any(not op.flat_proxy_outs and op.sym.id not in harmless for op in walk(drawn.trace)):
        return
    unpacks = {prims.PrimIDs.UNPACK_SEQUENCE, prims.PrimIDs.UNPACK_DICT_KEY}
    takes = (proxy for op in walk(drawn.trace) if op.sym.id not in unpacks for proxy in op.flat_proxy_args)
    if any(isinstance(proxy, CollectionProxy) for proxy in takes):
        return
    compat = optimized(drawn.trace, set(drawn.needed or ()), level="compat")
    full = optimized(drawn.trace, set(drawn.needed or ()))
    assert len(full.bound_symbols) <= len(compat.bound_symbols)


def makes_numbers_only(op: Any) -> bool:
    """Whether all that an op makes is numbers: a query or arithmetic."""
    return bool(op.flat_proxy_outs) and all(isinstance(proxy, NumberProxy) for proxy in op.flat_proxy_outs)


@given(traces(), st.booleans(), st.booleans())
@examples(100)
def test_policies_only_keep_more(drawn: Drawn, keep_random: bool, keep_shape_numbers: bool) -> None:
    """With `keep_random` and `keep_shape_numbers` no op goes that stays without them.

    But a number that is kept for the shape that mentions it may take the place of one that had to be asked for.
    """
    needed = drawn.needed
    plain = optimized(drawn.trace, None if needed is None else set(needed))
    options = {"keep_random": keep_random, "keep_shape_numbers": keep_shape_numbers}
    kept = optimized(drawn.trace, None if needed is None else set(needed), **options)

    def counted(trace: Any) -> int:
        return sum(not (keep_shape_numbers and makes_numbers_only(op)) for op in trace.bound_symbols)

    assert counted(kept) >= counted(plain)
    made = {proxy.name for op in drawn.trace.bound_symbols for proxy in op.flat_proxy_outs}
    # A needed value that nothing makes is known by the ops that read it, and these may go.
    if not keep_shape_numbers or all(variable.proxy.name in made for variable in needed or ()):
        assert_settled(kept, needed, **options)
    if keep_random:
        names = op_names(drawn.trace)
        assert op_names(kept).count("draw") == names.count("draw")


SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path[:0] = {path}
from hypothesis import given, settings
from number_programs import number_programs
from trace_strategies import traces
from trace_tools import optimize_module, OptimizeOptions, text, examples, needed_names

@given(traces(), number_programs())
@examples(20)
def show(drawn, program):
    for trace in (drawn.trace, program.trace):
        for level in ("full", "compat"):
            needed = set() if trace is program.trace or drawn.needed is None else set(drawn.needed)
            print(text(optimize_module.run(trace, needed, OptimizeOptions(level=level))[0]))
            print(sorted(needed_names(needed)))
show()
"""


def test_the_answer_depends_on_the_trace_alone() -> None:
    """Other processes with other hash seeds and addresses give the same text: all ranks of a job get one trace."""
    package = str(Path(shapetrace_rs.__file__).parents[1])
    script = SCRIPT.format(path=[package, str(Path(__file__).parent)])
    environment = {**os.environ, "SHAPETRACE_FUZZ": "0"}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**environment, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "77")
    ]
    assert outputs[0] == outputs[1]
    assert outputs[0].count("\n") > 500
