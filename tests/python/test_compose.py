"""Variants composed of named parts: every sensible combination is a definition, and some are compiled and checked."""

import itertools

import numpy as np
import pytest

import forge
from forge._compose import CHOICES, refusal


def combinations():
    for values in itertools.product(*CHOICES.values()):
        chosen = dict(zip(CHOICES, values))
        if refusal(**chosen) is None:
            yield chosen


def test_every_sensible_combination_is_a_definition():
    """Made, derived, and held by the interpreter to what padding and later tokens must not change."""
    made = 0
    for chosen in combinations():
        try:
            forge.compose(**chosen)
        except forge.Error as error:
            raise AssertionError(f"{chosen}: {error}") from error
        made += 1
    assert made == 1390


SOME = [  # every choice stands in some
    dict(decay="scalar", gate="raw", features="rotary", update="delta"),
    dict(decay="vector", features="elu", normalise="sum", discretise="zero-order-hold"),
    dict(decay="vector", features="rotary-data", update="dplr", read="before"),
    dict(decay="head", features="softmax", discretise="trapezoidal", normalise="sum", read="before"),
    dict(decay="scalar", features="cosine", update="momentum"),
    dict(decay="vector", gate="raw", features="squared", update="householder"),
    dict(decay="value", update="mimo", rank=3, discretise="zero-order-hold"),
    dict(decay="value", update="oja"),
    dict(decay="scalar", features="rotary-data", update="mimo", discretise="trapezoidal"),
]


@pytest.mark.parametrize("chosen", SOME, ids=lambda c: "-".join(map(str, c.values())))
def test_some_are_right(chosen):
    attn = forge.compose(**chosen)
    report = attn.check(tokens=40, heads=2, K=8, V=12)
    assert report, report


def test_a_step_alone_may_run_token_by_token():
    """What is not affine is refused with the way out, which is right forwards, in `decode` and backwards."""

    def step(q, k, v, prev_s):
        after = forge.tanh(prev_s) + forge.outer(k, v)
        return after, q @ after

    meta = {n: forge.SymbTensor(["T", "H", d]) for n, d in (("q", "K"), ("k", "K"), ("v", "V"))}
    meta["prev_s"] = forge.SymbTensor(["NS", "H", "K", "V"])
    with pytest.raises(forge.CompileError, match="tanh is not affine(.|\n)*sequential"):
        forge.LinearAttention(meta, step=step)
    with pytest.raises(TypeError, match="expected step alone with it"):
        forge.LinearAttention(meta, chunk_mode=step, decay_mode=step, merge_mode=step, step=step, sequential=True)
    attn = forge.LinearAttention(meta, step=step, sequential=True)
    assert attn.check(tokens=20, heads=2, K=8, V=12)
    assert attn.check(tokens=20, heads=2, K=8, V=12, backward=True)
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 5, 2, 8), np.float32) for _ in range(3))
    o, state = attn(q=q, k=k, v=v, output_final_state=True)
    pool = np.zeros((1, 2, 8, 8), np.float32)
    np.testing.assert_allclose(attn.decode(q=q, k=k, v=v, state=pool), o, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(pool, state, rtol=1e-5, atol=1e-5)


def test_the_docstring_lists_the_choices():
    for part, choices in CHOICES.items():
        assert part in forge.compose.__doc__
        for choice in choices:
            assert choice in forge.compose.__doc__, choice


def test_gradients_of_a_composition():
    attn = forge.compose(decay="scalar", update="delta", features="elu")
    assert attn.check(tokens=20, heads=1, K=8, V=8, backward=True)


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        (dict(decay="value", update="delta"), "columns that decay apart"),
        (dict(decay="vector", update="momentum"), "decays by numbers only"),
        (dict(update="delta", normalise="sum"), "takes values out again"),
        (dict(normalise="sum"), "weights that are not negative"),
        (dict(discretise="trapezoidal"), "follows from a decay"),
        (dict(gate="raw"), "the form of a decay"),
        (dict(update="oja", decay="vector"), "rows that decay apart"),
        (dict(update="mimo", rank=9), "argument 'rank': expected 2 to 8 keys per token, got 9"),
        (
            dict(update="hebb"),
            "argument 'update': expected additive, delta, oja, householder, dplr, mimo, momentum, got 'hebb'",
        ),
    ],
)
def test_what_makes_no_variant_is_refused_with_the_reason(chosen, why):
    with pytest.raises(ValueError, match=why):
        forge.compose(**chosen)
