"""What is in force right now, for the whole process: the options of the drop-in and thunder's own functions.

The state is a stack of frames. The bottom frame belongs to `install` and `uninstall`; each context manager
that is open adds one frame and takes *that* frame out again when it closes, in whatever order several threads
close theirs. The topmost frame decides. Readers look at the module attribute `options` without a lock: one
attribute read is atomic, and a compile that is under way while the options change simply uses the new ones
from its next call on.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .options import OptimizeOptions

__all__ = ["Frame", "add_frame", "change_top_frame", "current_options", "lock", "remove_frame", "top_frame"]


@dataclass(slots=True, eq=False)
class Frame:
    """One layer of the state.

    Attributes:
        options: The options of the drop-in, or `None` when thunder's own pass is to run.
        hooked: Whether thunder's names must point at the hooks. True with `options` of `None` means that
            thunder's own pass runs, but through the hooks, so that it can be timed.
    """

    options: OptimizeOptions | None
    hooked: bool


def _kept(name: str, new: Any) -> Any:
    """What this module had before it was reloaded: thunder's modules still hold the hooks, and blocks may be open."""
    return globals().get(name, new)


lock: threading.RLock = _kept("lock", threading.RLock())
"""Held while frames change and while thunder's modules are edited; never while a trace is optimized."""

if hasattr(os, "register_at_fork"):
    # A child has only the thread that forked. It must not begin with half of thunder's modules edited, nor with a lock
    # whose holder stayed behind.
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)

options: OptimizeOptions | None = _kept("options", None)
"""The options of the topmost frame. Only the functions of this module assign it."""

stock: dict[str, Callable[..., Any]] = _kept("stock", {})
"""Thunder's own functions by the name under which `thunder.core.transform_common` had them."""

_frames: list[Frame] = _kept("_frames", [Frame(None, hooked=False)])


def current_options() -> OptimizeOptions | None:
    """The options with which the drop-in is installed.

    Returns:
        The options in force, or `None` when the drop-in is not installed.
    """
    return options


def top_frame() -> Frame:
    """The frame that decides; call it with the lock held.

    Returns:
        The topmost frame of the stack, never `None`: the bottom frame cannot be removed.
    """
    return _frames[-1]


def add_frame(frame: Frame) -> None:
    """Put a frame on top; call it with the lock held.

    Args:
        frame: The frame that decides from now on.
    """
    _frames.append(frame)
    _publish()


def remove_frame(frame: Frame) -> None:
    """Take out a frame that `add_frame` put in, wherever it is now; call it with the lock held.

    Args:
        frame: The frame to take out. Frames compare by identity.
    """
    _frames.remove(frame)
    _publish()


def change_top_frame(new_options: OptimizeOptions | None) -> None:
    """Give the topmost frame other options; call it with the lock held.

    Args:
        new_options: The new options, or `None` for thunder's own pass without hooks.
    """
    frame = _frames[-1]
    frame.options = new_options
    frame.hooked = new_options is not None
    _publish()


def _publish() -> None:
    """Make the topmost frame's options the ones that readers see."""
    global options  # noqa: PLW0603 (one published name is what makes readers lock-free)
    options = _frames[-1].options
