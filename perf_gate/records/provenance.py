"""Where a measurement comes from: commit, versions, machine and options of the run."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

import cpuinfo
import psutil

PACKAGES = ("torch", "transformers", "numpy", "scipy", "pytest", "pytest-benchmark")
COMPARED = ("torch", "transformers")

Option = str | int | float | bool | None


@dataclass(frozen=True)
class Provenance:
    """What has to be known about a run to compare it with another one, or to repeat it.

    commit: full hash, "" outside git. committed: its time, ISO 8601. dirty: whether the tree had uncommitted changes.
    versions: package -> version, "python" included. machine: the machine class. parts: facts about the machine, those
    of the class included. options: of the run, e.g. profile and models. command: the command line.
    """

    commit: str = ""
    committed: str = ""
    branch: str = ""
    dirty: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    parts: Mapping[str, Option] = field(default_factory=dict)
    options: Mapping[str, Option] = field(default_factory=dict)
    command: tuple[str, ...] = ()

    @property
    def software(self) -> str:
        """The versions that `Comparable.SOFTWARE` compares, e.g. "torch 2.13.0, transformers 5.24.0"."""
        return software(self.versions)


def provenance(
    root: Path,
    *,
    threads: int = 1,
    options: Mapping[str, Option] | None = None,
    command: Sequence[str] = (),
    besides: Sequence[str] = ("baselines",),
) -> Provenance:
    """Return the provenance of a run here: the git checkout of `root`, installed packages, this machine.

    threads: compute threads of a worker. besides: paths below `root` whose changes do not make the tree dirty, because
    recording writes there. Never raises: what cannot be found out is left empty.
    """
    parts = machine_parts(threads)
    found = versions()
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    changes = _git(root, "status", "--porcelain", "--", ".", *(f":(exclude,top){path}" for path in besides))
    return Provenance(
        commit=commit or "",
        committed=(_git(root, "show", "-s", "--format=%cI", "HEAD") if commit else None) or "",
        branch=(_git(root, "branch", "--show-current") if commit else None) or "",
        dirty=bool(changes) or (commit is not None and changes is None),
        versions=found,
        machine=machine_class(parts),
        parts=parts,
        options=dict(options or {}),
        command=tuple(command),
    )


def _git(root: Path, *arguments: str) -> str | None:
    """Return the output of a git command, or None if there is no git, no checkout or no commit."""
    program = shutil.which("git")
    if program is None:
        return None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603 - the program is git, the arguments are our own
            [program, "--no-optional-locks", "-C", str(root), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env=environment,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of Python and of those `packages` that are installed, without importing them."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def software(found: Mapping[str, str]) -> str:
    """Return the versions that operator calls and FLOPs depend on; "2.13.0+cpu" and "2.13.0" are the same source."""
    return ", ".join(f"{name} {found[name].split('+')[0]}" for name in COMPARED if name in found)


def machine_parts(threads: int) -> dict[str, Option]:
    """Return facts about this machine, those of its class included."""
    described = _cpu()
    return {
        "architecture": platform.machine(),
        "processor": " ".join(str(described.get("brand_raw") or platform.processor() or "unknown CPU").split()),
        "family": described.get("family"),
        "model": described.get("model"),
        "cores": cores(),
        "threads": threads,
        "memory": psutil.virtual_memory().total,
        "system": platform.system(),
        "release": platform.release(),
    }


@cache
def _cpu() -> dict[str, Option]:
    # It starts processes of its own and takes about a second.
    found = cpuinfo.get_cpu_info() or {}
    return {name: found.get(name) for name in ("brand_raw", "family", "model")}


def cores() -> int:
    """Return the number of logical cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return psutil.cpu_count() or 1


def machine_class(parts: Mapping[str, Option]) -> str:
    """Return the name of the machine class, within which sampled metrics are compared.

    E.g. "x86_64 AMD EPYC 9B14 (25/17), 2 cores, 1 thread". It has family and model because hosted machines hide the
    brand. It has neither memory nor kernel nor host name, because these change without changing the measurements.
    """
    name = f"{parts['architecture']} {parts['processor']}"
    if parts.get("family") is not None and parts.get("model") is not None:
        name += f" ({parts['family']}/{parts['model']})"
    return f"{name}, {_counted(parts['cores'], 'core')}, {_counted(parts['threads'], 'thread')}"


def _counted(number: Option, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
