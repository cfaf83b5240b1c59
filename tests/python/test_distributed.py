"""Ranks from Python: processes that torch.distributed joins, and what is refused."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forge
from forge import ConstExpr, SymbTensor, _c, distributed


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
    one = np.zeros((1, 4, 2), np.float32)
    with pytest.raises(TypeError, match="cp_context: expected by name"):  # the last argument but for keywords
        forge.ops.chunk_gated_delta_rule(
            q, q, q, one, one, None, None, False, False, False, False, False, None, None, None, object()
        )


@pytest.fixture
def alone():
    """A group of one rank, without any launcher."""

    def gather(_, given, out, count):
        ctypes.memmove(out, given, count)
        return 0

    callback = _c.AllGather(gather)
    return distributed._created(_c.library().forge_group_create, 0, 1, callback, None, keep=callback)


def _definition(**more):
    shapes = {n: SymbTensor(["T", "H", ConstExpr("K", 8)]) for n in "qk"}
    v, s = SymbTensor(["T", "H", ConstExpr("V", 8)]), SymbTensor(["NS", "H", ConstExpr("K", 8), ConstExpr("V", 8)])
    return forge.LinearAttention(
        {**shapes, "v": v, "prev_s": s},
        step=lambda q, k, v, prev_s: (prev_s + forge.outer(k, v), q @ (prev_s + forge.outer(k, v))),
        **more,
    )


def test_the_calls_of_one_rank_are_ordinary_ones(alone, tmp_path):
    """… of a definition that is compiled ahead of time too; packed sequences are then refused, as nothing asked for
    summaries."""
    q, k, v = np.random.default_rng(3).standard_normal((3, 1, 20, 2, 8)).astype(np.float32)
    plain, of_group = _definition(), _definition(sp_group=alone, enable_aot=True, code_dir=str(tmp_path / "a"))
    expected, state = plain(q, k, v, output_final_state=True)
    o, final = of_group(q, k, v, output_final_state=True)
    assert np.array_equal(o, expected) and np.array_equal(final, state)
    offsets = np.array([0, 7, 20])
    part = distributed.partition(offsets, alone)
    packed, _ = plain(q, k, v, cu_seqlens=offsets)
    assert np.array_equal(of_group(q, k, v, partition=part)[0], packed)
    assert np.array_equal(plain(q, k, v, partition=part)[0], packed)
    ready = _definition(enable_aot=True, code_dir=str(tmp_path / "b"))
    with pytest.raises(TypeError, match="argument 'partition': expected sp_group="):
        ready(q, k, v, partition=part)


def test_a_group_is_closed_once(alone):
    """Before the interpreter ends; what comes later is refused."""
    q, k, v = np.random.default_rng(5).standard_normal((3, 1, 6, 2, 8)).astype(np.float32)
    attn = _definition(sp_group=alone)
    attn(q, k, v)
    alone.close()
    alone.close()
    for late in (alone.check, lambda: attn(q, k, v)):
        with pytest.raises(ValueError, match="group: expected a pointer"):
            late()
    assert "closed" in repr(alone)
    distributed.close()


def test_few_tokens_of_ranks(alone):
    q, k, v = np.random.default_rng(4).standard_normal((3, 1, 6, 2, 8)).astype(np.float32)
    part = distributed.partition(np.array([0, 4, 6]), alone)
    o, final = forge.ops.fused_recurrent_retention(q, k, v, output_final_state=True, cp_context=part)
    expected, after = forge.ops.chunk_retention(q, k, v, output_final_state=True, cu_seqlens=np.array([0, 4, 6]))
    np.testing.assert_allclose(o, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(final, after, rtol=1e-5, atol=1e-5)


def test_prefixes_are_not_kept_of_parts(alone):
    q, k, v = np.zeros((3, 1, 70, 2, 8), np.float32)
    pools = np.zeros((4, 2, 8, 8), np.float32)
    with pytest.raises(TypeError, match="checkpoints.*expected no sp_group"):
        _definition(sp_group=alone)(q, k, v, checkpoints=((pools,), np.array([[0, 1]], np.int32)))
