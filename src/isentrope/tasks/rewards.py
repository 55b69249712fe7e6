"""Reward functions of the user, in the signature TRL calls or the one verl calls.

    TRL    f(prompts, completions, **columns) -> list of numbers, one per completion
    verl   f(data_source, solution_str, ground_truth, extra_info) -> a number, or a dictionary with "score"

The signature is recognised by the parameters' names, and arguments are passed by name, only those the function takes.
Every result has to be one finite number per completion: anything else stops the run, because it would be trained on.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import numbers
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from isentrope.errors import RewardError
from isentrope.tasks.base import Problem, Score, Task, nearest

TRL_FORM = "f(prompts, completions, **columns), as in TRL"
VERL_FORM = "f(data_source, solution_str, ground_truth, extra_info), as in verl"
SIGNATURES = f"{TRL_FORM}, or {VERL_FORM}"
VERL_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")


@dataclass(frozen=True, kw_only=True, eq=False)
class RewardFunction:
    """A loaded reward function and how to call it."""

    spec: str
    """As the recipe names it."""
    function: Callable[..., Any]
    signature: Literal["trl", "verl"]
    parameters: frozenset[str]
    """The names it takes."""
    required: frozenset[str]
    """Those of them without a default."""
    any_keyword: bool
    """It has a ``**`` parameter."""

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Those of ``given`` that the function takes.

        Raises:
            RewardError: it needs one that isn't there.
        """
        for name in sorted(self.required - set(given)):
            raise RewardError(
                f"the reward function {self.spec!r} needs the argument {name!r}, which this task doesn't give. It "
                f"gives: {', '.join(given)}.{nearest(name, given)} Rename the argument or give it a default."
            )
        return {name: value for name, value in given.items() if self.any_keyword or name in self.parameters}


@dataclass(frozen=True, kw_only=True, eq=False)
class RewardedTask:
    """A task whose completions are scored by a reward function instead of its own check.

    A completion counts as malformed only where a verl-style function returns a dictionary with a true "malformed".
    """

    task: Task
    reward: RewardFunction

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def train(self) -> Sequence[Problem]:
        return self.task.train

    @property
    def evaluation(self) -> Sequence[Problem]:
        return self.task.evaluation

    @property
    def stop(self) -> tuple[str, ...]:
        return self.task.stop

    def score(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        """One score per completion.

        Raises:
            RewardError: the function raised, or gave anything but one finite number per completion.
        """
        assert len(problems) == len(completions), (len(problems), len(completions))
        if not completions:
            return []
        if self.reward.signature == "trl":
            return _score_all(self.reward, problems, completions)
        return [
            _score_one(self.reward, self.name, index, problem, completion)
            for index, (problem, completion) in enumerate(zip(problems, completions, strict=True))
        ]


def with_reward(task: Task, spec: str) -> RewardedTask:
    """The task, scored by the reward function that ``spec`` names, whose arguments the task has to give.

    Raises:
        RewardError: as ``load_reward``, or the function needs an argument the task doesn't give.
    """
    reward = load_reward(spec)
    first = [*task.train[:1], *task.evaluation[:1]][:1]
    reward.arguments(_trl_arguments(first, [""]) if reward.signature == "trl" else dict.fromkeys(VERL_ARGUMENTS))
    return RewardedTask(task=task, reward=reward)


def load_reward(spec: str) -> RewardFunction:
    """The reward function that ``package.module:function`` or ``path/file.py:function`` names.

    Raises:
        RewardError: the form, the file, the module or the function is wrong, or its signature isn't recognised.
    """
    source, _, function_name = spec.rpartition(":")
    if not source or not function_name.isidentifier():
        raise RewardError(
            f"the reward {spec!r} has to be package.module:function or path/file.py:function; {SIGNATURES}."
        )
    module = _load_file(source, spec) if source.endswith(".py") else _load_module(source, spec)
    function = getattr(module, function_name, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        what = "is not a function" if hasattr(module, function_name) else "doesn't exist"
        raise RewardError(
            f"the reward {spec!r}: {function_name!r} {what} in {source!r}. It has: {', '.join(names) or 'no function'}."
            f"{nearest(function_name, names)}"
        )
    return recognise(function, spec)


def recognise(function: Callable[..., Any], spec: str) -> RewardFunction:
    """Tell the signature by the names of the parameters: ``completions`` is TRL's, ``solution_str`` is verl's.

    Raises:
        RewardError: neither or both, a positional-only parameter, or a coroutine function.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError) as error:
        raise RewardError(
            f"the reward function {spec!r} tells no signature ({error}). Wrap it in {SIGNATURES}."
        ) from error
    kinds = {parameter.kind for parameter in parameters.values()}
    if inspect.iscoroutinefunction(function):
        raise RewardError(
            f"the reward function {spec!r} is async, which isn't supported. Wrap it in a plain function that runs it."
        )
    named = {
        name: parameter
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    is_trl, is_verl = "completions" in named, "solution_str" in named
    if is_trl == is_verl or inspect.Parameter.POSITIONAL_ONLY in kinds:
        listed = ", ".join(map(str, parameters.values()))
        why = (
            "has 'completions' and 'solution_str'"
            if is_trl and is_verl
            else "has neither 'completions' nor 'solution_str'"
        )
        why = why if is_trl == is_verl else "has positional-only parameters"
        raise RewardError(
            f"the signature of the reward function {spec!r}, ({listed}), isn't recognised: it {why}. It has to be "
            f"{SIGNATURES}."
        )
    return RewardFunction(
        spec=spec,
        function=function,
        signature="trl" if is_trl else "verl",
        parameters=frozenset(named),
        required=frozenset(name for name, parameter in named.items() if parameter.default is parameter.empty),
        any_keyword=inspect.Parameter.VAR_KEYWORD in kinds,
    )


def _load_file(source: str, spec: str) -> ModuleType:
    path = Path(source).expanduser()
    if not path.is_file():
        raise RewardError(
            f"the reward {spec!r}: the file {source!r} doesn't exist. Paths are taken from the working directory."
        )
    resolved = path.resolve()
    name = "isentrope_reward_" + "".join(c if c.isalnum() else "_" for c in str(resolved))
    module_spec = importlib.util.spec_from_file_location(name, resolved)
    assert module_spec is not None and module_spec.loader is not None, resolved
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module  # dataclasses and pickle look a module up by its name
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise RewardError(
            f"the reward {spec!r}: running the file {source!r} raised {_short(error)}. Correct it."
        ) from error
    return module


def _load_module(source: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(source)
    except Exception as error:
        file = source.replace(".", "/") + ".py"
        hint = f" There is a file {file}: name it as {file}:..." if Path(file).is_file() else ""
        raise RewardError(
            f"the reward {spec!r}: importing the module {source!r} raised {_short(error)}. Install it, or give the path "
            f"of a .py file instead.{hint}"
        ) from error


def _trl_arguments(problems: Sequence[Problem], completions: Sequence[str]) -> dict[str, Any]:
    """What TRL passes: prompts, completions (chats for chat prompts), and every column as a list in the same order."""
    columns = dict.fromkeys(key for problem in problems for key in problem.columns)
    given: dict[str, Any] = {"answer": [problem.answer for problem in problems]}
    given |= {str(key): [problem.columns.get(key) for problem in problems] for key in columns}
    given["prompts"] = [problem.prompt for problem in problems]
    given["completions"] = [
        completion if isinstance(problem.prompt, str) else [{"role": "assistant", "content": completion}]
        for problem, completion in zip(problems, completions, strict=True)
    ]
    return given


def _score_all(reward: RewardFunction, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
    arguments = reward.arguments(_trl_arguments(problems, completions))
    try:
        results = reward.function(**arguments)
    except Exception as error:
        raise RewardError(
            f"the reward function {reward.spec!r} raised {_short(error)} on a batch of {len(completions)} completions. Make "
            "it give a number for every completion, also for one without an answer."
        ) from error
    # A text, a set or a dictionary has a length too, but no order of numbers.
    no_list = isinstance(results, str | bytes | Mapping | set | frozenset) or not hasattr(results, "__getitem__")
    if no_list or getattr(results, "shape", None) == () or len(results) != len(completions):
        count = "" if no_list or getattr(results, "shape", None) == () else f" of length {len(results)}"
        raise RewardError(
            f"the reward function {reward.spec!r} gave {reprlib.repr(results)} ({type(results).__name__}{count}) for "
            f"{len(completions)} completions. Return a list of {len(completions)} numbers, one per completion in order."
        )
    return [Score(reward=_finite(results[i], reward.spec, i), malformed=False) for i in range(len(completions))]


def _score_one(reward: RewardFunction, task_name: str, index: int, problem: Problem, completion: str) -> Score:
    columns = problem.columns
    extra = columns.get("extra_info")
    given = {
        "data_source": columns.get("data_source", task_name),
        "solution_str": completion,
        "ground_truth": problem.answer,
        "extra_info": dict(extra) if isinstance(extra, Mapping) else dict(columns),
    }
    try:
        result = reward.function(**reward.arguments(given))
    except RewardError:
        raise
    except Exception as error:
        raise RewardError(
            f"the reward function {reward.spec!r} raised {_short(error)} on completion {index}, {reprlib.repr(completion)}. "
            "Make it give a number for every completion, also for one without an answer."
        ) from error
    if not isinstance(result, Mapping):
        return Score(reward=_finite(result, reward.spec, index), malformed=False)
    if "score" not in result:
        raise RewardError(
            f"the reward function {reward.spec!r} gave a dictionary with the keys {reprlib.repr(list(result))} for "
            f'completion {index}. Return a number, or a dictionary with the number as "score".'
        )
    return Score(
        reward=_finite(result["score"], reward.spec, index), malformed=bool(_item(result.get("malformed", False)))
    )


def _short(error: Exception) -> str:
    text = repr(error)  # such as ValueError("could not convert ...") with all of a long completion in it
    return text if len(text) <= 300 else text[:297] + "..."


def _item(value: Any) -> Any:
    """The Python number in a numpy or torch scalar; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def _finite(value: Any, spec: str, index: int) -> float:
    """The value as a finite float. Booleans, integers, fractions, and numpy or torch scalars count.

    Raises:
        RewardError: names the function, the completion, what was given and what to return.
    """
    plain = _item(value)
    if isinstance(plain, numbers.Real):
        try:
            if math.isfinite(number := float(plain)):
                return number
        except OverflowError:
            pass
    hint = "Return one finite number, 0.0 where there is nothing to reward."
    if value is None:
        hint = (
            "In TRL None says that the function doesn't apply to a completion; here one function scores every one. "
            + hint
        )
    elif isinstance(value, str | bytes):
        hint = "A text is not a number, even if it reads like one. " + hint
    raise RewardError(
        f"the reward function {spec!r} gave {reprlib.repr(value)} ({type(value).__name__}) for completion {index}. "
        f"{hint}"
    )
