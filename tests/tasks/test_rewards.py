from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isentrope.errors import RewardError
from isentrope.tasks import Problem, Score, Task, load_task
from isentrope.tasks.rewards import RewardedTask, load_reward, recognise, with_reward


class FakeTask:
    """Two problems, one of them a chat, and a check that is never to be asked."""

    name = "fake"
    evaluation: Sequence[Problem] = ()
    stop = ("\n",)

    def __init__(self, columns: Mapping[str, Any] | None = None) -> None:
        columns = {"level": 1, "answer": "raw 1"} if columns is None else columns
        chat = [{"role": "user", "content": "q"}]
        self.train: Sequence[Problem] = (
            Problem(problem_id=0, prompt="p", answer="1", columns=columns),
            Problem(problem_id=1, prompt=chat, answer="2", columns=columns),
        )

    def score(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        raise AssertionError("the reward function replaces the task's own check")


def rewarded(function: Callable[..., Any], columns: Mapping[str, Any] | None = None) -> RewardedTask:
    return RewardedTask(task=FakeTask(columns), reward=recognise(function, "f"))


def score(function: Callable[..., Any], completions: Sequence[str] = ("a", "b")) -> list[float]:
    task = rewarded(function)
    problems = [task.train[index % 2] for index in range(len(completions))]
    return [one.reward for one in task.score(problems, completions)]


def test_trl_arguments() -> None:
    seen: dict[str, Any] = {}

    def f(prompts: Any, completions: Any, **columns: Any) -> list[float]:
        seen.update(columns, prompts=prompts, completions=completions)
        return [0.5, 1]

    assert score(f) == [0.5, 1.0]
    assert seen == {
        "prompts": ["p", [{"role": "user", "content": "q"}]],
        "completions": ["a", [{"role": "assistant", "content": "b"}]],
        "level": [1, 1],
        "answer": ["raw 1", "raw 1"],
    }


def test_trl_functions_take_what_they_name() -> None:
    def f(completions: Any, level: Any, missing: Any = 7) -> list[float]:
        return [level[0] + missing] * len(completions)

    assert score(f) == [8.0, 8.0]
    task = rewarded(lambda completions, answer: [float(text) for text in answer], columns={})
    assert [one.reward for one in task.score(task.train, ["", ""])] == [1.0, 2.0], (
        "the answer where no column has that name"
    )


def test_a_column_some_rows_lack_is_none_there() -> None:
    task = rewarded(lambda completions, hint: [hint == ["x", None]] * 2, columns={})
    problems = [Problem(problem_id=0, prompt="p", answer="1", columns={"hint": "x"}), task.train[0]]
    assert [one.reward for one in task.score(problems, ["", ""])] == [1.0, 1.0]


def test_verl_arguments() -> None:
    seen: list[Any] = []

    def f(data_source: Any, solution_str: Any, ground_truth: Any, extra_info: Any = None) -> float:
        seen.append((data_source, solution_str, ground_truth, extra_info))
        return 0.25

    assert score(f) == [0.25, 0.25]
    assert seen[0] == ("fake", "a", "1", {"level": 1, "answer": "raw 1"})
    assert seen[1][1:3] == ("b", "2"), "a chat's completion is text in verl's signature"
    task = rewarded(f, columns={"data_source": "gsm8k", "extra_info": {"index": 5}})
    task.score(task.train, ["", ""])
    assert seen[-1] == ("gsm8k", "", "2", {"index": 5})


def test_verl_results() -> None:
    assert score(lambda solution_str, ground_truth: {"score": 0.5, "acc": True}) == [0.5, 0.5]
    task = rewarded(lambda solution_str: {"score": 0, "malformed": np.bool_(solution_str == "b")})
    assert [one.malformed for one in task.score(task.train, ["a", "b"])] == [False, True]
    with pytest.raises(RewardError, match=r"'f' gave a dictionary with the keys \['acc'\] for completion 0.*\"score\""):
        score(lambda solution_str: {"acc": 1.0})
    with pytest.raises(RewardError, match=r"gave nan .* for completion 0"):
        score(lambda solution_str: {"score": float("nan")})


@pytest.mark.parametrize(
    "value", [True, 1, 1.0, np.float32(1), np.float64(1), np.int64(1), np.bool_(True), np.array(1.0), Fraction(1)]
)
def test_numbers_of_every_kind(value: Any) -> None:
    assert score(lambda completions: [value, 0]) == [1.0, 0.0]
    (one, _) = score(lambda solution_str: value)
    assert type(one) is float


def test_arrays_and_tensors_are_lists() -> None:
    assert score(lambda completions: np.array([0.5, 1.0])) == [0.5, 1.0]
    assert score(lambda completions: (0.5, 1.0)) == [0.5, 1.0]
    torch = pytest.importorskip("torch", reason="tensors need torch")
    assert score(lambda completions: torch.tensor([0.5, 1.0])) == [0.5, 1.0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "gave nan (float) for completion 1"),
        (float("inf"), "gave inf (float) for completion 1"),
        (-float("inf"), "gave -inf"),
        (np.float32("nan"), "(float32) for completion 1"),
        (10**400, "(int) for completion 1"),
        (None, "In TRL None says that the function doesn't apply"),
        ("1.0", "A text is not a number"),
        (b"1", "A text is not a number"),
        (1j, "gave 1j (complex)"),
        ([1.0], "gave [1.0] (list)"),
        (np.array([1.0]), "(ndarray) for completion 1"),
        (object, "(type) for completion 1"),
    ],
)
def test_what_is_no_finite_number(value: Any, words: str) -> None:
    with pytest.raises(RewardError, match=re.escape(words)) as error:
        score(lambda completions: [1.0, value])
    assert "reward function 'f'" in str(error.value) and "Return one finite number" in str(error.value)
    with pytest.raises(RewardError, match="for completion 1"):
        score(lambda solution_str: value if solution_str == "b" else 0.0)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ([1.0], "gave [1.0] (list of length 1) for 2 completions. Return a list of 2 numbers"),
        ([], "(list of length 0)"),
        ([1.0, 2.0, 3.0], "(list of length 3)"),
        ("10", "gave '10' (str)"),
        (1.0, "gave 1.0 (float)"),
        (None, "gave None (NoneType)"),
        ({0: 1.0, 1: 1.0}, "(dict)"),
        ({1.0, 2.0}, "(set)"),
        ((x for x in (1.0, 2.0)), "(generator)"),
        (np.array(1.0), "(ndarray)"),
        (np.zeros((1, 2)), "(ndarray of length 1)"),
    ],
)
def test_a_batch_needs_one_number_each(result: Any, words: str) -> None:
    with pytest.raises(RewardError, match=re.escape(words)):
        score(lambda completions: result)


def test_a_function_that_raises() -> None:
    def f(solution_str: str) -> float:
        return float(solution_str)

    with pytest.raises(RewardError, match=r"'f' raised ValueError\(.*on completion 1, 'not a number'") as error:
        score(f, ["1", "not a number"])
    assert isinstance(error.value.__cause__, ValueError)
    with pytest.raises(RewardError, match=r"'f' raised ZeroDivisionError\(.*on a batch of 2 completions"):
        score(lambda completions: [1 / 0])
    with pytest.raises(RewardError) as long:
        score(f, ["1", "x" * 100_000])
    assert len(str(long.value)) < 1000 and isinstance(long.value.__cause__, ValueError)


def test_an_interrupt_is_not_swallowed() -> None:
    def f(solution_str: str) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(f)


def test_no_completion_no_call() -> None:
    assert rewarded(lambda completions: 1 / 0).score([], []) == []


def positional(completions: Any, /) -> list[float]:
    return []


async def coroutine(completions: Any) -> list[float]:
    return []


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda prompt, response: 0.0, "(prompt, response), isn't recognised: it has neither 'completions' nor"),
        (lambda *args, **kwargs: 0.0, "it has neither"),
        (lambda completions, solution_str: 0.0, "it has 'completions' and 'solution_str'"),
        (positional, "it has neither"),
        (max, "tells no signature"),
        (coroutine, "is async"),
    ],
)
def test_signatures_that_are_not_recognised(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(RewardError, match=re.escape(words)) as error:
        recognise(function, "f")
    if "async" not in words:
        assert "as in TRL" in str(error.value) and "as in verl" in str(error.value)


def test_a_positional_only_parameter_beside_the_names() -> None:
    def f(prompts: Any, /, completions: Any) -> list[float]:
        return []

    with pytest.raises(RewardError, match="positional-only"):
        recognise(f, "f")


REWARDS = """
from dataclasses import dataclass

@dataclass
class Config:
    weight: "float" = 2.0

def good(completions, **columns):
    return [Config().weight for _ in completions]

def needs_ids(completions, completion_ids):
    return [0.0 for _ in completions]

def verl(data_source, solution_str, ground_truth, extra_info, tokenizer):
    return 0.0

number = 5
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "my rewards.v1.py"
    path.write_text(REWARDS)
    return str(path)


def test_a_function_of_a_file(file: str) -> None:
    task = with_reward(FakeTask(), f"{file}:good")
    assert isinstance(task, Task)
    assert (task.name, task.stop, len(task.train), len(task.evaluation)) == ("fake", ("\n",), 2, 0)
    assert task.score(task.train, ["", ""]) == [Score(reward=2.0, malformed=False)] * 2
    assert load_task("larger_number", reward=f"{file}:good").score([], []) == []


def test_a_function_of_a_module(tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "reward_package_for_the_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text(REWARDS)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_reward("reward_package_for_the_test.rules:good").signature == "trl"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("goood", "'goood' doesn't exist in .* It has: .*good.* Did you mean 'good'"),
        ("number", "'number' is not a function"),
        ("needs_ids", "needs the argument 'completion_ids', which this task doesn't give. It gives: .*level"),
        ("verl", "needs the argument 'tokenizer'.* It gives: data_source, solution_str, ground_truth, extra_info"),
        ("good()", "has to be package.module:function or path/file.py:function"),
        ("", "has to be package.module:function"),
    ],
)
def test_wrong_functions_of_a_file(file: str, name: str, words: str) -> None:
    with pytest.raises(RewardError, match=words):
        with_reward(FakeTask(), f"{file}:{name}")


@pytest.mark.parametrize("spec", ["good", ":good", "rewards.py", "os.system('x')"])
def test_wrong_forms(spec: str) -> None:
    with pytest.raises(RewardError, match=r"has to be package.module:function or path/file.py:function"):
        load_reward(spec)


def test_files_and_modules_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RewardError, match=r"the file 'nowhere.py' doesn't exist"):
        load_reward("nowhere.py:f")
    Path("broken.py").write_text("def f(:\n")
    with pytest.raises(RewardError, match=r"running the file 'broken.py' raised SyntaxError"):
        load_reward("broken.py:f")
    Path("raising.py").write_text("1 / 0\n")
    with pytest.raises(RewardError, match=r"running the file 'raising.py' raised ZeroDivisionError"):
        load_reward("raising.py:f")
    Path("beside_the_recipe.py").write_text(REWARDS)
    with pytest.raises(RewardError, match=r"ModuleNotFoundError.*There is a file beside_the_recipe.py"):
        load_reward("beside_the_recipe:good")
    with pytest.raises(RewardError, match="importing the module 'no_such_module_anywhere' raised"):
        load_reward("no_such_module_anywhere:f")
    with pytest.raises(RewardError, match=r"importing the module '..relative' raised"):
        load_reward("..relative:f")
