"""Studies: many runs of one question, claims written down before they run, and a verdict on each."""

from isentrope.study.measures import MEASURES, Measure
from isentrope.study.results import Results, results_of
from isentrope.study.runs import PlannedRun, State, plan_runs, run_all
from isentrope.study.spec import Arm, Claim, Study, load_study
from isentrope.study.verdicts import Verdict, holm

__all__ = [
    "MEASURES",
    "Arm",
    "Claim",
    "Measure",
    "PlannedRun",
    "Results",
    "State",
    "Study",
    "Verdict",
    "holm",
    "load_study",
    "plan_runs",
    "results_of",
    "run_all",
]
