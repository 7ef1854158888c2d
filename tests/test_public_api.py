"""The public interface changes only together with CHANGELOG.md.

`public_api/current.txt` is the interface as it is: names, signatures, members, options of the command line, one a line.
`public_api/released.txt` is what it was at the last release. After a change that is meant:

    python tests/test_public_api.py              writes current.txt
    python tests/test_public_api.py --release    writes both, when a release is made

and say in the newest section of CHANGELOG.md what changed, with the name in backticks.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import shapetrace_rs
from shapetrace_rs import cli

ROOT = Path(__file__).parent.parent
CURRENT = Path(__file__).parent / "public_api" / "current.txt"
RELEASED = CURRENT.with_name("released.txt")


def surface() -> list[str]:
    """The public interface, a line for everything that somebody could rely on."""
    lines = []
    for name in sorted(shapetrace_rs.__all__):
        thing = getattr(shapetrace_rs, name)
        if inspect.isclass(thing):
            bases = [base.__name__ for base in thing.__bases__ if base is not object]
            lines.append(f"class {name}{signature(thing)}" + (f" is {', '.join(bases)}" if bases else ""))
            lines += [f"{name}.{line}" for line in members(thing)]
        elif callable(thing):
            lines.append(f"{name}{signature(thing)}")
        else:
            lines.append(f"{name}: {type(thing).__name__}")
    for command in commands():
        lines += [" ".join(filter(None, ["shapetrace", command, option])) for option in options_of(command)]
    return lines


def members(kind: type) -> list[str]:
    """The public members of a class, those of its bases in this package included."""
    found: dict[str, str] = {}
    for base in kind.__mro__:
        if not base.__module__.startswith("shapetrace_rs"):
            continue
        for name, member in vars(base).items():
            if name.startswith("_") or name in found:
                continue
            if isinstance(member, (staticmethod, classmethod)):
                member = member.__func__
            found[name] = name + (signature(member) if inspect.isfunction(member) else "")
        for name in getattr(base, "__dataclass_fields__", {}):
            if not name.startswith("_"):
                found.setdefault(name, name)
    return [found[name] for name in sorted(found)]


def signature(thing: Any) -> str:
    """The signature as text, the same on each version of Python; nothing for what cannot be called by users."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    text = str(found).replace("'", "").replace('"', "").replace(" -> None", "")
    return "" if text in ("(*args, **kwargs)", "(/, *args, **kwargs)") else text


def help_of(*words: str) -> str:
    """What the command line prints for these words and `--help`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        cli.main([*words, "--help"])
    return printed.getvalue()


def commands() -> list[str]:
    """The subcommands, and an empty word for the command itself."""
    return ["", *sorted(re.findall(r"^    (\w+) {2,}\w", help_of().partition("examples:")[0], flags=re.MULTILINE))]


def options_of(command: str) -> list[str]:
    """The long options of a command."""
    if command == "version":
        return []
    text = help_of(*filter(None, [command])).partition("examples:")[0]
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)))


def newest_section() -> str:
    """The newest section of the changelog."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]


def read(path: Path) -> list[str]:
    """The lines of a recorded interface."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def test_the_interface_is_what_was_recorded() -> None:
    """Protects users from changes that nobody meant to make."""
    before, after = read(CURRENT), surface()
    gone = [f"- {line}" for line in before if line not in after]
    came = [f"+ {line}" for line in after if line not in before]
    assert before == after, "the public interface changed:\n" + "\n".join(gone + came) + f"\n\n{__doc__}"


def test_each_change_since_the_release_is_in_the_changelog() -> None:
    """Protects users who read the changelog before they upgrade: each name that changed is in its newest section."""
    changed = {re.sub(r"^class ", "", line) for line in set(read(CURRENT)) ^ set(read(RELEASED))}
    section = newest_section()
    words = set(re.findall(r"`([^`]+)`", section))
    mentioned = {word for phrase in words for word in re.findall(r"[\w-]+", phrase)}
    silent = set()
    for line in changed:
        # Of the command line, the command or the option; of all else the name, not each of its members.
        names = set(line.split()) if line.startswith("shapetrace ") else {re.split(r"[.(: ]", line)[0]}
        if not names & mentioned:
            silent.add(line)
    assert not silent, "CHANGELOG.md does not mention:\n" + "\n".join(sorted(silent))


def test_everything_else_is_private() -> None:
    """Protects the borders: what the package has beside `__all__` is its modules, or has an underscore."""
    allowed = {"annotations", "Any", "TYPE_CHECKING", "check_versions", "installed_version"}
    others = {name for name in vars(shapetrace_rs) if not name.startswith("_")} - set(shapetrace_rs.__all__) - allowed
    for name in others:
        assert isinstance(getattr(shapetrace_rs, name), types.ModuleType), name


def test_all_public_names_are_documented() -> None:
    """Protects readers: each public name has a docstring and its place on the page of the interface, no other has."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^::: shapetrace_rs\.(?:\w+\.)?(\w+)$", page, flags=re.MULTILINE))
    assert documented == set(shapetrace_rs.__all__) - {"__version__"}
    for name in documented:
        assert inspect.getdoc(getattr(shapetrace_rs, name)), name


def test_names_are_found_by_star_import() -> None:
    """Protects `from shapetrace_rs import *`, and a list in which a name is spelled wrong or twice."""
    scope: dict[str, Any] = {}
    exec("from shapetrace_rs import *", scope)  # noqa: S102 (that is what is tested)
    assert set(scope) - {"__builtins__"} == set(shapetrace_rs.__all__)
    assert len(set(shapetrace_rs.__all__)) == len(shapetrace_rs.__all__)


if __name__ == "__main__":
    header = "# The public interface, as tests/test_public_api.py writes it.\n"
    targets = [CURRENT, RELEASED] if sys.argv[1:] == ["--release"] else [CURRENT]
    for target in targets:
        target.parent.mkdir(exist_ok=True)
        target.write_text(header + "\n".join(surface()) + "\n", encoding="utf-8")
        print(f"wrote {target}")
