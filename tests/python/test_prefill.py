"""Prefill for servers: checkpoints of states in slots of a pool, results that do not depend on other sequences, and
inputs that are views of one buffer."""

from pathlib import Path

import numpy as np
import pytest

import forge
from programs import PROGRAMS, random_inputs

CHUNK = 64
INVARIANT = {"batch_invariant": True}


def variant(name="scalar_gla", **options):
    return PROGRAMS[name](options={**INVARIANT, **options})


def part(x: dict, b: int, end: int, begin: int = 0) -> dict:
    """Some tokens of a sequence of a batch."""
    return {n: a[b : b + 1, begin:end] for n, a in x.items()}


@pytest.mark.parametrize("name", ["scalar_gla", "delta_net", "vector_gla"])
@pytest.mark.parametrize("wide", [np.int32, np.int64])
def test_checkpoints_are_what_stopping_there_gives(name, wide):
    attn, x = variant(name), random_inputs(name, 2, 300, 2, 32, 16)
    pool = np.full((9, 2, 32, 16), np.nan, np.float32)
    slots = np.full((2, 5), -1, wide)  # 300 tokens: 5 chunks
    slots[0, 2], slots[0, 4], slots[1, 2], slots[1, 0] = 7, 0, 3, 5
    o, final = attn(**x, output_final_state=True, checkpoints=(pool, slots))
    written = []
    for (b, chunk), slot in np.ndenumerate(slots):
        if slot >= 0:
            _, wanted = attn(**part(x, b, chunk * CHUNK), output_final_state=True)
            assert np.array_equal(pool[slot], wanted[0])
            written.append(slot)
    assert np.isnan(np.delete(pool, written, 0)).all()
    again, state = attn(**x, output_final_state=True)
    assert np.array_equal(o, again) and np.array_equal(final, state)
    rest, end = attn(**part(x, 0, 300, 128), initial_state=pool[7:8], output_final_state=True)
    assert np.array_equal(rest[0], o[0, 128:]) and np.array_equal(end[0], final[0])


def test_checkpoints_of_calls_without_heads():
    text = (Path(__file__).parents[2] / "bench/gated_scan.ir").read_text()
    attn, rng = forge.Attention(text, one_head=True), np.random.default_rng(3)
    x, g = (rng.standard_normal((1, 192, 16)).astype(np.float32) for _ in range(2))
    pool = np.zeros((4, 16), np.float32)
    attn(x, -np.abs(g), checkpoints=([pool], np.array([[-1, 2, -1]], np.int32)))
    *_, before = attn(x, -np.abs(g), return_intermediate_states=True)
    np.testing.assert_array_equal(pool[2], before[0, 1])
    assert not pool[[0, 1, 3]].any()


def test_checkpoints_of_packed_sequences():
    attn, x = variant(), random_inputs("scalar_gla", 1, 300, 2, 32, 16)
    lengths = [130, 0, 64, 106]  # 3 + 0 + 1 + 2 chunks
    offsets = np.cumsum([0, *lengths])
    pool = np.zeros((4, 2, 32, 16), np.float32)
    slots = np.array([-1, 2, 0, -1, -1, 3], np.int32)
    packed, _ = attn(**x, cu_seqlens=offsets, checkpoints=(pool, slots))
    for begin, tokens, slot in ((0, 64, 2), (0, 128, 0), (194, 64, 3)):
        _, wanted = attn(**part(x, 0, begin + tokens, begin), output_final_state=True)
        assert np.array_equal(pool[slot], wanted[0])
    for begin, end in zip(offsets, offsets[1:]):
        assert np.array_equal(packed[:, begin:end], attn(**part(x, 0, end, begin))[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_sequence_does_not_depend_on_others(name):
    """Alone, in batches of other sizes, and packed with long and short ones."""
    attn, x = variant(name), random_inputs(name, 9, 200, 2, 32, 16)
    rng = np.random.default_rng(1)
    o, final = attn(**x, output_final_state=True)
    for b in (0, 8):
        alone, state = attn(**part(x, b, 200), output_final_state=True)
        assert np.array_equal(alone[0], o[b]) and np.array_equal(state[0], final[b])
    pieces = [(b, int(n)) for b, n in zip((3, 0, 8, 5), (*rng.integers(1, 200, 3), 200))]
    long = random_inputs(name, 1, 3000, 2, 32, 16)  # for which other kernels would be chosen
    row = {n: np.concatenate([long[n], *(x[n][b : b + 1, :t] for b, t in pieces)], 1) for n in x}
    offsets = np.cumsum([0, 3000, *(t for _, t in pieces)])
    packed, states = attn(**row, cu_seqlens=offsets, output_final_state=True)
    for n, (b, t) in enumerate(pieces, 1):
        assert np.array_equal(packed[0, offsets[n] : offsets[n + 1]], o[b, :t])
        assert np.array_equal(states[n], attn(**part(x, b, t), output_final_state=True)[1][0])


def test_the_option_fixes_the_schedule():
    attn = variant()
    seen = set()
    for B, T in ((1, 64), (1, 20000), (33, 130)):
        attn(**random_inputs("scalar_gla", B, T, 2, 32, 16))
        seen.add((attn.info["strategy"], attn.info["chunk"]))
    assert len(seen) == 1
    for wrong in ({"strategy": "segmented"}, {"segments": 4}):
        with pytest.raises(forge.RuntimeError, match="batch_invariant: expected a strategy without segments"):
            variant(**wrong)(**random_inputs("scalar_gla", 1, 200, 2, 32, 16))


def test_decoding_does_not_depend_on_others():
    attn, x = variant(), random_inputs("scalar_gla", 9, 3, 2, 32, 16)
    pool = np.random.default_rng(0).standard_normal((9, 2, 32, 16)).astype(np.float32)
    alone = pool[4:5].copy()
    o = attn.decode(**x, state=pool)
    assert np.array_equal(attn.decode(**part(x, 4, 3), state=alone)[0], o[4]) and np.array_equal(alone[0], pool[4])


def test_views_of_one_buffer_are_not_copied():
    attn, x = variant(), random_inputs("scalar_gla", 2, 130, 2, 32, 32)
    together = np.concatenate([x["q"], x["k"], x["v"]], -1).reshape(2, 130, -1)
    views = np.split(together.reshape(2, 130, 2, 96), 3, -1)
    assert all(v.base is not None and not v.flags.c_contiguous for v in views)
    assert np.array_equal(attn(*views, x["g"])[0], attn(**x)[0])
    assert not attn._latest[1].converts


def test_what_is_wrong_is_said():
    attn, x = variant(), random_inputs("scalar_gla", 1, 130, 2, 32, 16)
    pool, slots = np.zeros((2, 2, 32, 16), np.float32), np.full((1, 3), -1, np.int32)
    wrong = {
        "expected .pools, slots., got ndarray": pool,
        "s: expected a pool of float32 on cpu that can be written, got float64": (pool.astype(np.float64), slots),
        "expected pools of s, got 2": ((pool, pool), slots),
        "slots: expected an array of int32 or int64": (pool, slots.astype(np.float32)),
    }
    for text, given in wrong.items():
        with pytest.raises(TypeError, match=text):
            attn(**x, checkpoints=given)
    refused = {
        r"'chunk_slots': expected shape \[1, 3\], got \[1, 4\]": np.full((1, 4), -1, np.int32),
        "'chunk_slots': expected slots below 2, got 2": np.array([[0, 2, -1]], np.int32),
        "a slot of its own for every state that is written, got slot 1 for the chunks 0 and 2": np.array([[1, -1, 1]]),
    }
    for text, given in refused.items():
        with pytest.raises(forge.RuntimeError, match=text):
            attn(**x, checkpoints=(pool, given))
    own = r"'chunk_slots': expected slots that no sequence has, .* got slot 0 for the chunk 2, which sequence 0 reads"
    with pytest.raises(forge.RuntimeError, match=own):
        attn(**x, initial_state=pool[:1], checkpoints=(pool, np.array([[1, -1, 0]])))
    attn(**x, initial_state=pool[:1], checkpoints=(pool, np.array([[1, -1, -1]])))
    with pytest.raises(forge.RuntimeError, match="got slot 1 for the chunk 0, which sequence 0 reads"):
        attn(**x, initial_state=pool[1:], checkpoints=(pool, np.array([[1, -1, 0]])))
    with pytest.raises(forge.RuntimeError, match=r"expected shape \[2, 2, 32, 16\], got \[2, 2, 16, 32\]"):
        attn(**x, checkpoints=(pool.reshape(2, 2, 16, 32), slots))
