"""The demo, at sizes that take seconds."""

from __future__ import annotations

import io
import json
import warnings
from typing import TYPE_CHECKING, Any

import pytest

import shapetrace_rs
from shapetrace_rs import CallRecord, cli
from shapetrace_rs.demo import measure as measure_module
from shapetrace_rs.demo import show
from shapetrace_rs.demo.measure import Compile, DemoOptions, Difference, Measurement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TINY = [
    "--layers",
    "1",
    "--embd",
    "16",
    "--heads",
    "2",
    "--seq",
    "8",
    "--vocab",
    "32",
    "--batch",
    "1",
    "--device",
    "cpu",
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Thunder remarks on missing executors and experimental options."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def record(**changes: Any) -> CallRecord:
    """A call that took 1 ms where thunder's pass took 5 ms."""
    values: dict[str, Any] = {
        "module": "thunder.executors.passes",
        "function": "transform_for_execution",
        "line": 116,
        "provenance": "",
        "level": "full",
        "ops_in": 30,
        "ops_out": 20,
        "nested_in": 12,
        "nested_out": 11,
        "total_ns": 1_000_000,
        "thunder_ns": 5_000_000,
    }
    return CallRecord(**(values | changes))


def measurement(**changes: Any) -> Measurement:
    """What a demo might find."""
    values: dict[str, Any] = {
        "options": DemoOptions(),
        "title": "a program",
        "environment": measure_module._environment("cpu", __import__("thunder")),
        "outputs": Difference("logits", 1e-6, 1.0, 1e-4),
        "gradients": Difference("weight", 1e-6, 1.0, 1e-4),
        "stock": Compile(2.0, [record(total_ns=500_000_000)]),
        "ours": Compile(1.5, [record()]),
        "compared": [record(), record(thunder_ns=3_000_000), record(thunder_ns=None)],
    }
    return Measurement(**(values | changes))


def test_litgpt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Protects the first command of the README: a real architecture, right numbers, all data in the file."""
    file = tmp_path / "demo.json"
    assert cli.main(["demo", *TINY, "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "[7/7]" in out
    assert "executors.passes.transform_for_execution" in out
    assert "Median over the calls" in out
    assert out.count("ok    ") == 2

    data = json.loads(file.read_text(encoding="utf-8"))
    assert data["numbers_agree"] is True
    assert len(data["compared"]) == len(data["ours"]["calls"]) > 3
    for call in data["compared"]:
        assert call["fallback"] is None
        assert call["ratio"] > 0
    assert 0 < data["stock"]["share"] < 1
    assert not shapetrace_rs.installed()


def test_symbolic_values(capsys: pytest.CaptureFixture[str]) -> None:
    """Protects the functional GPT, which takes the place of the module that thunder cannot compile so."""
    assert cli.main(["demo", *TINY, "--cache", "symbolic values", "--level", "compat", "--caches", "cold"]) == 0
    out = capsys.readouterr().out
    assert "GPT written as a function" in out
    assert "without any cached properties" in out


def test_wrong_numbers_are_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Protects scripts that rely on the exit code."""
    wrong = measurement(gradients=Difference("weight", 0.5, 1.0, 1e-4))
    monkeypatch.setattr(measure_module, "measure", lambda *_: wrong)
    assert cli.main(["demo", *TINY]) == 1
    assert "WRONG gradients" in capsys.readouterr().out


@pytest.mark.parametrize("largest", [float("nan"), float("inf")])
def test_a_difference_that_is_no_number_does_not_agree(largest: float) -> None:
    """Protects against comparisons with NaN, which are always false."""
    assert not Difference("weight", largest, 1.0, 1e-4).agrees


def test_differences_find_the_worst_tensor() -> None:
    """Protects the check itself: NaN and missing gradients count as differences."""
    import torch

    one, two = torch.ones(2), torch.full((2,), 2.0)
    found = measure_module._difference({"a": one, "b": one}, {"a": one, "b": two}, 0.1)
    assert (found.what, found.largest, found.scale) == ("b", 1.0, 2.0)
    assert not found.agrees
    assert measure_module._difference({"a": None}, {"a": None}, 0.1).agrees
    assert not measure_module._difference({"a": None}, {"a": one}, 0.1).agrees
    assert not measure_module._difference({"a": one * float("nan"), "b": one}, {"a": one, "b": one}, 0.1).agrees


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--embd", "30", "--heads", "4"], "not a multiple"),
        (["--embd", "24", "--heads", "4"], "multiple of 8"),
        (["--device", "nowhere"], "cannot be used"),
    ],
)
def test_what_cannot_be_run(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Protects users from a traceback out of the model."""
    assert cli.main(["demo", *words]) == 2
    assert message in capsys.readouterr().err


def test_sizes_are_positive(capsys: pytest.CaptureFixture[str]) -> None:
    """Protects against a model without layers."""
    with pytest.raises(SystemExit):
        cli.main(["demo", "--layers", "0"])
    assert "1 or more" in capsys.readouterr().err


def test_the_plain_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Protects the totals, the median and the shares that the table shows."""
    show.show_measurement(measurement(), show.PlainDisplay())
    out = capsys.readouterr().out
    total = next(line for line in out.splitlines() if " total " in line).split()
    assert total == ["total", "90", "60", "36", "33", "8.000", "3.000", "4.0"]
    assert "takes 4.0 times as long" in out
    assert "500.0 ms in 1 calls (25.00%)" in out


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_on_a_terminal(width: int) -> None:
    """Protects the numbers from being cut off on a narrow terminal."""
    console = pytest.importorskip("rich.console")
    display = show.RichDisplay()
    display._console = console.Console(width=width, force_terminal=True, record=True, file=io.StringIO())
    display.begin(1)
    with display.step("a step") as tell:
        tell(record())
    show.show_measurement(measurement(title="litgpt"), display)
    text = display._console.export_text()
    assert "a step" in text
    text = text[text.index("litgpt") :]
    assert "transform_for_execution"[:10] in text
    for number in ("8.000", "4.0", "90"):
        assert number in text
    assert max(map(len, text.splitlines())) <= width
