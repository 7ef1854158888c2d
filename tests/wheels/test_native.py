"""The native part by itself, on toys: what has to hold on each Python version, thunder and torch installed or not.

`scripts/test_wheels.sh` runs these tests with every interpreter against the wheel that was made for it.
"""

from __future__ import annotations

import gc
import operator
import random
import subprocess
import sys
import sysconfig
import threading
import weakref
from importlib import metadata, resources
from typing import Any

import pytest

import shapetrace_rs
import toy
from shapetrace_rs import _core
from toy import NumberProxy, TensorProxy, op

LEVELS = ("full", "compat")


def test_the_parts_have_one_version() -> None:
    """Protects from a native module that was built from other sources than the Python modules beside it."""
    assert _core.__version__ == shapetrace_rs.__version__ == metadata.version("shapetrace-rs")


def test_what_is_shipped() -> None:
    """Protects type checkers, and users from a debug build; the library is for this very interpreter."""
    package = resources.files("shapetrace_rs")
    assert package.joinpath("py.typed").is_file()
    assert package.joinpath("_core.pyi").is_file()
    assert not _core.debug_build
    assert _core.__file__.endswith(sysconfig.get_config_var("EXT_SUFFIX"))


def test_importing_imports_neither_thunder_nor_torch() -> None:
    """Protects start-up time, and programs that set environment variables before torch is imported."""
    code = "import sys, shapetrace_rs; print(sorted({'thunder', 'torch'} & set(sys.modules)))"
    environment = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tables() -> None:
    """Protects the reports and documents that are made from them."""
    assert [name for name, _, _ in _core.passes()][-1] == "changed-ops"
    assert all(sentence and set(levels) <= set(LEVELS) for _, sentence, levels in _core.passes())
    assert len({name for name, _, _ in _core.rules()}) == len(_core.rules()) > 10
    assert {"dead", "no-op", "duplicate-producer"} <= set(_core.reasons())


@pytest.mark.parametrize("name", ["add", "sub", "mul", "py_floordiv", "eq", "lt"])
def test_arithmetic_is_that_of_this_python(name: str) -> None:
    """Protects folded numbers: the optimizer computes what this interpreter computes, or nothing."""
    compute = getattr(operator, {"py_floordiv": "floordiv"}.get(name, name))
    for left in (-7, -1, 0, 1, 5, 2**62):
        for right in (-3, -1, 1, 2, 2**62):
            found = _core.evaluate_scalar(name, left, right)
            if abs(compute(left, right)) < 2**63:
                assert found == compute(left, right), (left, right)
                assert type(found) is type(compute(left, right))
            else:
                assert found is None


def test_direct_reads_where_the_layout_is_known() -> None:
    """Protects the speed on the versions that have it: the self test of the native part must not give up silently."""
    known = (3, 11) <= sys.version_info[:2] <= (3, 13) and not sysconfig.get_config_var("Py_GIL_DISABLED")
    assert toy.optimizer().direct is known
    assert toy.optimizer(direct=False).direct is False


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("seed", range(40))
def test_direct_reads_see_what_getattr_sees(seed: int, level: str) -> None:
    """Protects against a change of CPython's layout: both ways of reading give one answer, in every state of objects.

    The states: fresh, asked for `__dict__`, with a cached property, with many more attributes, with a dictionary of
    another order, with a dictionary of its own.
    """
    generator = random.Random(seed)
    ops = toy.program(generator, 60)
    if seed % 4:
        toy.disturb(ops, generator)
    before = toy.outline(ops)
    answers = []
    for direct in (True, False):
        needed = {toy.Variable(TensorProxy("t7"))}
        kept, statistics = toy.optimizer(level, direct=direct).run(ops, None, needed)
        _, _, details, renames = toy.optimizer(level, direct=direct).explain(ops, None, set())
        words = [word for _, _, _, word, _ in details]
        names = {variable.proxy.name for variable in needed}
        answers.append((toy.outline(kept), statistics.removed, statistics.changed, words, renames, names))
    assert answers[0] == answers[1]
    assert toy.outline(ops) == before, "what comes in is not changed"


@pytest.mark.parametrize("seed", range(20))
def test_dead_code_goes_and_nothing_else(seed: int) -> None:
    """Protects the smallest promise: level "compat" leaves what a few lines of Python leave, the very same objects."""
    generator = random.Random(seed)
    ops = toy.program(generator, 80)
    toy.disturb(ops, generator)
    kept, statistics = toy.optimizer("compat").run(ops)
    expected = toy.needed_at_the_top(ops)
    assert [id(each) for each in kept] == [id(each) for each in expected]
    assert (statistics.ops_in, statistics.ops_out) == (len(ops), len(expected))


def test_subclasses_and_instances_that_lack_attributes() -> None:
    """Protects the way round: a class that the layout is not for is read by `getattr`, and what it raises comes out."""
    x, y = TensorProxy("x"), TensorProxy("y")
    grown = toy.GrownBoundSymbol(toy.UNARY[0], (x,), {}, y)
    end = op(toy.SINK, y)
    for direct in (True, False):
        kept, _ = toy.optimizer(direct=direct).run([grown, end])
        assert kept == [grown, end]
    broken = op(toy.UNARY[0], x, output=y)
    object.__delattr__(broken, "args")
    for direct in (True, False):
        with pytest.raises(AttributeError, match="args"):
            toy.optimizer(direct=direct).run([broken, end])


def test_shape_arithmetic_is_simplified() -> None:
    """Protects level "full" on this interpreter: one query, no arithmetic that nobody needs, results rebuilt."""
    x, y = TensorProxy("x", (4, 5)), TensorProxy("y")
    i0, i1, j0, n = NumberProxy("i0", 4), NumberProxy("i1", 5), NumberProxy("j0", 4), NumberProxy("n", 4)
    ops = [
        op(toy.SHAPE, x, output=(i0, i1)),
        op(toy.SHAPE, x, output=(j0, NumberProxy("j1", 5))),
        op(toy.SCALARS["mul"], j0, 1, output=n),
        op(toy.UNARY[0], x, n, i0, output=y),
        op(toy.SINK, y),
    ]
    for direct in (True, False):
        kept, statistics = toy.optimizer(direct=direct).run(ops)
        assert [each.sym.name for each in kept] == ["shape", "sin", "return"]
        assert toy.names(kept[1].args) == {"x", "i0"}
        assert kept[0].output[1] == 5, "a position that nothing reads is written as its value"
        assert statistics.renamed


def test_errors_have_names() -> None:
    """Protects callers that catch them: what is no op, what has no return, what has no end."""
    x, y = TensorProxy("x"), TensorProxy("y")
    with pytest.raises(shapetrace_rs.InvalidTraceError, match="not a BoundSymbol"):
        toy.optimizer().run([x])
    with pytest.raises(shapetrace_rs.MissingReturnError):
        toy.optimizer().run([op(toy.UNARY[0], x, output=y)])
    endless = op(toy.COMPOSITE, x, output=y)
    endless.subsymbols.append(endless)
    with pytest.raises(shapetrace_rs.InvalidTraceError, match="nested"):
        toy.optimizer().run([endless, op(toy.SINK, y)])
    endless.subsymbols.clear()


def test_verifier() -> None:
    """Protects `verify`: a use without a definition is found, and named."""
    x, y = TensorProxy("x"), TensorProxy("y")
    ops = [op(toy.UNARY[0], TensorProxy("nobody"), output=y), op(toy.SINK, y)]
    ((kind, _, culprit, value, owner),) = toy.optimizer().verify(ops, (x,))
    assert (kind, culprit, value, owner) == ("undefined_value", ops[0], "nobody", None)


def test_nothing_is_kept_alive() -> None:
    """Protects long processes: what a call read is free when the call is over."""
    for direct in (True, False):
        native = toy.optimizer(direct=direct)
        ops = toy.program(random.Random(1), 50)
        watched = [weakref.ref(each) for each in ops]
        native.run(ops)
        del ops
        gc.collect()
        assert not [each() for each in watched if each() is not None]


def test_threads_share_an_optimizer() -> None:
    """Protects processes that compile in several threads."""
    native = toy.optimizer()
    expected = {seed: toy.outline(native.run(toy.program(random.Random(seed), 40))[0]) for seed in range(4)}
    wrong: list[Any] = []

    def work(seed: int) -> None:
        for _ in range(25):
            found = toy.outline(native.run(toy.program(random.Random(seed), 40))[0])
            if found != expected[seed]:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_unicode_and_long_names() -> None:
    """Protects names that are not interned, equal without being identical, or not ASCII."""
    first, second = "".join(("größe", "_1")), "".join(("größe", "_1"))
    assert first is not second
    x = TensorProxy("x")
    ops = [op(toy.UNARY[0], x, output=TensorProxy(first)), op(toy.SINK, TensorProxy(second))]
    for direct in (True, False):
        assert len(toy.optimizer(direct=direct).run(ops)[0]) == 2
