"""The errors Isentrope raises on purpose.

A user's mistake is a ``ValueError`` whose message says what was given, what is allowed and what to do. Broken invariants of
our own are plain ``assert``. The command line prints the message of an :class:`IsentropeError` without a traceback.
"""

from __future__ import annotations


class IsentropeError(Exception):
    """Base of every error whose message is meant for the user."""


class RecipeError(IsentropeError, ValueError):
    """A recipe that can't be run: an unknown key, a wrong type, a value out of range, a combination that can't act."""


class TaskError(IsentropeError, ValueError):
    """A task or data set that can't be used: an empty file, a missing column, an answer that is no answer."""


class RewardError(IsentropeError, ValueError):
    """A reward function that raised, or returned something other than one finite number per completion."""


class PolicyError(IsentropeError, ValueError):
    """A model or tokenizer that can't be loaded, or doesn't fit the recipe."""


class NonFiniteError(IsentropeError, ArithmeticError):
    """A NaN or an infinity where a finite number has to stand. The message names the tensor and the first place."""


class RunFolderError(IsentropeError, OSError):
    """A run folder that can't be written, read or resumed."""


class MissingDependencyError(IsentropeError, ImportError):
    """An optional package that the recipe asks for is not installed. The message says what to install."""


class LogError(IsentropeError, ValueError):
    """A training log that can't be read: no file, no known format, a column that isn't there."""


class ReportError(IsentropeError, OSError):
    """A report that can't be written: a folder in its place, no permission, a full disk."""


class StudyError(IsentropeError, ValueError):
    """A study that can't be run: an unknown key, an arm whose recipe is wrong, a claim about an arm that isn't there."""


class AuditError(IsentropeError, ValueError):
    """A dump that can't be audited: a truncated file, a missing tensor, another shape, a NaN where a number has to stand."""
