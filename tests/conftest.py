"""What all tests share."""

from __future__ import annotations

import gc
import signal

import pytest


def pytest_configure() -> None:
    """Let what the tests start be stopped by Ctrl-C, also where they themselves run in the background.

    A shell makes background jobs ignore it, and their children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def _light_collections() -> None:
    """Keep what was imported or left behind so far out of every later search for garbage.

    torch, transformers and the reports of earlier tests are millions of objects that live to the end, and measuring
    what a request allocates collects before and after it.
    """
    gc.collect()
    gc.freeze()
