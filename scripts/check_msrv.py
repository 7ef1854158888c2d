#!/usr/bin/env python3
"""Checks the oldest Rust that Cargo.toml promises, as far as the machine allows.

Nothing that the native module or the core is built from may ask for a newer Rust. Where that very Rust is installed
(by rustup, or named by MSRV_CARGO, a path), the crates are compiled with it as well. Clippy's `incompatible_msrv`, part
of the usual lints, looks at what the code itself uses of the standard library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = {"shapetrace-core", "shapetrace-format", "shapetrace-python"}


def main() -> int:
    """Check, and say what was checked.

    Returns:
        The exit code.
    """
    command = ["cargo", "metadata", "--locked", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    promised = next(package["rust_version"] for package in packages.values() if package["name"] in SHIPPED)
    pending = [identity for identity, package in packages.items() if package["name"] in SHIPPED]
    seen = set(pending)
    while pending:
        for dependency in nodes[pending.pop()]["deps"]:
            # What only tests need may be newer.
            needed = any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
            if needed and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                pending.append(dependency["pkg"])
    newer = [packages[each] for each in seen if numbers(packages[each]["rust_version"]) > numbers(promised)]
    for package in newer:
        print(f"{package['name']} {package['version']} needs Rust {package['rust_version']}", file=sys.stderr)
    print(f"{len(seen)} crates, none may need more than Rust {promised}")
    return 1 if newer else compile_with(promised)


def numbers(version: str | None) -> tuple[int, ...]:
    """A version to compare; nothing stated is no condition."""
    return tuple(map(int, (version or "0").split("."))) + (0,) * (2 - (version or "0").count("."))


def compile_with(version: str) -> int:
    """Compile with the promised Rust, if it is there."""
    if os.environ.get("MSRV_CARGO"):
        cargo = [os.environ["MSRV_CARGO"]]
    else:
        try:
            listed = subprocess.run(["rustup", "toolchain", "list"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            listed = ""
        if not any(line.startswith(f"{version}") for line in listed.splitlines()):
            print(f"Rust {version} is not installed: nothing was compiled with it (rustup toolchain install {version})")
            return 0
        cargo = ["cargo", f"+{version}"]
    print(subprocess.run([*cargo, "--version"], capture_output=True, text=True, check=True).stdout.strip())
    packages = [word for name in sorted(SHIPPED) for word in ("--package", name)]
    command = [*cargo, "check", "--locked", *packages, "--target-dir", str(ROOT / "target" / "msrv")]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
