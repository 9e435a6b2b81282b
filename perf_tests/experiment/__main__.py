"""python -m perf_tests.experiment."""

from __future__ import annotations

import sys

from perf_tests.experiment.cli import main

if __name__ == "__main__":
    sys.exit(main())
