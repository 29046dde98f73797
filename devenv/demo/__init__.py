"""The demo: ``make demo`` on a terminal (``show``) or in a pipe (``tour``), ``make recording``, and ``make dev``."""
