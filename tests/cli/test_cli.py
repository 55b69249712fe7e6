"""The commands as a user types them: what they print, where, and their exit codes."""

from __future__ import annotations

import subprocess
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import isentrope
import isentrope.training
from isentrope.cli import main
from isentrope.errors import RunFolderError
from isentrope.recipe import PRESETS, Recipe, recipe_names


@dataclass
class Summary:
    stopped: bool = False
    folder: Path = Path("no/such/run")

    def __str__(self) -> str:
        return "a summary"


@dataclass
class FakeTraining:
    """In place of ``isentrope.training``: notes what it is asked for, trains nothing."""

    summary: Summary = field(default_factory=Summary)
    error: BaseException | None = None
    trained: list[tuple[Recipe, Path]] = field(default_factory=list)
    resumed: list[Path] = field(default_factory=list)

    def train(self, recipe: Recipe, folder: Path) -> Summary:
        self.trained.append((recipe, folder))
        return self._end()

    def resume(self, folder: Path) -> Summary:
        self.resumed.append(folder)
        return self._end()

    def _end(self) -> Summary:
        if self.error is not None:
            raise self.error
        return self.summary


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    fake = FakeTraining()
    module = types.ModuleType("isentrope.training")
    module.__dict__.update(train=fake.train, resume=fake.resume, __path__=isentrope.training.__path__)
    monkeypatch.setitem(sys.modules, "isentrope.training", module)
    return fake


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text('objective = "kl_cov"\nsteps = 100\n[update]\nlearning_rate = 3e-5\n')
    return path


def test_train_runs_the_recipe_with_its_overrides(
    training: FakeTraining, recipe_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(recipe_file), "steps=7", "objective.fraction=0.1"]) == 0
    ((recipe, folder),) = training.trained
    assert (recipe.steps, recipe.objective.settings["fraction"]) == (7, 0.1)
    assert folder == Path("runs/mine")
    assert capsys.readouterr().out == "a summary\n"


@pytest.mark.parametrize(
    "words",
    [
        ["steps=7", "--engine", "local", "seed=2"],
        ["--engine", "local", "steps=7", "seed=2"],
        ["--engine=local", "steps=7", "seed=2"],
    ],
)
def test_overrides_may_stand_on_either_side_of_options(
    training: FakeTraining, recipe_file: Path, words: list[str]
) -> None:
    assert main(["train", str(recipe_file), *words]) == 0
    ((recipe, _),) = training.trained
    assert (recipe.steps, recipe.seed) == (7, 2)


def test_a_small_model_at_a_large_models_rate_is_said_beforehand(
    training: FakeTraining, recipe_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(recipe_file), "update.learning_rate=default"]) == 0
    assert "note: update.learning_rate = 5e-07" in capsys.readouterr().err


def test_resume_goes_on_in_the_runs_folder(training: FakeTraining, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("")
    assert main(["resume", str(tmp_path)]) == 0
    assert training.resumed == [tmp_path]


def test_a_run_that_was_stopped_exits_as_interrupted(training: FakeTraining, recipe_file: Path) -> None:
    training.summary = Summary(stopped=True)
    assert main(["train", str(recipe_file)]) == 130


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (RunFolderError("the disk is full"), 2, "isentrope: the disk is full"),
        (KeyboardInterrupt(), 130, "isentrope: interrupted"),
    ],
)
def test_an_expected_end_is_a_message_and_an_exit_code(
    training: FakeTraining,
    recipe_file: Path,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    words: str,
) -> None:
    training.error = error
    assert main(["train", str(recipe_file)]) == code
    assert capsys.readouterr().err.strip() == words


def test_a_fault_of_ours_keeps_its_traceback(training: FakeTraining, recipe_file: Path) -> None:
    training.error = AssertionError("broken invariant")
    with pytest.raises(AssertionError, match="broken invariant"):
        main(["train", str(recipe_file)])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "quikstart"], "Did you mean quickstart?"),
        (["train", "quickstart", "steps"], "path=value"),
        (["train", "quickstart", "step=3"], "mean steps?"),
        (["train", "quickstart", "--engine", "trl", "rollout.refills=1"], "rollout.refills: TRL samples once"),
        (["train", "quickstart", "--engine", "verl"], "can't run with the engine verl"),
        (["resume", "no/such/run"], "no config.toml"),
    ],
)
def test_a_users_mistake_is_a_message_and_code_2(
    training: FakeTraining, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("isentrope: ")
    assert captured.out == ""
    assert not training.trained
    assert not training.resumed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required"),
        (["trian"], "invalid choice"),
        (["train"], "RECIPE"),
        (["train", "quickstart", "--engine", "ray"], "invalid choice"),
        (["train", "quickstart", "--dryrun"], "unrecognized arguments: --dryrun"),
        (["recipes", "steps=3"], "unrecognized arguments: steps=3"),
    ],
)
def test_a_command_that_does_not_exist_is_argparses_error(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_recipes_are_listed_with_their_summaries(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(recipe_names())
    assert all(len(line.split()) > 3 for line in lines)


def test_methods_are_listed_with_values_source_and_mark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    blocks = dict(block.split("\n", 1) for block in capsys.readouterr().out.split("\n\n"))
    assert list(blocks) == list(PRESETS)
    kl_cov = " ".join(blocks["kl_cov"].split())
    assert "fraction = 0.002, penalty = 1.0, clip_low = inf, clip_high = inf" in kl_cov
    assert "updates_per_rollout = 8" in kl_cov
    assert "arXiv 2505.22617" in kl_cov
    assert kl_cov.endswith("(exact)")


def test_python_dash_m_and_the_version() -> None:
    done = subprocess.run([sys.executable, "-m", "isentrope", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"isentrope {isentrope.__version__}\n"


def test_a_reader_that_has_enough_is_no_error() -> None:
    program = f"{sys.executable} -m isentrope methods | head -n 1"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "grpo\n"
    assert done.stderr == ""
