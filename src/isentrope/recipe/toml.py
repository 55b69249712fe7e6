"""Writing TOML that reads back as exactly the same values. Python reads TOML but doesn't write it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_key(key: str) -> str:
    """A key, quoted where it has to be."""
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def toml_value(value: Any) -> str:
    r"""One value on one line.

    >>> toml_value(5e-7), toml_value(float("inf")), toml_value([1, 8]), toml_value('a "b"\n')
    ('5e-07', 'inf', '[1, 8]', '"a \\"b\\"\\n"')

    Raises:
        TypeError: for a type TOML has no form for, ``None`` included.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key)} = {toml_value(item)}" for key, item in value.items()) + "}"
    raise TypeError(f"TOML has no form for {type(value).__name__} {value!r}")


def _string(text: str) -> str:
    # JSON escapes everything a basic TOML string has to escape, but for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
