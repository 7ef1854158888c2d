"""Programs for a GPU, with fake inputs: functions of tensors and weights, and modules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from fake_cuda import cuda, cuda_module

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Program:
    """Something to compile.

    Attributes:
        function: The function, or what makes the module.
        make_args: Makes the arguments.
        is_module: Whether `function` makes a module.
    """

    function: Callable[..., Any]
    make_args: Callable[[], tuple[Any, ...]]
    is_module: bool = False

    def build(self) -> tuple[Any, tuple[Any, ...]]:
        """The function or module, and its arguments."""
        function = cuda_module(self.function) if self.is_module else self.function
        return function, self.make_args()


def gated(x: Any, w: Any) -> Any:
    """A projection with a gate: the two halves of one product, multiplied, normalized and summed."""
    left, right = functional.silu(x @ w).chunk(2, -1)
    return ((left * right) + 1).softmax(-1).sum()


def softmax(x: Any, w: Any) -> Any:
    """Elementwise arithmetic with a broadcast, then softmax."""
    return ((x * w) + 1).softmax(-1)


def broadcast(x: Any, row: Any, column: Any) -> Any:
    """Elementwise arithmetic in which every operand has another shape."""
    y = (x + row) * column
    return torch.where(y > 0, y.tanh(), y.exp() - 1) * row + column


def normalize(x: Any, weight: Any, bias: Any) -> Any:
    """Layer normalization and an activation."""
    return functional.gelu(functional.layer_norm(x, (x.shape[-1],), weight, bias, 1e-5)) + x


def flattened(x: Any, w: Any) -> Any:
    """Reshapes with a size to be found, between elementwise ops."""
    batch, length, width = x.shape
    y = functional.relu(x).reshape(-1, width) * w
    return y.reshape(batch, length, -1).sigmoid()


def known_reshape(x: Any, rows: int, columns: int) -> Any:
    """A reshape whose size to be found follows from numbers that the caller knows."""
    return functional.relu(x * 2).reshape(rows, columns, -1).exp()


def mlp(x: Any, up: Any, up_bias: Any, down: Any, down_bias: Any) -> Any:
    """Two linear layers with an activation and a residual connection."""
    hidden = functional.gelu(functional.linear(x, up, up_bias), approximate="tanh")
    return functional.linear(hidden, down, down_bias) + x


def attention(x: Any, query: Any, key: Any, value: Any) -> Any:
    """Attention with several heads, written out."""
    batch, length, width = x.shape
    heads = 4

    def split(weight: Any) -> Any:
        return functional.linear(x, weight).reshape(batch, length, heads, -1).transpose(1, 2)

    scores = split(query) @ split(key).transpose(-2, -1) / math.sqrt(width // heads)
    mixed = scores.softmax(-1) @ split(value)
    return mixed.transpose(1, 2).reshape(batch, length, -1) + x


def gpt(tokens: Any, embedding: Any, *weights: Any) -> Any:
    """A GPT: per block a norm, attention with several heads, a norm and an MLP with a gate; then a norm and a head."""
    heads, per_block = 4, 7
    x = functional.embedding(tokens, embedding)
    batch, length, width = x.shape
    scale = 1.0 / math.sqrt(width // heads)
    for first in range(0, len(weights) - 2, per_block):
        norm1, query, key_value, projection, norm2, up, down = weights[first : first + per_block]
        normed = _rms_norm(x, norm1)
        queries = functional.linear(normed, query).reshape(batch, length, heads, -1).transpose(1, 2)
        keys, values = (
            part.reshape(batch, length, heads, -1).transpose(1, 2)
            for part in functional.linear(normed, key_value).chunk(2, -1)
        )
        attended = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, scale=scale)
        x = x + functional.linear(attended.transpose(1, 2).reshape(batch, length, -1), projection)
        left, right = functional.linear(_rms_norm(x, norm2), up).chunk(2, -1)
        x = x + functional.linear(functional.silu(left) * right, down)
    return functional.linear(_rms_norm(x, weights[-2]), weights[-1])


def _rms_norm(x: Any, weight: Any) -> Any:
    """Root mean square normalization, with a weight around one."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * (1 + weight)


def _gpt_args() -> tuple[Any, ...]:
    width, hidden, vocabulary = 32, 64, 48
    block = [(width,), (width, width), (2 * width, width), (width, width), (width,), (2 * hidden, width)]
    block.append((width, hidden))
    weights = [cuda(*shape) for shape in [(vocabulary, width), *block, *block, (width,), (vocabulary, width)]]
    return (_tokens(vocabulary), *weights)


def _tokens(vocabulary: int) -> Any:
    del vocabulary  # fake tensors have no values
    return cuda(2, 8, dtype=torch.int64)


def _mlp_module() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 16)
    )


def _litgpt_module() -> torch.nn.Module:
    from litgpt import GPT, Config

    config = Config(
        name="small",
        n_layer=2,
        n_head=4,
        n_embd=32,
        block_size=8,
        vocab_size=48,
        padded_vocab_size=48,
        parallel_residual=False,
        rotary_percentage=1.0,
        bias=False,
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP",
        intermediate_size=64,
    )
    return GPT(config)


FUNCTIONS = {
    "gated": Program(gated, lambda: (cuda(4, 8), cuda(8, 16))),
    "softmax": Program(softmax, lambda: (cuda(4, 8), cuda(8))),
    "broadcast": Program(broadcast, lambda: (cuda(4, 8), cuda(8), cuda(4, 1))),
    "normalize": Program(normalize, lambda: (cuda(4, 6, 8), cuda(8), cuda(8))),
    "flattened": Program(flattened, lambda: (cuda(4, 6, 8), cuda(8))),
    "known_reshape": Program(known_reshape, lambda: (cuda(24, 5), 4, 6)),
    "mlp": Program(mlp, lambda: (cuda(4, 6, 16), cuda(64, 16), cuda(64), cuda(16, 64), cuda(16))),
    "attention": Program(attention, lambda: (cuda(2, 6, 16), cuda(16, 16), cuda(16, 16), cuda(16, 16))),
    "gpt": Program(gpt, _gpt_args),
}
"""Programs that compile with constant and with symbolic values."""

MODULES = {
    "mlp module": Program(_mlp_module, lambda: (cuda(4, 6, 16),), is_module=True),
    "litgpt": Program(_litgpt_module, lambda: (_tokens(48),), is_module=True),
}
"""Modules; thunder compiles them with constant values only."""

PROGRAMS = FUNCTIONS | MODULES
