"""python -m cache_bench.experiment."""

from __future__ import annotations

import os
import signal
import sys


def _stop(*_: object) -> None:
    # Raised within an import, KeyboardInterrupt shows a traceback, or is lost in a callback of the import system.
    sys.stderr.write("stopped before anything was measured\n")
    sys.stderr.flush()
    os._exit(130)


if __name__ == "__main__":
    raising = signal.signal(signal.SIGINT, _stop)
    from cache_bench.experiment.cli import main  # seconds: torch and transformers

    signal.signal(signal.SIGINT, raising)
    sys.exit(main())
