"""Masks and transitions of one's own in compositions, held against what they say, pair by pair and token by token."""

import numpy as np
import pytest

import forge
from forge import SymbTensor

T, H, K, V = 75, 2, 8, 12
LOGARITHM = (-float("inf"), 0)
RNG = np.random.default_rng(0)
Q, KEYS = (RNG.standard_normal((1, T, H, K), np.float32) for _ in range(2))
VALUES = RNG.standard_normal((1, T, H, V), np.float32)
SLOPE, BIAS = np.array([0.1, 0.02], np.float32), RNG.standard_normal((H, 6), np.float32)
WITH_SLOPE = {"slope": SymbTensor(["H"], range=(0, 1))}
WITH_BIAS = {"bias": SymbTensor(["H", 6]), **WITH_SLOPE}
SMALL = dict(tokens=40, heads=H, K=K, V=V)


def of_pairs(mask, q=Q, k=KEYS, v=VALUES, normalised=False):
    """sum over j <= i of mask(i, j, head) (q_i·k_j) v_j, in float64."""
    o = np.zeros((T, H, V))
    for h in range(H):
        weights = np.array([[float(mask(i, j, h)) if j <= i else 0.0 for j in range(T)] for i in range(T)])
        scores = q[0, :, h].astype(np.float64) @ k[0, :, h].T * weights
        o[:, h] = scores @ v[0, :, h]
        if normalised:
            o[:, h] /= np.abs(scores.sum(1))[:, None] + 1e-3
    return o


def by_tokens(matrix):
    """What queries read of S' = matrix(t, head) S + k vᵀ."""
    o, s = np.zeros((T, H, V)), np.zeros((H, K, V))
    for t in range(T):
        for h in range(H):
            s[h] = matrix(t, h) @ s[h] + np.outer(KEYS[0, t, h], VALUES[0, t, h])
            o[t, h] = Q[0, t, h] @ s[h]
    return o


def assert_near(o, expected):
    assert np.abs(o[0] - expected).max() <= 1e-5 * np.abs(expected).max()


def learned(i, j, bias, slope):
    return forge.where(i - j < 6, bias[i - j], forge.exp(-slope * (i - j)))


def test_a_learned_weight_per_distance_before_a_decay():
    attn = forge.compose(mask=learned, inputs=WITH_BIAS)
    assert attn.signature.states == {"s": ["K", "V"], "keys": ["5", "K"], "values": ["5", "V"]}
    o, _ = attn(q=Q, k=KEYS, v=VALUES, bias=BIAS, slope=SLOPE)
    assert_near(o, of_pairs(lambda i, j, h: BIAS[h, i - j] if i - j < 6 else np.exp(-SLOPE[h] * (i - j))))
    assert attn.check(**SMALL)
    assert attn.check(backward=True, **SMALL)


def test_a_band_in_two_calls_and_token_by_token():
    attn = forge.compose(mask=lambda i, j: i - j < 5)
    whole = of_pairs(lambda i, j, h: i - j < 5)
    first, state = attn(q=Q[:, :40], k=KEYS[:, :40], v=VALUES[:, :40], output_final_state=True)
    pools = tuple(s.copy() for s in state)
    second, _ = attn(q=Q[:, 40:], k=KEYS[:, 40:], v=VALUES[:, 40:], initial_state=state)
    assert_near(np.concatenate([first, second], 1), whole)
    steps = attn.decode(q=Q[:, 40:], k=KEYS[:, 40:], v=VALUES[:, 40:], state=pools)
    np.testing.assert_allclose(steps, second, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("mask", "inputs", "states", "says"),
    [
        (lambda i, j: i // 16 == j // 16, {}, ["s", "place"], lambda i, j, h: i // 16 == j // 16),
        (lambda i, j: i // 16 > j // 16, {}, ["s", "s2", "place"], lambda i, j, h: i // 16 > j // 16),
        (lambda i, j, slope: forge.exp(-slope * (i - j)), WITH_SLOPE, ["s"],
         lambda i, j, h: np.exp(-SLOPE[h] * (i - j))),
    ],
    ids=["blocks", "earlier-blocks", "slopes"],
)  # fmt: skip
def test_masks_that_are_recurrences(mask, inputs, states, says):
    attn = forge.compose(mask=mask, inputs=inputs)
    assert list(attn.signature.states) == states
    o, _ = attn(q=Q, k=KEYS, v=VALUES, **({"slope": SLOPE} if inputs else {}))
    assert_near(o, of_pairs(says))


def test_what_is_read_is_divided_by_the_sum_of_weights():
    attn = forge.compose(mask=lambda i, j: forge.where(i // 4 == j // 4, 1 / (1 + i - j), 0.0), normalise="sum",
                         features="squared")  # fmt: skip
    o, _ = attn(q=Q, k=KEYS, v=VALUES)
    says = of_pairs(lambda i, j, h: (i // 4 == j // 4) / (1 + i - j), Q**2, KEYS**2, normalised=True)
    assert_near(o, says)


@pytest.mark.parametrize(
    ("mask", "what"),
    [
        (lambda i, j: (1 + i - j) ** -0.5, r"pow of both places(.|\n)*say where it ends"),
        (lambda i, j: forge.exp(-((i - j) * (i - j))), "exp of what is no sum of a function of i and one of j"),
        (lambda i, j: i < 2 * j, "compares one thing of i with another of j"),
        (lambda i, j: forge.sin(i) == forge.sin(j), "may fall and rise again"),
        (lambda i, j: i - j < 5000, "a window of 5000 tokens"),
        (lambda i, j, x_i, x_j: forge.exp(x_i - x_j), "exp of the difference of what two tokens bring"),
        (lambda i, j, x_j: forge.where(i - j < 4, x_j, 0.0), "a window of tokens that are kept"),
        (lambda i, j, x: x, r"unknown input 'x'(.|\n)*x_i, x_j"),
        (lambda i, j: (i - j).unsqueeze(0).sum(0), "axes of what depends on places"),
        (lambda i, j: "1", "expected a traced tensor as 'mask'"),
    ],
)
def test_what_does_not_decompose_is_refused_in_words(mask, what):
    with pytest.raises(forge.CompileError, match=what):
        forge.compose(mask=mask, inputs={"x": SymbTensor(["T", "H"])})


def test_an_undecomposed_mask_is_told_at_its_line():
    with pytest.raises(forge.CompileError, match=r"test_own_parts\.py:\d+:\d+: error: mask: pow"):
        forge.compose(mask=lambda i, j: (1 + i - j) ** -0.5)


RATE = RNG.random((1, T, H), np.float32)
G = -RNG.random((1, T, H, K), np.float32)
A = 0.3 * RNG.standard_normal((1, T, H, K), np.float32)
THETA = RNG.standard_normal((1, T, H, K // 2), np.float32)
OF_G = {"g": SymbTensor(["T", "H", "K"], range=LOGARITHM)}
OF_A = {"a": SymbTensor(["T", "H", "K"])}
OF_Z = {"prev_z": SymbTensor(["NS", "H", "K"])}
OF_RATE = {"rate": SymbTensor(["T", "H"], range=(0, 1))}


def turned(angles):
    c, s = np.diag(np.cos(angles)), np.diag(np.sin(angles))
    return np.block([[c, -s], [s, c]])


def test_a_diagonal_and_one_more_rank():
    attn = forge.compose(transition=lambda g, a: (forge.exp(g), -a, a), inputs={**OF_G, **OF_A})
    o, _ = attn(q=Q, k=KEYS, v=VALUES, g=G, a=A)
    assert_near(o, by_tokens(lambda t, h: np.diag(np.exp(G[0, t, h])) - np.outer(A[0, t, h], A[0, t, h])))


def test_rotations_keep_an_angle():
    attn = forge.compose(
        transition=lambda theta, rate: {"angle": theta, "diagonal": rate},
        inputs={"theta": SymbTensor(["T", "H", "K"]), **OF_RATE},
    )
    assert attn.signature.states == {"s": ["2*K", "V"], "angle": ["K"]}
    o, _ = attn(q=Q, k=KEYS, v=VALUES, theta=THETA, rate=RATE)
    assert_near(o, by_tokens(lambda t, h: RATE[0, t, h] * turned(THETA[0, t, h])))
    assert attn.check(backward=True, **SMALL)


def test_a_state_of_its_own():
    def preconditioned(k, g, prev_z):
        z = prev_z + k * k
        return {"diagonal": forge.exp(g) / (1 + forge.relu(z)), "z": z}

    attn = forge.compose(transition=preconditioned, inputs={**OF_G, **OF_Z})
    o, _ = attn(q=Q, k=KEYS, v=VALUES, g=G)
    z = np.cumsum(KEYS[0].astype(np.float64) ** 2, 0)
    assert_near(o, by_tokens(lambda t, h: np.diag(np.exp(G[0, t, h]) / (1 + z[t, h]))))


def test_matrices_of_ones_and_outer_products_and_others_token_by_token():
    """The same matrix, of which the first has a form over chunks."""
    written = forge.compose(transition=lambda k, a, rate: forge.identity(k, k.shape[0]) - forge.outer(a * rate, a),
                            inputs={**OF_A, **OF_RATE})  # fmt: skip
    assert "func @step" in written.definition
    dense = {"w": SymbTensor(["H", "K", "K"], range=(-0.1, 0.1))}
    with pytest.raises(forge.CompileError, match=r"no sum of outer products(.|\n)*sequential"):
        forge.compose(transition=lambda w: w, inputs=dense)
    assert "chunk=1" in forge.compose(transition=lambda w: w, inputs=dense, sequential=True).definition


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        (dict(transition=lambda k: -k), "multiplied by a factor that may be negative"),
        (dict(transition=lambda v: v),
         r"test_own_parts.py:\d+:\d+.*the diagonal is not along the keys\n    expected: a number, or \[K\]"),
        (dict(transition=lambda k: (1, k, k, k)), r"expected \(diagonal, left, right\), got 4 values"),
        (dict(transition=lambda k: {"left": k}), "left and right come together"),
        (dict(transition=lambda k, a: {"angle": a, "diagonal": forge.sigmoid(k)}, inputs=OF_A), "does not commute"),
        (dict(transition=lambda k: 1.0, inputs=OF_Z), "the next 'z' is not returned"),
        (dict(transition=lambda k: k, decay="scalar"), "takes the place of decay='scalar'"),
        (dict(transition=lambda k: k, update="momentum"), "has one of its own"),
        (dict(transition=lambda k: k, normalise="sum", features="elu"), "a transition may turn them"),
        (dict(inputs=OF_Z), "is a transition's, and there is none"),
        (dict(mask=lambda i, j: i - j < 4, update="delta"), "reads the state that it writes to"),
        (dict(mask=lambda i, j: i - j < 4, decay="scalar"), "write the decay into the mask"),
        (dict(mask=lambda i, j: i - j < 4, features="rotary"), "one key each, and features='rotary'"),
        (dict(mask=lambda i, j: i - j < 4, update="delta", decay="scalar"), "a mask weighs what is added"),
    ],
)  # fmt: skip
def test_what_goes_not_together_is_refused_in_words(chosen, why):
    with pytest.raises((ValueError, forge.CompileError), match=why):
        forge.compose(**chosen)


def test_with_the_other_parts():
    """Definitions only: they are derived, and held to what padding and later tokens must not change."""
    by_block = dict(mask=lambda i, j: i // 4 == j // 4)
    forge.compose(**by_block, decay="vector", update="mimo", normalise="sum", features="elu")
    forge.compose(**by_block, read="before", features="rotary")
    forge.compose(**by_block, transition=lambda g: forge.exp(g), inputs=OF_G)
    forge.compose(mask=lambda i, j: i - j < 2, read="before", normalise="sum", features="elu")
    forge.compose(mask=lambda i, j: i - j < 1)
    forge.compose(update="delta", transition=lambda g: forge.exp(g), inputs=OF_G)
    forge.compose(mask=lambda i, j, slope: 1 + forge.cos(slope * (i - j)), inputs=WITH_SLOPE)
    forge.compose(mask=lambda x_i, x_j: x_i * x_j, inputs={"x": SymbTensor(["T", "H"])})
