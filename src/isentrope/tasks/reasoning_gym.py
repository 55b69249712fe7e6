"""Any data set of the package reasoning-gym, generated from the seed and scored by that data set's own check.

Nine of those checks run the completion as Python code: through ``eval``, or through sympy's ``parse_expr``, which is
``eval`` with every builtin in reach. Only text of a harmless form gets to them (:func:`harmless`). The symbolic ones can
be slow on hostile formulas all the same: they run in killable workers. A check that raises or overruns gives reward 0.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isentrope.errors import MissingDependencyError, RewardError, TaskError
from isentrope.tasks import reasoning_gym_worker
from isentrope.tasks.answers import EXTRACTIONS, extract_answer
from isentrope.tasks.base import Problem, Score, nearest, number, prompt_key
from isentrope.tasks.workers import Reply

SPARE_DRAWS = 64
"""Draws beyond twice the wanted number before a data set counts as too small for its repeats."""

EVALUATED: dict[str, str] = {
    "binary_matrix": "literal",
    "n_queens": "literal",
    "spiral_matrix": "literal",
    "string_insertion": "literal",
    "countdown": "arithmetic",
    "puzzle24": "arithmetic",
    "polynomial_multiplication": "algebra",
    "simple_integration": "algebra",
    "intermediate_integration": "algebra",
}
"""The data sets whose check evaluates the completion, and the form of text that it is given."""

_LONGEST_FORMULA = 500
_ARITHMETIC = re.compile(r"(?:[0-9]{1,12}(?![0-9])|[\s.()+/-]|\*(?!\*))+", re.ASCII)
_FUNCTION = "sin|cos|tan|sec|csc|cot|asin|acos|atan|sinh|cosh|tanh|exp|log|ln|sqrt|erf|pi|Integral"
# One letter is a variable. A power has a small literal exponent, and none is stacked on another without parentheses.
_ALGEBRA = re.compile(
    rf"(?:[\s()+/,^-]|[0-9]{{1,12}}(?:\.[0-9]{{1,12}})?(?![.\w])|(?:{_FUNCTION}|[A-Za-z])(?!\w)|\*(?!\*)"
    r"|\*\*(?=\s?(?:-?[0-9]{1,2}(?!\d|\s*\*\*)|\(-?[0-9]{1,2}(?:/[0-9]{1,2})?\)(?!\s*\*\*)|[A-Za-z](?!\w))))+",
    re.ASCII,
)
_EVALUATES = re.compile(r"\b(?:eval|exec|parse_expr|sympify)\((?!entry)")


UNREADABLE = Score(reward=0.0, malformed=True, outcome="unparseable")


@dataclass(frozen=True, kw_only=True, eq=False)
class ReasoningGymTask:
    """Problems of one data set. The reward is the data set's own score, which may be a fraction."""

    name: str
    train: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]
    dataset: Any
    """The reasoning-gym data set; only its ``score_answer`` is used."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """What it was made with, for the workers to make it again."""
    extraction: str = "tag_or_whole"
    """A key of ``EXTRACTIONS``: how the answer is found in a completion."""
    stop: tuple[str, ...] = ()

    def score(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Score]:
        scores: dict[int, Score] = {}
        symbolic: dict[int, reasoning_gym_worker.Request] = {}
        for index, (problem, completion) in enumerate(zip(problems, completions, strict=True)):
            answer, entry = extract_answer(completion, self.extraction), dict(problem.columns["entry"])
            dataset_name = self.name.partition(":")[2]
            source = _source(entry) or dataset_name
            if answer is None or not harmless(answer, source):
                scores[index] = UNREADABLE
            elif EVALUATED.get(source) == "algebra":
                symbolic[index] = (dataset_name, self.config, answer, entry)
            else:
                scores[index] = self._score(problem, answer, entry)
        if symbolic:
            timeout_s = reasoning_gym_worker.TIMEOUT_S
            replies = reasoning_gym_worker.pool().map(list(symbolic.values()), timeout_s=timeout_s)
            for index, reply in zip(symbolic, replies, strict=True):
                scores[index] = self._replied(problems[index], reply)
        return [scores[index] for index in range(len(completions))]

    def _score(self, problem: Problem, answer: str, entry: dict[str, Any]) -> Score:
        try:
            reward = float(self.dataset.score_answer(answer, entry))
        except (
            Exception
        ):  # the boundary where a failed answer check becomes data: the text is the model's, not the user's
            return UNREADABLE
        return self._finite(problem, reward)

    def _replied(self, problem: Problem, reply: Reply) -> Score:
        if reply.status == "done":
            return self._finite(problem, reply.value)
        if reply.status == "failed":
            return UNREADABLE
        return Score(reward=0.0, malformed=False, outcome="timeout")

    def _finite(self, problem: Problem, reward: float) -> Score:
        if not math.isfinite(reward):
            raise RewardError(
                f"{self.name} scored {reward} for problem {problem.problem_id}; a reward has to be a finite number. "
                "Give a reward function of your own with task.reward."
            )
        return Score(reward=reward, malformed=False)


def harmless(answer: str, dataset_name: str) -> bool:
    """Whether a data set's check may be given this text: it doesn't evaluate it, or the text can do nothing.

    `literal` is a Python literal, or words and digits without punctuation; `arithmetic` has no letters and no powers;
    `algebra` has one-letter variables, elementary functions and small powers.
    """
    form = EVALUATED.get(dataset_name)
    if form is None:
        return True
    if form != "literal":
        pattern = _ARITHMETIC if form == "arithmetic" else _ALGEBRA
        return len(answer) <= _LONGEST_FORMULA and pattern.fullmatch(answer) is not None
    if re.fullmatch(r"[\w\s]*", answer):
        return True
    try:
        ast.literal_eval(answer)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True


def _source(entry: Mapping[str, Any]) -> str | None:
    """The data set an entry came from: within a composite it isn't the task's."""
    return (entry.get("metadata") or {}).get("source_dataset")


def reasoning_gym_task(
    name: str, *, options: Mapping[str, Any], evaluation_problems: int, seed: int
) -> ReasoningGymTask:
    """The task ``reasoning_gym:DATASET``.

    Options are the fields of the data set's own configuration. ``size`` (500) counts the training problems; the
    evaluation problems, all different, are drawn before them, so they don't depend on it. ``seed`` replaces that of the
    recipe. ``extraction`` ("tag_or_whole": the last ``<answer>`` tag, else the whole completion) is a key of
    ``EXTRACTIONS``. Problems whose wanted answer is blank are passed over. Where several answers are right the data set
    names none, and ``Problem.answer`` is blank.

    Raises:
        MissingDependencyError: reasoning-gym isn't installed.
        TaskError: an unknown data set, a configuration it refuses, or too few different problems; or a check that
            evaluates completions and isn't in ``EVALUATED``.
    """
    dataset_name, config = name.partition(":")[2], dict(options)
    extraction = config.pop("extraction", "tag_or_whole")
    if not isinstance(extraction, str) or extraction not in EXTRACTIONS:
        raise TaskError(
            f"option 'extraction' of task {name!r} is {extraction!r}; it has to be one of {', '.join(EXTRACTIONS)}."
        )
    size = config.pop("size", 500)
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise TaskError(f"option 'size' of task {name!r} is {size!r}; it has to be a whole number, 1 or more.")
    draws = 2 * (size + evaluation_problems) + SPARE_DRAWS
    config = {"seed": seed, **config, "size": draws}
    dataset = _create(name, dataset_name, config)

    train: list[Problem] = []
    evaluation: dict[str, Problem] = {}
    for problem in _problems(name, dataset, draws):
        key = prompt_key(problem.prompt)
        if key in evaluation:
            continue
        if len(evaluation) < evaluation_problems:
            evaluation[key] = problem
        else:
            train.append(problem)
        if len(train) == size:
            break
    if len(train) < size:
        raise TaskError(
            f"task {name!r} gave {len(evaluation)} different evaluation problems and {len(train)} further ones in "
            f"{draws} draws; {evaluation_problems} and {size} are asked for. Ask for fewer "
            "(task.evaluation_problems, option 'size'), or choose options that allow more different problems."
        )
    return ReasoningGymTask(
        name=name,
        train=number(train),
        evaluation=number(evaluation.values()),
        dataset=dataset,
        config=config,
        extraction=extraction,
    )


def _create(name: str, dataset_name: str, config: Mapping[str, Any]) -> Any:
    try:
        from reasoning_gym.factory import DATASETS, create_dataset
    except ImportError as error:
        raise MissingDependencyError(
            f"task {name!r} needs reasoning-gym, which isn't installed. Install it with: "
            "pip install 'isentrope[reasoning-gym]'"
        ) from error
    if dataset_name not in DATASETS:
        raise TaskError(
            f"reasoning-gym has no data set {dataset_name!r}.{nearest(dataset_name, DATASETS)} It has: "
            f"{', '.join(sorted(DATASETS))}."
        )
    if dataset_name not in EVALUATED and _EVALUATES.search(inspect.getsource(DATASETS[dataset_name][0].score_answer)):
        raise TaskError(
            f"the check of reasoning-gym's data set {dataset_name!r} runs the model's text as Python code, and Isentrope "
            "doesn't know which texts are safe for it. Choose another data set."
        )
    allowed = {field.name for field in dataclasses.fields(DATASETS[dataset_name][1])}
    for key in config:
        if key not in allowed:
            listed = ", ".join(sorted(allowed | {"extraction"}))
            raise TaskError(f"task {name!r} has no option {key!r}. Its options are: {listed}.{nearest(key, allowed)}")
    try:
        return create_dataset(dataset_name, **config)
    except Exception as error:  # the configurations check themselves with assert and with every other exception
        given = {key: value for key, value in config.items() if key not in ("size", "seed")}
        raise TaskError(
            f"reasoning-gym refuses the options {given} of {dataset_name!r}: {error!r}. Correct them."
        ) from error


def _problems(name: str, dataset: Any, draws: int) -> Iterator[Problem]:
    for index in range(draws):
        try:
            entry = dataset[index]
        except IndexError:  # a data set of fixed length
            return
        except Exception as error:
            raise TaskError(
                f"task {name!r} can't generate its problem {index}: {error!r}. Change its options or the seed."
            ) from error
        answer = entry["answer"]
        if isinstance(answer, str) and not answer.strip():
            continue  # an empty completion would be the right one
        text = "" if answer is None else str(answer)
        yield Problem(problem_id=index, prompt=entry["question"], answer=text, columns={"entry": entry})
