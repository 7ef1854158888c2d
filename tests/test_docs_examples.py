"""The documents keep their word: examples run, commands exist, links lead somewhere.

A page is run from top to bottom, as a reader would type it: all blocks marked `python` share one namespace. Above a
block may stand

    <!-- output -->        it is not code, but exactly what the block before it prints
    <!-- not run: why -->  it is no program

Programs that are shown before and after, side by side with a bar between them, go through the optimizer:

    <!-- before and after -->                a `; reason` on the right stands for an op that goes
    <!-- before and after, level compat -->  the same at the other level
    <!-- opening -->                         what opening composites makes of the program of the page
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import thunder
import torch

import shapetrace_rs
import test_opening
import test_public_api
from shapetrace_rs import _core, report
from shapetrace_rs._opening import open_composites

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
DOCUMENTS = sorted([*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "RELEASING.md"))])

BLOCK = re.compile(
    r"(?:<!-- (?P<mark>[^>]*?) -->\n)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


@dataclass
class Block:
    """A fenced block of a page."""

    mark: str
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """All fenced blocks, in their order."""
    source = page.read_text(encoding="utf-8")
    return [
        Block(
            mark=match["mark"] or "",
            language=match["language"],
            text=match["text"],
            line=source.count("\n", 0, match.start("text")) + 1,
        )
        for match in BLOCK.finditer(source)
    ]


def commands(page: Path) -> list[str]:
    """All command lines of a page."""
    return [
        line.removeprefix("$ ").split("  #")[0].strip()
        for block in blocks(page)
        if block.language == "console"
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]


def known_extras() -> set[str]:
    """The extras of the package."""
    source = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = source.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    return set(re.findall(r"^(\w+) = \[", section, flags=re.MULTILINE))


def what_a_reader_has() -> dict[str, Any]:
    """What examples may use without having made it: a model, a function, an input, a trace."""

    def fn(x: Any) -> Any:
        torch.sin(x)
        return x.reshape(-1) * 2

    x = torch.ones(4, 6)
    jfn = thunder.jit(fn)
    jfn(x)
    return {
        "__name__": "__main__",
        "torch": torch,
        "thunder": thunder,
        "shapetrace_rs": shapetrace_rs,
        "model": torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)),
        "fn": fn,
        "jfn": jfn,
        "x": x,
        "trace": thunder.last_traces(jfn)[0],
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects readers who copy an example, and pages that show what one prints."""
    monkeypatch.chdir(tmp_path)
    # A reader's process has counted nothing yet, whatever other tests have done in this one.
    monkeypatch.setattr(report, "_totals", report._Totals())
    scope = what_a_reader_has()
    printed = ""
    with warnings.catch_warnings():
        # What thunder and torch warn of is not the matter here.
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", shapetrace_rs.ShapetraceWarning)
        for block in blocks(page):
            if block.mark == "output":
                assert printed == block.text, f"{page.name}:{block.line} shows something else than the example prints"
            elif block.language == "python" and not block.mark.startswith("not run"):
                # Empty lines in front give errors the line numbers of the page.
                code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
                stream = io.StringIO()
                with contextlib.redirect_stdout(stream):
                    exec(code, scope)  # noqa: S102 (running the examples is the purpose)
                printed = stream.getvalue()


PASSES = ROOT / "docs" / "passes.md"
COMPARED = re.compile(r"before and after(?:, level (?P<level>\w+))?")
OPENED = "opening"


def side_by_side(block: Block) -> list[tuple[str, str]]:
    """The lines of a block, each with what stands on its left and on its right."""
    pairs = []
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        left, bar, right = line.partition(" |")
        assert bar, f"line {number} has no bar"
        pairs.append((left.rstrip(), right.removeprefix(" ")))
    return pairs


def column(lines: Iterable[str]) -> str:
    """One of two columns as a text, without its empty lines."""
    return "".join(f"{line}\n" for line in lines if line)


def wrong_in_comparison(block: Block, level: str) -> list[str]:
    """What is not so in a block that shows a program before and after.

    Args:
        block: The block.
        level: The level of the optimizer.

    Returns:
        Sentences, none if all is so.
    """
    pairs = side_by_side(block)
    before = _core.TraceFile.read(column(left for left, _ in pairs).encode())
    after, removed = before.optimize(level=level)
    shown, gone = [], []
    for left, right in pairs:
        op = left.strip().removesuffix(" {")
        if right.lstrip().startswith("; "):
            gone.append((op, right.lstrip().removeprefix("; ")))
        elif right:
            shown.append(right)
        elif op != "}":
            gone.append((op, "inside-removed"))
    wrong = [f"not well formed: {finding[1]}" for finding in before.verify()]
    wrong += [f"not optimal: {finding[1]}" for finding in after.verify(optimized=level == "full")]
    if column(shown) != after.to_text(host=False):
        wrong.append(f"it becomes\n{after.to_text(host=False)}")
    reasons = sorted((op, reason) for op, reason, _ in removed)
    if sorted(gone) != reasons:
        wrong.append(f"what goes is {reasons}")
    return wrong


def compared_blocks() -> list[Any]:
    """All blocks that show a program before and after, with their levels."""
    return [
        pytest.param(block, match["level"] or "full", id=f"{page.name}:{block.line}")
        for page in PAGES
        for block in blocks(page)
        if (match := COMPARED.fullmatch(block.mark))
    ]


@pytest.mark.parametrize(("block", "level"), compared_blocks())
def test_programs_become_what_stands_beside_them(block: Block, level: str) -> None:
    """Protects the page of the passes: each program becomes what it shows, and each reason is the one it gives."""
    assert wrong_in_comparison(block, level) == []


@pytest.mark.parametrize("shown", ["  %b = prims.cos(%x)", "  ; folded", ""])
def test_a_wrong_comparison_is_found(shown: str) -> None:
    """Protects that test: what is said to stay and goes, and what goes for another reason, make it fail."""
    before = ("trace(%x) {", "  %a = prims.sin(%x)", "  %b = prims.cos(%x)", "  return %a", "}")

    def block(shown: str) -> Block:
        after = (*before[:2], shown, *before[3:])
        return Block(
            "", "text", "".join(f"{a:<22} | {b}".rstrip() + "\n" for a, b in zip(before, after, strict=True)), 1
        )

    assert wrong_in_comparison(block("  ; dead"), "full") == []
    assert wrong_in_comparison(block(shown), "full")


def test_composites_are_opened_as_the_page_shows() -> None:
    """Protects the one comparison that an executor has to be asked for."""
    (block,) = (block for block in blocks(PASSES) if block.mark == OPENED)

    def largest(x: Any) -> Any:
        return (x * 2).amax(-1, keepdim=True)

    executors = [test_opening.ElementwiseFuser(), *test_opening.executors()]
    before = test_opening.traced(largest, torch.ones(3, 8))
    after = shapetrace_rs.optimize(open_composites(before, executors))
    for trace, shown in zip((before, after), zip(*side_by_side(block), strict=True), strict=True):
        program = shapetrace_rs.dumps_text(trace).partition("\nhost {")[0]
        plain = re.sub(r" #[\w-]+|: tensor\[[^]]*\]| keep\([^)]*\)", "", program)
        assert column(shown).strip() == plain.strip()


def test_every_block_of_the_passes_is_run() -> None:
    """Protects the page of the passes from programs that nobody tries."""
    for block in blocks(PASSES):
        assert block.mark == OPENED or COMPARED.fullmatch(block.mark), f"line {block.line}"


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    """Protects readers who copy a command: scripts are there, subcommands and options are known, extras too."""
    extras = known_extras()
    for command in commands(page):
        program, *words = command.split()
        if program.startswith(("scripts/", "benches/", ".ci/")):
            assert (ROOT / program).is_file(), command
            own = (ROOT / program).read_text(encoding="utf-8")
            passed_on = program == "scripts/run_demo.sh"
            known = test_public_api.options_of("demo") if passed_on else re.findall(r"--[a-z][a-z-]*", own)
            assert {word for word in words if word.startswith("--")} <= set(known), command
        elif program == "python" and words[0].endswith(".py"):
            assert (ROOT / words[0]).is_file(), command
            own = (ROOT / words[0]).read_text(encoding="utf-8")
            assert all(word in own for word in words if word.startswith("--")), command
        elif "shapetrace_rs" in words or program == "shapetrace":
            of_us = words[words.index("shapetrace_rs") + 1 :] if "shapetrace_rs" in words else words
            if of_us[0].startswith("--"):
                assert of_us[0] in test_public_api.options_of(""), command
                continue
            assert of_us[0] in test_public_api.commands(), command
            ours = []
            for word in of_us[1:]:
                if word == "-m" or word.endswith(".py"):
                    break  # what follows is the program's
                ours.append(word)
            assert {word for word in ours if word.startswith("--")} <= set(test_public_api.options_of(of_us[0])), (
                command
            )
        for names in re.findall(r"(?:shapetrace-rs|\.)\[([\w,]+)\]", command):
            assert set(names.split(",")) <= extras, command


def test_the_page_of_the_command_line_has_all_of_it() -> None:
    """Protects the page from falling behind: each command and option is on it, and no other."""
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL))
    assert set(sections) == set(test_public_api.commands()) - {""}
    for command, section in sections.items():
        mentioned = set(re.findall(r"`(?:-\w \w+`, `)?(--[a-z][a-z-]*)", section))
        real = set(test_public_api.options_of(command)) - {"--help"}
        assert real <= mentioned, command
        assert mentioned <= real | {"--version"} | set(re.findall(r"demo (--help)", section)), command


@pytest.mark.parametrize("page", ["README.md", "docs/drop-in.md"])
def test_the_tables_of_options_have_all_of_them(page: str) -> None:
    """Protects the tables of options, and their defaults, from falling behind."""
    source = (ROOT / page).read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", source, flags=re.MULTILINE))
    options = shapetrace_rs.OptimizeOptions()
    fields = type(options).__dataclass_fields__
    assert {name: rows.get(name) for name in fields} == {
        name: f'"{value}"' if isinstance(value := getattr(options, name), str) else repr(value) for name in fields
    }


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_what_is_named_exists(page: Path) -> None:
    """Protects readers from dead ends: files that are linked or named are there."""
    source = page.read_text(encoding="utf-8")
    prose = BLOCK.sub("", source)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), target
    for name in re.findall(r"`((?:scripts|benches|tests|docs|rust|python|\.ci)/[\w./-]+)`", prose):
        assert (ROOT / name).exists(), name


def test_the_extras_are_all_documented() -> None:
    """Protects the table of extras."""
    page = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\[(\w+)\]`", page)) == known_extras()


def test_every_page_is_in_the_menu() -> None:
    """Protects pages from being written and not found."""
    menu = set(
        re.findall(r"^  - .*: ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    assert menu == {page.name for page in PAGES} - {"README.md"}
