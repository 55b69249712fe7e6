"""Experiment trackers beside ``metrics.jsonl``, which is always written.

To add one: a class with :class:`Tracker`'s methods whose ``__init__`` imports its package through :func:`require`, and a line in
``TRACKERS`` and in the recipe's schema.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from isentrope.errors import MissingDependencyError, RecipeError


class Tracker(Protocol):
    """Takes the metrics of each step."""

    def __init__(self, folder: Path, config_text: str) -> None:
        """
        Args:
            folder: the run's; its name is the run's name.
            config_text: the resolved recipe, TOML.

        Raises:
            MissingDependencyError: the package isn't installed.
        """
        ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in the run's folder, under ``tensorboard/``. A resumed run hides the events of the steps it makes again."""

    def __init__(self, folder: Path, config_text: str) -> None:
        require("tensorboard", "tensorboard", "tensorboard")
        self._module = require("torch.utils.tensorboard", "tensorboard", "tensorboard")
        self._folder, self._config_text = folder / "tensorboard", config_text
        self._writer: Any = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._writer is None:  # only the first step tells from where on older events are void
            self._writer = self._module.SummaryWriter(str(self._folder), purge_step=step)
            self._writer.add_text("recipe", f"```toml\n{self._config_text}\n```", step)
        for key, value in metrics.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class WandB:
    """Weights & Biases, project ``isentrope`` unless ``WANDB_PROJECT`` says otherwise; its other variables hold as well.

    A resumed run goes on in the same W&B run, which keeps the first value of a step that is made again.
    """

    def __init__(self, folder: Path, config_text: str) -> None:
        import os

        wandb = require("wandb", "wandb", "wandb")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "isentrope"),
            name=folder.name,
            id=run_id(folder, config_text),
            resume="allow",
            dir=str(folder),
            config=tomllib.loads(config_text),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class Trackio:
    """trackio, project ``isentrope``, kept on this machine. Steps that a resumed run makes again are there twice."""

    def __init__(self, folder: Path, config_text: str) -> None:
        self._trackio = require("trackio", "trackio", "trackio")
        self._trackio.init(
            project="isentrope",
            name=f"{folder.name}-{run_id(folder, config_text)[:6]}",
            resume="allow",
            config=tomllib.loads(config_text),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._trackio.log(dict(metrics), step=step)

    def close(self) -> None:
        self._trackio.finish()


TRACKERS: dict[str, type[Tracker]] = {
    "tensorboard": TensorBoard,
    "trackio": Trackio,
    "wandb": WandB,
}


class Trackers:
    """The trackers of a run, as one. A context that closes them."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Hand on the numbers among the metrics: a tracker has no place for what is None or text."""
        numbers = {
            key: float(value)
            for key, value in metrics.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and key != "step"
        }
        for tracker in self._trackers:
            tracker.log(step, numbers)

    def close(self) -> None:
        with ExitStack() as stack:
            for tracker in self._trackers:
                stack.callback(tracker.close)

    def __enter__(self) -> Trackers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def open_trackers(names: Sequence[str], folder: Path, config_text: str) -> Trackers:
    """The named trackers of a run.

    Args:
        names: keys of ``TRACKERS``.
        folder: the run's.
        config_text: the resolved recipe, TOML.

    Raises:
        RecipeError: an unknown name.
        MissingDependencyError: a package that isn't installed; the message says what to install.
    """
    unknown = sorted(set(names) - TRACKERS.keys())
    if unknown:
        raise RecipeError(f"output.trackers holds {unknown[0]!r}; allowed are {', '.join(TRACKERS)}")
    opened: list[Tracker] = []
    try:
        for name in names:
            opened.append(TRACKERS[name](folder, config_text))
    except BaseException:
        Trackers(opened).close()
        raise
    return Trackers(opened)


def require(module: str, package: str, tracker: str) -> Any:
    """The module, or MissingDependencyError with the command that installs its package."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"output.trackers asks for {tracker!r}, and {package} can't be imported ({error}): `pip install {package}`, or leave "
            "it out; metrics.jsonl is written in any case"
        ) from error


def run_id(folder: Path, config_text: str) -> str:
    """The same for a run and its resumptions, wherever its folder is moved; another for every other run."""
    try:
        created = json.loads((folder / "manifest.json").read_bytes())["created"]
    except (OSError, ValueError, KeyError):
        created = str(folder.resolve())
    return hashlib.sha256(f"{created}\n{config_text}".encode()).hexdigest()[:12]
