"""What is decided, not derived: opaque ops, forgotten tags, random ops, numbers in shapes, broken traces, options."""

from __future__ import annotations

import dataclasses
import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest
import thunder
import torch
from thunder.core.proxies import TensorProxy

import shapetrace_rs
from shapetrace_rs import _thunder
from trace_tools import (
    EFFECT,
    LEVELS,
    assert_settled,
    emit,
    find,
    finish,
    integer,
    made_names,
    needed_names,
    new_trace,
    op_names,
    optimized,
    prims,
    relu_in_place,
    symbol,
    tensor,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

OPAQUE = {"None": None, "an empty tuple": (), "an empty list": [], "a literal": 3, "literals": {"a": [1.0, "text"]}}


# Ops that define no value.


@pytest.mark.parametrize("output", OPAQUE.values(), ids=OPAQUE.keys())
def test_foreign_op_that_defines_nothing_stays(output: Any) -> None:
    """An unknown op without a value can only be there for an effect, at the top level and inside an op."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        note = symbol("note")
        emit(trace, note, a, output=output)
        inside = [note.bind(a, output=output), prims.sin.bind(a, output=r)]
        emit(trace, symbol("composite", primitive=False), a, output=r, inside=inside)
        finish(trace, r, a)
    result = optimized(trace)
    assert op_names(result) == ["unpack_trivial", "note", "composite", "python_return"]
    assert op_names(find(result, "composite").subsymbols) == ["note", "sin"]
    assert "note" not in op_names(optimized(trace, level="compat")), "as thunder has it"


def test_ops_that_are_known_to_do_nothing_go() -> None:
    """Comments and thunder's own composites that define nothing are no effects."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        prims.comment("a remark")
        inside = [prims.sin.bind(a, output=tensor("unused"))]
        emit(trace, symbol("composite", primitive=False), a, output=(), inside=inside)
        emit(trace, prims.shape, a, output=(2, 3))
        finish(trace, a, a)
    result = optimized(trace)
    assert [name for name in op_names(result) if name != "comment"] == ["unpack_trivial", "python_return"]


@pytest.fixture
def note_calls() -> Iterator[list[int]]:
    """What a custom op without a result has seen; the op is registered as `shapetrace_tests::note`."""
    from thunder.torch.custom_op import _register_custom_op

    calls: list[int] = []
    with torch.library._scoped_library("shapetrace_tests", "FRAGMENT"):

        @torch.library.custom_op("shapetrace_tests::note", mutates_args=())
        def note(x: torch.Tensor) -> None:
            calls.append(x.numel())

        @note.register_fake
        def _(x: torch.Tensor) -> None:
            return None

        _register_custom_op(note)
        yield calls


def test_custom_op_that_returns_none_runs(note_calls: list[int]) -> None:
    """A registered custom op without a result is called once for each time that eager PyTorch calls it."""

    def function(x: Any) -> Any:
        torch.ops.shapetrace_tests.note(x)
        return x + 1

    with shapetrace_rs.enabled(strict=True):
        result = thunder.jit(function)(torch.ones(3))
    assert note_calls == [3]
    assert torch.equal(result, torch.full((3,), 2.0))


# Ops that only hand back an argument.


def test_untagged_in_place_op_is_removed_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """As in thunder it goes, but the log names the op and the line of the user's source that called it."""
    with relu_in_place() as (relu_, executors):

        def function(x: Any) -> Any:
            return relu_(x) + 1

        line = function.__code__.co_firstlineno + 1
        with shapetrace_rs.enabled(strict=True), caplog.at_level(logging.WARNING, logger="shapetrace_rs"):
            compiled = thunder.jit(function, executors=executors)
            result = compiled(torch.tensor([-1.0, 2.0]))
    assert torch.equal(result, torch.tensor([0.0, 3.0]))
    (message,) = {record.getMessage() for record in caplog.records}
    assert "removed relu_ " in message
    assert f"{__file__}:{line}" in message
    assert "DONT_DCE" in message
    assert "effects=" in message


@pytest.mark.parametrize("effects", [{"relu_": True}, {"relu_"}, ["relu_"], lambda op: op.sym.name == "relu_" or None])
def test_effects_keep_an_untagged_in_place_op(effects: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Named in `effects`, in whatever form, the op runs and nothing is logged."""
    with relu_in_place() as (relu_, executors):
        with shapetrace_rs.enabled(strict=True, effects=effects), caplog.at_level(logging.WARNING):
            result = thunder.jit(lambda x: relu_(x) + 1, executors=executors)(torch.tensor([-1.0, 2.0]))
    assert torch.equal(result, torch.tensor([1.0, 3.0]))
    assert not caplog.records


def test_ops_of_thunder_that_hand_back_go_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """`x.to(x.dtype)`, `contiguous()` and the like are no suspects."""

    def function(x: Any) -> Any:
        return x.to(torch.float32).contiguous().reshape(2, 3) + 1

    with shapetrace_rs.enabled(strict=True), caplog.at_level(logging.WARNING, logger="shapetrace_rs"):
        thunder.jit(function)(torch.ones(2, 3))
    assert not caplog.records


def test_the_word_says_when_the_source_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    """A trace that was written by hand has no source lines, which is no reason to fail."""
    with new_trace() as trace:
        a = tensor("a")
        emit(trace, symbol("suspect"), a, output=a)
        emit(trace, symbol("made"), a, output=(a, [a]))
        finish(trace, a, a)
    with caplog.at_level(logging.WARNING, logger="shapetrace_rs"):
        optimized(trace)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert any("removed suspect (unknown file:?)" in message for message in messages)


# `effects`


@pytest.mark.parametrize("level", LEVELS)
def test_effects_decide_in_both_directions(level: str) -> None:
    """`True` keeps, `False` lets go whatever the tags say, `None` and unknown names leave it to the tags."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        for name in ("plain", "kept"):
            emit(trace, symbol(name), a, output=tensor(f"t_{name}"))
        for name in ("tagged", "released"):
            emit(trace, symbol(name, tags=[EFFECT]), a, output=tensor(f"t_{name}"))
        finish(trace, a, a)
    expected = ["unpack_trivial", "kept", "tagged", "python_return"]
    says = {"kept": True, "released": False}
    assert op_names(optimized(trace, level=level, effects=says)) == expected
    assert op_names(optimized(trace, level=level, effects=lambda op: says.get(op.sym.name))) == expected
    assert op_names(optimized(trace, level=level, effects=["kept"]))[1:-1] == ["kept", "tagged", "released"]


def test_effects_are_asked_inside_ops_too() -> None:
    """A composite that contains what the user calls an effect stays."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        inside = [symbol("special").bind(a, output=r)]
        emit(trace, symbol("composite", primitive=False), a, output=r, inside=inside)
        finish(trace, a, a)
    assert "composite" not in op_names(optimized(trace))
    assert "composite" in op_names(optimized(trace, effects={"special"}))


def test_effects_can_release_an_op_that_defines_nothing() -> None:
    """Users who know that an op without a value does nothing can say so."""
    with new_trace() as trace:
        a = tensor("a")
        emit(trace, symbol("note"), a, output=None)
        finish(trace, a, a)
    assert op_names(optimized(trace, effects={"note": False})) == ["python_return"]


def test_the_return_cannot_be_released() -> None:
    """A predicate that calls everything harmless still gets its results."""
    with new_trace() as trace:
        a = tensor("a")
        finish(trace, prims.sin(a), a)
    assert op_names(optimized(trace, effects=lambda _: False)) == ["sin", "python_return"]


@pytest.mark.parametrize("level", LEVELS)
def test_error_of_a_predicate_reaches_the_caller(level: str) -> None:
    """What a predicate raises is raised, once, and the next call works."""
    with new_trace() as trace:
        a = tensor("a")
        finish(trace, prims.sin(a), a)
    says: list[Any] = [ValueError("not today"), None, None]

    def predicate(_: Any) -> None:
        if isinstance(answer := says.pop(0), Exception):
            raise answer

    with pytest.raises(ValueError, match="not today"):
        optimized(trace, level=level, effects=predicate)
    assert op_names(optimized(trace, level=level, effects=predicate)) == ["sin", "python_return"]


# Random ops.


def test_unused_random_op_goes_unless_it_is_to_stay() -> None:
    """By default as in thunder; with `keep_random` later draws are those of eager mode under the same seed."""

    def function(x: Any) -> Any:
        torch.rand(2, 3)
        torch.randn(3)
        torch.randint(0, 9, (2,))
        return x + torch.rand(2, 3)

    x = torch.zeros(2, 3)
    torch.manual_seed(0)
    expected = function(x)
    draws = {}
    for keep in (False, True):
        with shapetrace_rs.enabled(keep_random=keep, strict=True):
            torch.manual_seed(0)
            draws[keep] = thunder.jit(function)(x)
    assert torch.equal(draws[True], expected)
    assert not torch.equal(draws[False], expected)


def test_random_op_inside_an_op_is_kept_too() -> None:
    """A composite that draws counts as a random op."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        inside = [symbol("draw", tags=[prims.OpTags.RANDOM_OP]).bind(a, output=r)]
        emit(trace, symbol("composite", primitive=False), a, output=r, inside=inside)
        finish(trace, a, a)
    assert op_names(optimized(trace)) == ["python_return"]
    assert op_names(optimized(trace, keep_random=True)) == ["composite", "python_return"]


# Numbers that only a shape mentions.


def trace_with_a_number_in_a_shape() -> Any:
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        i0, n = integer("i0"), integer("n", 4)
        emit(trace, prims.shape, a, output=(i0, integer("i1", 3)))
        emit(trace, prims.mul, i0, 2, output=n)
        r = tensor("r", (n, 3))
        emit(trace, symbol("pad"), a, output=r)
        emit(trace, symbol("pad"), a, output=tensor("dead", (integer("m", 5), 3)))
        return finish(trace, r, a)


def test_number_in_the_shape_of_a_live_tensor() -> None:
    """Its producer goes as in thunder, unless `keep_shape_numbers` keeps one, with all that it needs."""
    trace = trace_with_a_number_in_a_shape()
    assert op_names(optimized(trace)) == ["unpack_trivial", "pad", "python_return"]
    needed: set[Any] = set()
    kept = optimized(trace, needed, keep_shape_numbers=True)
    assert op_names(kept) == ["unpack_trivial", "shape", "mul", "pad", "python_return"]
    assert "n" in made_names(kept)
    assert {"a", "i0", "r"} <= needed_names(needed)
    assert_settled(kept, keep_shape_numbers=True)


def test_number_in_the_shape_of_what_is_kept_stays_one() -> None:
    """Two producers of a number that a shape mentions are still one afterwards, and it comes before its use."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        i0, i1 = integer("i0"), integer("i1", 3)
        for _ in range(3):
            emit(trace, prims.shape, a, output=(i0, i1))
        r = tensor("r", (i0, 3))
        emit(trace, symbol("pad"), a, output=r)
        finish(trace, r, a)
    assert op_names(optimized(trace, keep_shape_numbers=True)) == ["unpack_trivial", "shape", "pad", "python_return"]


# Broken traces.


@pytest.mark.parametrize("level", LEVELS)
def test_broken_trace_is_not_repaired(level: str) -> None:
    """A value that nothing makes is taken for an input: no error, and nothing that is there is lost."""
    with new_trace() as trace:
        a, m = tensor("a"), tensor("m")
        prims.unpack_trivial(a, name="a")
        r = prims.sin(m)
        prims.cos(m)
        finish(trace, r, a)
    assert op_names(optimized(trace, level=level)) == ["sin", "python_return"]


@pytest.mark.parametrize("level", LEVELS)
def test_use_before_the_definition(level: str) -> None:
    """An op that reads what is made only behind it keeps its place and what it reads, to the letter of the trace."""
    with new_trace() as trace:
        a, m, r = tensor("a"), tensor("m"), tensor("r")
        emit(trace, prims.sin, m, output=r)
        emit(trace, prims.cos, a, output=m)
        finish(trace, r, a)
    names = op_names(optimized(trace, level=level))
    assert names[0] == "sin"
    assert names[-1] == "python_return"


def test_inner_op_that_reads_an_outer_value() -> None:
    """A number that an inner op reads though its owner does not take it counts as read by the owner."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        i0, i1 = integer("i0"), integer("i1", 3)
        emit(trace, prims.shape, a, output=(i0, i1))
        inside = [symbol("use").bind(a, i0, output=r)]
        emit(trace, symbol("composite", primitive=False), a, output=r, inside=inside)
        finish(trace, r, a)
    result = optimized(trace)
    assert op_names(result) == ["unpack_trivial", "shape", "composite", "python_return"]


# Fusions.


def test_what_is_inside_a_fusion_stays_as_it_is() -> None:
    """The callable of a fusion was made from what is inside it, under these names."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        i0, i1, j0, j1 = integer("i0"), integer("i1", 3), integer("j0"), integer("j1", 3)
        emit(trace, prims.shape, a, output=(i0, i1))
        emit(trace, prims.shape, a, output=(j0, j1))
        inside = [
            prims.shape.bind(a, output=(j0, j1)),
            prims.shape.bind(a, output=(j0, j1)),
            prims.cos.bind(a, output=tensor("dead")),
            symbol("noop", primitive=False).bind(a, output=a),
            symbol("use").bind(a, j0, output=r),
        ]
        fusion = emit(trace, symbol("fusion", primitive=True, is_fusion=True), a, j0, output=r, inside=inside)
        finish(trace, (r, i0), a)
    result = optimized(trace)
    assert find(result, "fusion") is fusion
    assert fusion.subsymbols == inside
    assert {"i0", "j0"} <= made_names(result)


def test_rebuilt_ops_keep_what_executors_hang_on_them() -> None:
    """An op that changes keeps header, tags, source position, executor and call context; it gets fresh caches."""
    from thunder.core.symbol import BoundSymbolTag

    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        i0, j0 = integer("i0"), integer("j0")
        emit(trace, prims.shape, a, output=(i0, integer("i1", 3)))
        emit(trace, prims.shape, a, output=(j0, integer("j1", 3)))
        r = tensor("r")
        use = emit(trace, symbol("use"), a, j0, output=r)
        use.header, use._executor, use._call_ctx = ["above"], object(), {"use": print}
        use.tags.add(BoundSymbolTag.BACKWARD)
        use.source_filename, use.source_positions = "file.py", object()
        assert use.flat_proxy_args[1] is j0
        finish(trace, (r, i0), a)
    use._line_no = 7
    optimized_trace = optimized(trace)
    kept = find(optimized_trace, "use")
    assert kept is not use
    assert list(vars(kept)) == [field.name for field in dataclasses.fields(use)]
    assert kept._line_no is None
    for field in ("sym", "header", "_executor", "_call_ctx", "source_filename", "source_positions", "kwargs"):
        assert getattr(kept, field) is getattr(use, field), field
    assert kept.tags == use.tags
    assert kept.tags is not use.tags
    assert kept.flat_proxy_args == (a, i0)
    by_class = _thunder.rebuild(use, {"args": kept.args, "output": kept.output})
    assert vars(by_class) == {key: value for key, value in vars(kept).items() if not key.startswith("flat_")}


def test_rebuilt_ops_are_of_the_class_that_they_were_of() -> None:
    """An op of a class of its own is made anew by that class, with all that it does to be made."""
    from thunder.core.symbol import BoundSymbol

    made = []

    @dataclasses.dataclass
    class Counted(BoundSymbol):
        def __post_init__(self) -> None:
            super().__post_init__()
            made.append(self)

    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        i0, j0 = integer("i0"), integer("j0")
        emit(trace, prims.shape, a, output=(i0, integer("i1", 3)))
        emit(trace, prims.shape, a, output=(j0, integer("j1", 3)))
        emit(trace, symbol("use"), a, j0, output=tensor("r"))
        use = trace.bound_symbols[-1]
        fields = {field.name: getattr(use, field.name) for field in dataclasses.fields(use)}
        trace.bound_symbols[-1] = Counted(**fields)
        finish(trace, (use.output, i0), a)
    made.clear()
    kept = find(optimized(trace), "use")
    assert type(kept) is Counted
    assert any(kept is one for one in made)
    assert kept.args == (a, i0)


def test_only_the_class_that_is_known_is_done_without() -> None:
    """Thunder's class does nothing but set its fields; one that does more, or has other fields, is called."""
    from thunder.core.symbol import BoundSymbol

    @dataclasses.dataclass
    class Grown(BoundSymbol):
        more: int = 0

    @dataclasses.dataclass
    class Checked(BoundSymbol):
        def __post_init__(self) -> None:
            self.args = tuple(map(str, self.args))

    @dataclasses.dataclass
    class Watched(BoundSymbol):
        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

    assert _thunder.host().fields is not None
    assert [_thunder._fields_to_copy(kind) for kind in (Grown, Checked, Watched)] == [None] * 3


def test_options_are_checked_when_they_are_made() -> None:
    """A wrong option is refused where it is written, not in the middle of a compile."""
    with pytest.raises(ValueError, match="level must be"):
        shapetrace_rs.OptimizeOptions(level="most")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="effects must be"):
        shapetrace_rs.OptimizeOptions(effects="relu_")
    with pytest.raises(TypeError, match="effects must be"):
        shapetrace_rs.OptimizeOptions(effects=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        shapetrace_rs.optimize(None, speed="more")


def test_shape_numbers_of_a_real_trace() -> None:
    """With `keep_shape_numbers` a number in the shape of a live tensor that the trace made is made afterwards."""

    def function(x: Any) -> Any:
        batch, length = x.shape
        torch.zeros(length + 7)
        return torch.nn.functional.pad(x, (1, 2)).reshape(batch * (length + 3)) * 2

    compiled = thunder.jit(function, cache="symbolic values")
    assert torch.equal(compiled(torch.ones(2, 3)), function(torch.ones(2, 3)))
    trace = thunder.last_traces(compiled)[0]
    made = made_names(trace)
    kept = made_names(optimized(trace, keep_shape_numbers=True))
    numbers = set()
    for op in optimized(trace).bound_symbols:
        for proxy in op.flat_proxy_outs:
            if isinstance(proxy, TensorProxy):
                numbers |= {number.name for number in proxy._shape if hasattr(number, "name")}
    assert numbers & made
    assert numbers & made <= kept
    assert not made <= kept, "what only dead tensors mention goes"


def test_python_floor_division_only_where_it_can_run() -> None:
    """The long form of `//` becomes one op, or stays long when that is asked for."""

    def function(x: Any, n: int) -> Any:
        return x.reshape(x.shape[0] // n, -1)

    seen = {}
    for floor_division in (True, False):
        with shapetrace_rs.enabled(floor_division=floor_division, strict=True):
            compiled = thunder.jit(function, cache="symbolic values")
            assert compiled(torch.ones(6, 3), 2).shape == (3, 6)
            names = [op.sym.name for trace in thunder.last_traces(compiled) for op in walk(trace)]
            seen[floor_division] = "py_floordiv" in names or "floordiv" in names
    assert seen == {True: True, False: False}
    assert sys.modules["thunder.core.prims"].PrimIDs.PY_FLOORDIV


def test_an_op_that_becomes_another_leaves_its_call_behind() -> None:
    """What an executor hangs on an op to call it is not for the op that takes its place."""
    compiled = thunder.jit(lambda x, n: x.reshape(x.shape[0] // n, -1), cache="symbolic values")
    compiled(torch.ones(6, 3), 2)
    trace = thunder.last_traces(compiled)[0]
    before = list(walk(trace))
    for op in before:
        op._call_ctx, op._import_ctx, op._object_ctx = {op.sym.name: print}, {"module": sys}, {"thing": print}
    made = [op for op in walk(optimized(trace)) if op.sym.name == "py_floordiv"]
    assert made
    for op in made:
        assert not any(op is one for one in before)
        assert (op.kwargs, op._call_ctx, op._import_ctx, op._object_ctx) == ({}, None, {}, {})
