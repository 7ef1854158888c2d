"""Small programs in PyTorch, with inputs of several shapes, that thunder compiles with symbolic values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

HEADS = 4
WIDTH = 32


def block(x: Any, norm1: Any, query: Any, key: Any, value: Any, out: Any, norm2: Any, up: Any, down: Any) -> Any:
    """One block of a transformer; the weights are arguments."""
    batch, length, width = x.shape
    h = functional.layer_norm(x, (width,), norm1)
    q = functional.linear(h, query).reshape(batch, length, HEADS, -1).transpose(1, 2)
    k = functional.linear(h, key).reshape(batch, length, HEADS, -1).transpose(1, 2)
    v = functional.linear(h, value).reshape(batch, length, HEADS, -1).transpose(1, 2)
    weights = (q @ k.transpose(-2, -1)) / math.sqrt(width // HEADS)
    weights = functional.softmax(weights, -1)
    y = (weights @ v).transpose(1, 2).reshape(batch, length, width)
    x = x + functional.linear(y, out)
    h = functional.layer_norm(x, (width,), norm2)
    return x + functional.linear(functional.gelu(functional.linear(h, up)), down)


def transformer(x: Any, *weights: Any) -> Any:
    """Two blocks of a transformer."""
    half = len(weights) // 2
    return block(block(x, *weights[:half]), *weights[half:])


def transformer_inputs(step: int = 0, requires_grad: bool = False) -> list[Any]:
    """An input, whose length grows with the step, and the weights of two blocks."""
    square = (WIDTH, WIDTH)
    shapes = [(WIDTH,), square, square, square, square, (WIDTH,), (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)] * 2
    weights = [(torch.randn(shape) / 8).requires_grad_(requires_grad) for shape in shapes]
    return [random(2, 8 + step, WIDTH, grad=requires_grad), *weights]


def random(*shape: int, grad: bool = True) -> Any:
    """A tensor of normal numbers."""
    return torch.randn(shape).requires_grad_(grad)


def broadcast(a: Any, b: Any, c: Any) -> Any:
    return ((a + b) * c - a / (b * b + 1)).tanh().sum(-1)


def flatten(x: Any) -> Any:
    return (x.reshape(-1, x.shape[-1] * 2).flatten() * 2).reshape(x.shape[0], -1).sum(1)


def chunks_and_slices(x: Any, w: Any) -> Any:
    a, b = functional.silu(x @ w).chunk(2, -1)
    return functional.softmax(a * b + 1, -1).sum(), x[:, 1:, ::2] * 2


def joined(x: Any, y: Any) -> Any:
    return torch.cat([x, y], 0).sum(-1), torch.stack([x, x * 2], 1)


def embedding(indices: Any, w: Any) -> Any:
    return functional.embedding(indices, w).mean(1)


def convolution(x: Any, w: Any) -> Any:
    return functional.relu(functional.conv1d(x, w, padding=1))


def softmax(x: Any, w: Any) -> Any:
    return ((x * w) + 1).softmax(-1)


def by_a_number(x: Any, n: int) -> Any:
    return x.reshape(x.shape[0] // n, n, -1) * n + (x.shape[1] % n) - (-n) // 2


class Program(NamedTuple):
    """A function, and its inputs by step: each step has other shapes, and thunder may compile but once."""

    function: Callable[..., Any]
    inputs: Callable[[int], list[Any]]


PROGRAMS = {
    "transformer": Program(transformer, lambda step: transformer_inputs(step, requires_grad=True)),
    "transformer, forward": Program(transformer, transformer_inputs),
    "broadcast": Program(broadcast, lambda k: [random(2 + k, 3, 4), random(1, 4), random(3, 4)]),
    "flatten": Program(flatten, lambda k: [random(4, 6 + k, 2)]),
    "chunks and slices": Program(chunks_and_slices, lambda k: [random(2, 4 + k, 8), random(8, 16)]),
    "joined": Program(joined, lambda k: [random(2 + k, 3), random(2 + k, 3)]),
    "joined, forward": Program(joined, lambda k: [random(2 + k, 3, grad=False), random(2 + k, 3, grad=False)]),
    "embedding": Program(embedding, lambda k: [torch.randint(0, 9, (2, 3 + k)), random(9, 4)]),
    "convolution": Program(convolution, lambda k: [random(2, 3, 8 + k), random(4, 3, 3)]),
    "convolution, forward": Program(
        convolution, lambda k: [random(2, 3, 8 + k, grad=False), random(4, 3, 3, grad=False)]
    ),
    "softmax": Program(softmax, lambda k: [random(2 + k, 8), random(8)]),
    "by a number": Program(by_a_number, lambda k: [random(8 + 4 * k, 8), 4]),
}

STOCK_FAILS = {"joined", "convolution"}
"""Thunder 0.2.6 itself cannot compile these: "Detected a cycle while swapping"."""


def results(function: Any, inputs: list[Any]) -> list[Any]:
    """All outputs of a function, and the gradients of their sum."""
    outputs = function(*inputs)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    sources = [value for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad]
    losses = [output.sum() for output in outputs if output.requires_grad]
    gradients = torch.autograd.grad(sum(losses), sources) if losses else ()
    return [value.detach() for value in (*outputs, *gradients)]
