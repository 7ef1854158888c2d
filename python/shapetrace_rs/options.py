"""The options of the optimizer, as `install`, `enabled`, `optimize` and the transform take them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["Effects", "OptimizeOptions"]

Effects = Callable[[Any], "bool | None"] | Mapping[str, bool] | Collection[str]
"""Which ops have side effects, beyond what their tags say.

A predicate gets a bound symbol and answers `True` (it has an effect and stays), `False` (it has none, whatever its
tags say) or `None` (decide as usual). A mapping says the same by symbol name. A collection names symbols that have
an effect.
"""


@dataclass(frozen=True, slots=True)
class OptimizeOptions:
    """What the optimizer does, and what it does when something goes wrong.

    Attributes:
        level: `"full"` runs all passes in every scope; `"compat"` does exactly what thunder's own pass does.
        strict: Raise when the optimizer fails, where otherwise thunder's own pass runs and a warning is given.
        keep_random: Keep random ops that nothing uses, so that the random stream stays as in eager mode.
            Level `"full"` only.
        keep_shape_numbers: Keep one producer of each number that only the shape of a live tensor mentions.
            Level `"full"` only.
        effects: Which ops have side effects, beyond what their tags say; see `Effects`.
        floor_division: Write thunder's long form of `a // b` as the one op that Python's executor has for it.
            Level `"full"` only.
        open_composites: Where a fusion executor is in use, open composites that it refuses only because they ask for
            numbers that are known from the trace's inputs, right before thunder gives ops to executors. Level
            `"full"` with the drop-in only.

    Raises:
        ValueError: The level is neither `"full"` nor `"compat"`.
        TypeError: `effects` is neither callable nor a collection of names.
    """

    level: Literal["full", "compat"] = "full"
    strict: bool = False
    keep_random: bool = False
    keep_shape_numbers: bool = False
    effects: Effects | None = None
    floor_division: bool = True
    open_composites: bool = True

    def __post_init__(self) -> None:
        """Refuse values that would fail later, in the middle of a compile."""
        if self.level not in ("full", "compat"):
            message = f"level must be 'full' or 'compat', not {self.level!r}"
            raise ValueError(message)
        if isinstance(self.effects, str) or not (
            self.effects is None or callable(self.effects) or isinstance(self.effects, Collection)
        ):
            message = f"effects must be a predicate, a mapping or a collection of symbol names, not {self.effects!r}"
            raise TypeError(message)
