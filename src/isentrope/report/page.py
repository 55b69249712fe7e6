"""The page around the data: one HTML file with its styles, scripts and JSON, under a content security policy that knows them."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

STYLES = ("uplot/uPlot.min.css", "report.css")
LIBRARY = "uplot/uPlot.iife.min.js"
SCRIPTS = (
    "text.js",
    "figure.js",
    "drawing.js",
    "export.js",
    "series.js",
    "sections.js",
    "tables.js",
    "samples.js",
    "main.js",
)
"""In the order in which they run, inside one function: their names are nobody else's."""
ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
"""What could end a script element or begin a comment in it. JSON has these signs inside strings only."""


def render(data: Any) -> str:
    """The page that shows ``data``, whatever its texts hold."""
    style = "".join(asset(name) for name in STYLES)
    library, script = asset(LIBRARY), own_script()
    slots = {
        "POLICY": policy([library, script], [style]),
        "STYLE": style,
        "DATA": embed(data),
        "LIBRARY": library,
        "SCRIPT": script,
    }
    parts = asset("report.html").split("{{")
    page = [parts[0]]
    for part in parts[1:]:  # in one pass: what a slot is filled with is never searched for slots
        name, _, rest = part.partition("}}")
        page += [slots[name], rest]
    return "".join(page)


def embed(data: Any) -> str:
    """JSON that may stand inside a script element. ASCII only, so lone surrogates and null bytes are escapes too.

    >>> print(embed({"text": "</script><!--"}))
    {"text":"\\u003c/script\\u003e\\u003c!--"}

    Raises:
        ValueError: NaN or an infinity, which JSON doesn't have.
    """
    return json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":")).translate(ESCAPES)


def own_script() -> str:
    """Our scripts as one, which leaves no name behind."""
    return '(() => {\n"use strict";\n' + "\n".join(asset(name) for name in SCRIPTS) + "\n})();\n"


def asset(name: str) -> str:
    """A file of ``assets/``."""
    return (files("isentrope.report") / "assets" / name).read_text(encoding="utf-8").replace("\r\n", "\n")


def policy(scripts: list[str], styles: list[str]) -> str:
    """Only these scripts and styles run, nothing is loaded or sent, and no text can become markup (Trusted Types)."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))}",
            f"style-src {' '.join(map(_hash, styles))}",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
