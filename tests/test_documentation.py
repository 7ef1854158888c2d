"""The documents say what the code does: names in them are compared with the tables that the passes run from."""

from __future__ import annotations

from pathlib import Path

from shapetrace_rs import _core

DOCUMENT = (Path(__file__).parent.parent / "docs" / "passes.md").read_text(encoding="utf-8")


def test_every_pass_is_described_with_its_sentence() -> None:
    """Protects the table of passes."""
    for name, sentence, levels in _core.passes():
        assert f"`{name}`" in DOCUMENT, name
        if "full" in levels:
            # The table speaks of a pass in the third person.
            assert sentence.split(" ", 1)[1].split(",")[0] in DOCUMENT.replace("finds ", "find "), sentence


def test_every_rule_is_listed_and_no_other() -> None:
    """Protects the table of rules."""
    rows = [line.split("|")[1].strip() for line in DOCUMENT.splitlines() if line.startswith("| `") and "-" in line]
    documented = {row.strip("`") for row in rows}
    names = {name for name, _, _ in _core.rules()}
    passes = {name for name, _, _ in _core.passes()}
    assert documented - passes == names


def test_every_reason_is_explained() -> None:
    """Protects the words that reports use."""
    for reason in _core.reasons():
        assert f"`{reason}`" in DOCUMENT, reason
