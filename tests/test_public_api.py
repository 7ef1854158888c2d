"""The public interface changes only together with CHANGELOG.md.

`public_api/current.txt` is the interface as it is: names, signatures, members, options of the command line, one a line.
`public_api/released.txt` is what it was at the last release. After a change that is meant:

    python tests/test_public_api.py              writes current.txt
    python tests/test_public_api.py --release    writes both, when a release is made

and say in the newest section of CHANGELOG.md what changed, in backticks, in one item with what it belongs to:

    `made_up`                               a new name
    `CallRecord.made_up`                    a member of something that was released
    `install`: the argument `made_up`       a parameter of something that was released
    `shapetrace made_up`                    a command
    `shapetrace stat --made-up`             an option of a command that was released

What belongs to a name or command that is itself new, or gone, needs no words of its own.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import sys
import types
from collections.abc import Iterable
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
        words = f"shapetrace {command}".rstrip()
        lines += [words, *(f"{words} {option}" for option in options_of(command))]
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
    return ["", *sorted(re.findall(r"^    ([\w-]+) {2,}\w", help_of().partition("examples:")[0], flags=re.MULTILINE))]


def options_of(command: str) -> list[str]:
    """The long options of a command."""
    if command == "version":
        return []
    text = help_of(*filter(None, [command])).partition("examples:")[0]
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)))


def newest_section() -> str:
    """The newest section of the changelog."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1]


Words = tuple[str, ...]


def split_signature(text: str) -> list[str]:
    """The parameters of a signature, given what stands between its brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def things(line: str) -> dict[Words, str]:
    """What a line of the interface stands for: the words that name each thing, and what the line says of it.

    Args:
        line: A line of a recorded interface.

    Returns:
        The command or option of a line of the command line; of any other line the name or member, of which all of the
        line speaks, and its parameters.
    """
    if line.split(maxsplit=1)[0] == "shapetrace":
        return {tuple(line.split()): ""}
    match = re.match(r"(?:class )?([\w.]+)(.*)", line)
    assert match, line
    name, rest = tuple(match[1].split(".")), match[2]
    end = next((i for i in range(len(rest)) if rest[: i + 1].count("(") == rest[: i + 1].count(")")), 0)
    found, kind = {name: line}, ""
    for parameter in split_signature(rest[1:end]):
        if parameter.startswith("*"):
            kind = "by its name: "
        if re.match(r"\**\w", parameter):
            found[(*name, re.split(r"[: =]", parameter.lstrip("*"))[0])] = kind + parameter
    return found


def interface(lines: Iterable[str]) -> dict[Words, set[str]]:
    """All things of an interface; a field of a dataclass is a member and a parameter."""
    found: dict[Words, set[str]] = {}
    for line in lines:
        for words, said in things(line).items():
            found.setdefault(words, set()).add(said)
    return found


def to_be_mentioned(released: list[str], current: list[str]) -> set[Words]:
    """What changed, as far as the changelog has to say so: not what belongs to something that is itself new or gone.

    Args:
        released: The lines of the interface before.
        current: The lines of the interface now.

    Returns:
        Words of each thing, all of which the changelog needs in one item.
    """
    before, after = interface(released), interface(current)
    changed = {words for words in before.keys() | after.keys() if before.get(words) != after.get(words)}
    whole = {words for words in changed if not (words in before and words in after)}
    # A command belongs to the command line, but is a thing of its own.
    wanted = {words for words in changed if is_command(words) or not whole.intersection(owners(words))}
    # An item about a member names its class as well.
    return wanted.difference(*map(owners, wanted))


def owners(words: Words) -> list[Words]:
    """What a thing belongs to, from the outside in."""
    return [words[:length] for length in range(1, len(words))]


def is_command(words: Words) -> bool:
    """Whether words name a command."""
    return words[0] == "shapetrace" and len(words) == 2 and not words[1].startswith("-")


def not_mentioned(released: list[str], current: list[str], section: str) -> list[str]:
    """What changed and is in no item of a section of the changelog.

    Args:
        released: The lines of the interface before.
        current: The lines of the interface now.
        section: The section.

    Returns:
        A text for each thing.
    """
    items = [
        {word for phrase in re.findall(r"`([^`]+)`", item) for word in re.findall(r"[\w-]+", phrase)}
        for item in re.split(r"\n- |\n\n", section)
    ]
    wanted = to_be_mentioned(released, current)
    return sorted(" ".join(words) for words in wanted if not any(item.issuperset(words) for item in items))


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
    silent = not_mentioned(read(RELEASED), read(CURRENT), newest_section())
    assert not silent, "CHANGELOG.md does not mention:\n" + "\n".join(silent) + f"\n\n{__doc__}"


CHANGES = {
    "a name": ("made_up(x: Any)", None, "made_up"),
    "a class": ("class MadeUp(x: int)", None, "MadeUp"),
    "a member": ("CallRecord.made_up", None, "CallRecord made_up"),
    "a parameter": ("install(*, level: ", "install(*, made_up: int = 0, level: ", "install made_up"),
    "a parameter of a member": (
        "Report.print_ops(self)",
        "Report.print_ops(self, made_up: dict[str, int] = {})",
        "Report print_ops made_up",
    ),
    "a default": ("dumps_text(trace: Any)", "dumps_text(trace: Any = None)", "dumps_text trace"),
    "a result": ("installed() -> bool", "installed() -> int", "installed"),
    "a command": ("shapetrace made_up", None, "shapetrace made_up"),
    "an option": ("shapetrace stat --made-up", None, "shapetrace stat --made-up"),
    "an option of the command itself": ("shapetrace --made-up", None, "shapetrace --made-up"),
}
"""Changes: a new line, or how a line begins and how it begins then; and what has to be mentioned."""


def made_up(change: str) -> tuple[list[str], str]:
    """An interface with one change, and what has to be mentioned of it."""
    old, new, mention = CHANGES[change]
    if new is None:
        return [*surface(), old], mention
    lines = [new + line.removeprefix(old) if line.startswith(old) else line for line in surface()]
    assert lines != surface()
    return lines, mention


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_the_changelog_is_silent_about_is_found(change: str) -> None:
    """Protects the rule: of what was released, each name, member, parameter, command and option has to be mentioned."""
    current, mention = made_up(change)
    words = mention.split()
    # All names that there are, each in an item of its own, do not speak of the change.
    section = "0.2.0\n\n" + "".join(f"- `{name}` is faster.\n" for name in ["shapetrace stat", *shapetrace_rs.__all__])
    section = section.replace(f"- `{mention}` is faster.\n", "")
    assert not_mentioned(surface(), current, section) == [mention]
    assert not_mentioned(current, surface(), section) == [mention]
    assert not_mentioned(surface(), current, f"{section}- New: `{words[-1]}` of `{' '.join(words)}`.\n") == []
    if len(words) > 1:
        # Nor does its own word without what it belongs to, or in another item.
        assert not_mentioned(surface(), current, f"{section}- New: `{words[-1]}`.\n") == [mention]


@pytest.mark.parametrize("change", ["a name", "a class", "a command"])
def test_before_the_first_release_names_and_commands_are_mentioned(change: str) -> None:
    """Protects the first changelog: it names what there is, if not each member and option of it."""
    current, mention = made_up(change)
    assert not_mentioned([], current, newest_section()) == [mention]


def test_before_the_first_release_members_come_with_their_names() -> None:
    """Protects the first changelog from lists that nobody reads."""
    for change in ("a member", "a parameter", "an option"):
        assert not_mentioned([], made_up(change)[0], newest_section()) == []


def test_another_order_of_parameters_is_a_change() -> None:
    """Protects callers by position."""
    before = ["f(a: int, b: tuple[int, str]) -> int"]
    assert not_mentioned(before, ["f(b: tuple[int, str], a: int) -> int"], "") == ["f"]
    assert not_mentioned(before, ["f(a: int, *, b: tuple[int, str]) -> int"], "") == ["f b"]
    assert not_mentioned(before, before, "") == []


def test_everything_else_is_private() -> None:
    """Protects the borders: what the package has beside `__all__` is its modules, or has an underscore."""
    allowed = {"annotations", "Any", "TYPE_CHECKING", "installed_version"}
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
