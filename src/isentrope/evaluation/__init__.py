"""Layer 1: estimators of a policy's success from scored samples. No torch."""

from isentrope.evaluation.intervals import bootstrap_interval
from isentrope.evaluation.pass_at_k import mean_pass_at_k, pass_at_k

__all__ = ["bootstrap_interval", "mean_pass_at_k", "pass_at_k"]
