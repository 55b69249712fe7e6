"""``MathChecker``: the quick rules here, the rest in killable workers."""

from __future__ import annotations

import functools
import importlib.util
import threading
from collections.abc import Sequence
from types import TracebackType

from isentrope.errors import MissingDependencyError
from isentrope.tasks.answers import gold_answer, last_box
from isentrope.tasks.base import Score
from isentrope.tasks.checking import notation, quick
from isentrope.tasks.checking.algebra import WARM_UP
from isentrope.tasks.checking.verdict import Verdict
from isentrope.tasks.workers import Reply, WorkerPool

TIMEOUT_S = 2.0


class MathChecker:
    """Compares answers with the wanted ones, as mathematics. Safe to share between threads; closes its workers itself.

    >>> with MathChecker() as checker:
    ...     checker.check(gold=r"\\frac{1}{2}", answer="0.50").outcome
    'correct'
    """

    def __init__(self, *, workers: int | None = None, memory_bytes: int = 512 * 2**20) -> None:
        """``workers``: processes, at most; None for the number of cores, at most 4. None starts before it is needed."""
        self.pool = WorkerPool(
            "isentrope.tasks.checking.algebra:check_pair", warm_up=WARM_UP, size=workers, memory_bytes=memory_bytes
        )

    def check(self, *, gold: str, answer: str | None, timeout_s: float = TIMEOUT_S) -> Verdict:
        """The verdict on one answer; None for a completion in which no answer was found."""
        return self.check_many([(gold, answer)], timeout_s=timeout_s)[0]

    def check_many(self, pairs: Sequence[tuple[str, str | None]], *, timeout_s: float = TIMEOUT_S) -> list[Verdict]:
        """The verdicts on pairs of (gold, answer), in order. Equal pairs are checked once.

        An answer is what ``extract_answer`` found in a completion. A gold with a complete box counts by its last one.

        ``timeout_s`` is wall-clock time for each answer; overrunning it costs a worker, which is replaced.

        Raises:
            MissingDependencyError: an answer needs algebra and math-verify isn't installed.
            WorkerError: the workers can't be started.
        """
        verdicts: dict[tuple[str, str | None], Verdict | None] = {}
        pairs = [(gold_answer(gold) if last_box(gold) is not None else gold, answer) for gold, answer in pairs]
        for pair in pairs:
            if pair not in verdicts:
                verdicts[pair] = quick_verdict(gold=pair[0], answer=pair[1])
        heavy = [pair for pair, verdict in verdicts.items() if verdict is None]
        if heavy:
            require()
            arguments = [
                (quick.take_apart(gold).text, quick.take_apart(answer or "").text, None) for gold, answer in heavy
            ]
            for pair, reply in zip(heavy, self.pool.map(arguments, timeout_s=timeout_s), strict=True):
                verdicts[pair] = _verdict(reply, gold=pair[0])
        return [verdict for pair in pairs if (verdict := verdicts[pair]) is not None]

    def close(self) -> None:
        """Ends the workers. They also end with the process."""
        self.pool.close()

    def __enter__(self) -> MathChecker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def quick_verdict(*, gold: str, answer: str | None) -> Verdict | None:
    """The verdict where it takes no algebra, else None."""
    if not gold.strip():
        return Verdict(outcome="bad_gold", reason="the wanted answer is blank")
    if answer is None or not answer.strip():
        return Verdict(outcome="unparseable", reason="there is no answer")
    if answer.strip() == gold.strip():
        return Verdict(outcome="correct", reason="the same text")
    if reason := unreadable_gold(gold):
        return Verdict(outcome="bad_gold", reason=f"the wanted answer can't be read: {reason}")
    if reason := notation.unreadable(answer):
        return Verdict(outcome="unparseable", reason=reason)
    try:
        same, hopeless = quick.compare(gold=gold, answer=answer), quick.take_apart(answer).hopeless
    except (
        Exception
    ) as error:  # the boundary where a failed check becomes data: the text is the model's, not the user's
        return Verdict(outcome="unparseable", reason=f"reading it raised {type(error).__name__}")
    if same is None:
        if hopeless:
            return Verdict(outcome="timeout", reason="a power or factorial too large to write out; not tried")
        return None
    return Verdict(outcome="correct" if same else "wrong", reason="compared as numbers or texts")


@functools.lru_cache(maxsize=8192)
def unreadable_gold(text: str) -> str | None:
    """Why a wanted answer can't be read, or None: blank, cut off, too long or too deep. For checks when data is loaded."""
    if last_box(text) is not None or "####" in text:
        text = gold_answer(text)
    return notation.unreadable(text)


def _verdict(reply: Reply, *, gold: str) -> Verdict:
    seconds = reply.seconds
    if reply.status == "timeout":
        return Verdict(outcome="timeout", reason=f"stopped after {seconds:.1f} s", seconds=seconds)
    if reply.status in ("memory", "died"):
        return Verdict(outcome="timeout", reason="stopped at the limit of memory", seconds=seconds)
    if reply.status == "failed":
        return Verdict(outcome="wrong", reason=f"comparing them raised {reply.value}", seconds=seconds)
    if reply.value == "bad_gold" and quick.take_apart(gold).words is not None:
        return Verdict(outcome="wrong", reason="compared as texts", seconds=seconds)
    reasons = {
        "correct": "equal by algebra",
        "wrong": "different by algebra",
        "unparseable": "it is no formula",
        "bad_gold": "the wanted answer is no formula",
    }
    return Verdict(outcome=reply.value, reason=reasons[reply.value], seconds=seconds)


def require() -> None:
    """Raises MissingDependencyError where math-verify isn't installed."""
    if importlib.util.find_spec("math_verify") is None:
        raise MissingDependencyError(
            "checking answers as mathematics needs math-verify, which isn't installed. Install it with: "
            "pip install 'isentrope[math]'"
        )


_DEFAULT: list[MathChecker] = []
_DEFAULT_LOCK = threading.Lock()


def default_checker() -> MathChecker:
    """The process's own checker, shared by all tasks. It starts no worker before one is needed."""
    with _DEFAULT_LOCK:
        if not _DEFAULT:
            _DEFAULT.append(MathChecker())
        return _DEFAULT[0]


def math_scores(pairs: Sequence[tuple[str, str | None]]) -> list[Score]:
    """The scores of (gold, answer) pairs under the process's own checker: 1 for a correct answer, else 0."""
    return [
        Score(
            reward=float(verdict.correct),
            malformed=verdict.outcome == "unparseable",
            outcome=verdict.outcome,
            answer=answer,
            reason=verdict.reason,
        )
        for (_, answer), verdict in zip(pairs, default_checker().check_many(pairs), strict=True)
    ]
