"""Faults inside a call: whatever raises, and whenever, a compile ends right or with a clear error, and nothing is left.

Each kind of object that the optimizer may ask something is put into a trace in a form that raises when it is asked for
the k-th time, for each k until it is not asked that often. The drop-in is installed as users have it, so a failure of
the optimizer has to become thunder's own answer, and an interruption has to reach the user.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import thunder
import torch
from thunder.core.interpreter import InterpreterError
from thunder.core.proxies import IntegerProxy, Proxy, TensorProxy

import shapetrace_rs
from shapetrace_rs import _hooks, _state, report
from trace_tools import (
    CONSTRAINT,
    EFFECT,
    LEVELS,
    OptimizeOptions,
    devices,
    dtypes,
    emit,
    finish,
    integer,
    needed_names,
    new_trace,
    op_names,
    optimize_module,
    optimized,
    prims,
    symbol,
    tensor,
    transform_common,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

each_level = pytest.mark.parametrize("level", LEVELS)


class Fuse:
    """Raises when it is asked for the k-th time, once."""

    def __init__(self) -> None:
        self.error: type[BaseException] | None = None
        self.left = -1
        self.asked = self.asked_by_call = 0

    def light(self, k: int, error: type[BaseException]) -> None:
        """From now on the k-th question, counted from 0, raises."""
        self.left, self.error, self.asked = k, error, 0

    def put_out(self) -> None:
        """From now on nothing raises."""
        self.left = -1

    def ask(self) -> None:
        """One question."""
        self.asked += 1
        if self.left == 0 and self.error is not None:
            self.left = -1
            raise self.error("a fault that was put here")
        if self.left > 0:
            self.left -= 1


FUSE = Fuse()


class FaultyProxy(Proxy):
    """A proxy of no kind that thunder knows, with a name that may raise."""

    @property
    def name(self) -> str:
        FUSE.ask()
        return self._name

    @name.setter
    def name(self, name: str) -> None:
        self._name = name


class FaultyTensor(TensorProxy):
    """A tensor with a shape that may raise."""

    _held: Any = ()

    @property
    def _shape(self) -> Any:  # type: ignore[override]
        FUSE.ask()
        return self._held

    @_shape.setter
    def _shape(self, shape: Any) -> None:
        self._held = shape


class FaultyNumber(IntegerProxy):
    """A number with a value that may raise."""

    @property
    def value(self) -> Any:  # type: ignore[override]
        FUSE.ask()
        return self.__dict__["value"]

    @value.setter
    def value(self, value: Any) -> None:
        self.__dict__["value"] = value


class FaultyTags(set):  # type: ignore[type-arg]
    """Tags of an op that may raise."""

    def __contains__(self, tag: object) -> bool:
        FUSE.ask()
        return super().__contains__(tag)

    def copy(self) -> set[Any]:
        return FaultyTags(self)


class FaultyList(list):  # type: ignore[type-arg]
    """A list of ops that may raise while it is walked."""

    def __len__(self) -> int:
        FUSE.ask()
        return super().__len__()

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            FUSE.ask()
            yield item


class FaultyNeeded(set):  # type: ignore[type-arg]
    """A set of needed proxies that may raise."""

    def add(self, variable: Any) -> None:
        FUSE.ask()
        super().add(variable)


def faulty_trace(kind: str) -> Any:
    """A trace in which both levels find something to do, and an object of this kind in several places."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        i0, i1, j0 = integer("i0"), integer("i1", 3), integer("j0")
        odd: Any = tensor("odd")
        if kind == "name":
            odd = FaultyProxy("odd_name")
        elif kind == "shape":
            odd = FaultyTensor(name="odd_shape", shape=(2, 3), device=devices.cpu, dtype=dtypes.float32)
            odd._shape = (i0, j0)
        elif kind == "value":
            odd = FaultyNumber(name="odd_value", value=7, constraint=CONSTRAINT.CONSTRAINABLE)
        emit(trace, prims.shape, a, output=(i0, i1))
        emit(trace, prims.shape, a, output=(j0, i1))
        emit(trace, symbol("make"), a, output=odd)
        prims.cos(a)
        inside = [symbol("noop", primitive=False).bind(a, output=a), symbol("use").bind(a, odd, j0, output=r)]
        op = emit(trace, symbol("both", primitive=False), a, odd, j0, output=r, inside=inside, key=[j0, {"x": odd}])
        log = emit(trace, symbol("log", tags=[EFFECT]), odd, output=())
        if kind == "tags":
            op.tags, log.tags, inside[1].tags = FaultyTags([1]), FaultyTags([2]), FaultyTags([3])
        if kind == "ops":
            op.subsymbols = FaultyList(op.subsymbols)
        return finish(trace, (r, i0), a)


KINDS = ["name", "shape", "value", "tags", "ops", "needed", "predicate"]


def predicate(_: Any) -> None:
    """Has no opinion, but may raise."""
    FUSE.ask()


@pytest.fixture(autouse=True)
def _no_fuse_burns() -> Iterator[None]:
    FUSE.put_out()
    yield
    FUSE.put_out()


def call(kind: str) -> tuple[list[str], set[str]]:
    """One call of what thunder's modules call, with all that it answers."""
    trace = faulty_trace(kind)
    needed = FaultyNeeded() if kind == "needed" else set()
    FUSE.asked = 0
    result = transform_common.dce(trace, needed)
    FUSE.asked_by_call = FUSE.asked
    return op_names(result), needed_names(needed)


@each_level
@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_every_point(kind: str, error: type[BaseException], level: str) -> None:
    """The answer is thunder's own for every fault of the optimizer; an interruption is the user's; nothing stays."""
    stock = call(kind)
    points = fallbacks = 0
    options: dict[str, Any] = {"level": level, "effects": predicate if kind == "predicate" else None}
    with shapetrace_rs.enabled(**options):
        right = call(kind)
        asked = FUSE.asked_by_call
        # Level "compat" has no use for shapes and values of numbers.
        assert (asked == 0) == (level == "compat" and kind in {"shape", "value"})
        for k in range(asked):
            _hooks.forget_causes()
            before = shapetrace_rs.counters()
            trace = faulty_trace(kind)
            needed: set[Any] = FaultyNeeded() if kind == "needed" else set()
            FUSE.light(k, error)
            if issubclass(error, Exception):
                with pytest.warns(shapetrace_rs.ShapetraceWarning, match="a fault that was put here"):
                    result = transform_common.dce(trace, needed)
                assert (op_names(result), needed_names(needed)) == stock
                fallbacks += shapetrace_rs.counters().fallbacks - before.fallbacks
            else:
                with pytest.raises(error, match="put here"):
                    transform_common.dce(trace, needed)
                assert shapetrace_rs.counters().fallbacks == before.fallbacks
            points += 1
            FUSE.put_out()
            assert call(kind) == right, f"the call behind fault {k} is not what it was"
    assert points == asked
    assert fallbacks == (points if issubclass(error, Exception) else 0)


# What is not as it looks.


@each_level
@pytest.mark.parametrize("same_list", [True, False])
def test_a_tag_that_was_exchanged_since_is_seen(level: str, same_list: bool) -> None:
    """The optimizer remembers symbols; an op that has an effect from now on must not go for what it was before."""
    sym = symbol("f", tags=[prims.OpTags.RANDOM_OP])

    def names() -> list[str]:
        with new_trace() as trace:
            x = tensor("x")
            emit(trace, sym, x, output=tensor("y"))
            finish(trace, x, x)
        return op_names(optimized(trace, level=level))

    assert "f" not in names()
    if same_list:
        sym.tags[0] = EFFECT
    else:
        # Very likely at the address of the old one, and of the same length.
        before = sym.tags
        object.__setattr__(sym, "tags", None)
        del before
        object.__setattr__(sym, "tags", [EFFECT])
    assert "f" in names()


class PropertyName(TensorProxy):
    """A proxy whose name is not what the instance keeps."""

    @property
    def _name(self) -> str:
        return f"{vars(self)['_name']}_real"

    @_name.setter
    def _name(self, name: str) -> None:
        vars(self)["_name"] = name


class AttributeName(TensorProxy):
    """The same, by `__getattribute__`."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return f"{found}_real" if name == "_name" else found


@each_level
@pytest.mark.parametrize("kind", [PropertyName, AttributeName])
def test_a_name_is_what_the_class_says(kind: type[TensorProxy], level: str) -> None:
    """Attributes are read where the interpreter keeps them, but not past a class that gives something else."""
    with new_trace() as trace:
        x, y = tensor("x"), tensor("y_real")
        alias = kind(name="y", shape=(2, 3), device=devices.cpu, dtype=dtypes.float32, requires_grad=False)
        emit(trace, symbol("f"), x, output=y)
        emit(trace, symbol("g", tags=[EFFECT]), alias, output=None)
        finish(trace, x, x)
    assert op_names(optimized(trace, level=level)) == ["f", "g", "python_return"]


@each_level
@pytest.mark.parametrize("how", ["registered", "dataclass"])
def test_a_class_that_becomes_a_container_is_one(level: str, how: str) -> None:
    """A leaf of a user's class may be something to look into at the next call."""
    import optree

    class Box:
        def __init__(self, value: Any) -> None:
            self.value = value

    def names() -> list[str]:
        with new_trace() as trace:
            x, y = tensor("x"), tensor("y")
            emit(trace, symbol("f"), x, output=y)
            emit(trace, symbol("g", tags=[EFFECT]), Box(y), output=())
            finish(trace, x, x)
        return op_names(optimize_module.run(trace, None, OptimizeOptions(level=level))[0])

    assert "f" not in names()
    if how == "registered":
        optree.register_pytree_node(
            Box, lambda box: ((box.value,), None, None), lambda _, parts: Box(*parts), namespace="thunder"
        )
    else:
        Box.__annotations__ = {"value": Any}
        dataclasses.dataclass(Box)
    assert "f" in names()


class ChangesClass(type(TensorProxy)):  # type: ignore[misc]
    """A metaclass that gives an object another class when something is asked of its own."""

    victims: list[Any] = []  # noqa: RUF012

    def __getattribute__(cls, name: str) -> Any:
        if name == "name" and ChangesClass.victims:
            victim, other = ChangesClass.victims.pop()
            victim.__class__ = other
        return super().__getattribute__(name)


@each_level
def test_an_object_that_changes_its_class_is_an_error(level: str) -> None:
    """What was learned of one class is never used on an object of another."""

    class Before(TensorProxy, metaclass=ChangesClass):
        pass

    class After(TensorProxy):
        pass

    with new_trace() as trace:
        x, victim = tensor("x"), Before.__new__(Before)
        victim._name = "v"
        emit(trace, symbol("f"), x, output=victim)
        finish(trace, x, x)
    ChangesClass.victims.append((victim, After))
    try:
        with pytest.raises(TypeError, match="changed its class"):
            optimize_module.run(trace, None, OptimizeOptions(level=level))
    finally:
        ChangesClass.victims.clear()


@each_level
def test_needed_proxies_that_misbehave(level: str) -> None:
    """What user code raises while the set is read is raised, and not taken for a missing attribute."""
    with new_trace() as trace:
        x = tensor("x")
        emit(trace, symbol("f"), x, output=tensor("y"))
        finish(trace, x, x)

    class Grows:
        @property
        def proxy(self) -> Any:
            needed.add(object())
            return x

    class Interrupts:
        @property
        def proxy(self) -> Any:
            raise KeyboardInterrupt

    needed: set[Any] = {Grows(), Grows()}
    with pytest.raises(RuntimeError, match="changed size"):
        optimized(trace, needed, level=level)
    with pytest.raises(KeyboardInterrupt):
        optimized(trace, {Interrupts()}, level=level)


@each_level
def test_a_list_of_itself_takes_bounded_memory(level: str) -> None:
    """Each time that it is opened there are a thousand more to open."""
    endless: list[Any] = []
    endless.extend([endless] * 1000)
    with new_trace() as trace:
        x = tensor("x")
        emit(trace, symbol("f"), x, endless, output=None)
        finish(trace, x, x)
    with pytest.raises(shapetrace_rs.InvalidTraceError, match="contains itself"):
        optimize_module.run(trace, None, OptimizeOptions(level=level))


class EqualsNothing:
    """A constant that cannot be compared or hashed."""

    def __eq__(self, other: object) -> bool:
        message = "compared"
        raise RuntimeError(message)

    def __hash__(self) -> int:
        message = "hashed"
        raise RuntimeError(message)


@each_level
def test_constants_are_never_compared(level: str) -> None:
    """Where two ops define one value their arguments are compared: constants of the user by identity alone."""
    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        prims.unpack_trivial(a, name="a")
        f = symbol("f")
        for _ in range(2):
            emit(trace, f, a, EqualsNothing(), output=r)
        finish(trace, r, a)
    assert op_names(optimized(trace, level=level)) == ["unpack_trivial", "f", "python_return"]


@each_level
def test_a_proxy_that_cannot_be_compared_or_hashed(level: str) -> None:
    """Values are known by name; nobody asks a proxy for more."""

    class Odd(TensorProxy):
        __eq__ = EqualsNothing.__eq__  # type: ignore[assignment]
        __hash__ = EqualsNothing.__hash__  # type: ignore[assignment]

    with new_trace() as trace:
        a, r = tensor("a"), tensor("r")
        odd = Odd(name="odd", shape=(2, 3), device=devices.cpu, dtype=dtypes.float32)
        prims.unpack_trivial(a, name="a")
        emit(trace, symbol("f"), a, output=odd)
        emit(trace, symbol("f"), a, output=odd)
        emit(trace, symbol("g"), odd, [odd], output=r)
        finish(trace, r, a)
    result = shapetrace_rs.optimize(trace, level=level)
    assert op_names(result)[-2:] == ["g", "python_return"]


def test_a_fallback_does_not_come_back_to_the_optimizer(
    dead_code_trace: Any, fail_optimizer: Callable[[BaseException], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What thunder's own pass calls of thunder is thunder's own as well, or a failure would go round in circles."""
    attempts: list[Any] = []

    def stock(trace: Any, needed_proxies: Any) -> Any:
        attempts.append(trace)
        # As thunder's pass would do it if it called itself for the scopes inside.
        return transform_common.dce(trace, needed_proxies) if len(attempts) < 3 else trace

    with shapetrace_rs.enabled():
        fail_optimizer(RuntimeError("always"))
        before = shapetrace_rs.counters().fallbacks
        with monkeypatch.context() as patched, pytest.warns(shapetrace_rs.ShapetraceWarning, match="always"):
            patched.setitem(_state.stock, "dce", stock)
            assert transform_common.dce(dead_code_trace) is dead_code_trace
        assert len(attempts) == 3
        assert shapetrace_rs.counters().fallbacks == before + 1, "the optimizer was tried again inside"


def function(x: Any) -> Any:
    """Has a dead op and shapes to ask for."""
    torch.sin(x)
    for _ in range(4):
        x = torch.nn.functional.gelu(x.reshape(x.shape[0], -1)) + x
    return x


# A finalizer may be what the signal meets; Python prints such errors and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.15])
def test_ctrl_c_during_a_compile(delay: float) -> None:
    """A signal reaches the user wherever it meets the compile, and the next compile is right."""
    x = torch.randn(3, 4)
    before = shapetrace_rs.counters().fallbacks

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGALRM, interrupt)
    with shapetrace_rs.enabled():
        try:
            signal.setitimer(signal.ITIMER_REAL, delay or 1e-6, 2.0)
            while True:
                thunder.jit(function)(x)
        except (KeyboardInterrupt, InterpreterError) as error:
            # Thunder's interpreter of Python wraps what comes up while it interprets; in its own bookkeeping that is
            # a complaint about the frames.
            caught = repr(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        torch.testing.assert_close(thunder.jit(function)(x), function(x))
    assert "KeyboardInterrupt" in caught or "Frame stack inconsistency" in caught
    assert shapetrace_rs.counters().fallbacks == before


# Processes and modules.


def in_a_child(work: Callable[[], None], seconds: float = 60) -> None:
    """Run something in a forked child, and fail if it fails or does not end."""
    with warnings.catch_warnings():
        # Python warns of forks in processes with threads: that is what is tested.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, "the child failed"
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


@each_level
def test_a_forked_child_optimizes_as_its_parent(level: str) -> None:
    """The state that a child inherits is whole; what it does then is its own."""
    with shapetrace_rs.enabled(level=level):
        expected = call("tags")

        def work() -> None:
            assert shapetrace_rs.installed()
            assert call("tags") == expected
            shapetrace_rs.install(level="full")
            shapetrace_rs.uninstall()
            assert transform_common.dce not in _hooks.HOOKS.values()

        in_a_child(work)
        assert call("tags") == expected


@pytest.mark.parametrize("name", ["state", "counters"])
def test_a_child_of_a_process_whose_other_thread_holds_a_lock(name: str) -> None:
    """A thread that does not exist in the child holds nothing there, and leaves nothing half done."""
    lock = _state.lock if name == "state" else report._lock
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            release.wait(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)

    def work() -> None:
        shapetrace_rs.install(level="compat")
        call("tags")
        assert shapetrace_rs.counters().calls

    in_a_child(work, seconds=20)
    release.set()
    thread.join(10)
    with shapetrace_rs.enabled():
        call("tags")


THUNDER_RELOADED = """
import importlib, warnings
warnings.simplefilter("ignore")
import thunder, torch, shapetrace_rs
from shapetrace_rs import _hooks
from thunder.core import transform_common

def f(x):
    torch.sin(x)
    return x + 1

x = torch.randn(2, 3)
shapetrace_rs.install()
importlib.reload(transform_common)
fresh = transform_common.dce
assert fresh not in _hooks.HOOKS.values()
assert torch.equal(thunder.jit(f)(x), f(x))
shapetrace_rs.install()
assert transform_common.dce in _hooks.HOOKS.values()
before = shapetrace_rs.counters().calls
assert torch.equal(thunder.jit(f)(x), f(x))
assert shapetrace_rs.counters().calls > before
shapetrace_rs.uninstall()
assert transform_common.dce is fresh
assert thunder.core.transforms.dce is fresh
assert torch.equal(thunder.jit(f)(x), f(x))
"""


def run_alone(script: str) -> None:
    """Run a script in a process of its own: what it does to modules is nobody else's."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_thunder_reloaded_while_installed() -> None:
    """After a reload thunder has a new pass; the next `install` finds it, and `uninstall` gives it back."""
    run_alone(THUNDER_RELOADED)


RELOAD = """
import importlib, sys, warnings
warnings.simplefilter("ignore")
import thunder, torch, shapetrace_rs

def f(x):
    torch.sin(x)
    return x.reshape(x.shape[0], -1) + 1

x = torch.randn(2, 3)
shapetrace_rs.install()
thunder.jit(f)(x)
{action}
assert torch.equal(thunder.jit(f)(x), f(x))
shapetrace_rs.install(level="compat", strict=True)
before = shapetrace_rs.counters().calls
assert torch.equal(thunder.jit(f)(x), f(x))
assert shapetrace_rs.counters().calls > before, "the package that is imported now is not in use"
assert shapetrace_rs.counters().fallbacks == 0
shapetrace_rs.uninstall()
assert torch.equal(thunder.jit(f)(x), f(x))
"""

ACTIONS = {
    "the package": "importlib.reload(shapetrace_rs)",
    "its modules": """
for name in sorted(name for name in sys.modules if name.startswith("shapetrace_rs.") and "_core" not in name):
    importlib.reload(sys.modules[name])
importlib.reload(shapetrace_rs)
""",
    "imported anew": """
for name in [name for name in sys.modules if name.partition(".")[0] == "shapetrace_rs"]:
    del sys.modules[name]
import shapetrace_rs
""",
}


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS.keys())
def test_the_package_reloaded_while_installed(action: str) -> None:
    """As notebooks do it: compiles go on, and what is imported last is what works."""
    run_alone(RELOAD.replace("{action}", action))


# Nothing stays behind.


def resident_kilobytes() -> int:
    """The memory that the process has now of its own: pages of libraries come and go with the machine."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * resource.getpagesize() // 1024


@each_level
def test_ten_thousand_calls_leave_nothing(level: str, caplog: pytest.LogCaptureFixture) -> None:
    """Through the hook, with faults among them: reference counts, objects and memory are what they were."""
    caplog.set_level("CRITICAL", logger="shapetrace_rs")
    trace = faulty_trace("tags")
    watched: list[Any] = [trace, trace.bound_symbols]
    for op in trace.bound_symbols:
        watched += [op, op.sym, op.args, op.kwargs, op.output, op.subsymbols, op.tags, *op.flat_proxy_args]
        watched += [*op.subsymbols, *(inside.output for inside in op.subsymbols)]
    # Not what the whole process shares: `None`, the empty tuple.
    watched = [thing for thing in watched if thing is not None and not (isinstance(thing, tuple) and not thing)]

    def calls(count: int) -> None:
        for k in range(count):
            if k % 100 == 0:
                # Each k-th call ends in the middle, in thunder's pass or with the user.
                FUSE.light(k // 100 % 3, KeyboardInterrupt if k % 200 else RuntimeError)
            with contextlib.suppress(KeyboardInterrupt):
                transform_common.dce(trace, set())
            FUSE.put_out()

    with shapetrace_rs.enabled(level=level), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The latest calls are remembered, 512 of them: fill that first.
        calls(1_000)
        gc.collect()
        counts, objects = [sys.getrefcount(thing) for thing in watched], len(gc.get_objects())
        before = shapetrace_rs.counters()
        # The allocator may take memory once and keep it; what leaks is taken anew by each ten thousand calls.
        growth: list[int] = []
        while not growth or (growth[-1] >= 8_000 and len(growth) < 3):
            memory = resident_kilobytes()
            calls(10_000)
            gc.collect()
            growth.append(resident_kilobytes() - memory)
        after = shapetrace_rs.counters()
        assert after.calls - before.calls > 9_800 * len(growth)
        assert after.fallbacks - before.fallbacks == 50 * len(growth)
        assert [sys.getrefcount(thing) for thing in watched] == counts
        assert len(gc.get_objects()) - objects < 200
        assert growth[-1] < 8_000, f"kilobytes for each 10,000 calls: {growth}"


@each_level
def test_no_fault_keeps_a_trace_alive(level: str) -> None:
    """An exception that the user catches and drops takes the trace with it."""

    def fail() -> Any:
        trace = faulty_trace("name")
        FUSE.light(1, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            transform_common.dce(trace, set())
        return weakref.ref(trace)

    with shapetrace_rs.enabled(level=level):
        references = [fail() for _ in range(5)]
        gc.collect()
        assert [reference() for reference in references] == [None] * 5
