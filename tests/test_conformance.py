"""The command that runs thunder's own tests: what it takes for a pass, and what it must not."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]


def load(path: str) -> ModuleType:
    """A file of the repository as a module."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


suite: Any = load("scripts/thunder_suite.py")
plugin: Any = load("conformance/shapetrace_conformance.py")

TESTS = """
import warnings
import thunder, torch, pytest

def compiled():
    return thunder.jit(lambda x: x.reshape(2, -1) + 1)(torch.ones(4))

def test_passes():
    compiled()

def test_falls_back(monkeypatch):
    import importlib
    def fail(*_):
        raise RuntimeError("a fault")
    monkeypatch.setattr(importlib.import_module("shapetrace_rs.optimize"), "run", fail)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled()

@pytest.mark.xfail
def test_falls_back_and_is_expected_to_fail(monkeypatch):
    test_falls_back(monkeypatch)
    raise AssertionError

def test_fails():
    assert 1 == 2, "two words"

@pytest.mark.skip
def test_is_skipped():
    pass

def test_uninstalls():
    import shapetrace_rs
    shapetrace_rs.uninstall()
"""


def test_a_fallback_is_never_a_pass(tmp_path: Path) -> None:
    """A test during which thunder's own pass did the work, or after which the drop-in is gone, has failed."""
    (tmp_path / "test_x.py").write_text(TESTS)
    (tmp_path / "run").mkdir()
    outcomes = tmp_path / "outcomes.jsonl"
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "shapetrace_conformance",
        "-c", str(ROOT / "conformance/pytest.ini"),
        "--rootdir", str(tmp_path), "--shapetrace-level", "full", "--shapetrace-outcomes", str(outcomes), str(tmp_path),
    ]  # fmt: skip
    path = [str(ROOT / "conformance"), *filter(None, sys.path)]
    done = subprocess.run(
        command, env={"PYTHONPATH": ":".join(path)}, capture_output=True, text=True, timeout=240, check=False
    )
    run = suite.read_outcomes("full", outcomes)
    assert {test.partition("::")[2]: facts["outcome"] for test, facts in run.outcomes.items()} == {
        "test_passes": "passed",
        "test_falls_back": "failed",
        "test_falls_back_and_is_expected_to_fail": "failed",
        "test_fails": "failed",
        "test_is_skipped": "skipped",
        "test_uninstalls": "failed",
    }, done.stdout
    assert run.outcomes["test_x.py::test_passes"]["calls"] >= 3
    assert "fell back" in run.outcomes["test_x.py::test_falls_back"]["why"]
    assert "two words" in run.outcomes["test_x.py::test_fails"]["why"]
    assert run.finished["fallbacks"] >= 2
    assert not run.finished["installed"]


def judged(ours: dict[str, str], stock: dict[str, str], noise: dict[str, str] | None = None, **finished: Any) -> Any:
    """What a comparison comes to."""
    run = suite.Run("full")
    run.outcomes = {test: {"outcome": outcome, "seconds": 1.0, "calls": 5} for test, outcome in ours.items()}
    run.finished = {"installed": True, "fallbacks": 0} | finished
    return suite.judge(run, stock, noise or {}, 5)


@pytest.mark.parametrize("ours", ["failed", "error", "skipped", "xfailed", "missing"])
def test_whatever_is_no_pass_differs(ours: str) -> None:
    """Also a test that is skipped, or does not run at all."""
    outcomes = {"b": "passed"} | ({} if ours == "missing" else {"a": ours})
    verdict = judged(outcomes, {"a": "passed", "b": "passed"})
    assert verdict.differing == ["a"]


def test_what_fails_with_stock_says_nothing() -> None:
    """It may pass or fail; it may not vanish."""
    assert judged({"a": "failed"}, {"a": "failed"}) == judged({"a": "failed"}, {"a": "failed"})
    for ours in ("passed", "error", "failed"):
        verdict = judged({"a": ours}, {"a": "failed"})
        assert verdict.wrong == 0
        assert verdict.differing == []
    assert judged({"b": "passed"}, {"a": "failed", "b": "passed"}).differing == ["a"]


def test_the_list_of_exceptions_is_kept_honest() -> None:
    """A listed test may differ, and one that does not has to leave the list."""
    assert judged({"a": "failed", "b": "passed"}, {"a": "passed", "b": "passed"}, {"a": "reason"}).wrong == 0
    assert judged({"a": "passed"}, {"a": "passed"}, {"a": "reason"}).wrong == 1


def test_a_run_that_proves_nothing_is_wrong() -> None:
    """The optimizer did not run, is not installed any more, the process ended, or there are tests that nobody knows."""
    same = {"a": "passed"}
    assert judged(same, same).wrong == 0
    assert judged(same, same, installed=False).wrong == 1
    assert judged(same | {"new": "passed"}, same).wrong == 1
    run = suite.Run("full", outcomes={"a": {"outcome": "passed", "seconds": 1.0, "calls": 4}})
    run.finished = {"installed": True}
    assert suite.judge(run, same, {}, 5).wrong == 1, "too few calls"
    run.finished = {}
    assert suite.judge(run, same, {}, 1).wrong == 1, "no end"


def test_selections_take_what_they_say() -> None:
    """A sample does not depend on what else there is, for thunder's files do not collect the same in every run."""
    names = [f"a.py::test_{k}_{kind}" for k in range(400) for kind in ("x", "y")] + ["b.py::test_0_x"]
    part = {"file": "a.py", "match": "_x$", "without": "_1", "one_in": 4}
    taken = plugin.chosen(names, [part])
    assert 20 < len(taken) < 100
    assert all(name.startswith("a.py") and name.endswith("_x") and "_1" not in name for name in taken)
    assert plugin.chosen(names[::2], [part]) == taken
    assert plugin.chosen(names, [{"file": "b.py", "only": "test_0_x"}]) == {"b.py::test_0_x"}


def test_recorded_files_are_whole() -> None:
    """Every selection has a baseline with passing tests in it, and what is listed as an exception is among them."""
    with (ROOT / "conformance" / "selections.toml").open("rb") as file:
        selections = set(suite.tomllib.load(file)) - {"common"}
    found = {}
    for selection in selections:
        (path,) = (ROOT / "conformance" / "baselines").glob(f"{selection}-*.txt")
        found[selection] = path
        lines = path.read_text().splitlines()
        assert sum(line.startswith("passed") for line in lines) > 300
    results = {path.stem: path.read_text() for path in (ROOT / "conformance" / "results").glob("*.txt")}
    # What CI runs has to be recorded at both levels; of a longer selection, whatever is recorded has to be good.
    assert results.keys() >= {f"short-{level}" for level in suite.LEVELS}
    for name, result in results.items():
        selection, _, level = name.partition("-")
        assert selection in selections
        assert f"level {level}" in result
        assert "WRONG" not in result
        assert " 0 fallbacks" in result
    with (ROOT / "conformance" / "noise.toml").open("rb") as file:
        for entries in suite.tomllib.load(file).values():
            for entry in entries:
                name = entry["test"].partition("::")[2]
                assert any(line.endswith(f"  {name}") for line in found["long"].read_text().splitlines())
                assert len(entry["reason"]) > 10


def test_every_fault_on_purpose_can_still_be_made() -> None:
    """The text that each fault changes is in the sources exactly once, and the tests that should find it exist."""
    with (ROOT / "conformance" / "mutants.toml").open("rb") as file:
        mutants = suite.tomllib.load(file)["mutant"]
    assert len({json.dumps(mutant) for mutant in mutants}) == len(mutants) > 60
    for mutant in mutants:
        text = (ROOT / mutant["file"]).read_text()
        assert text.count(mutant["old"].removeprefix("\n")) == 1, mutant["name"]
        for test in mutant["tests"]:
            assert test == "core" or (ROOT / test).is_file(), test
