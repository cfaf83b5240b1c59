"""scripts/check-compositions calls right only what was compared and found right. Nothing is compiled here."""

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check-compositions"


def loaded():
    loader = importlib.machinery.SourceFileLoader("check_compositions", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def report(ok=True, worst=((True, 0.001),), failures=()):
    results = [{"name": f"r{i}", "relative_rms": rms, "ok": good} for i, (good, rms) in enumerate(worst)]
    row = {"tolerance": 0.008, "strategy": "one-pass", "chunk": 64, "worst": results}
    return json.dumps({"ok": ok, "rows": [row] if results else [], "failures": list(failures)})


@pytest.mark.parametrize(
    ("text", "verdict", "worst"),
    [
        (report(), "right", "r0"),
        (report(worst=((True, 0.001), (True, 0.002))), "right", "r1"),
        (report(ok=False, worst=((False, 0.02), (True, 0.5))), "wrong", "r0"),
        (report(worst=((True, 0.001), (False, None))), "wrong", "r1"),
        (report(worst=((True, 0.001), (False, float("nan")))), "wrong", "r1"),
        (report(worst=()), "wrong", None),
        (report(ok=False, worst=(), failures=["C7001"]), "wrong", None),
        (report(failures=["C7001"]), "wrong", "r0"),
        ("CUDA error", "wrong", None),
        ("", "wrong", None),
    ],
)
def test_verdicts(text, verdict, worst):
    row = {}
    loaded().judge(row, text)
    assert (row["verdict"], row.get("worst")) == (verdict, worst)
    assert verdict == "right" or row["why"]


def test_what_fails_and_what_does_not_end_is_counted(tmp_path):
    def run(*more):
        command = [sys.executable, SCRIPT, "--device", "cpu", "--share", "0.001", "--csv", tmp_path / "rows.csv", *more]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()[-1]

    status, line = run("--forge", "/bin/false")
    assert status == 4, line
    assert line.startswith("4 of 4 checks of 1 of 1390 combinations on cpu, seed 1: 4 wrong, 0 coarse;")
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(rows) == 2 + 4 and all(",wrong," in row for row in rows[2:])
    status, line = run("--limit", "0")
    assert status == 1 and line.startswith("0 of 4 checks") and line.endswith("4 not ended"), line
