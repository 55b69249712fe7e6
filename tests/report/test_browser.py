"""The page in a real browser. Without a Chromium these tests are skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isentrope.report import build_report
from tests.report.test_page import HOSTILE
from tests.support.browser import NAMES, Page, find_browser, open_browser
from tests.support.run_folders import sample_rows, write_run

SECONDS = 3.0
LARGEST = 15e6
pytestmark = pytest.mark.skipif(find_browser() is None, reason=f"none of {', '.join(NAMES)} is installed")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    browser = find_browser()
    assert browser is not None
    with open_browser(browser) as page:
        page.resize(1280, 900)
        page.call("Performance.enable")
        yield page


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds and a steered run, with samples."""
    folder = tmp_path_factory.mktemp("runs")
    texts = ["the answer is 3", "it is 4", "cut here", "so many words here", "the answer is 3"]
    rollouts = {
        0: sample_rows(texts),
        9: [*sample_rows(texts), *sample_rows(["yes", "yes"], prompt="Is 2 even?", group=1)],
    }
    paths = [
        write_run(folder / f"grpo_s{seed}", seed=seed, evaluations=[0, 40], rollouts=rollouts if seed == 0 else None)
        for seed in range(3)
    ]
    paths.append(write_run(folder / "steered", schedule="constant", evaluations=[40]))
    return build_report(paths, folder / "report.html").path


@pytest.fixture
def opened(page: Page, report: Path) -> Iterator[Page]:
    page.problems.clear()
    page.requests.clear()
    page.resize(1280, 900)
    page.prefer("light")
    page.open(report)
    page.run("localStorage.clear()")
    yield page
    assert page.problems == []
    assert page.requests == [report.resolve().as_uri()]


def legend(page: Page, figure: str) -> list[str]:
    names: list[str] = page.run(
        f"[...document.querySelectorAll('[data-figure={figure}] .keys > span')].map(n => n.textContent)"
    )
    return names


def choose(page: Page, element: str, value: str, event: str = "change") -> None:
    node = f"document.getElementById({json.dumps(element)})"
    page.run(f"({node}.value = {json.dumps(value)}, {node}.dispatchEvent(new Event('{event}')), true)")


def samples(page: Page) -> list[str]:
    texts: list[str] = page.run("[...document.querySelectorAll('.sample .text')].map(n => n.textContent)")
    return texts


def test_every_figure_is_drawn_without_a_complaint(opened: Page) -> None:
    opened.run("dispatchEvent(new Event('beforeprint'))")
    figures = opened.run(
        "[...document.querySelectorAll('figure')].map(n => [n.dataset.figure, n.querySelectorAll('canvas').length])"
    )
    drawn = {name for name, canvases in figures if canvases}
    assert drawn == {name for name, _ in figures}
    assert {"entropy", "reward", "pass", "flow", "value", "law", "forecast", "time", "parallelogram", "any"} <= drawn


def test_the_theme_is_the_systems_until_it_is_chosen(opened: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = opened.run(background)
    opened.prefer("dark")
    dark = opened.run(background)
    assert light != dark
    picture = "document.querySelector('[data-figure=entropy] canvas').toDataURL()"
    before = opened.run(picture)
    opened.run("document.getElementById('theme').click()")
    assert opened.run(background) == light
    assert opened.run(picture) != before
    opened.run("document.getElementById('theme').click()")
    assert opened.run(background) == dark


def test_runs_are_hidden_and_seeds_taken_apart(opened: Page) -> None:
    assert legend(opened, "reward") == ["grpo (3 seeds)", "steered"]
    choose(opened, "seeds", "each")
    assert legend(opened, "reward") == ["grpo_s0", "grpo_s1", "grpo_s2", "steered"]
    opened.run("document.querySelector('.chip').click()")
    assert legend(opened, "entropy") == ["steered", "target of steered"]
    assert opened.run("document.querySelector('.chip').getAttribute('aria-pressed')") == "false"


def test_samples_are_filtered_searched_and_coloured(opened: Page) -> None:
    assert samples(opened) == ["the answer is 3", "it is 4", "cut here", "so many words here", "yes", "yes"]
    assert opened.run("document.querySelector('.verdict').textContent") == "reward 0 × 2"
    choose(opened, "sample-reward", "best")
    assert samples(opened) == ["it is 4", "so many words here", "yes"]
    choose(opened, "sample-reward", "all")
    choose(opened, "sample-search", "EVEN?", "input")
    assert samples(opened) == ["yes", "yes"]
    assert opened.run("document.querySelector('.prompt mark').textContent") == "even?"
    choose(opened, "sample-search", ".*", "input")
    assert samples(opened) == [] and "No sample" in opened.run("document.getElementById('samples').textContent")
    choose(opened, "sample-search", "", "input")
    choose(opened, "sample-kind", "cut")
    assert samples(opened) == ["cut here"]
    choose(opened, "sample-kind", "all")
    opened.run("document.querySelector('.stepper button').click()")
    assert opened.run("document.querySelectorAll('.group').length") == 1
    colours = "JSON.stringify([...document.querySelectorAll('.token')].map(n => n.style.backgroundColor))"
    seen = {opened.run(colours)}
    for measure in ("flow", "covariance", "logp"):
        choose(opened, "sample-measure", measure)
        seen.add(opened.run(colours))
    assert len(seen) == 4
    choose(opened, "sample-measure", "none")
    assert opened.run("document.querySelectorAll('.token').length") == 0


def saved(page: Page, figure: str, button: str) -> dict[str, Any]:
    """What a button of a figure saves."""
    page.call("Browser.setDownloadBehavior", behavior="deny")
    result: dict[str, Any] = page.run(
        "new Promise(done => { const make = URL.createObjectURL; URL.createObjectURL = blob => { URL.createObjectURL = make;"
        "blob.arrayBuffer().then(bytes => done({type: blob.type, size: blob.size, text: new TextDecoder().decode(bytes)}));"
        f"return make(blob); }}; [...document.querySelectorAll('[data-figure={figure}] button')]"
        f".find(n => n.textContent === '{button}').click(); }})"
    )
    return result


def test_a_figure_is_saved_as_numbers_and_as_a_picture(opened: Page) -> None:
    table = saved(opened, "entropy", "CSV")
    lines = table["text"].splitlines()
    assert table["type"].startswith("text/csv")
    assert lines[0] == 'series,step,"nats/token, mean over the tokens of a rollout",low,high'
    assert len(lines) == 1 + 3 * 40  # the mean of the seeds, the steered run, its target
    assert lines[1].startswith("grpo (3 seeds),0,0.6")
    picture = saved(opened, "entropy", "PNG")
    assert picture["type"] == "image/png" and picture["size"] > 5_000


def test_a_spreadsheet_gets_no_formula(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", name='=HYPERLINK("x")', steps=3)
    page.open(build_report([run], tmp_path / "report.html").path)
    assert '\n"\'=HYPERLINK(""x"")",0,' in saved(page, "entropy", "CSV")["text"]


def test_arrow_keys_read_values_aloud(opened: Page) -> None:
    opened.run("document.querySelector('[data-figure=entropy] .plot').focus()")
    opened.press("ArrowRight")
    opened.press("ArrowRight")
    said = opened.run("document.getElementById('live').textContent")
    assert said.startswith("step 1: grpo (3 seeds) 0.") and "steered 0." in said
    opened.press("End")
    assert opened.run("document.getElementById('live').textContent").startswith("step 39: ")


def test_the_pointer_shows_values(opened: Page) -> None:
    over = "document.querySelector('[data-figure=entropy] .u-over')"
    opened.run(f"{over}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    x, y, width, height = opened.run(f"(b => [b.x, b.y, b.width, b.height])({over}.getBoundingClientRect())")
    for aside in (0, 2, 4):
        opened.point(x + width / 2 + aside, y + height / 2)
        opened.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    tip = opened.run("(n => n.hidden ? '' : n.textContent)(document.querySelector('[data-figure=entropy] .tip'))")
    assert tip.startswith("step ") and "target of steered" in tip


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_nothing_is_wider_than_the_screen(opened: Page, width: int) -> None:
    opened.resize(width, 900, mobile=width < 700)
    opened.run("dispatchEvent(new Event('beforeprint'))")
    assert opened.run("document.documentElement.scrollWidth") <= width


def test_hostile_texts_are_texts(page: Page, tmp_path: Path) -> None:
    text = '</script><script>window.hacked = 1</script><img src=x onerror="window.hacked = 1"><b>bold</b>'
    rows = [*sample_rows([text, *HOSTILE]), *sample_rows([text], prompt=text, answer=text, group=1, tokens=False)]
    run = write_run(tmp_path / "run", name=text, steps=6, rollouts={0: rows}, change=lambda line: {**line, text: 1.0})
    page.problems.clear()
    page.open(build_report([run], tmp_path / "report.html").path)
    page.run("dispatchEvent(new Event('beforeprint'))")
    for measure in ("entropy", "none"):
        choose(page, "sample-measure", measure)
        shown = samples(page)
        assert text in shown[0] and len(shown) == len(rows)
        assert any("U+202E" in each for each in shown) and any("U+D800" in each for each in shown)
    assert any("984,000 characters left out" in each or "992,000 characters left out" in each for each in samples(page))
    assert page.run("typeof window.hacked") == "undefined"
    assert page.run("document.querySelectorAll('img, b:not(.tip b), main script').length") == 0
    assert page.problems == []


def test_three_runs_of_two_thousand_steps_open_at_once(page: Page, tmp_path: Path) -> None:
    rows = [row for group in range(8) for row in sample_rows(["a word " * 100] * 8, group=group)]
    paths = [
        write_run(tmp_path / f"run_s{seed}", steps=2000, seed=seed, rollouts=dict.fromkeys(range(0, 2000, 200), rows))
        for seed in range(3)
    ]
    report = build_report(paths, tmp_path / "report.html")
    assert 2e6 < report.size < LARGEST
    page.open(report.path)
    metrics = {each["name"]: each["value"] for each in page.call("Performance.getMetrics")["metrics"]}
    assert metrics["ThreadTime"] < SECONDS, (
        "seconds of the page's own thread: those of a clock depend on what else runs"
    )


def test_the_colours_have_contrast(opened: Page) -> None:
    script = (
        "['ink', 'soft', 'card', 'page', 'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'good', 'bad', 'accent'].map(n => "
        "[n, getComputedStyle(document.documentElement).getPropertyValue('--' + n).trim()])"
    )
    for theme in ("light", "dark"):
        opened.prefer(theme)
        colours = dict(opened.run(script))
        for name in ("ink", "soft", "good", "bad", "accent"):
            assert min(contrast(colours[name], colours[ground]) for ground in ("card", "page")) >= 4.5, (theme, name)
        for name in (f"c{place}" for place in range(8)):
            assert contrast(colours[name], colours["card"]) >= 3.0, (theme, name)


def contrast(one: str, other: str) -> float:
    """WCAG 2's contrast ratio of two colours `#rrggbb`."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)
