"""One producer for each value and scope: which of several stays, and what becomes of the others."""

from __future__ import annotations

from typing import Any

import pytest
from thunder.core.proxies import CollectionProxy

from trace_tools import (
    EFFECT,
    LEVELS,
    assert_settled,
    boolean,
    emit,
    find,
    finish,
    integer,
    made_names,
    new_trace,
    op_names,
    optimized,
    prims,
    queries,
    result_names,
    symbol,
    tensor,
    text,
    tracectx,
    undefined_uses,
    walk,
)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("unpacked", [True, False])
@pytest.mark.parametrize("primitive", [True, False])
def test_op_that_hands_back_its_argument_is_no_producer(level: str, unpacked: bool, primitive: bool) -> None:
    """`a = maybe_to(a)` does not make `a`: it goes, and a trace without an unpack is no error."""
    with new_trace() as trace:
        a = tensor("a")
        if unpacked:
            prims.unpack_trivial(a, name="a")
        emit(trace, symbol("maybe_to", primitive=primitive), a, output=a)
        finish(trace, prims.sin(a), a)
    expected = ["unpack_trivial"] * unpacked + ["sin", "python_return"]
    assert op_names(optimized(trace, level=level)) == expected


def test_first_of_two_producers_of_a_tensor_stays() -> None:
    """The same line twice is done once, and it is the first that stays."""
    with new_trace() as trace:
        a, s, r = tensor("a"), tensor("s"), tensor("r")
        prims.unpack_trivial(a, name="a")
        first = emit(trace, prims.sin, a, output=s)
        emit(trace, prims.sin, a, output=s)
        emit(trace, prims.cos, s, output=r)
        finish(trace, r, a)
    result = optimized(trace)
    assert [op for op in result.bound_symbols if op.sym.name == "sin"] == [first]
    assert find(result, "sin") is first


def test_later_producer_goes_also_when_it_is_another_op() -> None:
    """A value has one definition, so a later op that claims to make it as well is not needed for it."""
    with new_trace() as trace:
        a, s, r = tensor("a"), tensor("s"), tensor("r")
        prims.unpack_trivial(a, name="a")
        emit(trace, prims.sin, a, output=s)
        emit(trace, prims.tan, a, output=s)
        emit(trace, symbol("pair"), a, output=(s, r))
        finish(trace, (s, r), a)
    result = optimized(trace)
    assert op_names(result) == ["unpack_trivial", "sin", "pair", "python_return"]
    assert result_names(find(result, "pair")) == [None, "r"], "what was made before is not made again"
    assert_settled(result)


def test_collection_that_nothing_unpacks_makes_no_name_stay() -> None:
    """A collection is not written anew, so what it holds keeps its name; but not when the collection itself is dead."""
    for unpacked in (True, False):
        with new_trace() as trace:
            n = integer("n")
            b = tensor("b", (n, 3))
            prims.unpack_trivial(b, name="b")
            prims.unpack_trivial(n, name="n")
            i0 = integer("i0")
            emit(trace, prims.shape, b, output=(i0, integer("i1", 3)))
            emit(trace, symbol("use"), i0, output=())
            held = CollectionProxy([i0, b], name="held")
            emit(trace, prims.unpack_trivial, held, output=held, name="held")
            if unpacked:
                emit(trace, symbol("take"), held, output=())
            else:
                emit(trace, prims.unpack_sequence, held, 2, output=[i0, b])
            finish(trace, n, b)
        result = optimized(trace)
        assert find(result, "use").args[0].name == ("i0" if unpacked else "n")
        assert ("shape" in op_names(result)) is unpacked
        assert_settled(result)


def test_op_that_takes_a_collection_keeps_what_it_gives_of_it() -> None:
    """Left out of the output, it would count as something that the op reads, and nothing would define it."""
    with new_trace() as trace:
        a, b, r = tensor("a"), tensor("b"), tensor("r")
        prims.unpack_trivial(a, name="a")
        held = CollectionProxy([a, b], name="held")
        emit(trace, prims.unpack_trivial, held, output=held, name="held")
        emit(trace, prims.unpack_sequence, held, 2, output=[a, b])
        emit(trace, symbol("many"), held, output=(b, r))
        finish(trace, r, a)
    result = optimized(trace, strict=True)
    assert result_names(find(result, "many")) == ["b", "r"]
    assert_settled(result)


def test_what_a_collection_holds_is_not_handed_in() -> None:
    """The owner takes the collection, so what is inside sees the collection and none of what it holds."""
    with new_trace() as trace:
        x, r, n = tensor("x"), tensor("r"), integer("n")
        prims.unpack_trivial(x, name="x")
        held = CollectionProxy([x, n], name="held")
        emit(trace, prims.unpack_trivial, held, output=held, name="held")
        emit(trace, prims.unpack_sequence, held, 2, output=[x, n])
        inside = [prims.shape.bind(x, output=(n, integer("m", 3))), symbol("use").bind(x, n, output=r)]
        emit(trace, symbol("outer", primitive=False), x, held, output=r, inside=inside)
        finish(trace, r, x)
    result = optimized(trace)
    assert op_names(find(result, "outer").subsymbols) == ["shape", "use"]
    assert_settled(result)


def test_random_ops_and_effects_are_never_merged() -> None:
    """Two draws are two draws, and two writes are two writes, whatever they are called."""
    with new_trace() as trace:
        a, s = tensor("a"), tensor("s")
        prims.unpack_trivial(a, name="a")
        for name, tags in (("draw", [prims.OpTags.RANDOM_OP]), ("write", [EFFECT]), ("swap", [prims.OpTags.IN_PLACE])):
            emit(trace, symbol(name, tags=tags), a, output=s)
            emit(trace, symbol(name, tags=tags), a, output=s)
        finish(trace, s, a)
    result = optimized(trace)
    assert op_names(result).count("write") == 2
    # The first draw makes the value; the others are unused, and unused is not merged.
    assert op_names(result).count("draw") == 1
    kept = optimized(trace, keep_random=True)
    assert op_names(kept).count("draw") == 2


def test_one_query_for_each_scope() -> None:
    """A scope that is told a number needs no query for it; four equal queries of one tensor are at most one."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        i0, i1 = integer("i0"), integer("i1", 3)
        emit(trace, prims.shape, a, output=(i0, i1))
        inside = [prims.shape.bind(a, output=(i0, i1)) for _ in range(4)]
        inside.append(symbol("use").bind(a, i0, i1, output=r))
        emit(trace, symbol("outer", primitive=False), a, i0, output=r, inside=inside)
        finish(trace, r, a)
    result = optimized(trace)
    outer = find(result, "outer")
    assert op_names(result).count("shape") == 1
    assert op_names(outer.subsymbols) == ["shape", "use"]
    assert result_names(outer.subsymbols[0]) == [2, "i1"], "the owner was given i0"
    assert_settled(result)


def test_query_in_a_scope_whose_numbers_were_handed_in_goes() -> None:
    """All numbers are arguments of the owner, so nothing has to be asked inside it."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        i0, i1 = integer("i0"), integer("i1", 3)
        emit(trace, prims.shape, a, output=(i0, i1))
        inside = [prims.shape.bind(a, output=(i0, i1)), symbol("use").bind(a, i0, i1, output=r)]
        emit(trace, symbol("outer", primitive=False), a, (i0, i1), output=r, inside=inside)
        finish(trace, r, a)
    result = optimized(trace)
    assert op_names(find(result, "outer").subsymbols) == ["use"]
    assert op_names(result).count("shape") == 1


def test_sibling_scopes_keep_a_query_each() -> None:
    """Neither of two scopes sees into the other, so each keeps one producer of what it uses."""
    with new_trace() as trace:
        a, r, s = tensor("a"), tensor("r"), tensor("s")
        prims.unpack_trivial(a, name="a")
        i0, i1 = integer("i0"), integer("i1", 3)
        composite, use = symbol("composite", primitive=False), symbol("use")

        def query() -> Any:
            return prims.shape.bind(a, output=(i0, i1))

        emit(trace, composite, a, output=r, inside=[query(), query(), use.bind(a, i0, output=r)])
        emit(trace, composite, a, r, output=s, inside=[query(), query(), use.bind(r, i1, output=s)])
        finish(trace, s, a)
    result = optimized(trace)
    assert [op_names(op.subsymbols) for op in result.bound_symbols[1:3]] == [["shape", "use"]] * 2
    assert [result_names(op.subsymbols[0]) for op in result.bound_symbols[1:3]] == [["i0", 3], [2, "i1"]]
    assert not undefined_uses(result, trace)


@pytest.mark.parametrize("level", LEVELS)
def test_query_that_yields_one_new_number(level: str) -> None:
    """The known number is not defined again, the arity stays, and the line is valid Python."""
    with new_trace() as trace:
        a, b, r = tensor("a"), tensor("b", (2, 5)), tensor("r")
        prims.unpack_trivial(a, name="a")
        prims.unpack_trivial(b, name="b")
        i0, i1, i2 = integer("i0"), integer("i1", 3), integer("i2", 5)
        emit(trace, prims.shape, a, output=(i0, i1))
        emit(trace, prims.shape, b, output=(i0, i2))
        emit(trace, symbol("use"), i0, i1, i2, output=r)
        finish(trace, r, a, b)
    result = optimized(trace, level=level)
    first, second = (op for op in result.bound_symbols if op.sym.id is prims.PrimIDs.SHAPE)
    assert result_names(first) == ["i0", "i1"]
    assert result_names(second) == [2, "i2"]
    with tracectx(result):
        (line,) = second.python(indent=0)
    assert line.startswith("(_, i2) = ")
    compile(line, "<line>", "exec")


@pytest.mark.parametrize("keep", [True, False])
def test_query_that_nobody_reads_goes(keep: bool) -> None:
    """A dead query goes from every scope; one whose number is returned stays, without its dead positions."""
    with new_trace() as trace:
        a, r = tensor("a", (2, 3, 4)), tensor("r")
        prims.unpack_trivial(a, name="a")
        numbers = integer("i0"), integer("i1", 3), integer("i2", 4)
        emit(trace, prims.shape, a, output=numbers)
        inside = [prims.shape.bind(a, output=numbers), prims.sin.bind(a, output=r)]
        emit(trace, symbol("composite", primitive=False), a, output=r, inside=inside)
        finish(trace, (r, numbers[1]) if keep else r, a)
    result = optimized(trace)
    assert queries(result) == keep
    if keep:
        assert result_names(find(result, "shape")) == [2, "i1", 4]
        assert "(_, i1, _) = prims.shape(a)" in text(result)


def test_one_dimension_under_two_names_gets_one() -> None:
    """The later name is replaced by the first one wherever it is used: operands, results, inside, and in shapes."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        i0, i1, j0, j1 = integer("i0"), integer("i1", 3), integer("j0"), integer("j1", 3)
        emit(trace, prims.shape, a, output=(i0, i1))
        emit(trace, prims.shape, a, output=(j0, j1))
        s = tensor("s", (j0, j1))
        r = tensor("r", (i1, j0))
        emit(trace, symbol("expand"), a, (i0, i1), output=s)
        inside = [prims.shape.bind(s, output=(j0, j1)), symbol("turn").bind(s, (j1, j0), output=r)]
        emit(trace, symbol("composite", primitive=False), s, j0, output=r, inside=inside)
        emit(trace, symbol("keyword"), output=tensor("t"), size=[j0, {"and": j1}])
        finish(trace, (r, trace.bound_symbols[-1].output), a)
    result = optimized(trace)
    names = {proxy.name for op in walk(result) for proxy in (*op.flat_proxy_args, *op.flat_proxy_outs)}
    # The shape of what is returned keeps its numbers, so it is their names that stay.
    assert names & {"i0", "i1", "j0", "j1"} == {"i1", "j0"}
    for op in walk(result):
        for proxy in (*op.flat_proxy_args, *op.flat_proxy_outs):
            for number in getattr(proxy, "_shape", ()):
                assert getattr(number, "name", None) not in {"i0", "j1"}, f"{proxy.name} still has the old name"
    assert op_names(result).count("shape") == 1
    assert not undefined_uses(result, trace)
    assert_settled(result)


def test_returned_names_stay_both() -> None:
    """Two names of one number that are both returned are both made: outputs keep their names."""
    with new_trace() as trace:
        a = tensor("a")
        prims.unpack_trivial(a, name="a")
        i0, j0 = integer("i0"), integer("j0")
        emit(trace, prims.shape, a, output=(i0, integer("i1", 3)))
        emit(trace, prims.shape, a, output=(j0, integer("j1", 3)))
        finish(trace, (j0, i0), a)
    result = optimized(trace)
    assert {"i0", "j0"} <= made_names(result)
    assert [proxy.name for proxy in result.bound_symbols[-1].flat_proxy_args] == ["j0", "i0"]


def test_return_is_never_touched() -> None:
    """Whatever stands in the output of the return, it is the very same op afterwards."""
    for output in (None, (), "same"):
        with new_trace() as trace:
            a = tensor("a")
            prims.unpack_trivial(a, name="a")
            i0, i1 = integer("i0"), integer("i1", 3)
            emit(trace, prims.shape, a, output=(i0, i1))
            result = (i0, i1, i0)
            emit(trace, prims.python_return, result, output=result if output == "same" else output)
            trace.args = (a,)
        assert optimized(trace).bound_symbols[-1] is trace.bound_symbols[-1]
        kept = optimized(trace, level="compat").bound_symbols[-1]
        assert kept.sym.id is prims.PrimIDs.RETURN
        assert kept.args == trace.bound_symbols[-1].args


def test_literal_among_the_results_of_a_query_keeps_its_place() -> None:
    """Where a dimension is written as its value already, the dimensions behind it are still counted from the front."""
    with new_trace() as trace:
        a, r = tensor("a", (2, 3, 4)), tensor("r")
        prims.unpack_trivial(a, name="a")
        i1, i2 = integer("i1", 3), integer("i2", 4)
        emit(trace, prims.shape, a, output=(2, i1, i2))
        emit(trace, symbol("use"), a, i2, output=r)
        finish(trace, r, a)
    output = find(optimized(trace), "shape").output
    assert output[:2] == (2, 3)
    assert output[2] is i2


@pytest.mark.parametrize("other", [2**71, 1j, "text"])
def test_arithmetic_on_what_the_core_does_not_know_is_not_merged(other: Any) -> None:
    """Numbers beyond 64 bits and other constants are all unknown to the core, and no two of them are one."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        n = integer("n", 5)
        prims.unpack_trivial(n, name="n")
        # Both are false for the number that was seen; for another they differ.
        first, second = boolean("e0", value=False), boolean("e1", value=False)
        emit(trace, prims.eq, n, 2**70, output=first)
        emit(trace, prims.eq, n, other, output=second)
        emit(trace, symbol("use"), a, first, second, output=r)
        finish(trace, r, a, n)
    result = optimized(trace)
    assert op_names(result).count("eq") == 2
    assert find(result, "use").args == (a, first, second)
