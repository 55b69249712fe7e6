"""The page around the data: nothing a run holds can leave its place, and nothing but our own script runs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from isentrope.report.page import LIBRARY, SCRIPTS, STYLES, asset, embed, own_script, render

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!-- <script>",
    "]]>&lt;&amp;",
    "\x00 \x1b[2J",
    "\u202e\u2066 right to left",
    "\u2028\u2029",
    "\ud800 alone",
    "{{SCRIPT}} {{DATA}}",
    "x" * 1_000_000,
)


def data_of(page: str) -> Any:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:20]))
def test_a_text_comes_back_as_it_was_and_stays_in_its_element(text: str) -> None:
    page = render({"text": text, text: 1})
    empty = render({})
    assert data_of(page) == {"text": text, text: 1}
    for tag in ("<script", "</script", "<!--"):
        assert page.count(tag) == empty.count(tag), f"{tag} from the data"


def test_embedded_json_is_ascii_without_markup() -> None:
    text = embed({"key": "<>&\u2028\u2029\x00\ud800é"})
    assert text.isascii()
    assert not set("<>&") & set(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_has_no_word_for_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        embed({"value": value})


def test_the_policy_names_the_scripts_that_are_there_and_no_address() -> None:
    import base64
    import hashlib

    page = render({})
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    elements = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", page, re.DOTALL)
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in elements}
    assert len(elements) == 3
    assert hashes == allowed
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy


def test_the_page_loads_nothing() -> None:
    page = render({})
    ours = page.replace(asset(LIBRARY), "")
    assert not re.findall(
        r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//|@import|url\(|fetch\(|XMLHttpRequest|WebSocket", ours
    )
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|javascript:", page
    )


def test_assets_can_stand_in_a_page() -> None:
    for name in (*STYLES, LIBRARY, *SCRIPTS):
        text = asset(name)
        assert "</" not in text or name.endswith(".html"), f"{name} could end its element"
        assert "{{" not in text.replace("}}", "") or name not in ("report.html",), name
    assert own_script().startswith("(() => {")


def test_scripts_keep_to_the_house_rules() -> None:
    for name in (*SCRIPTS, "report.css"):
        lines = asset(name).splitlines()
        assert len(lines) <= 400, f"{name} has {len(lines)} lines"
