"""``python -m isentrope``."""

from isentrope.cli import main

raise SystemExit(main())
