"""What the optimizer computes is what Python computes, to the type and the sign of zero, or it computes nothing."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import pytest
import thunder
from hypothesis import example, given
from hypothesis import strategies as st

from shapetrace_rs import _core
from shapetrace_rs._thunder import _SCALAR_PRIMITIVES
from trace_tools import examples, prims, python_function

if TYPE_CHECKING:
    from collections.abc import Callable


def c_division(a: Any, b: Any) -> Any:
    """Division of ints towards zero, of anything else as usual."""
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    return a / b


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": c_division,
    "py_floordiv": operator.floordiv,
    "remainder": operator.mod,
    "fmod": math.fmod,
    "pow": operator.pow,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}
UNARY: dict[str, Callable[[Any], Any]] = {"signbit": lambda a: a < 0, "neg": operator.neg, "py_abs": abs}
CONVERT = "convert_element_type"

EDGES = [
    0,
    1,
    -1,
    2,
    -2,
    2**31,
    2**53,
    2**53 + 1,
    -(2**53) - 1,
    2**62,
    2**63 - 1,
    -(2**63),
    2**63,
    -(2**63) - 1,
    10**30,
]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, math.inf, -math.inf, math.nan, 1e300, -1e-320, 2.0**53, 2.0**63, -(2.0**63)]

ints = st.one_of(st.integers(-10, 10), st.sampled_from(EDGES), st.integers(-(2**70), 2**70))
exact = st.one_of(ints, st.booleans())
floats = st.one_of(st.sampled_from(FLOATS), st.floats())
numbers = st.one_of(exact, exact, floats)


def same(a: Any, b: Any) -> bool:
    """Whether two numbers are alike to the type, the sign of zero, and NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return a == b


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or the kind of error."""
    try:
        return function(*arguments)
    except (ArithmeticError, ValueError, TypeError) as error:
        return type(error)


def check(name: str, python: Callable[..., Any], *arguments: Any) -> bool:
    """Compares one computation; says whether the optimizer had an answer."""
    ours = _core.evaluate_scalar(name, *arguments, *[0] * (2 - len(arguments)))
    if ours is None:
        return False
    expected = attempt(python, *arguments)
    assert same(ours, expected), f"{name}{arguments} is {expected!r}, not {ours!r}"
    return True


def test_every_primitive_of_the_core_is_tried() -> None:
    """Nobody adds an operation to the core without Python's word for it here."""
    known = {name.lower() for name in _SCALAR_PRIMITIVES}
    assert known == {*BINARY, *UNARY, CONVERT}
    for name in known:
        _core.evaluate_scalar(name, 1, 1)
    with pytest.raises(ValueError, match="no scalar operation"):
        _core.evaluate_scalar("no such thing", 1, 1)


@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name: str) -> None:
    """Equal to Python for all pairs of edge cases and for random numbers, or no answer."""
    answers = 0
    for a in (*EDGES, *FLOATS, True, False):
        for b in (*EDGES, *FLOATS, True, False):
            # Python would compute for hours.
            if name != "pow" or abs(a) < 100 > abs(b):
                answers += check(name, BINARY[name], a, b)

    @given(numbers, numbers if name != "pow" else st.integers(-9, 9))
    @examples(150)
    def try_more(a: Any, b: Any) -> None:
        check(name, BINARY[name], a, b)

    try_more()
    assert answers > 30 or name == "pow", "without answers there is nothing to test"


@pytest.mark.parametrize("name", UNARY)
def test_one_operand(name: str) -> None:
    """Equal to Python for edge cases and for random numbers, or no answer."""
    answers = sum(check(name, UNARY[name], a) for a in (*EDGES, *FLOATS, True, False))

    @given(numbers)
    @examples(150)
    def try_more(a: Any) -> None:
        check(name, UNARY[name], a)

    try_more()
    assert answers > 8


@given(numbers, st.sampled_from([bool, int, float, complex, str, None]))
@example(-0.0, int)
@example(1e300, int)
@example(math.nan, bool)
@examples(300)
def test_conversion(a: Any, to: Any) -> None:
    """`bool(a)`, `int(a)` and `float(a)` are Python's; for anything else there is no answer."""
    ours = _core.evaluate_scalar(CONVERT, a, to)
    if ours is not None:
        assert to in (bool, int, float)
        assert same(ours, attempt(to, a))


@pytest.mark.parametrize("name", [*BINARY, *UNARY, CONVERT])
def test_executor_of_thunder_agrees(name: str) -> None:
    """What Python says above is what thunder's executor for Python computes at run time."""
    run = python_function(prims.PrimIDs[name.upper()])
    python = {**BINARY, **UNARY}.get(name)

    @given(numbers, numbers)
    @examples(80)
    def compare(a: Any, b: Any) -> None:
        if name == CONVERT:
            for to in (bool, int, float):
                ours = _core.evaluate_scalar(name, a, to)
                assert ours is None or same(ours, attempt(run, a, to))
            return
        arguments = (a,) if name in UNARY else (a, b)
        if name == "pow" and not (abs(a) < 100 > abs(b)):
            return
        ours = _core.evaluate_scalar(name, *arguments, *[0] * (2 - len(arguments)))
        assert ours is None or same(ours, attempt(run, *arguments))
        assert same_or_error(attempt(run, *arguments), attempt(python, *arguments))

    compare()


def same_or_error(a: Any, b: Any) -> bool:
    """Whether two attempts went alike."""
    return a is b if isinstance(a, type) or isinstance(b, type) else same(a, b)


@pytest.mark.parametrize("operand", ["text", None, 1j, [], object(), thunder.core.dtypes.float32])
def test_what_is_no_number_has_no_answer(operand: Any) -> None:
    """Arguments of other kinds are no error: the optimizer leaves such arithmetic alone."""
    for name in (*BINARY, *UNARY, CONVERT):
        assert _core.evaluate_scalar(name, operand, 1) is None
        if name in BINARY:
            assert _core.evaluate_scalar(name, 1, operand) is None


class Loud(int):
    """An int with arithmetic of its own."""

    def __add__(self, other: Any) -> int:
        return 99

    __radd__ = __mul__ = __rmul__ = __add__


def test_subclasses_of_numbers_have_no_answer() -> None:
    """A subclass may compute otherwise."""
    for name in (*BINARY, *UNARY):
        assert _core.evaluate_scalar(name, Loud(3), 1) is None
    for name in BINARY:
        assert _core.evaluate_scalar(name, 1, Loud(3)) is None
