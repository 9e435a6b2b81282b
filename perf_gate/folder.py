"""A temporary folder that is removed with its process, or by the next process if that was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType

BASE, LOGS = "perf-gate-base-", "perf-gate-logs-"
LOCK = ".lock"
# A folder without a lock: its process has just created it, or died before it could lock it.
PATIENCE_SECONDS = 3600.0


class TemporaryFolder:
    """A context manager: `path` exists inside it. The process holds a lock in it as long as it lives."""

    def __init__(self, parent: Path | None = None, prefix: str = BASE) -> None:
        """Create nothing yet. parent: where (default: the system's temporary folder). prefix: BASE or LOGS."""
        self._parent = parent or Path(tempfile.gettempdir())
        self._prefix = prefix
        self.path = Path()
        self._lock = -1

    def __enter__(self) -> TemporaryFolder:
        """Remove the folders of processes that were killed, and create this one."""
        prune(self._parent)
        self.path = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self._parent))
        # Locked before it has its name, so that another process never sees an unlocked one and removes the folder.
        draft = self.path / f"{LOCK}.draft"
        self._lock = os.open(draft, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        draft.rename(self.path / LOCK)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def prune(parent: Path) -> None:
    """Remove the folders of this user in `parent` whose process is gone."""
    for path in (found for prefix in (BASE, LOGS) for found in parent.glob(f"{prefix}*")):
        try:
            if path.is_symlink() or path.stat().st_uid != os.getuid() or _lives(path):
                continue
        except OSError:
            continue
        shutil.rmtree(path, ignore_errors=True)


def _lives(path: Path) -> bool:
    try:
        lock = os.open(path / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return time.time() - path.stat().st_mtime < PATIENCE_SECONDS
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
