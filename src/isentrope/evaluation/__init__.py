"""Layer 1: estimators of a policy's success from scored samples. No torch."""

from isentrope.evaluation.intervals import bootstrap_interval
from isentrope.evaluation.paired import PairedTest, paired_test
from isentrope.evaluation.pass_at_k import mean_pass_at_k, pass_at_k
from isentrope.evaluation.scores import ProblemSamples, metric_values, pass_curve, score_rows
from isentrope.evaluation.votes import answer_classes, majority_at_n

__all__ = [
    "PairedTest",
    "ProblemSamples",
    "answer_classes",
    "bootstrap_interval",
    "majority_at_n",
    "mean_pass_at_k",
    "metric_values",
    "paired_test",
    "pass_at_k",
    "pass_curve",
    "score_rows",
]
