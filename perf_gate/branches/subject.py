"""The packages under test, which differ between the two sides of a comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class Subject:
    """Packages or modules. places: import name -> folder that has it, from the project root."""

    places: Mapping[str, str]

    def homes(self, root: Path) -> dict[str, str]:
        """Return import name -> absolute folder to import it from, in the project at `root`."""
        return {name: str(root.resolve() / place) for name, place in self.places.items()}

    def missing(self, root: Path) -> list[str]:
        """Return the names of those that the project at `root` does not have."""
        return [name for name, home in self.homes(root).items() if not _is_there(Path(home) / name)]

    def __str__(self) -> str:
        """Return the names, separated by commas."""
        return ", ".join(self.places)


def _is_there(path: Path) -> bool:
    return (path / "__init__.py").is_file() or path.with_suffix(".py").is_file()


def subject_of(lines: Iterable[str]) -> Subject:
    """Parse lines such as "prefix_cache" or "src/prefix_cache". Raises ValueError naming the bad one."""
    places: dict[str, str] = {}
    for line in lines:
        path = PurePosixPath(line.strip())
        if path.is_absolute() or ".." in path.parts or not path.name.isidentifier():
            raise ValueError(f"{line!r}: give the path of a package from the project root, e.g. src/prefix_cache")
        if path.name in places:
            raise ValueError(f"{line!r}: two packages are named {path.name!r}, but only one can be imported")
        places[path.name] = path.parent.as_posix()
    return Subject(places)
