"""Layer 1: the law R = -a exp(H) + b, what competes with it, and forecasts. numpy in, numpy out.

>>> import numpy as np
>>> entropy = np.linspace(1.0, 0.1, 40)
>>> fit = fit_entropy_law(entropy, 0.9 - 0.2 * np.exp(entropy))
>>> round(fit.a, 3), round(fit.b, 3), round(fit.ceiling, 3)
(0.2, 0.9, 0.7)
>>> ahead = forecast(entropy[:20], 0.9 - 0.2 * np.exp(entropy[:20]), future_entropy=entropy[20:])
>>> ahead.law
'exponential'
"""

from isentrope.laws.choosing import LawScore
from isentrope.laws.curves import SHAPES, Curve, Shape, fit_curve
from isentrope.laws.forecasting import Forecast, forecast
from isentrope.laws.gains import Share, run_shares, worth_going_on
from isentrope.laws.law import EntropyLaw, fit_entropy_law
from isentrope.laws.shared import LawScaling, SharedLaw, fit_scaling, fit_shared_law

__all__ = [
    "SHAPES",
    "Curve",
    "EntropyLaw",
    "Forecast",
    "LawScaling",
    "LawScore",
    "Shape",
    "Share",
    "SharedLaw",
    "fit_curve",
    "fit_entropy_law",
    "fit_scaling",
    "fit_shared_law",
    "forecast",
    "run_shares",
    "worth_going_on",
]
