"""docs/gallery.md is what scripts/gallery writes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "build" / "forge"


@pytest.mark.skipif(not COMMAND.exists(), reason="the forge command is not built")
def test_the_gallery_is_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "gallery", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"scripts/gallery writes it anew:\n{done.stdout}{done.stderr}"


@pytest.mark.skipif(not COMMAND.exists(), reason="the forge command is not built")
def test_predictions_are_held_against_what_was_measured():
    """bench/cost_against_measured.py reads what bench/vs_fla.py writes; tests/unit/cost_test.cpp has the bounds."""
    results = ROOT / "bench" / "results" / "2026-11-22-h200-vs-fla.csv"
    command = [sys.executable, ROOT / "bench" / "cost_against_measured.py", results, "--forge", COMMAND]
    done = subprocess.run([*command, "--tokens", "8192"], capture_output=True, text=True, check=True)
    assert done.stdout.count(" 8192 ") == 7 and "7 predictions" in done.stdout
