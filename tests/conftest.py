"""What all tests share."""

from __future__ import annotations

import gc


def pytest_collection_finish() -> None:
    """Keep what was imported out of every later search for garbage.

    torch and transformers leave a million objects that live to the end, and measuring what a request allocates
    collects before and after it.
    """
    gc.collect()
    gc.freeze()
