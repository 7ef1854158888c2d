#!/usr/bin/env python3
"""Thunder's own tests with the drop-in installed, compared test by test with stock thunder.

    scripts/thunder_suite.py short                        both levels at once; what CI runs, some minutes
    scripts/thunder_suite.py long --level full            a selection and a level
    scripts/thunder_suite.py short --record               write down anew how the tests end with stock thunder
    scripts/thunder_suite.py long --write-result          write what came out to conformance/results
    scripts/thunder_suite.py short --strict               check every answer of the optimizer as well
    scripts/thunder_suite.py long --requirements          the packages that the tests need, for pip

lightning-thunder's wheel has its tests in it. Each run is one process of pytest with the plugin
conformance/shapetrace_conformance.py, which installs the drop-in and writes down how each test ends. A test during
which the optimizer fell back to thunder's own pass counts as failed.

Files in conformance/:
    selections.toml     which tests a selection has, and the packages that they need
    baselines/          how each test ends with stock thunder, for each pair of versions
    noise.toml          tests that assert what level "full" is there to remove, each with its reason; they have to pass
                        at level "compat", and a test that passes at "full" as well has to leave the list; and
                        tests that fail now and then with stock thunder too, which have to pass when run again alone
    results/            what the last recorded runs came to

The exit code is 0 if every test ended as in the baseline, 1 if one did not, 2 if the run could not be made. A test that
differs runs again alone, with stock thunder and with the drop-in, so that the report says whether it fails because of
us or of the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

try:
    import tomllib
except ImportError:  # Python 3.10; pytest has brought it
    import tomli as tomllib  # type: ignore[import-not-found, no-redef]

ROOT = Path(__file__).resolve().parents[1]
CONFORMANCE = ROOT / "conformance"
LEVELS = ("full", "compat")
# How the tests end that a run is allowed to change: what fails anyway says nothing.
SAYS_NOTHING = frozenset({"failed", "error"})
SECONDS_BETWEEN_LINES = 15
MOST_RERUNS = 40


class CannotRun(Exception):  # noqa: N818 (the words are for people)
    """The run cannot be made; the message says what to do."""


@dataclass
class Run:
    """One run of pytest.

    Attributes:
        level: `"stock"`, `"compat"` or `"full"`.
        selected: The names of the tests, or how many there are.
        outcomes: How each test ended: facts by the name of the test, see the plugin.
        began: The test that began last; if it has no outcome, the process ended in it.
        finished: The totals that the plugin writes at the end; empty if it did not get there.
    """

    level: str
    selected: int = 0
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    began: str = ""
    finished: dict[str, Any] = field(default_factory=dict)

    def outcome(self, test: str) -> str:
        """How a test ended, `"missing"` if it did not run."""
        return str(self.outcomes.get(test, {}).get("outcome", "missing"))

    def counts(self) -> str:
        """How many tests ended in which way."""
        counts = Counter(facts["outcome"] for facts in self.outcomes.values())
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))

    def seconds(self) -> float:
        """The time that the tests took, without imports and collection."""
        return sum(facts["seconds"] for facts in self.outcomes.values())

    def calls(self) -> int:
        """How often the optimizer ran during tests."""
        return sum(facts["calls"] for facts in self.outcomes.values())


def main() -> int:
    """Run what the command line asks for.

    Returns:
        The exit code.
    """
    arguments = parse_arguments()
    try:
        selection = read_selection(arguments.selection)
        if arguments.requirements:
            print(*selection["needs"], sep="\n")
            return 0
        check_requirements(selection)
        with contextlib.ExitStack() as stack:
            directory = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="suite-")))
            directory.mkdir(parents=True, exist_ok=True)
            if arguments.record:
                return record(arguments, selection, directory)
            return compare(arguments, selection, directory)
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parse_arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("selection", help="a table of conformance/selections.toml: short, long")
    parser.add_argument("--level", action="append", choices=LEVELS, help="a level to run; both if not given")
    parser.add_argument(
        "--strict", action="store_true", help="verify every answer; errors fail the test that meets them"
    )
    parser.add_argument("--record", action="store_true", help="run stock thunder, and write the baseline")
    parser.add_argument("--write-result", action="store_true", help="write what came out to conformance/results")
    parser.add_argument("--keep", type=Path, metavar="DIRECTORY", help="keep outcomes and pytest's output there")
    parser.add_argument(
        "--use", action="append", default=[], metavar="LEVEL=FILE", help="take outcomes that --keep has kept: no run"
    )
    parser.add_argument("--requirements", action="store_true", help="print what pip has to install, and do nothing")
    return parser.parse_args()


def read_selection(name: str) -> dict[str, Any]:
    """A selection by its name; `needs` has what `common` and the selection need."""
    with (CONFORMANCE / "selections.toml").open("rb") as file:
        tables = tomllib.load(file)
    common = tables.pop("common")
    if name not in tables:
        message = f"there is no selection {name!r} in conformance/selections.toml, only {', '.join(tables)}"
        raise CannotRun(message)
    selection = tables[name]
    selection["needs"] = common["needs"] + selection.get("needs", [])
    return dict(selection)


def check_requirements(selection: dict[str, Any]) -> None:
    """Say which packages are missing before pytest does it in more words."""
    from packaging.requirements import Requirement

    missing = []
    for requirement in map(Requirement, selection["needs"]):
        try:
            fits = requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
        except metadata.PackageNotFoundError:
            fits = False
        if not fits:
            missing.append(str(requirement))
    if missing:
        message = f"thunder's tests need other packages: {sys.executable} -m pip install {' '.join(map(repr, missing))}"
        raise CannotRun(message)


def versions() -> dict[str, str]:
    """What a baseline holds for."""
    return {name: metadata.version(name).partition("+")[0] for name in ("lightning-thunder", "torch")}


def baseline_path(selection: str) -> Path:
    """The file with the baseline for the installed versions."""
    found = versions()
    name = f"{selection}-thunder-{found['lightning-thunder']}-torch-{found['torch']}.txt"
    return CONFORMANCE / "baselines" / name


# Running.


def run_levels(
    levels: list[str],
    selection: dict[str, Any],
    directory: Path,
    *,
    strict: bool = False,
    tests: list[str] | None = None,
    label: str = "",
) -> dict[str, Run]:
    """Run the tests at several levels at once, one process each, and tell how far they are.

    Args:
        levels: Which levels.
        selection: What `read_selection` gave.
        directory: Where outcomes and pytest's output go.
        strict: Whether the optimizer checks every answer.
        tests: Run only these.
        label: Goes into the names of the files.

    Returns:
        What came out, for each level.
    """
    processes: dict[str, subprocess.Popen[bytes]] = {}
    start = told = time.monotonic()
    try:
        for level in levels:
            processes[level] = start_pytest(level, selection, directory, strict=strict, tests=tests, label=label)
        while any(process.poll() is None for process in processes.values()):
            time.sleep(0.5)
            if time.monotonic() - told >= SECONDS_BETWEEN_LINES:
                told = time.monotonic()
                tell_progress(
                    {level: read_outcomes(level, directory / f"{level}{label}.jsonl") for level in levels}, start
                )
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.terminate()
                process.wait()
    runs = {}
    for level, process in processes.items():
        runs[level] = read_outcomes(level, directory / f"{level}{label}.jsonl")
        if not runs[level].finished:
            log = directory / f"{level}{label}.log"
            print(
                f"\nThe process for level {level} ended with code {process.returncode}, the last test that began is "
                f"{runs[level].began or 'none'}. The end of its output:",
                *log.read_text().splitlines()[-25:],
                sep="\n",
            )
    return runs


def start_pytest(
    level: str, selection: dict[str, Any], directory: Path, *, strict: bool, tests: list[str] | None, label: str
) -> subprocess.Popen[bytes]:
    """Begin one run in a directory of its own."""
    package = importlib.util.find_spec("thunder")
    if package is None or package.origin is None:
        message = "lightning-thunder is not installed"
        raise CannotRun(message)
    home = Path(package.origin).parent
    files = sorted({part["file"] for part in selection["part"]})
    parts = selection["part"]
    if tests is not None:
        files = sorted({test.partition("::")[0] for test in tests})
        parts = [{"file": test.partition("::")[0], "only": test.partition("::")[2]} for test in tests]
    absent = [file for file in files if not (home / "tests" / file).is_file()]
    if absent:
        message = f"lightning-thunder {versions()['lightning-thunder']} has no {', '.join(absent)} in thunder/tests"
        raise CannotRun(message)
    (directory / f"{level}{label}.parts.json").write_text(json.dumps(parts))
    place = directory / f"{level}{label}.run"
    place.mkdir(exist_ok=True)
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "shapetrace_conformance",
        "-c", str(CONFORMANCE / "pytest.ini"), "--rootdir", str(home),
        "--shapetrace-level", level,
        "--shapetrace-outcomes", str(directory / f"{level}{label}.jsonl"),
        "--shapetrace-parts", str(directory / f"{level}{label}.parts.json"),
        *(["--shapetrace-strict"] if strict else []),
        *(str(home / "tests" / file) for file in files),
    ]  # fmt: skip
    path = [str(CONFORMANCE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        # One thread each: levels run side by side, and sums are added up in the same order everywhere.
        "OMP_NUM_THREADS": "1",
        # A GPU would give the tests other names.
        "CUDA_VISIBLE_DEVICES": "",
    }
    with (directory / f"{level}{label}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=place, env=environment, stdout=log, stderr=subprocess.STDOUT)


def read_outcomes(level: str, path: Path) -> Run:
    """What the plugin has written until now."""
    run = Run(level)
    if not path.is_file():
        return run
    for line in path.read_text().splitlines():
        try:
            facts = json.loads(line)
        except ValueError:  # the last line while it is being written
            continue
        if "test" in facts:
            run.outcomes[facts["test"]] = facts
        elif "began" in facts:
            run.began = facts["began"]
        elif "selected" in facts:
            run.selected = facts["selected"]
        else:
            run.finished = facts
    return run


def tell_progress(runs: dict[str, Run], start: float) -> None:
    """One line that says how far each level is."""
    words = []
    for level, run in runs.items():
        failed = sum(facts["outcome"] in SAYS_NOTHING for facts in run.outcomes.values())
        words.append(f"{level} {len(run.outcomes)} of {run.selected or '?'}, {failed} failed")
    print(f"{time.monotonic() - start:5.0f} s  {'; '.join(words)}", flush=True)


# Recording.


def record(arguments: argparse.Namespace, selection: dict[str, Any], directory: Path) -> int:
    """Run stock thunder and write the baseline."""
    used = dict(word.split("=", 1) for word in arguments.use)
    if "stock" in used:
        run = read_outcomes("stock", Path(used["stock"]))
    else:
        run = run_levels(["stock"], selection, directory)["stock"]
    if not run.finished:
        message = "the run did not come to its end, so there is no baseline"
        raise CannotRun(message)
    path = baseline_path(arguments.selection)
    lines = [
        "# How thunder's own tests end with stock thunder, without the drop-in: outcome, seconds, test.",
        f"# Written by: scripts/thunder_suite.py {arguments.selection} --record",
        *header(run),
    ]
    files: dict[str, list[str]] = {}
    for test, facts in run.outcomes.items():
        file, _, inside = test.partition("::")
        files.setdefault(file, []).append(f"{facts['outcome']:<8}{facts['seconds']:7.2f}  {inside}")
    for file in sorted(files):
        lines += ["", f"[{file}]", *sorted(files[file], key=lambda line: line[17:])]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(f"{run.counts()} in {run.seconds():.0f} s: {path.relative_to(ROOT)}")
    return 0


def header(run: Run) -> list[str]:
    """The lines about versions, date and totals."""
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    return [
        f"# With: {found}, Python {platform.python_version()}, {platform.system()} on {platform.machine()}",
        f"# Date: {dt.datetime.now(tz=dt.timezone.utc).date().isoformat()}",
        f"# Total: {run.counts()} in {run.seconds():.0f} s",
    ]


def read_baseline(selection: str) -> dict[str, str]:
    """How each test ends with stock thunder."""
    path = baseline_path(selection)
    if not path.is_file():
        message = f"there is no {path.relative_to(ROOT)}: run `scripts/thunder_suite.py {selection} --record` first"
        raise CannotRun(message)
    outcomes, file = {}, ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            file = line[1:-1]
        elif line and not line.startswith("#"):
            outcome, _, inside = line.split(maxsplit=2)
            outcomes[f"{file}::{inside}"] = outcome
    return outcomes


# Comparing.


def compare(arguments: argparse.Namespace, selection: dict[str, Any], directory: Path) -> int:
    """Run the levels, compare them with the baseline and report."""
    baseline = read_baseline(arguments.selection)
    with (CONFORMANCE / "noise.toml").open("rb") as file:
        lists = tomllib.load(file)
    noise, flaky = ({entry["test"]: entry["reason"] for entry in lists.get(name, [])} for name in ("noise", "flaky"))
    used = dict(word.split("=", 1) for word in arguments.use)
    levels = arguments.level or list(LEVELS)
    runs = {level: read_outcomes(level, Path(used[level])) for level in levels if level in used}
    others = [level for level in levels if level not in used]
    if others:
        print(f"{len(baseline)} of thunder's tests, level {' and level '.join(others)}", flush=True)
        runs |= run_levels(others, selection, directory, strict=arguments.strict)
    wrong = 0
    for level in levels:
        wrong += compare_level(arguments, selection, directory, runs[level], (baseline, noise, flaky))
    print("\nNo test ends otherwise than with stock thunder." if not wrong else f"\n{wrong} things are wrong.")
    return 1 if wrong else 0


@dataclass
class Verdict:
    """What a comparison with the baseline came to.

    Attributes:
        wrong: How many things are wrong.
        lines: What there is to say, one line each.
        differing: The tests that end otherwise.
    """

    wrong: int = 0
    lines: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)

    def add_wrong(self, words: str) -> None:
        """Something is wrong."""
        self.wrong += 1
        self.lines.append(f"WRONG {words}")


def compare_level(
    arguments: argparse.Namespace,
    selection: dict[str, Any],
    directory: Path,
    run: Run,
    expected: tuple[dict[str, str], dict[str, str], dict[str, str]],
) -> int:
    """Compare one level with the baseline, run again what differs, and report.

    Args:
        arguments: The command line.
        selection: What `read_selection` gave.
        directory: Where outcomes and pytest's output go.
        run: What came out.
        expected: The baseline; the tests that differ at level "full", with their reasons; the tests that fail now and
            then, whoever does dead code elimination, with their reasons.

    Returns:
        How many things are wrong.
    """
    baseline, noise, flaky = expected
    level = run.level
    verdict = judge(run, baseline, noise if level == "full" else {}, selection["least_calls"])
    again: dict[str, Run] = {}
    if verdict.differing and len(verdict.differing) <= MOST_RERUNS:
        print(f"\nLevel {level}: {len(verdict.differing)} tests differ; once more, alone", flush=True)
        again = run_levels(
            ["stock", level],
            selection,
            directory,
            strict=arguments.strict,
            tests=verdict.differing,
            label=f"-again-{level}",
        )
    for test in verdict.differing:
        why = run.outcomes.get(test, {}).get("why", "")
        words = f"{test}: {run.outcome(test)}, with stock {baseline[test]}"
        if again:
            words += f"; alone: {again[level].outcome(test)}, with stock {again['stock'].outcome(test)}"
        words += f"\n      {why}" if why else ""
        if again and again["stock"].outcome(test) in SAYS_NOTHING:
            # It fails on this machine whoever does dead code elimination.
            verdict.lines.append(f"NOTE  {words}")
        elif again and test in flaky and again[level].outcome(test) == baseline[test]:
            verdict.lines.append(f"FLAKY {words}\n      {flaky[test]}")
        else:
            verdict.add_wrong(words)
    active = sum(facts["calls"] > 0 for facts in run.outcomes.values())
    total = (
        f"level {level}{', strict' * arguments.strict}: {run.counts()}; the optimizer ran {run.calls()} times, in "
        f"{active} tests; {run.finished.get('fallbacks', '?')} fallbacks; {run.seconds():.0f} s"
    )
    print("", total, *verdict.lines, sep="\n", flush=True)
    if arguments.write_result:
        path = CONFORMANCE / "results" / f"{arguments.selection}-{level}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = [
            "# Thunder's own tests with the drop-in installed.",
            f"# Written by: scripts/thunder_suite.py {arguments.selection} --write-result",
            *header(run),
            "",
            total,
            *(verdict.lines or ["Every test ended as with stock thunder."]),
        ]
        path.write_text("\n".join(text) + "\n")
    return verdict.wrong


def judge(run: Run, baseline: dict[str, str], noise: dict[str, str], least_calls: int) -> Verdict:
    """Compare outcomes with the baseline, without running anything.

    Args:
        run: What came out.
        baseline: How each test ends with stock thunder.
        noise: Tests that are expected to differ, with the reasons.
        least_calls: How often the optimizer has to have run.

    Returns:
        What is wrong and what differs.
    """
    verdict = Verdict()
    for test, stock in baseline.items():
        ours = run.outcome(test)
        if test in noise:
            if ours == stock:
                verdict.add_wrong(f"{test} is in conformance/noise.toml, but {ours}: take it out")
            else:
                verdict.lines.append(f"NOISE {test}: {ours}: {noise[test]}")
        elif ours == stock:
            continue
        elif stock in SAYS_NOTHING and ours != "missing":
            verdict.lines.append(f"NOTE  {test}: {ours}, with stock {stock}")
        else:
            verdict.differing.append(test)
    for test in sorted(run.outcomes.keys() - baseline.keys()):
        verdict.add_wrong(f"{test} is not in the baseline: record it again")
    if not run.finished:
        verdict.add_wrong(f"the run did not come to its end; the last test that began is {run.began or 'none'}")
    elif not run.finished["installed"] or run.calls() < least_calls:
        calls = f"the optimizer ran {run.calls()} times, at least {least_calls} are expected"
        verdict.add_wrong(f"{calls}: was it in use?")
    return verdict


if __name__ == "__main__":
    sys.exit(main())
