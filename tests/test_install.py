"""The drop-in: what `install` replaces, that `uninstall` puts it back, and what a failure does."""

from __future__ import annotations

import functools
import gc
import importlib
import logging
import sys
import threading
import warnings
import weakref
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import thunder
import torch

import shapetrace_rs
from shapetrace_rs import _hooks, _state, versions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

optimize_module: Any = importlib.import_module("shapetrace_rs.optimize")
transform_common: Any = importlib.import_module("thunder.core.transform_common")

HOLDERS = (
    "thunder",
    "thunder.common",
    "thunder.core.transform_common",
    "thunder.core.transforms",
    "thunder.core.vjp_utils",
    "thunder.executors.passes",
    "thunder.executors.torch_compile",
    "thunder.transforms.autodiff",
)


def globals_of_thunder() -> dict[tuple[str, str], int]:
    """The identity of every global function of every thunder module."""
    return {
        (module_name, name): id(value)
        for module_name, module in list(sys.modules.items())
        if module_name.partition(".")[0] == "thunder" and isinstance(module, ModuleType)
        for name, value in list(vars(module).items())
        if callable(value)
    }


def import_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> ModuleType:
    """Import a module from its source; it is forgotten after the test."""
    (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(name)
    monkeypatch.setitem(sys.modules, name, module)
    return module


class TestReplacing:
    """Which names change, and that they change back."""

    def test_every_thunder_module_gets_the_hook(self) -> None:
        """Protects against a caller inside thunder that goes on using thunder's own pass."""
        stock = transform_common.dce
        for name in HOLDERS:
            importlib.import_module(name)
        shapetrace_rs.install()
        for name in HOLDERS:
            assert sys.modules[name].dce is _hooks.HOOKS["dce"], name
        for module_name, module in list(sys.modules.items()):
            if module_name.partition(".")[0] == "thunder":
                assert all(value is not stock for value in list(vars(module).values())), module_name

    def test_names_other_than_dce_are_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Protects `from ... import dce as eliminate` inside thunder."""
        monkeypatch.setattr(thunder.core.transforms, "eliminate", transform_common.dce, raising=False)
        shapetrace_rs.install()
        assert thunder.core.transforms.eliminate is _hooks.HOOKS["dce"]
        shapetrace_rs.uninstall()
        assert thunder.core.transforms.eliminate is transform_common.dce

    def test_a_later_dce_bsyms_is_replaced_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Protects newer versions of thunder, which have a second function."""

        def dce_bsyms(bsyms: Any, output: Any, needed_proxies: Any = None) -> Any:
            return ["thunder's own", bsyms, output, needed_proxies]

        monkeypatch.setattr(transform_common, "dce_bsyms", dce_bsyms, raising=False)
        monkeypatch.setattr(optimize_module, "dce_bsyms", lambda bsyms, *_: list(bsyms[1:]))
        monkeypatch.setattr(_state, "stock", dict(_state.stock))
        shapetrace_rs.install()
        assert transform_common.dce_bsyms(["dead", "live"], None) == ["live"]
        shapetrace_rs.uninstall()
        assert transform_common.dce_bsyms is dce_bsyms

    def test_uninstall_restores_everything(self) -> None:
        """Protects against a name that stays replaced, or that is replaced by something else than it was."""
        before = globals_of_thunder()
        shapetrace_rs.install()
        shapetrace_rs.uninstall()
        after = globals_of_thunder()
        assert {key: after.get(key) for key in before} == before

    def test_calling_twice_is_harmless(self) -> None:
        """Protects against a hook that becomes its own fallback, and against options that stay."""
        before = globals_of_thunder()
        shapetrace_rs.uninstall()
        shapetrace_rs.install()
        shapetrace_rs.install(level="compat", keep_random=True)
        options = _state.current_options()
        assert options is not None
        assert (options.level, options.keep_random) == ("compat", True)
        shapetrace_rs.uninstall()
        shapetrace_rs.uninstall()
        assert not shapetrace_rs.installed()
        after = globals_of_thunder()
        assert {key: after.get(key) for key in before} == before

    def test_a_module_imported_later_gets_and_loses_the_hook(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Protects modules outside of thunder that import `dce` from it while the drop-in is installed."""
        stock = transform_common.dce
        shapetrace_rs.install()
        late = import_source(
            tmp_path,
            monkeypatch,
            "imported_later",
            "from thunder.core.transform_common import dce as eliminate\n",
        )
        assert late.eliminate is _hooks.HOOKS["dce"]
        shapetrace_rs.uninstall()
        assert late.eliminate is stock

    def test_a_module_outside_of_thunder_keeps_what_it_had(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Protects a program's own reference to thunder's pass, which a comparison may need."""
        early = import_source(
            tmp_path, monkeypatch, "imported_earlier", "from thunder.core.transform_common import dce\n"
        )
        stock = transform_common.dce
        shapetrace_rs.install()
        assert early.dce is stock

    def test_a_hook_kept_in_a_closure_runs_thunders_pass_afterwards(
        self, dead_code_trace: Any, op_names: Callable[[Any], list[str]], fail_optimizer: Callable[..., None]
    ) -> None:
        """Protects callers that no scan can find after `uninstall`."""
        shapetrace_rs.install()
        kept = transform_common.dce
        shapetrace_rs.uninstall()
        fail_optimizer(AssertionError("the optimizer was called"))
        assert "mul" not in op_names(kept(dead_code_trace))

    def test_a_wrapper_around_the_hook_survives(
        self,
        dead_code_trace: Any,
        op_names: Callable[[Any], list[str]],
        fail_optimizer: Callable[..., None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Protects against endless recursion when somebody wrapped the hook and the optimizer fails later."""
        shapetrace_rs.install()
        hook = transform_common.dce
        monkeypatch.setattr(transform_common, "dce", functools.partial(hook))
        wrapper = transform_common.dce
        shapetrace_rs.uninstall()
        assert transform_common.dce is wrapper
        shapetrace_rs.install()
        fail_optimizer(ValueError("injected"))
        with pytest.warns(shapetrace_rs.ShapetraceWarning):
            assert "mul" not in op_names(thunder.dce(dead_code_trace))


class TestEnabled:
    """The context manager."""

    def test_it_restores_the_previous_state(self) -> None:
        """Protects nesting: each block ends with the options that it began with."""
        stock = transform_common.dce
        with shapetrace_rs.enabled(level="compat"):
            assert shapetrace_rs.installed()
            with shapetrace_rs.enabled(keep_random=True):
                assert _state.current_options() == shapetrace_rs.OptimizeOptions(keep_random=True)
            assert _state.current_options() == shapetrace_rs.OptimizeOptions(level="compat")
        assert not shapetrace_rs.installed()
        assert transform_common.dce is stock

    def test_it_restores_an_installation(self) -> None:
        """Protects options given to `install` against a block inside."""
        shapetrace_rs.install(level="compat")
        with shapetrace_rs.enabled():
            shapetrace_rs.uninstall()
            assert not shapetrace_rs.installed()
        assert _state.current_options() == shapetrace_rs.OptimizeOptions(level="compat")

    def test_it_restores_after_an_exception(self) -> None:
        """Protects the rest of the program against a compile that fails inside a block."""
        with pytest.raises(ZeroDivisionError), shapetrace_rs.enabled():
            raise ZeroDivisionError
        assert not shapetrace_rs.installed()
        assert transform_common.dce not in _hooks.HOOKS.values()

    def test_blocks_of_two_threads_may_end_in_any_order(self) -> None:
        """Protects against a drop-in that is lost, or stays, when blocks overlap without being nested."""
        first, second = shapetrace_rs.enabled(level="compat"), shapetrace_rs.enabled(level="full")
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert _state.current_options() == shapetrace_rs.OptimizeOptions(level="full")
        second.__exit__(None, None, None)
        assert not shapetrace_rs.installed()

    def test_a_wrong_option_changes_nothing(self) -> None:
        """Protects against a half-made installation."""
        with pytest.raises(TypeError), shapetrace_rs.enabled(levle="full"):
            pass
        with pytest.raises(ValueError, match="level"):
            shapetrace_rs.install(level="fast")  # type: ignore[arg-type]
        assert not shapetrace_rs.installed()


class TestFailingSafely:
    """What a compile sees when the optimizer raises."""

    def test_thunders_pass_does_the_work_and_one_warning_names_the_cause(
        self,
        dead_code_trace: Any,
        op_names: Callable[[Any], list[str]],
        fail_optimizer: Callable[..., None],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Protects the compile against the optimizer, and the user against both silence and noise."""
        shapetrace_rs.install()
        before = shapetrace_rs.counters()
        fail_optimizer(RuntimeError("operand 17 of 'add' is odd"))
        with (
            caplog.at_level(logging.WARNING, logger="shapetrace_rs"),
            pytest.warns(shapetrace_rs.ShapetraceWarning, match="RuntimeError: operand 17 of 'add' is odd") as caught,
        ):
            assert "mul" not in op_names(transform_common.dce(dead_code_trace))
            fail_optimizer(RuntimeError("operand 4 of 'mul' is odd"))
            transform_common.dce(dead_code_trace)
        assert len(caught) == 1, "the same cause in other words"
        assert "operand 17" in caplog.text
        assert shapetrace_rs.counters().fallbacks == before.fallbacks + 2
        assert shapetrace_rs.counters().calls == before.calls

    def test_another_cause_gets_another_warning(
        self, dead_code_trace: Any, fail_optimizer: Callable[..., None]
    ) -> None:
        """Protects against a first warning that hides the next problem."""
        shapetrace_rs.install()
        with pytest.warns(shapetrace_rs.ShapetraceWarning) as caught:
            for error in (RuntimeError("odd"), RuntimeError("even"), KeyError("odd")):
                fail_optimizer(error)
                transform_common.dce(dead_code_trace)
        assert len(caught) == 3

    def test_strict_raises(self, dead_code_trace: Any, fail_optimizer: Callable[..., None]) -> None:
        """Protects users who want to know, rather than to go on."""
        shapetrace_rs.install(strict=True)
        fail_optimizer(RuntimeError("injected"))
        with pytest.raises(RuntimeError, match="injected"):
            transform_common.dce(dead_code_trace)

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
    def test_an_interruption_is_no_failure(
        self, dead_code_trace: Any, fail_optimizer: Callable[..., None], error: BaseException
    ) -> None:
        """Protects Ctrl-C during a long compile."""
        shapetrace_rs.install()
        fail_optimizer(error)
        with pytest.raises(type(error)):
            transform_common.dce(dead_code_trace)

    def test_needed_proxies_are_what_thunders_pass_makes_of_them(
        self, dead_code_trace: Any, fail_optimizer: Callable[..., None]
    ) -> None:
        """Protects the in/out argument against a failed attempt that had begun to fill it."""
        expected: set[Any] = set()
        transform_common.dce(dead_code_trace, expected)
        shapetrace_rs.install()
        fail_optimizer(RuntimeError("injected"))
        needed: set[Any] = set()
        with pytest.warns(shapetrace_rs.ShapetraceWarning):
            transform_common.dce(dead_code_trace, needed)
        assert needed == expected

    def test_thunders_error_is_the_one_to_see(self, fail_optimizer: Callable[..., None]) -> None:
        """Protects programs that expect thunder's exception, and readers of tracebacks."""
        with pytest.raises(AttributeError) as expected:
            transform_common.dce("no trace")
        shapetrace_rs.install()
        fail_optimizer(RuntimeError("injected"))
        with warnings.catch_warnings(), pytest.raises(AttributeError) as actual:
            warnings.simplefilter("error")
            transform_common.dce("no trace")
        assert str(actual.value) == str(expected.value)
        assert actual.value.__context__ is None

    def test_a_failing_optimizer_does_not_change_results(
        self, small_model: Any, agrees_with_eager: Callable[..., Any], fail_optimizer: Callable[..., None]
    ) -> None:
        """Protects a whole compile, forward and backward, in which every call falls back."""
        shapetrace_rs.install()
        fail_optimizer(RuntimeError("injected"))
        with pytest.warns(shapetrace_rs.ShapetraceWarning):
            agrees_with_eager(small_model, torch.randn(5, 6))

    @pytest.mark.parametrize("fails", [False, True])
    def test_no_trace_is_kept_alive(
        self,
        dead_code_trace: Any,
        fail_optimizer: Callable[..., None],
        request: pytest.FixtureRequest,
        fails: bool,
    ) -> None:
        """Protects memory: neither a result nor the traceback of a failure may hold a trace."""
        from thunder.core.trace import from_trace

        def once() -> tuple[weakref.ref[Any], weakref.ref[Any]]:
            trace = from_trace(dead_code_trace)
            trace.bound_symbols = list(dead_code_trace.bound_symbols)
            result = transform_common.dce(trace)
            return weakref.ref(trace), weakref.ref(result)

        del request
        shapetrace_rs.install()
        if fails:
            fail_optimizer(RuntimeError("injected"))
        gc.collect()
        gc.disable()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", shapetrace_rs.ShapetraceWarning)
                references = once()
            assert [reference() for reference in references] == [None, None]
        finally:
            gc.enable()


class TestCompiling:
    """Whole compiles with the drop-in in force."""

    @pytest.mark.parametrize("level", ["full", "compat"])
    def test_forward_and_gradients_agree_with_eager(
        self, small_model: Any, agrees_with_eager: Callable[..., Any], level: Any
    ) -> None:
        """Protects the main promise; `strict` lets no fallback hide a failure."""
        before = shapetrace_rs.counters()
        with shapetrace_rs.enabled(level=level, strict=True):
            agrees_with_eager(small_model, torch.randn(5, 6))
        assert shapetrace_rs.counters().calls > before.calls

    def test_symbolic_values_agree_with_eager(self) -> None:
        """Protects traces with shape queries, and their use with other sizes later."""

        def function(x: Any, y: Any) -> Any:
            flat = x.reshape(x.shape[0], -1)
            return torch.sin(flat).sum(1) * y.reshape(-1)

        with shapetrace_rs.enabled(strict=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = thunder.jit(function, cache="symbolic values")
            for size in (4, 5):
                x, y = torch.randn(size, 2, 3, requires_grad=True), torch.randn(size, 1, requires_grad=True)
                actual, expected = compiled(x, y), function(x, y)
                torch.testing.assert_close(actual, expected)
                torch.testing.assert_close(
                    torch.autograd.grad(actual.sum(), (x, y)), torch.autograd.grad(expected.sum(), (x, y))
                )

    def test_two_threads_compile_at_once(self) -> None:
        """Protects the shared state of the hook and of the native part."""
        inputs = torch.randn(4, 6)
        failures: list[BaseException] = []
        barrier = threading.Barrier(2)

        def work(seed: int) -> None:
            try:
                generator = torch.Generator().manual_seed(seed)
                weight = torch.randn(3, 6, generator=generator)

                def function(x: Any) -> Any:
                    for _ in range(3 + seed):
                        x = torch.sin(x) + x.sum()
                    return torch.nn.functional.linear(x, weight)

                barrier.wait(timeout=30)
                torch.testing.assert_close(thunder.jit(function)(inputs), function(inputs))
            except BaseException as error:  # noqa: BLE001 (handed to the test's own thread)
                failures.append(error)

        with shapetrace_rs.enabled(strict=True):
            threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(timeout=60)
        assert failures == []

    def test_installing_during_a_compile(self) -> None:
        """Protects a compile against another thread that installs and uninstalls all the time."""
        stop = threading.Event()

        def toggle() -> None:
            while not stop.is_set():
                shapetrace_rs.install(strict=True)
                shapetrace_rs.uninstall()

        def function(x: Any) -> Any:
            for _ in range(5):
                x = torch.nn.functional.gelu(x) + x
            return x

        thread = threading.Thread(target=toggle)
        thread.start()
        try:
            inputs = torch.randn(3, 4)
            torch.testing.assert_close(thunder.jit(function)(inputs), function(inputs))
        finally:
            stop.set()
            thread.join(timeout=30)
        assert transform_common.dce not in _hooks.HOOKS.values()


class TestVersions:
    """What the check says about pairs of packages that do not work."""

    @pytest.mark.parametrize(
        ("installed", "words"),
        [
            ({"lightning-thunder": "0.2.5", "torch": "2.9.1"}, "0.2.5 is installed"),
            ({"lightning-thunder": "0.3.0", "torch": "2.9.1"}, "below 0.3"),
            (
                {"lightning-thunder": "0.2.6", "torch": "2.13.0a0+git1"},
                "cannot be imported with torch 2.13 or newer",
            ),
            ({"lightning-thunder": "0.2.6", "torch": "2.7.0"}, "needs torch 2.7.1 or newer"),
            ({"lightning-thunder": "0.2.6", "torch": "nightly"}, "cannot read the version number 'nightly'"),
        ],
    )
    def test_unsuitable(self, monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], words: str) -> None:
        """Protects users from an error deep inside thunder's import."""
        monkeypatch.setattr(versions, "installed_version", installed.get)
        with pytest.raises(shapetrace_rs.UnsupportedVersionError, match=words) as caught:
            versions.check_versions()
        assert "pip install 'lightning-thunder==0.2.6'" in str(caught.value)

    @pytest.mark.parametrize("torch_version", ["2.7.1", "2.9.1+cu128", "2.12.5"])
    @pytest.mark.parametrize("thunder_version", ["0.2.6", "0.2.7.dev0"])
    def test_suitable(self, monkeypatch: pytest.MonkeyPatch, thunder_version: str, torch_version: str) -> None:
        """Protects local version labels and development versions from being refused."""
        installed = {"lightning-thunder": thunder_version, "torch": torch_version}
        monkeypatch.setattr(versions, "installed_version", installed.get)
        versions.check_versions()

    def test_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Protects against an `ImportError` without advice."""

        def absent(name: str) -> str:
            raise metadata.PackageNotFoundError(name)

        monkeypatch.setattr(versions.metadata, "version", absent)
        monkeypatch.setattr(versions.util, "find_spec", lambda _: None)
        with pytest.raises(shapetrace_rs.UnsupportedVersionError, match="lightning-thunder, which is not installed"):
            versions.check_versions()

    def test_built_from_source(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Protects packages that can be imported but have no metadata."""
        monkeypatch.setattr(versions, "installed_version", lambda _: None)
        versions.check_versions()
