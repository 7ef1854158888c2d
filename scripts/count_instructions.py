#!/usr/bin/env python3
"""Counts the instructions of the passes and of the bridge, and compares them with what was recorded.

    scripts/count_instructions.py                 compare; exit code 1 if a count grew by more than 5 %
    scripts/count_instructions.py --record        write benches/instructions.toml anew
    scripts/count_instructions.py --only core     the passes on generated programs alone, or `--only bridge`

A time depends on what else the machine does; a count of instructions hardly does. Callgrind (of valgrind) counts, and
only instructions inside of what is built here: not those of the C library, of the interpreter, of thunder. So a count
depends on the compiler, and that of the bridge on the versions of Python, thunder and torch as well. Where these are
not what they were when the file was written, that half is skipped, and the script says so; bring the file up to date
with `--record` there where the versions are those of the project's checks.

Run it with the environment that has the package in it, built for release (scripts/test.sh makes one). Whatever is
recorded, an op must not cost more than 1.3 times as much where many ops are inside one parent. A count that *fell* by
more than 5 % is no failure, but record it: what is not recorded can be lost again unseen.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10; pytest has brought it
    import tomli as tomllib  # type: ignore[import-not-found, no-redef]

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "benches" / "instructions.toml"
TOLERANCE = 0.05
# What is linear costs the same an op, whatever the size.
MOST_BETWEEN_WIDTHS = 1.3
HEADER = """\
# Instructions that the passes and the bridge take: written and compared by scripts/count_instructions.py.
# A count holds for the versions beside it.
"""

# Tells callgrind from inside the process what to count: asking from outside would count the asking.
SWITCH = """\
#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void stop(const char *name) { CALLGRIND_DUMP_STATS_AT(name); CALLGRIND_STOP_INSTRUMENTATION; }
"""


class CannotCountError(Exception):
    """Something that counting needs is missing."""


@dataclass(frozen=True)
class Half:
    """The core or the bridge: what its counts depend on, and how they are made."""

    versions: Callable[[], dict[str, str]]
    count: Callable[[Path], dict[str, int]]


def rust_version() -> str:
    """The compiler, as it says itself."""
    return run(["rustc", "--version"]).split()[1]


def core_versions() -> dict[str, str]:
    """What the counts of the core depend on."""
    return {"machine": platform.machine(), "rustc": rust_version()}


def bridge_versions() -> dict[str, str]:
    """What the counts of the bridge depend on."""
    packages = {name: importlib.metadata.version(name) for name in ("lightning-thunder", "torch")}
    return {**core_versions(), "python": ".".join(platform.python_version_tuple()[:2]), **packages}


def run(command: list[str], **variables: str) -> str:
    """The output of a command; one that fails is shown.

    Args:
        command: The program and its arguments.
        **variables: Environment variables, beside those that there are.

    Returns:
        What it printed.

    Raises:
        CannotCountError: It failed.
    """
    environment = {**os.environ, **variables}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    if result.returncode:
        message = f"{' '.join(command)} failed:\n{result.stdout[-2000:]}{result.stderr[-4000:]}"
        raise CannotCountError(message)
    return result.stdout


def callgrind(command: list[str], options: list[str], directory: Path) -> tuple[str, list[Path]]:
    """Run a program under callgrind.

    Args:
        command: The program and its arguments.
        options: What and when to count.
        directory: An empty one, for the counts.

    Returns:
        What the program printed, and the files with counts, in order.
    """
    out = f"--callgrind-out-file={directory}/counts"
    # With hashes of text that differ from run to run, dictionaries would collide here or there.
    printed = run(["valgrind", "--tool=callgrind", out, *options, *command], PYTHONHASHSEED="0")
    files = directory.glob("counts.*")
    return printed, sorted(files, key=lambda file: int(file.suffix[1:]))


def instructions_by_object(text: str) -> dict[str, int]:
    """Add up a file of callgrind's: instructions in each library and program, without what they call.

    Args:
        text: The file.

    Returns:
        Instructions by path.
    """
    names: dict[str, str] = {}
    counts: dict[str, int] = defaultdict(int)
    here = ""
    after_call = False
    for line in text.splitlines():
        if named := re.match(r"(c?ob)=(\(\d+\))(?: (.*))?$", line):
            kind, number, name = named.groups()
            if name is not None:
                names[number] = name
            if kind == "ob":
                here = names[number]
        elif line.startswith("calls="):
            after_call = True
        elif line[:1].isdigit() or line[:1] in {"+", "-", "*"}:
            # The line behind `calls=` has what the called function took, which stands elsewhere as well.
            if not after_call:
                counts[here] += int(line.split()[1])
            after_call = False
    return counts


def count_core(directory: Path) -> dict[str, int]:
    """Count the passes on generated programs."""
    # As for release, with the names of functions left in.
    build = ["cargo", "build", "--locked", "--quiet", "--profile", "bench", "--package", "shapetrace-benches"]
    run([*build, "--example", "instructions"])
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = str(target / "release" / "examples" / "instructions")
    counted = "counted_passes"
    options = [f"--toggle-collect={counted}", f"--dump-after={counted}"]
    printed, files = callgrind([program], options, directory)
    names = [line.split()[0] for line in printed.splitlines()]
    counts = [instructions_by_object(file.read_text())[program] for file in files[: len(names)]]
    return dict(zip(names, counts, strict=True))


def count_bridge(directory: Path) -> dict[str, int]:
    """Count whole calls on recorded traces, inside the native module."""
    switch = directory / "switch.so"
    source = directory / "switch.c"
    source.write_text(SWITCH)
    run(["cc", "-shared", "-fPIC", "-o", str(switch), str(source)])
    script = str(ROOT / "benches" / "bridge" / "instructions.py")
    _, files = callgrind([sys.executable, script, str(switch)], ["--instr-atstart=no"], directory)
    counts = {}
    for text in (file.read_text() for file in files):
        if name := re.search(r"^desc: Trigger: Client Request: (.*)$", text, re.MULTILINE):
            native = [count for path, count in instructions_by_object(text).items() if is_native_module(path)]
            counts[name[1]] = sum(native)
    if not counts or not all(counts.values()):
        message = f"the native module was not seen at work: {counts}"
        raise CannotCountError(message)
    return counts


def is_native_module(path: str) -> bool:
    """Whether a library is the one that is built here."""
    return re.search(r"shapetrace_rs/_core\.[^/]*so$", path) is not None


HALVES = {"core": Half(core_versions, count_core), "bridge": Half(bridge_versions, count_bridge)}


def check_tools(halves: list[str]) -> None:
    """See whether all is there.

    Args:
        halves: What will be counted.

    Raises:
        CannotCountError: A tool, or its header, is missing.
    """
    needed = ["valgrind", "cargo", "rustc", *(["cc"] if "bridge" in halves else [])]
    if missing := [tool for tool in needed if shutil.which(tool) is None]:
        message = f"not found: {', '.join(missing)}"
        raise CannotCountError(message)
    if "bridge" in halves:
        import shapetrace_rs

        if shapetrace_rs._core.debug_build:
            message = "the native module is a debug build: its count says nothing"
            raise CannotCountError(message)


def compare(counts: dict[str, int], recorded: dict[str, int]) -> tuple[list[str], list[str]]:
    """Print the counts beside those that were recorded.

    Args:
        counts: What was counted now.
        recorded: What the file says.

    Returns:
        The names of those that grew, with those that only one side has, and of those that fell, beyond the tolerance.
    """
    grew, fell = sorted(counts.keys() ^ recorded.keys()), []
    for name in sorted(counts.keys() & recorded.keys()):
        change = counts[name] / recorded[name] - 1
        print(f"  {name:<44} {recorded[name]:>12,} {counts[name]:>12,} {change:>+8.2%}")
        if change > TOLERANCE:
            grew.append(name)
        elif change < -TOLERANCE:
            fell.append(name)
    return grew, fell


def check_widths(counts: dict[str, int]) -> list[str]:
    """See whether an op costs the same whether few or many are inside one parent, and print what it costs.

    Args:
        counts: What was counted now; `width-500-full` is of 500 ops inside one parent.

    Returns:
        What grows with the width: names of the counts of the widest.
    """
    per_op: dict[str, dict[int, float]] = defaultdict(dict)
    for name, count in counts.items():
        if parts := re.match(r"width-(\d+)-(.*)$", name):
            per_op[parts[2]][int(parts[1])] = count / int(parts[1])
    grew = []
    for what, costs in per_op.items():
        growth = max(costs.values()) / min(costs.values())
        print(f"  {what}: {growth:.2f} times as many an op from {min(costs):,} to {max(costs):,} ops inside one parent")
        if growth > MOST_BETWEEN_WIDTHS:
            grew.append(f"width-{max(costs)}-{what}")
    return grew


def write(recorded: dict[str, dict[str, dict[str, object]]]) -> None:
    """Write the file anew."""
    lines = [HEADER]
    for half, tables in recorded.items():
        for table, entries in tables.items():
            lines.append(f"[{half}.{table}]")
            for name, value in entries.items():
                text = f"{value:_}" if isinstance(value, int) else f'"{value}"'
                lines.append(f"{name} = {text}")
            lines.append("")
    RECORDED.write_text("\n".join(lines))


def main() -> int:
    """Count, and compare or record.

    Returns:
        The exit code: 0, 1 if a count grew, is not recorded, or is not linear, 2 if counting is not possible.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the counts down instead of comparing")
    parser.add_argument("--only", choices=sorted(HALVES), help="count one half")
    arguments = parser.parse_args()
    halves = [arguments.only] if arguments.only else list(HALVES)
    recorded = tomllib.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    grew: list[str] = []
    fell: list[str] = []
    too_steep: list[str] = []
    try:
        check_tools(halves)
        for name in halves:
            versions = HALVES[name].versions()
            before = recorded.get(name, {"versions": {}, "counts": {}})
            if not arguments.record and before["versions"] != versions:
                differing = sorted(key for key in versions if before["versions"].get(key) != versions[key])
                said = ", ".join(f"{key} {before['versions'].get(key)} then, {versions[key]} here" for key in differing)
                print(f"{name}: SKIPPED, the recorded counts are of other versions ({said})")
                continue
            with tempfile.TemporaryDirectory() as directory:
                counts = HALVES[name].count(Path(directory))
            if arguments.record:
                recorded[name] = {"versions": versions, "counts": counts}
                print(f"{name}: {len(counts)} counts")
            else:
                print(f"{name}: instructions recorded, counted, difference")
                more, fewer = compare(counts, before["counts"])
                grew += more
                fell += fewer
            too_steep += check_widths(counts)
    except CannotCountError as error:
        print(f"Instructions were not counted: {error}", file=sys.stderr)
        return 2
    if arguments.record:
        write(recorded)
        print(f"written to {RECORDED.relative_to(ROOT)}")
    if fell:
        print(f"Fewer instructions than recorded, by more than {TOLERANCE:.0%}: {', '.join(fell)}.")
        print("Record them anew, with --record, so that the gain cannot be lost unseen.")
    if grew:
        print(f"More instructions than recorded, by more than {TOLERANCE:.0%}, or not recorded: {', '.join(grew)}.")
        print("If that is meant, record them anew with --record, and say why in the change.")
    if too_steep:
        print(f"Instructions an op grow with the width of one parent: {', '.join(too_steep)}.")
    return bool(grew or too_steep)


if __name__ == "__main__":
    sys.exit(main())
