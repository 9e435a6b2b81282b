"""Where the packages under test come from in a worker, whatever else is installed or lies on sys.path.

Both sides of a comparison run the same suites in the same directory; only these packages differ between them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType


class SubjectFinder(MetaPathFinder):
    """Finds each package of the subject in the folder that it has to come from, and nowhere else.

    homes: import name -> folder that holds the package or module. It stands ahead of all other finders, also of those
    that editable installs put up. What lies inside a package is found through the package's own path.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        """Take in where each package has to come from."""
        self._homes = dict(homes)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a package of the subject; None for any other. Raises ModuleNotFoundError where its folder lacks it."""
        home = self._homes.get(fullname)
        if path is not None or home is None:
            return None
        spec = PathFinder.find_spec(fullname, [home], target)
        # A folder without __init__.py is what a revision leaves behind that has only caches or data of the package.
        if spec is None or spec.origin is None:
            # An installed copy would be found next, and pass for the one that was asked for.
            raise ModuleNotFoundError(
                f"{home} holds no module {fullname!r} and no package of it with __init__.py", name=fullname
            )
        return spec


def install_finder(homes: Mapping[str, str]) -> None:
    """Let the packages of the subject come from their homes from now on. Raises ImportError; see `require_own`."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, SubjectFinder)]
    if homes:
        sys.meta_path.insert(0, SubjectFinder(homes))
    require_own(homes)


def require_own(homes: Mapping[str, str]) -> None:
    """Raise ImportError where a module of the subject was imported from elsewhere than its home."""
    for name, module in list(sys.modules.items()):
        home = homes.get(name.partition(".")[0])
        file = getattr(module, "__file__", None)
        if home is not None and file is not None and not Path(file).resolve().is_relative_to(Path(home).resolve()):
            raise ImportError(
                f"{name} was imported from {file}, not from {home}: something imports it before the gate can choose "
                "(a .pth file, sitecustomize, a plugin of the interpreter); take that out of the environment",
                name=name,
            )
