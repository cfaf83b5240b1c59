"""Values taken apart and put together, as PyTorch and NumPy write it; several rows per token; places; states that are
replaced."""

import numpy as np
import pytest

import forge
from forge import ConstExpr, LinearAttention, SymbTensor
from reference import relative_rms


@pytest.fixture
def rng():
    """Numbers that do not depend on which tests ran before in the process."""
    return np.random.default_rng(0)


def outputs(merge, x, dims, **sizes):
    """What a variant whose output is a function of q alone makes of x [B, T, H, …]."""
    meta = {"q": SymbTensor(["T", "H", *dims], "float32"), "prev_s": SymbTensor(["NS", "H", *dims])}
    attn = LinearAttention(
        meta,
        chunk_mode=lambda q: q.sum(0),
        decay_mode=lambda prev_s, chunk_state: prev_s + chunk_state,
        merge_mode=merge,
        **sizes,
    )
    return attn(q=x)[0]


@pytest.mark.parametrize(
    ("merge", "wanted"),
    [
        (lambda q: q[:, :4], lambda x: x[..., :4]),
        (lambda q: q[..., -3:], lambda x: x[..., -3:]),
        (lambda q: q[:, 1:8:3], lambda x: x[..., 1:8:3]),
        (lambda q: q[:, 2:], lambda x: x[..., 2:]),
        (lambda q: q[:, :-1], lambda x: x[..., :-1]),
        (lambda q: q.narrow(1, 3, 5), lambda x: x[..., 3:8]),
        (lambda q: forge.concat(q.split([3, 7], -1)[::-1], -1), lambda x: np.concatenate([x[..., 3:], x[..., :3]], -1)),
        (lambda q: np.concatenate([q, q * 2], axis=1), lambda x: np.concatenate([x, 2 * x], -1)),
        (lambda q: forge.stack([q, -q], 1), lambda x: np.stack([x, -x], -2)),
        (lambda q: np.stack([q, -q], axis=-1), lambda x: np.stack([x, -x], -1)),
        (lambda q: forge.interleave([q, -q], -1), lambda x: np.stack([x, -x], -1).reshape(*x.shape[:-1], 20)),
        (lambda q: q - q.mean(-1, keepdim=True), lambda x: x - x.mean(-1, keepdims=True)),
        (lambda q: np.mean(q, axis=1, keepdims=True) * q, lambda x: x.mean(-1, keepdims=True) * x),
        (lambda q: q.cumprod(1), lambda x: np.cumprod(x, -1)),
        (lambda q: q.prod(-1, keepdim=True) + q, lambda x: x.prod(-1, keepdims=True) + x),
        (lambda q: q.cumsum(1, reverse=True, exclusive=True), lambda x: x.sum(-1, keepdims=True) - np.cumsum(x, -1)),
        (lambda q: q * forge.arange(q, q.shape[-1]), lambda x: x * np.arange(10)),
        (lambda q: (3 * q) % 2 + (3 * q) // 2, lambda x: (3 * x) % 2 + (3 * x) // 2),
        (lambda q: forge.ones_like(q) * 2 + np.zeros_like(q), lambda x: np.full_like(x, 2)),
    ],
)  # fmt: skip
def test_as_numpy_writes_it(rng, merge, wanted):
    x = rng.standard_normal((2, 70, 3, 10)).astype(np.float32)
    np.testing.assert_allclose(outputs(merge, x, [10]), wanted(x), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(outputs(merge, x, [ConstExpr("K", 10)]), wanted(x), rtol=2e-5, atol=2e-5)


def test_parts_of_sizes_that_are_names(rng):
    x = rng.standard_normal((1, 20, 2, 12)).astype(np.float32)
    halves = np.concatenate([x[..., 6:], -x[..., :6]], -1)
    for merge in (
        lambda q: forge.concat([q.chunk(2, -1)[1], -q.chunk(2, -1)[0]], -1),
        lambda q: forge.concat([q[:, q.shape[-1] // 2 :], -q[:, : q.shape[1] // 2]], -1),
    ):
        np.testing.assert_array_equal(outputs(merge, x, ["2*D"]), halves)
    made = outputs(lambda q: q * q.shape[-1] + q.mean(1, True), x, ["2*D"])
    np.testing.assert_allclose(made, x * 12 + x.mean(-1, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs(lambda q: q[:, -4:] + q[:, :4], x, ["K"]), x[..., -4:] + x[..., :4])
    with pytest.raises(forge.CompileError, match="K of at least 20"):
        outputs(lambda q: q[:, 10:20], x, ["K"])


def test_several_rows_per_token(rng):
    x = rng.standard_normal((2, 140, 3, 10)).astype(np.float32)
    meta = {"q": SymbTensor(["2*T", "H", "V"], "float32"), "prev_s": SymbTensor(["NS", "H", "V"])}
    for options in ({"chunk": 16}, {"strategy": "decoupled"}):
        attn = LinearAttention(
            meta, chunk_mode=lambda q: q.sum(0), decay_mode=lambda prev_s, chunk_state: prev_s + chunk_state,
            merge_mode=lambda q, chunk_state: forge.interleave([q[0::2].cumsum(0) + chunk_state, q[1::2], q[0::2] * 2],
            0), options=options,
        )  # fmt: skip
        before = np.concatenate([np.zeros((2, 1, 3, 10)), np.cumsum(x[:, 0::2] + x[:, 1::2], 1)[:, :-1]], 1)
        assert attn(q=x)[0].shape == (2, 210, 3, 10)
        first, second, third = (attn(q=x)[0][:, i::3] for i in range(3))
        assert not np.isnan(first).any()
        np.testing.assert_array_equal(second, x[:, 1::2])
        np.testing.assert_array_equal(third, 2 * x[:, 0::2])
        assert first.shape == before.shape


def place_of_tokens(**how):
    """README of docs/python.md: the place of a token in its sequence, wherever a call is cut."""
    meta = {"q": SymbTensor(["T", "H", "V"], "float32"), "prev_n": SymbTensor(["NS", "H"])}
    return LinearAttention(
        meta,
        chunk_mode=lambda token_mask: token_mask.sum(0),
        decay_mode=lambda prev_n, chunk_state: prev_n + chunk_state,
        merge_mode=lambda q, prev_n, token_mask: q * (prev_n + token_mask.cumsum(0, exclusive=True)).unsqueeze(1),
        **how,
    )


@pytest.mark.parametrize("strategy", ["one-pass", "fused", "decoupled", "segmented"])
def test_a_state_of_rank_0_counts_tokens(strategy):
    x = np.ones((2, 200, 3, 4), np.float32)
    attn = place_of_tokens(options={"strategy": strategy, "chunk": 16})
    o, n = attn(q=x, output_final_state=True)
    np.testing.assert_array_equal(o[0, :, 0, 0], np.arange(200))
    assert n.shape == (2, 3) and (n == 200).all()
    first, n = attn(q=x[:, :77], output_final_state=True)
    second, _ = attn(q=x[:, 77:], initial_state=n)
    np.testing.assert_array_equal(np.concatenate([first, second], 1), o)


@pytest.mark.parametrize("strategy", ["one-pass", "fused", "decoupled", "segmented"])
@pytest.mark.parametrize(
    ("decay", "wanted"),
    [
        (lambda prev_s, chunk_state: forge.zeros_like(prev_s), 0.0),
        (lambda prev_s, chunk_state: forge.full_like(prev_s, 1.5), 1.5),
        (lambda prev_s, chunk_state: prev_s * 0 + 2, 2.0),
        (lambda prev_s, chunk_state: -1, -1.0),
        (lambda chunk_state: chunk_state * 0 + 3, 3.0),
        (lambda prev_s, chunk_state: (prev_s.sum() * 0 + 4).expand(*prev_s.shape), 4.0),
    ],
)
def test_a_state_may_be_replaced(rng, strategy, decay, wanted):
    meta = {n: SymbTensor(["T", "H", d], "float32") for n, d in (("q", "K"), ("k", "K"), ("v", "V"))} | {
        "prev_s": SymbTensor(["NS", "H", "K", "V"])
    }
    attn = LinearAttention(
        meta,
        chunk_mode=lambda k, v: k.T @ v,
        decay_mode=decay,
        merge_mode=lambda q, chunk_state: q @ chunk_state,
        options={"strategy": strategy, "chunk": 16},
    )
    q, k, v = (rng.standard_normal((1, 50, 2, d)).astype(np.float32) for d in (5, 5, 3))
    start = rng.standard_normal((1, 2, 5, 3)).astype(np.float32)
    try:
        o, final = attn(q=q, k=k, v=v, initial_state=start, output_final_state=True)
    except forge.CompileError as refused:  # what cannot be cut into segments says so
        assert strategy == "segmented" and "segments" in str(refused)
        return
    assert (final == wanted).all()
    assert relative_rms(o[:, :16], np.einsum("bthk,bhkv->bthv", q[:, :16], start)) < 1e-6
    assert relative_rms(o[:, 16:], wanted * q[:, 16:].sum(-1, keepdims=True) * np.ones(3)) < 1e-5 or wanted == 0


def test_a_state_that_nothing_reads_passes_through_empty_sequences(rng):
    meta = {"v": SymbTensor(["T", "H", "V"], "float32"), "prev_s": SymbTensor(["NS", "H", "V"])}
    for strategy in ("one-pass", "fused", "decoupled"):
        attn = LinearAttention(
            meta,
            chunk_mode=lambda v: v.sum(0),
            decay_mode=lambda chunk_state: chunk_state * 0 + 2,
            merge_mode=lambda v: v * 3,
            options={"strategy": strategy},
        )
        v, start = (
            rng.standard_normal((1, 70, 2, 20)).astype(np.float32),
            rng.standard_normal((3, 2, 20)).astype(np.float32),
        )
        o, final = attn(v=v, initial_state=start, output_final_state=True, cu_seqlens=np.array([0, 70, 70, 70]))
        assert (o == 3 * v).all() and (final[0] == 2).all() and (final[1:] == start[1:]).all()


def states_before(x, chunk, spans, initial=None):
    """Of S = S + k v^T, before every chunk of every span of tokens."""
    found = []
    for n, (b, begin, end) in enumerate(spans):
        S = (
            np.zeros((x["k"].shape[2], x["k"].shape[3], x["v"].shape[3]))
            if initial is None
            else initial[n].astype(np.float64)
        )
        for at in range(begin, end, chunk):
            found.append(S)
            stop = min(at + chunk, end)
            S = S + np.einsum("thk,thv->hkv", x["k"][b, at:stop].astype(np.float64), x["v"][b, at:stop])
    return np.stack(found)


@pytest.mark.parametrize("strategy", ["auto", "one-pass", "fused", "decoupled", "segmented"])
def test_states_before_chunks(rng, strategy):
    meta = {n: SymbTensor(["T", "H", d], "float32") for n, d in (("q", "K"), ("k", "K"), ("v", "V"))} | {
        "prev_s": SymbTensor(["NS", "H", "K", "V"])
    }
    attn = LinearAttention(
        meta, chunk_mode=lambda k, v: k.T @ v, decay_mode=lambda prev_s, chunk_state: prev_s + chunk_state,
        merge_mode=lambda q, k, v, chunk_state: (q @ k.T).tril() @ v + q @ chunk_state, options={"strategy": strategy},
    )  # fmt: skip
    x = {n: rng.standard_normal((2, 300, 3, d)).astype(np.float32) for n, d in (("q", 8), ("k", 8), ("v", 20))}
    start = rng.standard_normal((2, 3, 8, 20)).astype(np.float32)
    plain, final = attn(**x, initial_state=start, output_final_state=True)
    o, again, h = attn(**x, initial_state=start, output_final_state=True, return_intermediate_states=True)
    assert h.shape == (2, 5, 3, 8, 20) and h.dtype == np.float32
    assert relative_rms(h.reshape(10, 3, 8, 20), states_before(x, 64, [(0, 0, 300), (1, 0, 300)], start)) < 1e-5
    assert relative_rms(o, plain) < 1e-5 and relative_rms(again, final) < 1e-5
    packed = {n: a.reshape(1, 600, 3, -1) for n, a in x.items()}
    lengths = [0, 70, 0, 64, 1, 465, 0]
    offsets = np.cumsum([0, *lengths])
    wanted = states_before(packed, 64, [(0, a, b) for a, b in zip(offsets, offsets[1:])])
    _, none, h = attn(**packed, cu_seqlens=offsets, return_intermediate_states=True)
    assert none is None and h.shape == (1, len(wanted), 3, 8, 20) and relative_rms(h[0], wanted) < 1e-5
    _, _, h = attn(
        **{n: a[0] for n, a in packed.items()}, cu_seqlens=offsets.astype(np.int32), return_intermediate_states=True
    )
    assert h.shape == wanted.shape and relative_rms(h, wanted) < 1e-5
    _, _, h = attn(**{n: a[:, :0] for n, a in x.items()}, return_intermediate_states=True)
    assert h.shape == (2, 0, 3, 8, 20)


def test_states_before_chunks_of_several_states():
    attn = place_of_tokens(options={"chunk": 32})
    _, n, before = attn(q=np.ones((2, 70, 3, 4), np.float32), output_final_state=True, return_intermediate_states=True)
    assert (n == 70).all() and before.shape == (2, 3, 3)
    np.testing.assert_array_equal(before[1, :, 2], [0, 32, 64])


@pytest.mark.parametrize("v_first", [False, True])
def test_chunk_kda_returns_intermediate_states(rng, v_first):
    from forge import ops

    q, k, v = (rng.standard_normal((2, 150, 2, 16)).astype(np.float32) for _ in range(3))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    g, beta = -rng.random((2, 150, 2, 16)).astype(np.float32), rng.random((2, 150, 2)).astype(np.float32)
    o, none, h = ops.chunk_kda(q, k, v, g, beta, return_intermediate_states=True, state_v_first=v_first)
    assert none is None and h.shape == (2, 3, 2, 16, 16)
    for at in (64, 128):
        wanted, state = ops.chunk_kda(
            *(x[:, :at] for x in (q, k, v, g, beta)), output_final_state=True, state_v_first=v_first
        )
        assert relative_rms(h[:, at // 64], state) < 1e-5
        assert relative_rms(o[:, :at], wanted) < 1e-5
    assert (h[:, 0] == 0).all()
    _, _, h = ops.chunk_kda(
        q[:1],
        k[:1],
        v[:1],
        g[:1],
        beta[:1],
        cu_seqlens=np.array([0, 100, 150]),
        return_intermediate_states=True,
        chunk_size=32,
    )
    assert h.shape == (1, 4 + 2, 2, 16, 16) and (h[0, 4] == 0).all()
