"""What somebody gets who installs the package and does not have this repository."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("prefix_cache", "perf_gate", "cache_bench")
# In a process of its own: an editable install would offer this tree's perf_tests as well.
IMPORT_ALL = """
import pkgutil, sys
from importlib import import_module
sys.path.insert(0, sys.argv[1])
sys.modules["perf_tests"] = None  # importing it fails
for name in sys.argv[2:]:
    package = import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            assert import_module(module.name).__file__.startswith(sys.argv[1])
from cache_bench.profile import PROFILES
assert all(list(profile.ttft()) for profile in PROFILES.values())
"""


def test_the_wheel_holds_what_suites_elsewhere_need(tmp_path: Path) -> None:
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    source = tmp_path / "source"  # building leaves files behind
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file() and name.split("/")[0] in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, source], check=True, cwd=tmp_path
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "installed")
    subprocess.run(
        [sys.executable, "-I", "-c", IMPORT_ALL, str(tmp_path / "installed"), *PACKAGES], check=True, cwd=tmp_path
    )
