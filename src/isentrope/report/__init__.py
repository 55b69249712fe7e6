"""The report of one or more runs: one HTML file that holds its data, its styles and its scripts, and loads nothing.

Python reads, averages and picks; the page draws. What the page gets is JSON, and it turns it into text nodes only: completions
and names are whatever a model or a user wrote. Needs numpy alone. Charts are uPlot 1.6.32 (MIT), which ships beside the
styles in ``assets/uplot``: 50 kB, no other package, and nothing evaluated, so that the page's content security policy can
refuse every script but its own.
"""

from isentrope.report.build import Report, build_report

__all__ = ["Report", "build_report"]
