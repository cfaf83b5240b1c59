"""What `check` says of definitions that are wrong, unusual, or right under other names."""

import math

import numpy as np
import pytest

import forge
from forge import LinearAttention, SymbTensor


def program(names="qkvg", merge=None, gate=None, **options):
    q, k, v, g = names
    meta = {n: SymbTensor(["T", "H", d]) for n, d in ((q, "K"), (k, "K"), (v, "V"))}
    meta |= {g: SymbTensor(["T", "H"], range=gate), "prev_s": SymbTensor(["NS", "H", "K", "V"])}
    namespace = {"forge": forge, "merge": merge or right_merge}
    exec(  # the names of arguments are the names of inputs
        f"""
def chunk({k}, {v}, {g}):
    return ({k} * ({g}.sum(0) - {g}.cumsum(0)).exp()[..., None]).T @ {v}
def decay(prev_s, chunk_state, {g}):
    return prev_s * {g}.sum(0).exp() + chunk_state
def merge_mode({q}, {k}, {v}, {g}, chunk_state):
    return merge({q}, {k}, {v}, {g}, chunk_state)
def step({q}, {k}, {v}, {g}, prev_s):
    s = prev_s * {g}.exp() + forge.outer({k}, {v})
    return s, {q} @ s
""",
        namespace,
    )
    phases = {"chunk_mode": namespace["chunk"], "decay_mode": namespace["decay"], "merge_mode": namespace["merge_mode"]}
    return LinearAttention(input_meta=meta, **phases, **{"step": namespace["step"], **options})


def right_merge(q, k, v, g, before):
    G = g.cumsum(0)
    return ((q @ k.T) * (G[:, None] - G[None, :]).exp()).tril() @ v + (q @ before) * G.exp()[:, None]


def banded(q, k, v, g, before):
    return (q @ k.T).tril().triu(-8) @ v


@pytest.mark.parametrize("names", ["qkvg", "abcd", ["beta", "gate", "k", "v"], ["dt", "alpha", "theta", "slope"]])
def test_names_do_not_matter(names):
    report = program(names).check()
    assert report, report
    assert [c["name"] for c in report.report["cases"]] == [c["name"] for c in program().check().report["cases"]]


def test_numbers_that_are_none_are_reported():
    report = program(
        merge=lambda q, k, v, g, before: right_merge(q, k, v, g, before) + (g - g).log()[:, None] * 0
    ).check()
    assert not report and math.isinf(report.worst)
    assert "FAIL" in str(report) and "inf" in str(report)


def test_declared_ranges():
    assert "gate -1000" not in str(program(gate=(-5, 0)).check()) and "gate -5" in str(program(gate=(-5, 0)).check())
    assert "range=[-inf, 0]" in program(gate=(-math.inf, 0)).definition
    with pytest.raises(ValueError, match="two numbers, the lower one first"):
        SymbTensor(["T", "H"], range=(1, 0))


def test_sizes_of_chunks():
    report = program(merge=banded, step=None).check()
    assert not report
    assert (
        "depends on the size of the chunks" in str(report) and "token 16" in str(report) and "chunk=64" in str(report)
    )
    fixed = program(merge=banded, step=None, chunk=32)
    assert fixed.check() and fixed._last.info["chunk"] == 32
    with pytest.raises(forge.RuntimeError, match="expected 32, which the definition fixes, got 64"):
        program(merge=banded, step=None, chunk=32, options={"chunk": 64}).check()
    with pytest.raises(ValueError, match="expected 16, 32, 64 or 128 tokens, got 48"):
        program(chunk=48)


def shifted(**options):
    meta = {n: SymbTensor(["T", "H", d]) for n, d in (("q", "K"), ("k", "K"), ("v", "V"))}
    meta |= {"prev_s": SymbTensor(["NS", "H", "K", "V"])}

    def merge_mode(q, keys, v, chunk_state):
        return (q @ keys.T).tril() @ v + q @ chunk_state

    def chunk_mode(k, v):
        return forge.cache_result(k + forge.prev_token(k), "keys").T @ v

    def step(q, k, v, prev_s):
        s = prev_s + forge.outer(k + forge.prev_token(k), v)
        return s, q @ s

    return LinearAttention(
        input_meta=meta,
        chunk_mode=chunk_mode,
        decay_mode=lambda prev_s, chunk_state: prev_s + chunk_state,
        merge_mode=merge_mode,
        step=step,
        **options,
    )


def test_a_call_in_two_is_the_call_in_one():
    rng = np.random.default_rng(0)
    attn, T = shifted(name="shifted"), 75
    x = {n: rng.standard_normal((2, T, 3, d), np.float32) * 0.1 for n, d in (("q", 16), ("k", 16), ("v", 8))}
    assert attn.check()
    whole, (s, last_k) = attn(**x, output_final_state=True)
    assert s.shape == (2, 3, 16, 8) and last_k.shape == (2, 3, 16)
    assert (last_k == x["k"][:, -1]).all()
    for cut in (0, 1, 33, 64, 75):
        first, second = ({n: a[:, part] for n, a in x.items()} for part in (slice(None, cut), slice(cut, None)))
        o1, states = attn(**first, output_final_state=True)
        o2, (s2, last2) = attn(**second, initial_state=states, output_final_state=True)
        assert np.abs(np.concatenate([o1, o2], axis=1) - whole).max() < 1e-5, cut
        assert np.abs(s2 - s).max() < 1e-5 and (last2 == last_k).all(), cut
        named, _ = attn(**second, initial_state=dict(zip(("s", "last_k"), states)))
        assert (named == o2).all()
    tail = {n: a[:, 33:] for n, a in x.items()}
    alone, _ = attn(**tail, initial_state=attn(**{n: a[:, :33] for n, a in x.items()}, output_final_state=True)[1][0])
    assert np.abs(alone[:, 0] - whole[:, 33]).max() > 1e-4, (
        "without the last row, the first token looks back to the pad"
    )
    with pytest.raises(TypeError, match=r"expected 2 states \(s, last_k\), got 3"):
        attn(**tail, initial_state=(s, last_k, s))
