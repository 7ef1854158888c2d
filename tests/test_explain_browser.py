"""Reports in a real browser. Skipped where no Chromium is installed; the variable `CHROMIUM` may name one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import thunder
import torch

import shapetrace_rs
from browser import Browser, find_chromium
from shapetrace_rs import CallRecord, CallReport, OpReport, PassReport, Report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt-get install chromium)")

MANY = 20_000
HOSTILE = "</script><script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests: starting it takes longer than most of them."""
    assert CHROMIUM is not None
    started = Browser(CHROMIUM, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(autouse=True)
def _no_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test may leave an error in the console, and no page may ask for anything but itself."""
    browser = request.getfixturevalue("browser")
    browser.errors.clear()
    browser.requests.clear()
    browser.size(1400, 900)
    browser.colours("light")
    yield
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []


def project(x: Any, w: Any) -> Any:
    """A program full of shape arithmetic, with a dead op."""
    batch, length, width = x.shape
    y = torch.nn.functional.linear(x.reshape(-1, width), w)
    torch.sin(y)
    return y.reshape(batch, length, -1)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a real compile, full of shape arithmetic."""
    compiled = thunder.jit(project, cache="symbolic values")
    inputs = (torch.randn(2, 3, 4), torch.randn(5, 4, requires_grad=True))
    report: Report = shapetrace_rs.explain(compiled, inputs=inputs, compare=True)
    return report.save(tmp_path_factory.mktemp("report") / "report.html")


def made_report(ops: list[OpReport]) -> Report:
    """A report without any compile behind it."""
    removed = sum(op.removed for op in ops)
    record = CallRecord(
        module="thunder.core",
        function="made",
        line=1,
        provenance="",
        level="full",
        ops_in=len(ops),
        ops_out=len(ops) - removed,
        nested_in=0,
        nested_out=0,
        removed={"dead": removed},
        total_ns=1_000_000,
    )
    passes = [PassReport("A pass", 0, 0, len(ops), 0)]
    return Report("made", [CallReport(record, ops=ops)], passes=passes, compiles=["made"])


def made_op(index: int, **changes: Any) -> OpReport:
    """An op of a long chain, every fourth of them inside the one before it."""
    values: dict[str, Any] = {
        "index": index,
        "owner": None,
        "depth": 0,
        "name": "prims.add",
        "before": f"t{index} = prims.add(t{index - 1}, x)",
        "after": f"t{index} = prims.add(t{index - 1}, x)",
        "types": "cpu f32[8, 8]",
        "fate": "kept",
        "effect": False,
        "only_for_effect": False,
        "source": "model.py:12",
        "operands": (f"t{index - 1}", "x"),
        "results": (f"t{index}",),
    }
    if index % 4 == 3:
        values |= {"owner": index - 1, "depth": 1}
    if index % 7 == 5:
        values |= {"after": None, "fate": "dead"}
    return OpReport(**(values | changes))


def shown(browser: Browser) -> list[str]:
    """The text before, of each row in sight."""
    rows: list[str] = browser.run(
        "[...document.querySelectorAll('#rows .row')].sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)"
        ".map((row) => row.querySelector('.before .code').textContent)"
    )
    return rows


def text(browser: Browser, selector: str) -> str:
    """What an element says."""
    found: str = browser.run(f"document.querySelector({json.dumps(selector)}).textContent")
    return found


def focus(browser: Browser, selector: str) -> None:
    """Give an element the focus."""
    browser.run(f"document.querySelector({json.dumps(selector)}).focus()")


def test_a_report_opens_at_the_call_that_says_most(browser: Browser, page: Path) -> None:
    """Protects the first look: both sides, the reasons, the calls, the chart, without an error in the console."""
    browser.open(page)
    assert text(browser, "h1") == "project"
    assert "ops removed" in text(browser, "#summary")
    assert "grad_transform_on_trace" in text(browser, "#facts")
    assert "times as long" in text(browser, "#facts")
    assert "duplicate-query" in text(browser, "#reasons")
    struck = browser.run("getComputedStyle(document.querySelector('.row.removed .before .code')).textDecorationLine")
    assert struck == "line-through"
    assert browser.run("document.querySelector('.row.removed .after').textContent") == ""
    calls = browser.run("document.querySelectorAll('#calls button').length")
    assert calls > 5
    assert browser.run("document.querySelectorAll('#chart .call').length") == calls
    assert browser.run("document.querySelectorAll('#chart .pass').length") > 5


def test_reasons_are_told_on_hover_and_on_click(browser: Browser, page: Path) -> None:
    """Protects the answer to the question why a line is gone."""
    browser.open(page)
    hover = browser.run("document.querySelector('.row.removed').title")
    assert hover.startswith("Removed (duplicate-query): The same shape")
    browser.click(".row.removed .code")
    assert text(browser, "#details .fate") == hover
    assert "Read by" in text(browser, "#details")


def test_renamed_values_are_shown(browser: Browser, page: Path) -> None:
    """Protects readers from losing a number that has another name now."""
    browser.open(page)
    browser.click("#calls li:nth-child(4) button")
    browser.click("#open-all")
    renamed = browser.run("document.querySelector('.v.renamed').title")
    assert " is " in renamed
    assert renamed.endswith(" now")
    name = browser.run("document.querySelector('.row.changed .after .new').textContent")
    assert name
    browser.click(".row .v.renamed")
    assert renamed in text(browser, "#details")


def test_search_finds(browser: Browser, page: Path) -> None:
    """Protects the search box: it opens what is folded, marks what it finds, and goes on with Enter."""
    browser.open(page)
    browser.click("#calls li:nth-child(4) button")
    browser.click("#fold-all")
    assert not any("prims.reshape" in line for line in shown(browser))
    browser.key("/")
    browser.type("PRIMS.reshape")
    browser.wait("document.getElementById('found').textContent === '1 of 2'")
    browser.settle()
    assert any("prims.reshape" in line for line in shown(browser))
    assert browser.run("document.querySelector('.row.selected .hit').textContent") == "prims.reshape"
    browser.key("Enter")
    assert text(browser, "#found") == "2 of 2"
    browser.key("Enter", shift=True)
    assert text(browser, "#found") == "1 of 2"
    browser.type("no such thing")
    browser.wait("document.getElementById('found').textContent === 'no match'")
    browser.key("Escape")
    assert text(browser, "#found") == ""
    assert browser.run("document.activeElement.id") == "code"


def test_folding_folds(browser: Browser, page: Path) -> None:
    """Protects nested scopes, by mouse and by keyboard."""
    browser.open(page)
    browser.click("#calls li:nth-child(4) button")
    browser.click("#fold-all")

    def rows() -> int:
        return int(browser.run("document.getElementById('code').getAttribute('aria-rowcount')"))

    folded = rows()
    assert folded == len(shown(browser))
    assert "inside" in text(browser, ".row .badge")
    browser.click(".row[aria-expanded=false] .twisty")
    opened = rows()
    assert opened > folded
    browser.click(".row[aria-expanded=true] .twisty")
    assert rows() == folded
    focus(browser, "#code")
    browser.key("ArrowDown")
    while browser.run("document.querySelector('.row.selected').getAttribute('aria-expanded')") is None:
        browser.key("ArrowDown")
    browser.key("ArrowRight")
    assert rows() == opened
    browser.key("ArrowDown")
    assert browser.run("document.querySelector('.row.selected').ariaLevel") == "2"
    browser.key("ArrowLeft")
    browser.key("ArrowLeft")
    assert rows() == folded


def test_filters_show_what_was_asked_for(browser: Browser, page: Path) -> None:
    """Protects `only changes`, the single reasons, and the choice of a side."""
    browser.open(page)
    everything = len(shown(browser))
    browser.click("#reasons button[data-reason=redundant-query]")
    tags = browser.run("[...document.querySelectorAll('.row.removed .tag')].map((tag) => tag.textContent)")
    assert set(tags) == {"redundant-query"}
    browser.click("#reasons button[data-reason=redundant-query]")
    assert len(shown(browser)) == everything
    focus(browser, "#code")
    browser.key("c")
    assert browser.run("document.getElementById('changes').checked")
    assert not browser.run("document.querySelectorAll('.row:not(.removed):not(.changed):not([aria-expanded])').length")
    browser.run(
        "{ const v = document.getElementById('view'); v.value = 'after'; v.dispatchEvent(new Event('change')); }"
    )
    browser.settle()
    assert browser.run("document.querySelectorAll('.row.removed, .cell.before').length") == 0


def test_calls_are_chosen_by_key_and_in_the_chart(browser: Browser, page: Path) -> None:
    """Protects the way through a compile."""
    browser.open(page)
    browser.run("document.querySelector('#chart .call').dispatchEvent(new MouseEvent('click'))")
    assert "transform_for_execution" in text(browser, "#facts")
    assert browser.run("document.querySelector('#calls [aria-current=true]').dataset.call") == "0"
    browser.key("]")
    assert browser.run("document.querySelector('#calls [aria-current=true]').dataset.call") == "1"
    browser.key("[")
    assert browser.run("document.querySelector('#chart g.current').dataset.call") == "0"


def test_the_graph_shows_zooms_and_moves(browser: Browser, page: Path) -> None:
    """Protects the view of the data flow."""
    browser.open(page)
    browser.key("g")
    nodes = browser.run("document.querySelectorAll('#graph .node:not(.input)').length")
    assert nodes > 10
    assert browser.run("document.querySelectorAll('#graph .edge').length") > 10
    assert browser.run("document.querySelectorAll('#graph .node.removed').length") > 0

    def where() -> str:
        found: str = browser.run("document.getElementById('world').getAttribute('transform')")
        return found

    start = where()
    browser.click("#zoom-in")
    zoomed = where()
    assert zoomed != start
    browser.mouse("mouseWheel", 800, 600, deltaX=0, deltaY=-200)
    browser.wait(f"document.getElementById('world').getAttribute('transform') !== {json.dumps(zoomed)}")
    wheeled = where()
    browser.mouse("mousePressed", 500, 700)
    browser.mouse("mouseMoved", 560, 640)
    browser.mouse("mouseReleased", 560, 640)
    assert where().split("scale")[1] == wheeled.split("scale")[1]
    assert where() != wheeled
    focus(browser, "#graph")
    browser.key("0")
    browser.key("ArrowDown")
    assert where() != start
    browser.click("#zoom-fit")
    assert where() == start
    browser.click("#graph .node:not(.input) rect")
    assert browser.run("document.querySelectorAll('#graph .node.selected').length") == 1
    assert text(browser, "#details") != ""
    browser.key("g")
    assert browser.run("document.querySelectorAll('.row.selected').length") == 1


def test_light_and_dark(browser: Browser, page: Path) -> None:
    """Protects both: the system decides, the button overrules it, and text stands out from its ground."""
    browser.open(page)
    looks = (
        "(() => { const s = getComputedStyle(document.body);"
        " const light = (c) => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 765;"
        " return [light(s.backgroundColor), light(s.color)]; })()"
    )
    ground, ink = browser.run(looks)
    assert ground > 0.9
    assert ink < 0.3
    browser.colours("dark")
    ground, ink = browser.run(looks)
    assert ground < 0.2
    assert ink > 0.8
    browser.click("#theme")
    assert browser.run(looks)[0] > 0.9
    browser.click("#theme")
    browser.colours("light")
    assert browser.run(looks)[0] < 0.2
    browser.click("#theme")


def test_a_narrow_window_shows_the_code(browser: Browser, page: Path) -> None:
    """Protects readers on small screens."""
    browser.size(420, 800)
    browser.open(page)
    browser.click("#rows .row .code")
    assert browser.run("document.getElementById('code').clientHeight") > 300
    assert browser.run("document.documentElement.scrollWidth") <= 420


def test_names_of_programs_do_nothing(browser: Browser, tmp_path: Path) -> None:
    """Protects readers from what somebody wrote into a program, in every place that shows it."""
    ops = [
        made_op(0, before=f"t0 = f('{HOSTILE}')", after=None, fate="dead", name=HOSTILE, source=HOSTILE, types=HOSTILE),
        made_op(1, operands=(HOSTILE, "t0"), results=(HOSTILE,), after=f"t1 = g({HOSTILE})", fate="changed"),
    ]
    report = made_report(ops)
    report.title = HOSTILE
    report.notes.append(HOSTILE)
    report.compiles = [HOSTILE]
    report.passes = [PassReport(HOSTILE, 0, 0, 1, 1)]
    browser.open(report.save(tmp_path / "report.html"))
    assert text(browser, "h1") == HOSTILE
    for place in (1, 2):
        browser.click(f"#rows .row:nth-child({place}) .code")
        browser.key("g")
        browser.key("g")
    frame = tmp_path / "notebook.html"
    frame.write_text(
        "<!doctype html><html data-ready=true><meta charset=utf-8>"
        + report._repr_html_().replace("<details>", "<details open>")
    )
    assert "run" not in browser.run("document.title").replace(HOSTILE, "")
    browser.open(frame)
    browser.settle()
    assert browser.run("document.title") == ""
    assert browser.run("document.querySelectorAll('script, img').length") == 0


def test_many_ops_stay_quick(browser: Browser, tmp_path: Path) -> None:
    """Protects large traces: only rows in sight are in the page, and nothing makes a hand wait."""
    path = made_report([made_op(index) for index in range(MANY)]).save(tmp_path / "report.html")
    assert path.stat().st_size < 3_000_000
    assert browser.open(path) < 10
    assert browser.run("document.querySelectorAll('.row').length") < 150

    def milliseconds(action: str) -> float:
        took: float = browser.run(
            f"(async () => {{ const start = performance.now(); {action};"
            " await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));"
            " return performance.now() - start; })()"
        )
        return took

    # Machines of test services are slow and shared: these bounds are wide.
    assert milliseconds("document.getElementById('open-all').click()") < 1500
    assert milliseconds("document.getElementById('code').scrollTop = 200_000") < 1500
    assert milliseconds("document.getElementById('changes').click()") < 1500
    assert milliseconds("document.getElementById('tab-graph').click()") < 3000
    assert "15,000 ops, the 160 around" in text(browser, "#graph-path")
    browser.key("g")
    browser.key("/")
    browser.type(f"t{MANY - 1} ")
    browser.wait("document.getElementById('found').textContent === '1 of 1'", seconds=5)
    browser.settle()
    assert shown(browser)[-1].startswith(f"t{MANY - 1} ")
    assert browser.run("document.querySelectorAll('.row').length") < 150
