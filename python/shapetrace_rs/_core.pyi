"""The native part: made for the modules of this package, not for its users."""

from collections.abc import Callable, Sequence
from typing import Any, final

__all__ = [
    "CallStatistics",
    "Optimizer",
    "TraceFile",
    "__version__",
    "debug_build",
    "evaluate_scalar",
    "max_file_bytes",
    "passes",
    "reasons",
    "rules",
]

__version__: str
debug_build: bool
max_file_bytes: int
"""Neither form of a trace file has more bytes."""

@final
class CallStatistics:
    """What one call did. Times are nanoseconds of wall clock."""

    @property
    def ops_in(self) -> int:
        """Top-level ops before."""
    @property
    def ops_out(self) -> int:
        """Top-level ops after."""
    @property
    def nested_in(self) -> int:
        """Ops in nested scopes before."""
    @property
    def nested_out(self) -> int:
        """Ops in nested scopes after."""
    @property
    def removed(self) -> dict[str, int]:
        """Ops removed, by reason."""
    @property
    def changed(self) -> int:
        """Ops made anew because they, or something inside them, changed."""
    @property
    def renamed(self) -> int:
        """Numbers that another name or a literal stands for."""
    @property
    def remembered(self) -> bool:
        """Whether the list was that of the call before, with nothing changed in it, and was not read again."""
    @property
    def only_hands_back(self) -> list[Any]:
        """Removed ops of foreign symbols that only hand back an argument: perhaps in-place ops without a tag."""
    @property
    def kept_for_effect(self) -> list[Any]:
        """Ops of foreign symbols that define no value and are not tagged: kept all the same."""
    @property
    def read_ns(self) -> int:
        """Time for reading the trace."""
    @property
    def passes_ns(self) -> int:
        """Time for the passes."""
    @property
    def apply_ns(self) -> int:
        """Time for making the answer."""
    @property
    def total_ns(self) -> int:
        """Time for all three."""

@final
class Optimizer:
    """Optimizes lists of bound symbols with fixed options. Safe to call from several threads."""

    def __new__(
        cls,
        host: Any,
        *,
        level: str,
        keep_random: bool,
        keep_shape_numbers: bool,
        floor_division: bool,
        effects: Callable[[Any], bool | None] | None = None,
        direct: bool = True,
        remember_from: int = 16,
    ) -> Optimizer:
        """Make an optimizer; `host` is what `shapetrace_rs._thunder.host()` returns.

        `direct=False` reads attributes through `getattr` only, as on interpreters whose layout is not known.
        A list of at least `remember_from` ops is not read again in the next call if nothing in it is different.
        """
    @property
    def direct(self) -> bool:
        """Whether attributes are read where this interpreter keeps them."""
    def run(
        self,
        bound_symbols: Sequence[Any],
        output: Any = None,
        needed_proxies: set[Any] | None = None,
    ) -> tuple[list[Any], CallStatistics]:
        """The bound symbols that are left, and what was done. Linear in their number."""
    def run_list(
        self,
        bound_symbols: Sequence[Any],
        output: Any = None,
        needed_proxies: set[Any] | None = None,
    ) -> list[Any]:
        """As `run`, without the statistics: for lists of a few ops."""

    def explain(
        self,
        bound_symbols: Sequence[Any],
        output: Any = None,
        needed_proxies: set[Any] | None = None,
    ) -> tuple[list[Any], CallStatistics, list[tuple[Any, Any, int | None, str, bool]], dict[str, str]]:
        """As `run`, with what happened.

        The third part tells of each op, scope by scope, outer scopes first: the bound symbol before, the one after
        (`None` if it is gone), the index in this list of the op that owns its scope (`None` at the top level), a word
        (`"kept"`, `"changed"` or the reason of its removal), and whether it has to stay for an effect. The fourth part
        maps names of numbers to the names or literals that stand for them now.
        """
    def verify(
        self,
        bound_symbols: Sequence[Any],
        inputs: Any = None,
        optimized: bool = False,
    ) -> list[tuple[str, str, Any, str | None, Any]]:
        """All that is wrong: kind, message, bound symbol, name of the value, owner of the scope."""

    def record(
        self,
        bound_symbols: Sequence[Any],
        inputs: Any,
        about: dict[str, str],
        trace: dict[str, Any],
        names: Sequence[str],
        describer: Any,
    ) -> TraceFile:
        """A trace as plain data.

        `inputs` is what the trace takes, `about` says who writes, `trace` is the state of the trace, `names` are the
        names that are taken, and `describer` is what `shapetrace_rs.files.describe.describer()` returns.
        """

@final
class TraceFile:
    """A program and, if it was a trace of thunder, what thunder needs beside it. Raises `TraceFileError`."""

    @staticmethod
    def read(data: bytes) -> TraceFile:
        """Read either form. Takes time and memory bounded by the size of the data and by limits of the format."""
    @property
    def has_host_data(self) -> bool:
        """Whether a thunder trace can be made of it."""
    @property
    def lacks_return(self) -> bool:
        """Whether nothing says which values are needed, so that nothing can be removed."""
    @property
    def op_counts(self) -> tuple[int, int]:
        """The ops at the top level, and those inside others."""
    @property
    def about(self) -> dict[str, str]:
        """Who wrote it: names and versions."""
    def to_bytes(self) -> bytes:
        """The binary form."""
    def to_text(self, host: bool = True) -> str:
        """The text form; with the program alone if `host` is false."""
    def optimize(
        self,
        *,
        level: str,
        keep_random: bool = False,
        keep_shape_numbers: bool = False,
        floor_division: bool = True,
    ) -> tuple[TraceFile, list[tuple[str, str, str | None]]]:
        """The file optimized, and of each op that went its line, the reason, and where it is from."""
    def verify(self, optimized: bool = False) -> list[tuple[str, str, str | None, str | None, str | None, str | None]]:
        """All that is wrong: kind, message, line of the op, name of the value, line of the owner, place in a file."""
    def statistics(self) -> dict[str, dict[str, int]]:
        """Counts by group: ops, structure, kinds, values, removable, symbols."""
    def difference(
        self, other: TraceFile, name: str, other_name: str, *, context: int = 3, host: bool = True
    ) -> tuple[str, str]:
        """The lines that differ in the unified form, and a sentence; no lines if nothing differs.

        If the programs are the same and `host` is true, what thunder needs beside them is compared.
        """
    def restore(self, restorer: Any) -> tuple[list[Any], dict[str, Any], list[str]]:
        """The bound symbols of the top level, the state of the trace and the names that are taken.

        `restorer` is what `shapetrace_rs.files.restore.restorer()` returns.
        """

def passes() -> list[tuple[str, str, list[str]]]:
    """The passes in their order: name, sentence, levels."""

def rules() -> list[tuple[str, list[str], str]]:
    """The rules of the shape arithmetic: name, operations, condition."""

def reasons() -> list[str]:
    """The reasons for which an op is removed, in the order of reports."""

def evaluate_scalar(name: str, a: Any, b: Any) -> Any:
    """The result of scalar arithmetic on literals as the optimizer computes it; `None` where it does not."""
