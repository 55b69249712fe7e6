"""The run folder of a TRL run, and what a TRL checkpoint holds for it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from isentrope.errors import RunFolderError
from isentrope.integrations.trl.rows import Table, informative
from isentrope.training.manifest import make_manifest
from isentrope.training.run_folder import RunFolder

logger = logging.getLogger(__name__)

STATE_FILE = "isentrope.json"
"""In a TRL checkpoint, beside trainer_state.json."""
FOLDER = "isentrope"
"""Run folder inside TRL's output_dir; the second run there is isentrope-2."""
ENGINE = "engine"
"""Key of the manifest that says what trained the run."""


@dataclass(kw_only=True)
class RunState:
    """What a checkpoint holds of us."""

    step: int = 0
    """Rollouts learned from."""
    sequences: int = 0
    """Sequences sampled: the id of the next."""
    entropy: float | None = None
    """`entropy/mean` of the last finished step."""
    flow: Sequence[float | None] = (None, None, None)
    """``FLOWS`` of the last finished step."""
    control: dict[str, Any] | None = None
    """Of the target and its controller."""
    control_step: int = -1
    """The step that ``control`` was last advanced for: a rollout sampled anew doesn't advance it twice."""
    control_line: dict[str, Any] | None = None
    """Metrics of that step's control."""
    folder: str | None = None
    """The run folder, relative to TRL's output_dir where it lies in it."""

    def save(self, checkpoint: Path) -> None:
        (checkpoint / STATE_FILE).write_text(json.dumps(asdict(self), allow_nan=False, indent=2), encoding="utf-8")

    @classmethod
    def load(cls, checkpoint: Path) -> RunState | None:
        """The state in a checkpoint; None where TRL saved it without us.

        Raises:
            RunFolderError: a damaged file.
        """
        path = checkpoint / STATE_FILE
        if not path.is_file():
            return None
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise RunFolderError(
                f"{path} can't be read ({error}): the schedule and the controller can't go on from this checkpoint. Resume from "
                "another one"
            ) from error


class Journal:
    """Writes the run folder, on the main process alone; elsewhere, and without a folder, every method does nothing."""

    def __init__(self, output_dir: str | None, folder: str | Path | bool | None, *, main: bool) -> None:
        """``folder``: None for one inside ``output_dir``, False for none."""
        self.output_dir = Path(output_dir or ".")
        self.wanted = folder
        self.enabled = main and folder is not False
        self._folder: RunFolder | None = None

    def begin(self, state: RunState, *, resumed: bool, config_text: str, seed: int, device: str) -> None:
        """A new folder, or the one of the checkpoint without what came after it. Its place goes into ``state``."""
        if self.wanted is False:
            return
        path = self._place(state, resumed=resumed)
        inside = path.is_relative_to(self.output_dir)
        state.folder = str(path.relative_to(self.output_dir)) if inside else str(path)
        if not self.enabled:
            return
        manifest = _manifest(seed, device)
        if resumed and (path / "config.toml").is_file():
            self._folder = RunFolder.open(path)
            self._folder.truncate_to(state.step)
            for note in self._folder.record_resume(state.step, manifest):
                logger.warning("%s: %s", path, note)
        else:
            self._folder = RunFolder.create(path, config_text=config_text, manifest=manifest)

    @property
    def path(self) -> Path | None:
        """The folder that is being written; None elsewhere than on the main process."""
        return None if self._folder is None else self._folder.path

    def _place(self, state: RunState, *, resumed: bool) -> Path:
        if self.wanted is not None and self.wanted is not True:
            return Path(str(self.wanted)).expanduser()
        if resumed and state.folder is not None:
            return self.output_dir / state.folder
        names = (FOLDER, *(f"{FOLDER}-{number}" for number in range(2, 10_000)))
        return next(path for name in names if not (path := self.output_dir / name).exists())

    def append(self, line: Mapping[str, Any], rows: Iterator[Mapping[str, Any]]) -> None:
        if self._folder is not None:
            self._folder.write_rollouts(line["step"], rows)
            self._folder.append_metrics(line)

    def append_evaluation(self, line: Mapping[str, Any]) -> None:
        if self._folder is not None:
            self._folder.append_evaluation(line)

    def close(self) -> None:
        if self._folder is not None:
            self._folder.close()
            self._folder = None


def _manifest(seed: int, device: str) -> dict[str, Any]:
    manifest = make_manifest(seeds={"trl": seed}, device=device)
    for name in ("trl", "accelerate", "deepspeed", "vllm"):
        try:
            manifest["versions"][name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {ENGINE: "trl", **manifest}


def sample_rows(table: Table, texts: Mapping[str, Sequence[Any]], *, drop_uniform: bool) -> Iterator[dict[str, Any]]:
    """A line of ``rollouts/`` per sample, in the order of the sequence ids; ``texts`` is in that order too."""
    columns = {name: values.tolist() for name, values in table.items()}
    kept = informative(table["reward"], table["group"]).tolist()
    for row, sequence in enumerate(columns["sequence"]):
        tokens, reward = columns["tokens"][row], columns["reward"][row]
        yield {
            "group": int(columns["group"][row]),
            "sequence": int(sequence),
            **{name: values[row] for name, values in texts.items() if values[row] is not None},
            "reward": reward if math.isfinite(reward) else None,
            "finished": not columns["truncated"][row],
            "tokens": int(tokens),
            "entropy": columns["entropy"][row] / max(tokens, 1.0),
            "advantage": columns["advantage"][row],
            "kept": kept[row] or not drop_uniform,
        }
