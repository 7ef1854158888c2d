"""The drop-in: thunder's own dead code elimination replaced, in place, for the whole process.

Thunder's modules import `dce` by name, so replacing the one attribute in `thunder.core.transform_common`
would miss most callers. `install` replaces every global of every thunder module that *is* that function,
under whatever name. A module that is imported later imports the hook by itself; `uninstall` finds those too,
also outside of thunder.

    >>> import shapetrace_rs
    >>> shapetrace_rs.install()
    >>> shapetrace_rs.installed()
    True
    >>> shapetrace_rs.uninstall()
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from . import _hooks, _state, _thunder
from .options import OptimizeOptions
from .versions import check_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from importlib.machinery import ModuleSpec

    from .options import Effects

__all__ = ["enabled", "install", "install_on_import", "installed", "uninstall"]

_HOME = "thunder.core.transform_common"


def install(
    *,
    level: Literal["full", "compat"] = "full",
    strict: bool = False,
    keep_random: bool = False,
    keep_shape_numbers: bool = False,
    effects: Effects | None = None,
    floor_division: bool = True,
    open_composites: bool = True,
) -> None:
    """Use the Rust optimizer wherever thunder runs dead code elimination, in this process, from now on.

    Imports thunder if that has not happened yet. Calling it again changes the options. Safe to call from any
    thread and during a compile, which then uses the new options from its next call on. Inside `with
    enabled(...)` it changes the options of that block only.

    Args:
        level: `"full"` runs all passes, `"compat"` does exactly what thunder's own pass does.
        strict: Raise when the optimizer fails, where otherwise thunder's own pass runs and a warning is
            given.
        keep_random: Keep random ops that nobody uses, so that the random stream stays as in eager mode.
        keep_shape_numbers: Keep one producer of each number that a live tensor's shape mentions.
        effects: Which ops have side effects, beyond what their tags say: a predicate on bound symbols, a
            mapping from symbol names to answers, or a collection of names.
        floor_division: Write thunder's long form of `a // b` as the one op that Python's executor has for it.
        open_composites: Where a fusion executor is in use, open composites that only known numbers keep from fusing.

    Raises:
        UnsupportedVersionError: lightning-thunder or torch is missing or has an unsuitable version.
        ValueError: `level` is neither of the two.
        TypeError: `effects` is nothing of the kind.
    """
    options = OptimizeOptions(
        level=level,
        strict=strict,
        keep_random=keep_random,
        keep_shape_numbers=keep_shape_numbers,
        effects=effects,
        floor_division=floor_division,
        open_composites=open_composites,
    )
    _import_thunder()
    with _state.lock:
        if not _state.top_frame().hooked:
            _hooks.forget_causes()
        _state.change_top_frame(options)
        _update_thunder()


def uninstall() -> None:
    """Give thunder its own function back, in every module that holds a hook; harmless when there is none.

    Inside `with enabled(...)` it switches the drop-in off for the rest of that block only.
    """
    with _state.lock:
        _Finder.withdraw()
        _state.change_top_frame(None)
        _update_thunder()
        _thunder.withdraw_implementations()


def installed() -> bool:
    """Whether the drop-in is in force.

    Returns:
        True between `install` and `uninstall`, and inside `with enabled(...)`.
    """
    return _state.options is not None


@contextmanager
def enabled(**options: Any) -> Iterator[None]:
    """The drop-in for the length of a `with` block, or of a function when used as a decorator.

    Afterwards everything is as before, also after an exception, also when blocks are nested. The drop-in
    belongs to the process, not to the thread: other threads that compile meanwhile use it too.

    Args:
        **options: The keyword arguments of `install`.

    Yields:
        Nothing.

    Raises:
        UnsupportedVersionError: lightning-thunder or torch is missing or has an unsuitable version.
        TypeError: There is no option of that name.
        ValueError: An option has a value that it cannot have.
    """
    frame = _state.Frame(OptimizeOptions(**options), hooked=True)
    with _hold(frame):
        yield


@contextmanager
def observed() -> Iterator[None]:
    """Thunder's own pass for the length of a `with` block, but through the hooks, so that it is recorded.

    Yields:
        Nothing.
    """
    with _hold(_state.Frame(None, hooked=True)):
        yield


def install_on_import(options: OptimizeOptions) -> None:
    """Install now if thunder is imported already, otherwise at the moment when it is.

    This lets a script set environment variables, such as `OMP_NUM_THREADS`, before it imports torch.

    Args:
        options: The options to install with.

    Raises:
        UnsupportedVersionError: lightning-thunder is there, but has an unsuitable version, or torch has or is missing.
    """
    # A program that needs no thunder runs without it, and one that does says itself what is missing.
    if "thunder" in sys.modules or importlib.util.find_spec("thunder") is not None:
        check_versions()
    with _state.lock:
        _hooks.forget_causes()
        _state.change_top_frame(options)
        if _HOME in sys.modules:
            _update_thunder()
        else:
            _Finder.wait()


@contextmanager
def _hold(frame: _state.Frame) -> Iterator[None]:
    """Keep a frame on the stack for the length of a `with` block."""
    _import_thunder()
    with _state.lock:
        if not _state.top_frame().hooked:
            _hooks.forget_causes()
        _state.add_frame(frame)
        _update_thunder()
    try:
        yield
    finally:
        with _state.lock:
            _state.remove_frame(frame)
            _update_thunder()


def _import_thunder() -> None:
    """Import thunder, or say why that cannot work. Not under the lock: imports have locks of their own."""
    if "thunder" not in sys.modules:
        check_versions()
    importlib.import_module(_HOME)


def _update_thunder() -> None:
    """Make the names in all modules agree with the topmost frame; call it with the lock held."""
    home = sys.modules.get(_HOME)
    if home is None:
        return
    if _state.top_frame().hooked:
        _hook(home)
    else:
        _unhook()


def _hook(home: ModuleType) -> None:
    """Put the hooks in place of thunder's functions, also in modules imported since the last time."""
    for name, hook in _hooks.HOOKS.items():
        present = vars(home).get(name)
        if present is None or present is hook:
            continue
        # Somebody may have put a wrapper around a hook, or in place of one. Only a function that thunder
        # itself defines (anew, after a reload) replaces the one that we know; else a fallback could call the
        # hook again.
        if name not in _state.stock or _is_thunders_own(present, home):
            _state.stock[name] = present
    for name, stock in _state.stock.items():
        _replace(stock, _hooks.HOOKS[name], lambda module: module.partition(".")[0] == "thunder")


def _unhook() -> None:
    """Give every module its own function back, also those outside of thunder that imported a hook from it."""
    for name, stock in _state.stock.items():
        _replace(_hooks.HOOKS[name], stock, lambda module: module.partition(".")[0] != "shapetrace_rs")


def _replace(old: Callable[..., Any], new: Callable[..., Any], wanted: Callable[[str], bool]) -> None:
    """Rebind every global that is `old` to `new`, in the modules whose name is wanted.

    Looks into the modules' dictionaries: `getattr` would run the code of modules that load their contents
    lazily.
    """
    for module_name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or not wanted(module_name):
            continue
        namespace = ModuleType.__getattribute__(module, "__dict__")
        for name in [name for name, value in list(namespace.items()) if value is old]:
            namespace[name] = new


def _is_thunders_own(function: Any, home: ModuleType) -> bool:
    """Whether thunder's module itself defined the function, rather than somebody who put it there."""
    return isinstance(function, FunctionType) and function.__globals__ is vars(home)


class _Finder(importlib.abc.MetaPathFinder):
    """Waits for the import of the module that defines `dce`, and updates thunder right after it."""

    _waiting: _Finder | None = None

    @classmethod
    def wait(cls) -> None:
        """Start to wait; does nothing when already waiting."""
        if cls._waiting is None:
            cls._waiting = cls()
            sys.meta_path.insert(0, cls._waiting)

    @classmethod
    def withdraw(cls) -> None:
        """Stop waiting; does nothing when not waiting."""
        if cls._waiting is not None and cls._waiting in sys.meta_path:
            sys.meta_path.remove(cls._waiting)
        cls._waiting = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the other finders find the module, and put a loader in front of its own."""
        del path, target
        if fullname != _HOME:
            return None
        _Finder.withdraw()
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Executes a module through its own loader, then updates thunder."""

    def __init__(self, own_loader: importlib.abc.Loader) -> None:
        self._own_loader = own_loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as its own loader does."""
        return self._own_loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module, with its own loader visible to it, and put the hooks in."""
        module.__loader__ = self._own_loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._own_loader
        self._own_loader.exec_module(module)
        with _state.lock:
            _update_thunder()
