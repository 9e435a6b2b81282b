"""Imports the packages under test from one folder, whatever is installed or on sys.path.

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
    """Finds each package of the subject in its own folder and nowhere else.

    homes: import name -> folder that has the package or module. It comes before all other finders, those of editable
    installs included. Modules inside a package are found through the package's own path.
    """

    def __init__(self, homes: Mapping[str, str]) -> None:
        """Keep the folder of each package."""
        self._homes = dict(homes)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a package of the subject, None for any other. Raises ModuleNotFoundError if its folder lacks it."""
        home = self._homes.get(fullname)
        if path is not None or home is None:
            return None
        spec = PathFinder.find_spec(fullname, [home], target)
        # A folder without __init__.py may have only caches or data of the package.
        if spec is None or spec.origin is None:
            # Otherwise an installed copy would be found next and measured instead.
            raise ModuleNotFoundError(
                f"{home} has no module {fullname!r} and no package of this name with __init__.py", name=fullname
            )
        return spec


def install_finder(homes: Mapping[str, str]) -> None:
    """Import the packages of the subject from their homes from now on. Raises ImportError; see `require_own`."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, SubjectFinder)]
    if homes:
        sys.meta_path.insert(0, SubjectFinder(homes))
    require_own(homes)


def require_own(homes: Mapping[str, str]) -> None:
    """Raise ImportError if a module of the subject was imported from another folder than its home."""
    for name, module in list(sys.modules.items()):
        home = homes.get(name.partition(".")[0])
        file = getattr(module, "__file__", None)
        if home is not None and file is not None and not Path(file).resolve().is_relative_to(Path(home).resolve()):
            raise ImportError(
                f"{name} was imported from {file}, not from {home}: something imports it before the gate starts "
                "(a .pth file, sitecustomize); remove that from the environment",
                name=name,
            )
