"""The version stands in one place."""

import re
import subprocess
from pathlib import Path

import pytest

import forge
from forge import _c

ROOT = Path(__file__).resolve().parents[2]
SAID = re.search(r"project\(forge VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]


def test_everything_says_the_version_of_cmakelists():
    assert forge.__version__ == SAID == _c.library().forge_build().decode().split()[0]
    sections = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections[0] == "Unreleased" and all(re.fullmatch(r"\d+\.\d+\.\d+", s) for s in sections[1:])


def test_the_command_says_it_too():
    command = ROOT / "build" / "forge"
    if not command.exists():
        pytest.skip(f"{command} is not built")
    assert subprocess.check_output([command, "--version"], text=True) == f"forge {SAID}\n"


def test_no_other_file_has_it():
    kinds = ["*.py", "*.toml", "*.cpp", "*.h", "*.txt", "*.cmake", "*.in", ":!bench/results"]  # but what was measured
    files = subprocess.check_output(["git", "ls-files", *kinds], cwd=ROOT, text=True).split()
    assert [
        f for f in files if re.search(rf"(?<![\d.]){re.escape(SAID)}(?![\d.])", (ROOT / f).read_text(encoding="utf-8"))
    ] == ["CMakeLists.txt"]
