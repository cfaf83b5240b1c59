"""Ranks with a GPU each, as processes that torchrun starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
RANKS = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
PROGRAM = str(Path(__file__).with_name("ranks_gpu.py"))

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_compute_what_one_does(ranks):
    done = subprocess.run([*RANKS, str(ranks), PROGRAM], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr


def test_survivors_of_a_killed_rank_learn_of_it():
    done = subprocess.run([*RANKS, "2", PROGRAM, "kill"], capture_output=True, text=True, timeout=200)
    assert "rank 1: goes on alone" in done.stdout, done.stdout + done.stderr
