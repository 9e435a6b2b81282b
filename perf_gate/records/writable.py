"""Whether a file can be written, found out before its content is measured."""

from __future__ import annotations

import tempfile
from pathlib import Path


def why_not_writable(path: Path) -> str | None:
    """Return why no file can be written at `path` and what to do, or None.

    Missing folders are no reason: they are created with the file. Nothing is created here.
    """
    found = why_not_writable_in(path.parent)
    if found is None and path.exists() and not path.is_file():
        return f"{path} is {'a folder' if path.is_dir() else 'not a regular file'}: give a file"
    return found


def why_not_writable_in(folder: Path) -> str | None:
    """Return the same for a new file in `folder`."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            return f"{folder} is not a folder: give another path"
        # Permissions do not tell all: the file system may be read-only, or full.
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"nothing can be written to {folder} ({error.strerror}): give another path, or change its permissions"
    return None
