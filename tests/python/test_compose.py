"""Variants composed of named parts: every sensible combination is a definition, and some are compiled and checked."""

import itertools

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
    assert made == 874


SOME = [  # every choice stands in some
    dict(decay="scalar", gate="raw", features="rotary", update="delta"),
    dict(decay="vector", features="elu", normalise="sum", discretise="zero-order-hold"),
    dict(decay="vector", features="rotary-data", update="dplr", read="before"),
    dict(decay="head", features="softmax", discretise="trapezoidal", normalise="sum", read="before"),
    dict(decay="scalar", features="cosine", update="momentum"),
    dict(decay="vector", gate="raw", features="squared", update="householder"),
    dict(decay="value", update="mimo"),
]


@pytest.mark.parametrize("chosen", SOME, ids=lambda c: "-".join(c.values()))
def test_some_are_right(chosen):
    attn = forge.compose(**chosen)
    report = attn.check(tokens=40, heads=2, K=8, V=12)
    assert report, report


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
        (
            dict(update="oja"),
            "argument 'update': expected additive, delta, householder, dplr, mimo, momentum, got 'oja'",
        ),
    ],
)
def test_what_makes_no_variant_is_refused_with_the_reason(chosen, why):
    with pytest.raises(ValueError, match=why):
        forge.compose(**chosen)
