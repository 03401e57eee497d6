"""Run the command line as ``python -m headrace``."""

from __future__ import annotations

from headrace.cli.main import main

main()
