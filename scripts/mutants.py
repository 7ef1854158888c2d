#!/usr/bin/env python3
"""Breaks the sources on purpose, one fault at a time, and tells whether our own tests notice.

    scripts/mutants.py                       all faults of conformance/mutants.toml
    scripts/mutants.py effects stock-suite   those whose name or kind has one of these words in it
    scripts/mutants.py core                  those that cargo's tests of the core should find; so with a file of tests
    scripts/mutants.py --list                what there is
    scripts/mutants.py --sound               first see whether the tests pass without a fault

Thunder's own tests pass with a broken pass underneath, so passing them proves little; these faults are the measure of
ours. Everything happens in a copy of the sources (in target/mutants, which stays for the next time). A fault in the
core is killed by cargo's tests of the core; one in the binding or the package by pytest, with the module built anew.
Tests run until one fails.

Needs cargo, and an interpreter with what the tests need: run it with the environment that scripts/test.sh makes. All of
it takes about twenty minutes on two cores. The exit code is 0 if all are killed, 1 if one survives, 2 if one cannot
be made (the sources changed: bring conformance/mutants.toml up to date).

For faults that a machine thinks of there is cargo-mutants: `cargo mutants -p shapetrace-core` with .cargo/mutants.toml.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10; pytest has brought it
    import tomli as tomllib  # type: ignore[import-not-found, no-redef]

ROOT = Path(__file__).resolve().parents[1]
COPIED = (
    "Cargo.lock", "Cargo.toml", "README.md", "LICENSE", "CHANGELOG.md", "THIRD_PARTY_LICENSES.txt", "pyproject.toml",
    "benches", "conformance", "docs", "mkdocs.yml", "python", "rust", "scripts", "tests",
)  # fmt: skip
SECONDS_FOR_TESTS = 900


@dataclass(frozen=True)
class Mutant:
    """One fault; see conformance/mutants.toml."""

    name: str
    like: str
    file: str
    old: str
    new: str
    tests: list[str]

    @property
    def is_native(self) -> bool:
        """Whether the native module has to be built anew for pytest."""
        return self.file.startswith("rust/")


class CannotMake(Exception):  # noqa: N818 (the words are for people)
    """A fault cannot be made, or what is to find it does not even run."""


def main() -> int:
    """Make the faults that are asked for.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only faults whose name, kind or tests have one of these")
    parser.add_argument("--list", action="store_true", help="print the faults, and do nothing")
    parser.add_argument("--sound", action="store_true", help="first run the tests on the sources as they are")
    parser.add_argument("--work", type=Path, default=ROOT / "target" / "mutants", help="where the copy goes")
    arguments = parser.parse_args()
    with (ROOT / "conformance" / "mutants.toml").open("rb") as file:
        mutants = [Mutant(**table) for table in tomllib.load(file)["mutant"]]
    wanted = [mutant for mutant in mutants if chosen(mutant, arguments.words)]
    if arguments.list:
        for mutant in wanted:
            print(f"{mutant.like:<12} {mutant.name}  ({mutant.file})")
        return 0
    workshop = Workshop(arguments.work.resolve())
    survivors, stale = [], []
    try:
        if arguments.sound:
            workshop.check_soundness(wanted)
        for index, mutant in enumerate(wanted, 1):
            print(f"{index:>3} of {len(wanted)}  {mutant.name} ... ", end="", flush=True)
            start = time.monotonic()
            try:
                killer = workshop.try_out(mutant)
            except CannotMake as error:
                stale.append(mutant)
                print(f"CANNOT BE MADE: {error}")
                continue
            if killer is None:
                survivors.append(mutant)
            print(f"{f'killed by {killer}' if killer else 'SURVIVES'}  ({time.monotonic() - start:.0f} s)", flush=True)
    except CannotMake as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"\n{len(wanted) - len(survivors) - len(stale)} of {len(wanted)} killed")
    for mutant in survivors:
        print(f"survives: {mutant.name} ({mutant.file})")
    for mutant in stale:
        print(f"cannot be made: {mutant.name} ({mutant.file})")
    return 2 if stale else 1 if survivors else 0


def chosen(mutant: Mutant, words: list[str]) -> bool:
    """Whether a fault is asked for."""
    return not words or any(word in mutant.name or word == mutant.like or word in mutant.tests for word in words)


class Workshop:
    """A copy of the sources in which faults are made and repaired."""

    def __init__(self, place: Path) -> None:
        self._tree = place / "tree"
        self._built = place / "built"
        self._tree.mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            bring_up_to_date(ROOT / name, self._tree / name)
        self._environment = {
            **os.environ,
            "CARGO_TARGET_DIR": str(self._built),
            "PYO3_PYTHON": sys.executable,
            "PYTHONPATH": str(self._tree / "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Quick enough to run, and quick to build. Without the checks that a debug build makes of its own answers: a
            # fault has to be found in what users install.
            "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
            "CARGO_PROFILE_DEV_DEBUG": "0",
            "CARGO_PROFILE_DEV_INCREMENTAL": "true",
        }
        self._is_native_clean = False

    def check_soundness(self, mutants: list[Mutant]) -> None:
        """See that the tests pass where there is no fault.

        Raises:
            CannotMake: One does not.
        """
        words = sorted({word for mutant in mutants for word in mutant.tests if self._exists(word)})
        for word in words:
            print(f"without a fault: {word} ... ", end="", flush=True)
            failed = self._fails(word, build=word != "core")
            print("FAILS" if failed else "passes")
            if failed:
                message = f"{word} fails on the sources as they are"
                raise CannotMake(message)
        self._is_native_clean = True

    def try_out(self, mutant: Mutant) -> str | None:
        """Make one fault, run the tests that should find it, and repair it.

        Returns:
            The words for the test that failed, none if all pass.

        Raises:
            CannotMake: The text to change is not there exactly once, or what comes out does not compile.
        """
        path = self._tree / mutant.file
        before = path.read_text()
        old, new = mutant.old.removeprefix("\n"), mutant.new.removeprefix("\n")
        if before.count(old) != 1:
            message = f"{mutant.file} has what is to change {before.count(old)} times"
            raise CannotMake(message)
        try:
            write_later(path, before.replace(old, new))
            build = mutant.is_native or not self._is_native_clean
            for word in filter(self._exists, mutant.tests):
                if self._fails(word, build=build and word != "core"):
                    return word
                build = False
            return None
        finally:
            write_later(path, before)
            if mutant.is_native and "core" not in mutant.tests:
                self._is_native_clean = False
            elif not mutant.is_native:
                self._is_native_clean = True

    def _exists(self, word: str) -> bool:
        return word == "core" or (self._tree / word.partition("::")[0]).exists()

    def _fails(self, word: str, *, build: bool) -> bool:
        if word == "core":
            self._cargo("build", "--package", "shapetrace-core", "--tests")
            return self._run(["cargo", "test", "--locked", "--quiet", "--package", "shapetrace-core", "--tests"]) != 0
        if build:
            self._build_native_module()
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", word]
        code = self._run(command)
        if code not in {0, 1}:
            message = f"pytest ended with code {code} on {word}"
            raise CannotMake(message)
        return code == 1

    def _build_native_module(self) -> None:
        self._cargo("build", "--package", "shapetrace-python", debug_assertions=False)
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        library = self._built / "native" / "debug" / "lib_core.so"
        shutil.copyfile(library, self._tree / "python" / "shapetrace_rs" / f"_core{suffix}")

    def _cargo(self, *words: str, debug_assertions: bool = True) -> None:
        environment = dict(self._environment)
        if not debug_assertions:
            # In a place of its own, or the crates below would be built anew each time.
            environment |= {
                "CARGO_PROFILE_DEV_DEBUG_ASSERTIONS": "false",
                "CARGO_TARGET_DIR": str(self._built / "native"),
            }
        command = ["cargo", *words, "--locked", "--quiet"]
        made = subprocess.run(command, cwd=self._tree, env=environment, capture_output=True, text=True, check=False)
        if made.returncode:
            errors = [line for line in made.stderr.splitlines() if line.startswith("error")]
            message = f"it does not compile: {(errors or ['no message'])[0]}"
            raise CannotMake(message)

    def _run(self, command: list[str]) -> int:
        """The exit code of tests; those that hang have failed."""
        try:
            return subprocess.run(
                command,
                cwd=self._tree,
                env=self._environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS_FOR_TESTS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return 1


def bring_up_to_date(source: Path, target: Path) -> None:
    """Copy what differs, and remove what is gone, so that cargo builds only what changed."""
    if source.is_dir():
        target.mkdir(exist_ok=True)
        names = {path.name for path in source.iterdir() if path.name != "__pycache__" and path.suffix != ".so"}
        for path in list(target.iterdir()):
            if path.name not in names and path.suffix != ".so":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name in names:
            bring_up_to_date(source / name, target / name)
    elif not target.is_file() or source.read_bytes() != target.read_bytes():
        shutil.copyfile(source, target)


def write_later(path: Path, text: str) -> None:
    """Write a file so that cargo sees that it changed, also within the grain of the file system's clock."""
    path.write_text(text)
    now = time.time()
    os.utime(path, (now, now))


if __name__ == "__main__":
    sys.exit(main())
