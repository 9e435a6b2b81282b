"""What keeps a file from being written, found before anybody has waited for its content."""

from __future__ import annotations

import tempfile
from pathlib import Path


def why_not_writable(path: Path) -> str | None:
    """What is in the way of writing a file under `path`, and what to do; None where nothing is.

    Folders that are missing are no obstacle, they are made with the file; none is made here.
    """
    found = why_not_writable_in(path.parent)
    if found is None and path.exists() and not path.is_file():
        return f"{path} is {'a folder' if path.is_dir() else 'no regular file'}: name a file"
    return found


def why_not_writable_in(folder: Path) -> str | None:
    """The same for a file of any new name in `folder`."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            return f"{folder} is no folder: choose another place"
        # Rights alone do not tell: the file system may be read-only, or full.
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"nothing can be written to {folder} ({error.strerror}): choose another place, or mend its rights"
    return None
