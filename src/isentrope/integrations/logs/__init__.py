"""Readers of training logs, ours and other trainers': ``read_log(path)`` returns a :class:`RunLog`.

One row a step, our metric keys for the columns, and every other number under its own name. Which column was taken for which
metric is a guess that is shown (``RunLog.guesses``) and can be overridden. No torch is loaded.
"""

from isentrope.integrations.logs.reading import read_log
from isentrope.integrations.logs.run_log import RunLog

__all__ = ["RunLog", "read_log"]
