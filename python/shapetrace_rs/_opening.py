"""Opening composites for fusion executors.

A fusion executor refuses a composite with a shape query inside, though it would take everything else in it: under
symbolic values a softmax stays one op of torch's, in the middle of what could have been one fusion. Where the numbers
that such a composite asks for are known at the top level, from the shapes of the trace's inputs, it is *opened*: the
ops inside it take its place, as thunder does it with composites that no executor claims, and one query of each input
defines the numbers at the head of the trace. The passes that run afterwards find the queries inside redundant.

In: a trace right before thunder gives its ops to executors, so after autograd, whose rules are for composites. Out: a
trace in which nothing that an executor of higher priority claims was touched. Runs only if a fusion executor is in
use that may find something to fuse. Linear in the number of ops, apart from what executors need to say whether they
take one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from . import _thunder

__all__ = ["one_fuses", "open_composites"]


def one_fuses(executors: Sequence[Any]) -> bool:
    """Whether there is a fusion executor among executors.

    Args:
        executors: Executors of thunder's.

    Returns:
        Whether one of them is a fusion executor.
    """
    return any(_fuses(executor) for executor in executors)


def open_composites(trace: Any, executors: Sequence[Any]) -> Any:
    """Open the composites that only known numbers keep from being fused.

    Args:
        trace: A thunder trace whose ops no executor has claimed yet; it is not changed.
        executors: Executors in the order in which they may claim ops.

    Returns:
        The trace itself if there is nothing to open, else a new one. It still holds the queries of opened composites:
        optimize it.
    """
    opener = _Opener(executors, [executor for executor in executors if _fuses_in(executor, trace)])
    ops: list[Any] = []
    wanted: dict[str, Any] = {}
    for op in trace.bound_symbols:
        opened = opener.open(op)
        if opened is None:
            opener.numbers.note(op)
            ops.append(op)
            continue
        for piece in opened:
            opener.numbers.note(piece)
            if _is_query(piece):
                wanted.update((number.name, number) for number in _numbers(piece.flat_proxy_outs))
            ops.append(_like_its_owner(piece, op))
    if not wanted:
        return trace
    head = next((index for index, op in enumerate(ops) if not _is_unpacking(op)), len(ops))
    queries = list(opener.numbers.queries_of_inputs(wanted))
    ops = ops[:head] + queries + _with_one_object_a_number(queries, ops[head:], ops[:head])
    result = _thunder.trace_module().from_trace(trace)
    result.bound_symbols = ops
    result.set_provenance(_thunder.trace_module().TraceProvenance("Opening of composites for fusion"))
    return result


class _Numbers:
    """Which numbers are known at the top level without asking what an op in between made."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        # Where a number stands in the shape of an input: the tensor and the position.
        self.in_inputs: dict[str, tuple[Any, int]] = {}

    def note(self, op: Any) -> None:
        """Learn from an op of the top level, in the order of the trace."""
        outputs = op.flat_proxy_outs
        if _is_unpacking(op):
            for output in outputs:
                if _is_number(output):
                    self.known.add(output.name)
                for position, number in enumerate(getattr(output, "_shape", ())):
                    if _is_number(number):
                        self.in_inputs.setdefault(number.name, (output, position))
        elif _is_scalar(op) and self.all_known(op.flat_proxy_args):
            self.known.update(output.name for output in outputs)

    def all_known(self, numbers: Iterable[Any]) -> bool:
        """Whether all of these are known."""
        return all(number.name in self.known or number.name in self.in_inputs for number in numbers)

    def are_known_inside(self, pieces: Sequence[Any]) -> bool:
        """Whether every query among the ops asks for numbers that are known."""
        made: set[str] = set()
        for piece in pieces:
            if _is_scalar(piece):
                unknown = [n for n in piece.flat_proxy_args if n.name not in made]
                if self.all_known(unknown):
                    made.update(output.name for output in piece.flat_proxy_outs)
            elif _is_query(piece) and not self.all_known(_numbers(piece.flat_proxy_outs)):
                return False
        return True

    def queries_of_inputs(self, wanted: dict[str, Any]) -> Iterator[Any]:
        """One query of each input that has a wanted number in its shape."""
        by_tensor: dict[str, tuple[Any, dict[int, Any]]] = {}
        for name, number in wanted.items():
            if name in self.in_inputs and name not in self.known:
                tensor, position = self.in_inputs[name]
                by_tensor.setdefault(tensor.name, (tensor, {}))[1][position] = number
        shape = _thunder.modules().prims.shape
        for tensor, positions in by_tensor.values():
            values = [getattr(number, "value", number) for number in tensor._shape]
            output = tuple(positions.get(position, value) for position, value in enumerate(values))
            yield shape.bind(tensor, output=output)


class _Opener:
    """Decides which composites are opened, and into what."""

    def __init__(self, executors: Sequence[Any], fusing: Sequence[Any]) -> None:
        self.executors = executors
        self.fusing = fusing
        self.numbers = _Numbers()

    def open(self, op: Any) -> list[Any] | None:
        """The ops that take the place of an op, or `None` if it stays.

        An op that no executor claims is looked into, as thunder would do it next; one inside it may be opened.
        """
        if not _is_composite(op) or not _asks_for_a_shape(op):
            return None
        pieces: list[Any] = []
        opened = False
        stack = [op]
        while stack:
            current = stack.pop()
            inside = self._pieces(current)
            if inside is not None and self.numbers.are_known_inside(inside):
                opened = True
                pieces += inside
            elif _is_composite(current) and self._taker(current) is None:
                stack.extend(reversed(current.subsymbols))
            else:
                pieces.append(current)
        return pieces if opened else None

    def _taker(self, op: Any) -> Any:
        """The executor that claims an op as it is, if any does."""
        return next((executor for executor in self.executors if _takes(executor, op)), None)

    def _pieces(self, op: Any) -> list[Any] | None:
        """What an op consists of, if a fusion executor would claim all of that, and the op but for its queries."""
        if not _is_composite(op) or not _asks_for_a_shape(op):
            return None
        for executor in self.executors:
            if _takes(executor, op):
                return None
            if executor in self.fusing:
                pieces = self._pieces_for(executor, op)
                if pieces is not None:
                    return pieces
        return None

    def _pieces_for(self, fusion: Any, op: Any) -> list[Any] | None:
        pieces = []
        stack = list(reversed(op.subsymbols))
        while stack:
            inner = stack.pop()
            if _is_query(inner) or _is_scalar(inner):
                pieces.append(inner)
                continue
            taker = self._taker(inner)
            if taker is fusion:
                pieces.append(inner)
                continue
            comes_first = taker is not None and self.executors.index(taker) < self.executors.index(fusion)
            if comes_first or not _is_composite(inner):
                return None
            stack.extend(reversed(inner.subsymbols))
        return pieces


def _fuses(executor: Any) -> bool:
    return isinstance(executor, _thunder.modules().extend.FusionExecutor)


def _fuses_in(executor: Any, trace: Any) -> bool:
    """Whether an executor may fuse anything in a trace.

    Some of thunder's fuse only what is around certain ops, a cross entropy for instance. Opening a composite for them
    in a trace without any would give torch's executor pieces for nothing.
    """
    if not _fuses(executor):
        return False
    required = getattr(executor, "required_ops", None)
    if required is None:
        return True
    stack = list(trace.bound_symbols)
    while stack:
        op = stack.pop()
        if op.sym.id in required:
            return True
        stack.extend(op.subsymbols)
    return False


def _takes(executor: Any, op: Any) -> bool:
    """Whether an executor claims an op as it is."""
    if _fuses(executor):
        return bool(executor.can_fuse(op))
    return isinstance(executor, _thunder.modules().extend.OperatorExecutor) and bool(executor.can_execute(op))


def _is_composite(op: Any) -> bool:
    """Whether thunder would look into the op if no executor claims it."""
    symbol = op.sym
    return (
        not symbol.is_prim
        and not symbol.is_fusion
        and symbol.executor is None
        and symbol.python_impl is None
        and len(op.subsymbols) > 0
    )


def _is_query(op: Any) -> bool:
    return op.sym.id is _thunder.modules().prims.PrimIDs.SHAPE


def _asks_for_a_shape(op: Any) -> bool:
    """Whether there is a shape query anywhere inside the op."""
    stack = list(op.subsymbols)
    while stack:
        inner = stack.pop()
        if _is_query(inner):
            return True
        stack.extend(inner.subsymbols)
    return False


def _is_scalar(op: Any) -> bool:
    """Whether the op is pure arithmetic on numbers."""
    _, flags, scalar, _ = _thunder.symbol_facts(op.sym)
    impure = _thunder.EFFECT | _thunder.RANDOM | _thunder.IN_PLACE
    return (
        scalar is not None
        and not flags & impure
        and not op.tags & {_thunder.modules().prims.OpTags.DONT_DCE}
        and len(op.flat_proxy_outs) > 0
        and all(_is_number(proxy) for proxy in (*op.flat_proxy_args, *op.flat_proxy_outs))
    )


def _is_unpacking(op: Any) -> bool:
    """Whether the op names inputs of the trace."""
    identity = op.sym.id
    return type(identity) is _thunder.modules().prims.PrimIDs and identity.name.startswith("UNPACK_")


def _is_number(value: Any) -> bool:
    return isinstance(value, _thunder.modules().baseutils.NumberProxyInterface)


def _numbers(values: Iterable[Any]) -> Iterator[Any]:
    return (value for value in values if _is_number(value))


def _like_its_owner(piece: Any, owner: Any) -> Any:
    """A piece that belongs to the backward where its owner did, and that knows the line of the user's program."""
    backward = {_thunder.modules().symbol.BoundSymbolTag.BACKWARD}
    changes: dict[str, Any] = {}
    if owner.tags & backward and not piece.tags & backward:
        changes["tags"] = piece.tags | backward
    if piece.source_filename is None:
        changes["source_filename"] = owner.source_filename
        changes["source_positions"] = owner.source_positions
    return _thunder.rebuild(piece, changes) if changes else piece


def _with_one_object_a_number(queries: list[Any], ops: list[Any], head: list[Any]) -> list[Any]:
    """The ops with one proxy for each number.

    The top level and the inside of a composite may hold two objects of one name; in one scope there may be one only.
    """
    variableify = _thunder.modules().proxies.variableify
    chosen: dict[str, Any] = {}
    for op in (*head, *queries, *ops):
        for number in _numbers(op.flat_proxy_outs):
            chosen.setdefault(number.name, number)
    result = []
    for op in ops:
        numbers = _numbers((*op.flat_proxy_args, *op.flat_proxy_outs))
        others = [number for number in numbers if chosen.get(number.name, number) is not number]
        swap = {variableify(number): chosen[number.name] for number in others}
        result.append(op.from_bsym_swap_proxies(swap) if swap else op)
    return result
