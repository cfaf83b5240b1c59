"""Variants from their recurrence alone: the phases are derived."""

import numpy as np
import pytest

import forge
from forge import SymbTensor


def meta(**more):
    heads = {n: SymbTensor(["T", "H", d]) for n, d in (("q", "K"), ("k", "K"), ("v", "V"))}
    return {**heads, "prev_s": SymbTensor(["NS", "H", "K", "V"]), **more}


def gate():
    return SymbTensor(["T", "H"], range=(-float("inf"), 0))


def gated_delta_step(q, k, v, g, beta, prev_s):
    kept = prev_s * forge.exp(g)
    next_s = kept + forge.outer(k, (v - k @ kept) * beta)
    return next_s, q @ next_s


def arguments(T=37, K=16, V=8):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, T, 2, d), np.float32) for d in (K, K, V))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    return dict(q=q, k=k, v=v, g=-rng.random((1, T, 2), np.float32), beta=rng.random((1, T, 2), np.float32))


def by_tokens(q, k, v, g, beta):
    o, s = np.zeros_like(v, np.float64), np.zeros((2, q.shape[-1], v.shape[-1]))
    for t in range(q.shape[1]):
        for h in range(2):
            s[h] *= np.exp(g[0, t, h])
            s[h] += np.outer(k[0, t, h], (v[0, t, h] - k[0, t, h] @ s[h]) * beta[0, t, h])
            o[0, t, h] = q[0, t, h] @ s[h]
    return o, s


def test_a_step_is_enough():
    attn = forge.LinearAttention(meta(g=gate(), beta=SymbTensor(["T", "H"])), step=gated_delta_step)
    assert attn.name == "gated_delta"
    x = arguments()
    o, state = attn(**x, output_final_state=True)
    expected, expected_state = by_tokens(**x)
    assert np.abs(o - expected).max() < 1e-5
    assert np.abs(state[0] - expected_state).max() < 1e-5
    assert attn.check(tokens=70, K=16, V=8)


def test_it_has_gradients_and_decodes():
    attn = forge.LinearAttention(meta(g=gate(), beta=SymbTensor(["T", "H"])), step=gated_delta_step)
    x = arguments(T=20)
    (o, _), pullback = attn.vjp(**x)
    gradients = pullback(np.ones_like(o))
    moved = {**x, "v": x["v"] + 1e-2}
    assert (attn(**moved)[0] - o).sum() == pytest.approx(1e-2 * gradients["v"].sum(), rel=1e-3)
    state = np.zeros((1, 2, 16, 8), np.float32)
    last = [attn.decode(**{n: a[:, t : t + 1] for n, a in x.items()}, state=state) for t in range(20)]
    assert np.abs(last[-1][:, 0] - o[:, -1]).max() < 1e-5


def test_what_is_not_affine_is_refused_where_it_stands():
    def squashed_step(q, k, v, prev_s):
        next_s = forge.tanh(prev_s) + forge.outer(k, v)
        return next_s, q @ next_s

    with pytest.raises(forge.CompileError, match=r"test_step_alone.py:\d+.*'s' has no chunk form: tanh is not affine"):
        forge.LinearAttention(meta(), step=squashed_step)


def test_factors_that_may_be_negative_are_refused():
    def step(q, k, v, beta, prev_s):
        next_s = prev_s * (1 - forge.exp(beta)) + forge.outer(k, v)
        return next_s, q @ next_s

    with pytest.raises(forge.CompileError, match="multiplied by a factor that may be negative"):
        forge.LinearAttention(meta(beta=SymbTensor(["T", "H"])), step=step)


def test_some_phases_are_not_enough():
    with pytest.raises(TypeError, match="'decay_mode': expected a function .all three, or step alone"):
        forge.LinearAttention(meta(), chunk_mode=lambda k, v: k.T @ v, step=gated_delta_step)
    with pytest.raises(ValueError, match="'chunk': a step alone"):
        forge.LinearAttention(meta(g=gate(), beta=SymbTensor(["T", "H"])), step=gated_delta_step, chunk=64)


def fast_and_slow(slow, fast):
    """Two states under these names, of which one is read with the other."""

    def step(q, k, v, beta, g, **states):
        old, before = states[f"prev_{slow}"], states[f"prev_{fast}"]
        new = forge.exp(g) * before + forge.outer(k, v)
        next_slow = old + forge.outer(k, beta * (v - k @ old - k @ before))
        return {slow: next_slow, fast: new, "o": q @ next_slow + q @ new}

    return step


@pytest.mark.parametrize(("slow", "fast"), [("s", "z"), ("s", "f"), ("z", "s")])
def test_names_of_states_are_no_order(slow, fast):
    names = f"q, k, v, beta, g, prev_{slow}, prev_{fast}"
    taken = {"step": fast_and_slow(slow, fast)}
    pairs = ", ".join(f"{n}={n}" for n in names.split(", "))
    exec(f"def named({names}):\n    return step({pairs})", taken)
    state = SymbTensor(["NS", "H", "K", "V"])
    attn = forge.LinearAttention(
        {n: SymbTensor(["T", "H", d]) for n, d in (("q", "K"), ("k", "K"), ("v", "V"))}
        | {"beta": SymbTensor(["T", "H"], range=(0, 1)), "g": SymbTensor(["T", "H"], range=(float("-inf"), 0))}
        | {f"prev_{slow}": state, f"prev_{fast}": state},
        step=taken["named"],
    )
    assert attn.check(K=16, V=16).ok
