"""Ranks from Python: processes that torch.distributed joins, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forge


def test_ranks_of_torch_distributed(tmp_path):
    pytest.importorskip("torch")
    size = 3
    command = [sys.executable, str(Path(__file__).with_name("ranks.py"))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(size), str(tmp_path / "store")],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        for rank in range(size)
    ]
    said = [rank.communicate(timeout=200)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * size, "\n".join(said)


def test_what_is_exchanged_is_explained():
    text = forge.variants.gla.compile("cpu", K=16, V=16).explain_ranks(4, lanes=8)
    assert "s: 8192 bytes at a border, its transition (diagonal over rows) 512" in text
    assert "scatter-scan-gather" in text and "assumed, not measured" in text


def test_contexts_of_other_kinds_are_refused():
    q = np.zeros((1, 4, 2, 8), np.float32)
    with pytest.raises(TypeError, match="expected forge.distributed.partition"):
        forge.ops.chunk_linear_attn(q, q, q, cp_context=object())
    with pytest.raises(ValueError, match="expected mpi=True"):
        forge.distributed.init(mpi=False)
