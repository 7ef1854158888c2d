"""The counters and the recorder."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import thunder
import torch
from thunder.core.trace import from_trace

import shapetrace_rs
from shapetrace_rs import report

if TYPE_CHECKING:
    from collections.abc import Callable


def snapshot(bound_symbols: Any) -> list[Any]:
    """Everything about bound symbols that a pass could change, at any depth."""
    return [
        (id(bsym), bsym.sym.name, id(bsym.output), frozenset(bsym.tags), snapshot(bsym.subsymbols))
        for bsym in bound_symbols
    ]


def test_each_call_is_recorded_with_its_caller(small_model: Any) -> None:
    """Protects the table that people read: who called, on what, with which result."""
    with shapetrace_rs.enabled(strict=True), shapetrace_rs.record_calls() as recording:
        thunder.jit(small_model)(torch.randn(5, 6))
    assert len(recording) > 3
    callers = {record.caller for record in recording}
    assert {
        "executors.passes.transform_for_execution",
        "transforms.autodiff.grad_transform_on_trace",
    } <= callers
    for record in recording:
        assert record.level == "full"
        assert record.ops_out <= record.ops_in
        assert record.nested_out <= record.nested_in
        assert record.total_ns > 0
        assert record.fallback is None
        assert record.thunder_ns is None
        assert record.ratio is None
    assert any(record.provenance for record in recording)
    assert recording.total_seconds == sum(record.total_ns for record in recording) / 1e9


def test_nothing_is_recorded_outside(dead_code_trace: Any) -> None:
    """Protects against a recorder that stays on, also after an exception."""
    shapetrace_rs.install(strict=True)
    with pytest.raises(ZeroDivisionError), shapetrace_rs.record_calls() as recording:
        thunder.dce(dead_code_trace)
        raise ZeroDivisionError
    thunder.dce(dead_code_trace)
    assert len(recording) == 1
    assert report.recordings is None


def test_recordings_nest(dead_code_trace: Any) -> None:
    """Protects a recording from one that is opened or closed inside."""
    shapetrace_rs.install(strict=True)
    with shapetrace_rs.record_calls() as outer:
        thunder.dce(dead_code_trace)
        with shapetrace_rs.record_calls(compare="cold") as inner:
            thunder.dce(dead_code_trace)
        thunder.dce(dead_code_trace)
    assert (len(outer), len(inner)) == (3, 1)
    assert [record.thunder_ns is None for record in outer] == [True, True, True]
    assert inner.records[0].thunder_ns is not None


@pytest.mark.parametrize("caches", ["as found", "cold"])
def test_thunders_pass_is_timed_on_a_copy(dead_code_trace: Any, caches: Any) -> None:
    """Protects the comparison: same trace, untouched by it, and its cost is told apart."""
    before = snapshot(dead_code_trace.bound_symbols)
    shapetrace_rs.install(strict=True, level="compat")
    with (
        shapetrace_rs.record_calls(compare=caches) as first,
        shapetrace_rs.record_calls(compare=caches) as second,
    ):
        needed: set[Any] = set()
        thunder.dce(dead_code_trace, needed)
    assert snapshot(dead_code_trace.bound_symbols) == before
    for recording in (first, second):
        (record,) = recording
        assert record.thunder_ns is not None
        assert record.ratio == record.thunder_ns / record.total_ns
        assert record.thunder_ops_out == record.ops_out
        assert record.overhead_ns >= record.thunder_ns


def test_an_unknown_comparison_is_refused() -> None:
    """Protects against a comparison that silently does not happen."""
    with pytest.raises(ValueError, match="compare"), shapetrace_rs.record_calls(compare="warm"):  # type: ignore[arg-type]
        pass


def test_fallbacks_are_recorded(dead_code_trace: Any, fail_optimizer: Callable[..., None]) -> None:
    """Protects the reader of a report from taking thunder's time for ours."""
    shapetrace_rs.install()
    fail_optimizer(RuntimeError("injected"))
    with pytest.warns(shapetrace_rs.ShapetraceWarning), shapetrace_rs.record_calls() as recording:
        thunder.dce(dead_code_trace)
    (record,) = recording
    assert record.fallback == "RuntimeError: injected"
    assert (record.ops_in, record.ops_out) == (3, 2)


def test_thunders_own_calls_can_be_recorded(dead_code_trace: Any, fail_optimizer: Callable[..., None]) -> None:
    """Protects the other half of a comparison of whole compiles; the drop-in steps aside for it."""
    shapetrace_rs.install(strict=True)
    fail_optimizer(AssertionError("the optimizer was called"))
    with shapetrace_rs.record_stock_calls() as recording:
        assert not shapetrace_rs.installed()
        thunder.dce(dead_code_trace)
    assert shapetrace_rs.installed()
    (record,) = recording
    assert (record.level, record.ops_in, record.ops_out) == ("stock", 3, 2)
    assert record.function == "test_thunders_own_calls_can_be_recorded"


def test_a_listener_hears_of_each_call(dead_code_trace: Any) -> None:
    """Protects progress displays."""
    heard: list[shapetrace_rs.CallRecord] = []
    with shapetrace_rs.enabled(strict=True), shapetrace_rs.record_calls(on_call=heard.append) as recording:
        thunder.dce(dead_code_trace)
    assert heard == recording.records


def test_counters_count(dead_code_trace: Any) -> None:
    """Protects the totals that `run --summary` prints."""
    before = shapetrace_rs.counters()
    with shapetrace_rs.enabled(strict=True):
        thunder.dce(dead_code_trace)
        thunder.dce(dead_code_trace)
    after = shapetrace_rs.counters()
    assert after.calls == before.calls + 2
    assert after.ops_removed == before.ops_removed + 2
    assert after.seconds > before.seconds
    assert after.fallbacks == before.fallbacks


def test_records_can_be_written_as_json(dead_code_trace: Any) -> None:
    """Protects `demo --json` and scripts that collect records."""
    with shapetrace_rs.enabled(strict=True), shapetrace_rs.record_calls(compare="as found") as recording:
        thunder.dce(dead_code_trace)
    data = json.loads(json.dumps(recording.records[0].as_dict()))
    assert data["ops_in"] == 3
    assert sum(data["removed"].values()) >= 1


def test_a_copy_shares_no_bound_symbol(small_model: Any) -> None:
    """Protects the originals from thunder's pass, which edits the subsymbols of what it gets."""
    compiled = thunder.jit(small_model)
    compiled(torch.randn(5, 6))
    trace = thunder.last_traces(compiled)[0]

    def every(bound_symbols: Any) -> set[int]:
        return {id(bsym) for bsym in bound_symbols}.union(*(every(bsym.subsymbols) for bsym in bound_symbols))

    for caches in ("as found", "cold"):
        copy = report.copy_trace(trace, caches)
        assert str(copy) == str(trace)
        assert every(copy.bound_symbols).isdisjoint(every(trace.bound_symbols))
        assert report.count_nested_ops(copy.bound_symbols) == report.count_nested_ops(trace.bound_symbols)


def test_caches_of_a_copy(dead_code_trace: Any) -> None:
    """Protects the meaning of `as found` and `cold`."""
    bsym = dead_code_trace.bound_symbols[0]
    assert len(bsym.flat_proxy_args) == 2
    assert "flat_args" in vars(bsym)
    assert "flat_args" in vars(report.copy_trace(dead_code_trace, "as found").bound_symbols[0])
    assert "flat_args" not in vars(report.copy_trace(dead_code_trace, "cold").bound_symbols[0])


def test_deep_nesting_is_copied_and_counted(dead_code_trace: Any) -> None:
    """Protects traces that are nested deeper than Python's recursion limit."""
    depth = 2 * sys.getrecursionlimit()
    bsym = dead_code_trace.bound_symbols[0]
    for _ in range(depth):
        bsym = bsym.from_bsym(subsymbols=[bsym])
    trace = from_trace(dead_code_trace)
    trace.bound_symbols = [bsym]
    copy = report.copy_trace(trace, "cold")
    assert report.count_nested_ops(copy.bound_symbols) == depth
