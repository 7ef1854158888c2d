#!/usr/bin/env python3
"""Checks what is in the wheels and the source distribution of a release.

    scripts/check_artifacts.py DIRECTORY [--size-limit BYTES]

The wheels are small and have what they should have and nothing beside it; the library in them has no symbols left for
debugging and no path of the machine that built it; the source distribution has all that building needs.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import zipfile
from pathlib import Path

IN_EVERY_WHEEL = ("__init__.py", "py.typed", "_core.pyi", "cli/run.py")
IN_THE_SDIST = (
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "THIRD_PARTY_LICENSES.txt",
    "pyproject.toml",
    "python/shapetrace_rs/py.typed",
    "rust/shapetrace-core/src/lib.rs",
    "rust/shapetrace-format/src/lib.rs",
    "rust/shapetrace-python/build.rs",
)
NEVER = ("__pycache__", "_cache", ".proptest-regressions", "target/")


def main() -> int:
    """Check all files of a directory.

    Returns:
        The exit code: 1 if something is wrong.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--size-limit", type=int, default=2_000_000)
    arguments = parser.parse_args()
    wheels, sdists = sorted(arguments.directory.glob("*.whl")), sorted(arguments.directory.glob("*.tar.gz"))
    wrong = [] if wheels and len(sdists) == 1 else ["there are no wheels, or not one source distribution"]
    for wheel in wheels:
        wrong += wrong_in_wheel(wheel, arguments.size_limit)
    for sdist in sdists:
        wrong += wrong_in_sdist(sdist)
    for file in (*wheels, *sdists):
        print(f"{file.stat().st_size:>9} bytes  {file.name}")
    for sentence in wrong:
        print(f"WRONG {sentence}", file=sys.stderr)
    return 1 if wrong else 0


def wrong_in_wheel(path: Path, size_limit: int) -> list[str]:
    """What is wrong with a wheel, in sentences."""
    wrong = []
    if path.stat().st_size >= size_limit:
        wrong.append(f"{path.name} has {path.stat().st_size} bytes, the limit is {size_limit}")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        folders = {name.split("/")[0] for name in names}
        metadata = next((folder for folder in folders if folder.endswith(".dist-info")), "")
        if folders != {"shapetrace_rs", metadata}:
            wrong.append(f"{path.name} installs more than one package: {sorted(folders)}")
        expected = [f"shapetrace_rs/{name}" for name in IN_EVERY_WHEEL]
        expected += [f"{metadata}/licenses/{name}" for name in ("LICENSE", "THIRD_PARTY_LICENSES.txt")]
        wrong += [f"{path.name} lacks {name}" for name in expected if name not in names]
        wrong += [f"{path.name} has {name}" for name in names if any(part in name for part in NEVER)]
        libraries = [name for name in names if name.endswith(".so")]
        if len(libraries) != 1:
            wrong.append(f"{path.name} has {len(libraries)} libraries")
        for name in libraries:
            library = archive.read(name)
            home = str(Path.home()).encode()
            if b".symtab\0" in library or b".debug_info\0" in library:
                wrong.append(f"{name} in {path.name} is not stripped")
            if home in library or b".cargo/registry" in library:
                wrong.append(f"{name} in {path.name} names paths of this machine")
    return wrong


def wrong_in_sdist(path: Path) -> list[str]:
    """What is wrong with a source distribution, in sentences."""
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    return [f"{path.name} lacks {name}" for name in IN_THE_SDIST if name not in names] + [
        f"{path.name} has {name}" for name in names if any(part in name for part in NEVER)
    ]


if __name__ == "__main__":
    sys.exit(main())
