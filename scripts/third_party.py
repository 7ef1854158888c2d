#!/usr/bin/env python3
"""Collects the licences of the crates that are inside the native module.

    scripts/third_party.py            writes THIRD_PARTY_LICENSES.txt
    scripts/third_party.py --check    fails if the file is not what it would write, or a licence is not allowed

What counts is what is linked: dependencies at run time, for the platform of the wheels, without macros and what only
they use. The texts come from the sources of the crates, as cargo has them. Needs cargo and the standard library.
`deny.toml` has the same list of licences for cargo-deny.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / "THIRD_PARTY_LICENSES.txt"
PLATFORM = "x86_64-unknown-linux-gnu"
SHIPPED = "shapetrace-python"
ALLOWED = {"Apache-2.0", "MIT", "Unicode-3.0"}

INTRODUCTION = """\
Third-party licences

The native module of shapetrace_rs contains code of the crates below and of the Rust standard library. The latter is
used under the Apache License 2.0, whose text is below; its authors are the Rust Project contributors. Where a crate
offers several licences, all that it ships are given. Made by scripts/third_party.py.
"""


def main() -> int:
    """Write the file, or compare it.

    Returns:
        The exit code.
    """
    crates = linked_crates()
    for crate in crates:
        if not is_allowed(crate["license"] or ""):
            sys.exit(f"{crate['name']} {crate['version']} has the licence {crate['license']!r}, which is not allowed")
    text = render(crates)
    if sys.argv[1:] != ["--check"]:
        OUTPUT.write_text(text, encoding="utf-8")
        print(f"{len(crates)} crates, {len(text)} characters: {OUTPUT.name}")
    elif not OUTPUT.exists() or OUTPUT.read_text(encoding="utf-8") != text:
        sys.exit(f"{OUTPUT.name} is out of date: run scripts/third_party.py")
    return 0


def linked_crates() -> list[dict[str, Any]]:
    """The packages that end up in the native module, without those of this workspace, by name."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", PLATFORM]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    pending = [identity for identity, package in packages.items() if package["name"] == SHIPPED]
    seen = set(pending)
    while pending:
        for dependency in nodes[pending.pop()]["deps"]:
            at_run_time = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            identity = dependency["pkg"]
            is_macro = any("proc-macro" in target["kind"] for target in packages[identity]["targets"])
            if at_run_time and not is_macro and identity not in seen:
                seen.add(identity)
                pending.append(identity)
    members = set(metadata["workspace_members"])
    return sorted((packages[identity] for identity in seen - members), key=lambda package: package["name"])


def is_allowed(expression: str) -> bool:
    """Whether one of the alternatives of a licence expression consists of allowed licences."""
    alternatives = re.split(r"\s+OR\s+|/", expression.replace("(", "").replace(")", ""))
    return any(set(re.split(r"\s+AND\s+", alternative)) <= ALLOWED for alternative in alternatives)


def render(crates: list[dict[str, Any]]) -> str:
    """The whole file: who, and then each text once."""
    owners: dict[str, list[str]] = {}
    for crate in crates:
        folder = Path(crate["manifest_path"]).parent
        files = sorted(file for file in folder.iterdir() if re.match(r"(?i)(licen[cs]e|copying|notice)", file.name))
        if not files:
            sys.exit(f"{crate['name']} {crate['version']} ships no licence text")
        for file in files:
            lines = [line.rstrip() for line in file.read_text(encoding="utf-8").strip().splitlines()]
            owners.setdefault("\n".join(lines), []).append(f"{crate['name']} {crate['version']}")
    parts = [INTRODUCTION]
    parts.append("\n".join(f"  {crate['name']} {crate['version']}  {crate['license']}" for crate in crates) + "\n")
    for text, names in owners.items():
        parts.append(f"{'=' * 100}\n{', '.join(names)}\n{'=' * 100}\n\n{text}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
