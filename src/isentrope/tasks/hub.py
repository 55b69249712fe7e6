"""Rows of a data set on the hub, or of a folder that is laid out like one, through the `datasets` library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from isentrope.errors import MissingDependencyError, TaskError


def hub_rows(source: str, config: str | None, split: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where, row) of each row. ``source`` is a hub name, or the path of a folder with data files.

    Raises:
        MissingDependencyError: `datasets` isn't installed.
        TaskError: it can't be fetched (no network, no access, no such name) or has no such configuration or split.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingDependencyError(
            f"reading {source!r} needs the package datasets, which isn't installed. Install it with: "
            "pip install 'isentrope[hub]'"
        ) from error
    bars = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        table = datasets.load_dataset(source, config, split=split)
    # The library raises whatever its HTTP client, file system and builders raise; all of it is about this one source.
    except Exception as error:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        raise TaskError(
            f"the data set {source!r} (configuration {config or 'default'}, split {split}) can't be loaded: "
            f"{type(error).__name__}: {first}"
        ) from error
    finally:
        if bars:
            datasets.enable_progress_bars()
    return ((f"row {number}", row) for number, row in enumerate(table, start=1))
