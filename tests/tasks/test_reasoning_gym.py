from __future__ import annotations

import builtins
import inspect
from pathlib import Path
from typing import Any

import pytest

from isentrope.errors import MissingDependencyError, RewardError, TaskError
from isentrope.tasks import Problem, Task, load_task
from isentrope.tasks.reasoning_gym import _EVALUATES, EVALUATED, ReasoningGymTask, harmless, reasoning_gym_task

HOSTILE = [
    "\x00",
    "((((((",
    "__import__('sys').exit(3)",
    "exit()",
    "input()",
    "breakpoint()",
    "[i for i in iter(int, 1)]",
    "9**9**9**9**9",
    "9**(9**9)**9",
    "9" * 5000,
    "1/0",
    "{" * 5000,
    "(" * 5000 + ")" * 5000,
    "\ud800",
    "nan",
    "a" * 10_000,
    "x." * 100,
    "1 " * 100_000,
    "first call",
    "second call",
]
"""The last two are replaced by calls that would leave a trace."""


class FakeDataset:
    """Scores by a rule of the test."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def score_answer(self, answer: str, entry: dict[str, Any]) -> Any:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def fake_task(result: Any) -> ReasoningGymTask:
    problem = Problem(problem_id=0, prompt="p", answer="a", columns={"entry": {"answer": "a"}})
    return ReasoningGymTask(name="reasoning_gym:fake", train=(problem,), evaluation=(), dataset=FakeDataset(result))


def test_a_check_that_raises_is_a_malformed_answer() -> None:
    for error in (ValueError("no parse"), RecursionError(), ZeroDivisionError()):
        task = fake_task(error)
        (score,) = task.score(task.train, ["text"])
        assert (score.reward, score.malformed) == (0.0, True)


def test_an_interrupt_is_not_swallowed() -> None:
    task = fake_task(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        task.score(task.train, ["text"])


def test_a_score_that_is_not_finite_is_refused() -> None:
    task = fake_task(float("nan"))
    with pytest.raises(RewardError, match="reasoning_gym:fake scored nan for problem 0"):
        task.score(task.train, ["text"])


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def no_reasoning_gym(name: str, *args: Any) -> Any:
        if name.startswith("reasoning_gym"):
            raise ImportError(name)
        return real_import(name, *args)

    monkeypatch.setattr(builtins, "__import__", no_reasoning_gym)
    with pytest.raises(MissingDependencyError, match=r"pip install 'isentrope\[reasoning-gym\]'"):
        load("chain_sum")


def load(dataset: str, *, evaluation_problems: int = 4, seed: int = 0, **options: Any) -> ReasoningGymTask:
    return reasoning_gym_task(
        f"reasoning_gym:{dataset}", options=options, evaluation_problems=evaluation_problems, seed=seed
    )


@pytest.mark.parametrize(
    ("dataset", "good", "bad"),
    [
        ("chain_sum", ["anything().at['all']"], []),
        (
            "countdown",
            ["42*(30 - 4 - 23)", "9*3*8/9"],
            ["2**2", "x", "1e5", "()**()", "", "1" * 13, "1+" * 300 + "1", "1" * 400 + "x"],
        ),
        (
            "simple_integration",
            ["-9*x**8/10 + 3*x**4/2 + C", "x**(-3/2)", "2*X**-1", "exp(x)*sin(2.5*x)", "e**x"],
            [
                "open(x)",
                "x.y",
                "x.__class__",
                "'x'",
                "x**100",
                "2**2**2",
                "x**(2)**2",
                "x**(2*2)",
                "exit()",
                "x[0]",
                "x_",
                "1" * 13,
                "1" * 400 + "$",
                "x " * 200 + "$",
                "1.2 " * 100 + "$",
            ],
        ),
        ("n_queens", ["_ Q\nQ _", "[['_', 'Q'], ['Q', '_']]"], ["exit()", "[x]", "a.b", "9**9", "[" * 5000]),
    ],
)
def test_harmless(dataset: str, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not harmless(text, dataset)] == []
    assert [text for text in bad if harmless(text, dataset)] == []


def test_an_entry_of_a_composite_is_guarded_by_its_source() -> None:
    task = fake_task(1.0)
    problem = Problem(
        problem_id=0, prompt="p", answer="", columns={"entry": {"metadata": {"source_dataset": "countdown"}}}
    )
    assert [one.malformed for one in task.score([problem, task.train[0]], ["exit()", "exit()"])] == [True, False]


class TestWithThePackage:
    @pytest.fixture(autouse=True)
    def installed(self) -> None:
        pytest.importorskip("reasoning_gym", reason="reasoning-gym is an extra")

    def test_options_are_the_configuration(self) -> None:
        task = load("chain_sum", size=20, min_terms=2, max_terms=2, min_digits=1, max_digits=1)
        assert isinstance(task, Task) and task.name == "reasoning_gym:chain_sum"
        assert len(task.train) == 20 and len(task.evaluation) == 4
        assert [p.problem_id for p in task.train] == list(range(20))
        assert not {p.prompt for p in task.train} & {p.prompt for p in task.evaluation}
        assert all(p.columns["entry"]["metadata"]["num_terms"] == 2 for p in task.train)

    def test_the_seed_decides(self) -> None:
        one, again, other = load("chain_sum", size=8), load("chain_sum", size=8), load("chain_sum", size=8, seed=1)
        assert one.train == again.train and one.evaluation == again.evaluation
        assert one.train != other.train
        assert load("chain_sum", size=8, seed=1).train == other.train
        through_options = load_task(
            "reasoning_gym:chain_sum", options={"size": 8, "seed": 1}, evaluation_problems=4, seed=0
        )
        assert through_options.train == other.train
        assert load("chain_sum", size=9).evaluation == one.evaluation, "the size doesn't change the evaluation"

    def test_score(self) -> None:
        task = load("chain_sum", size=4)
        problem = task.train[0]
        texts = [problem.answer, f"thinking <answer>{problem.answer}</answer> !", "<answer>x</answer>", "<answer>", " "]
        scores = task.score([problem] * 5, texts)
        assert [s.malformed for s in scores] == [False, False, False, True, True]
        assert scores[0].reward == scores[1].reward == 1.0
        assert all(score.reward < 0.5 for score in scores[2:])

    def test_extraction(self) -> None:
        task = load("chain_sum", size=4, extraction="boxed")
        scores = task.score(task.train[:1] * 2, [task.train[0].answer, rf"\boxed{{{task.train[0].answer}}}"])
        assert [(s.reward, s.malformed) for s in scores] == [(0.0, True), (1.0, False)]
        for wrong in ("box", ["boxed"]):
            with pytest.raises(TaskError, match=r"'extraction' .* has to be one of auto"):
                load("chain_sum", extraction=wrong)

    def test_a_data_set_without_a_named_answer(self) -> None:
        task = load("graph_color", size=2, evaluation_problems=1)
        problem = task.train[0]
        assert problem.answer == ""
        (score,) = task.score([problem], ["{}"])
        assert score.reward < 1.0

    @pytest.mark.parametrize("name", [*EVALUATED, "graph_color", "chain_sum", "number_sorting"])
    def test_hostile_text_does_nothing(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        task = load(name, size=1, evaluation_problems=1)
        call = "__import__('pathlib').Path('touched').touch()"
        scores = task.score([task.train[0]] * len(HOSTILE), [*HOSTILE[:-2], call, f"[{call}]"])
        assert not (tmp_path / "touched").exists(), "the model's text ran as code"
        assert all(score.reward < 1.0 for score in scores)

    @pytest.mark.parametrize("name", EVALUATED)
    def test_the_answers_of_evaluated_data_sets_pass(self, name: str) -> None:
        task = load(name, size=6, evaluation_problems=1)
        scores = task.score(task.train, [problem.answer for problem in task.train])
        assert [(score.reward, score.malformed) for score in scores] == [(1.0, False)] * 6

    def test_a_slow_symbolic_check_is_killed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("isentrope.tasks.reasoning_gym_worker.TIMEOUT_S", 1.0)
        task = load("simple_integration", size=2, evaluation_problems=1)
        slow = "+".join(f"sin(x**{n}*cos(x**{n + 1}*tan(x)))**9" for n in range(2, 14))
        problem = task.train[0]
        found = task.score([problem] * 4, [slow, problem.answer, "x.y", slow + "+1"])
        assert [score.outcome for score in found] == ["timeout", None, "unparseable", "timeout"]
        assert [score.malformed for score in found] == [False, False, True, False]
        assert [score.reward for score in found] == [0.0, 1.0, 0.0, 0.0]

    def test_no_other_check_evaluates(self) -> None:
        """At the installed version; a new one is refused at run time."""
        from reasoning_gym.factory import DATASETS

        for name, (dataset, _) in DATASETS.items():
            if _EVALUATES.search(inspect.getsource(dataset.score_answer)):
                assert name in EVALUATED

    def test_an_unknown_check_that_evaluates_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from reasoning_gym.factory import DATASETS

        class Evaluating:
            def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
                return float(eval(answer))

        monkeypatch.setitem(DATASETS, "evaluating", (Evaluating, Evaluating))
        with pytest.raises(TaskError, match="'evaluating' runs the model's text as Python code"):
            load("evaluating")

    @pytest.mark.parametrize(
        ("dataset", "options", "words"),
        [
            ("chain_sums", {}, "no data set 'chain_sums'. Did you mean 'chain_sum'"),
            ("", {}, "no data set ''. It has: ab, "),
            ("chain_sum", {"min_term": 3}, "no option 'min_term'.*extraction.*Did you mean 'min_terms'"),
            ("chain_sum", {"min_terms": 5, "max_terms": 2}, "refuses the options .*'min_terms': 5.* of 'chain_sum'"),
            ("chain_sum", {"min_terms": "two"}, "refuses the options"),
            ("chain_sum", {"size": 0}, "'size' .* is 0; it has to be a whole number"),
            ("chain_sum", {"size": True}, "'size' .* is True"),
            (
                "chain_sum",
                {"size": 500, "min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
                r"gave \d+ different evaluation problems and 0 further ones",
            ),
        ],
    )
    def test_what_is_refused(self, dataset: str, options: dict[str, Any], words: str) -> None:
        with pytest.raises(TaskError, match=words):
            load(dataset, evaluation_problems=1000 if "further" in words else 4, **options)
