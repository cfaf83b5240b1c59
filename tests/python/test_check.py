"""What `check` says of definitions that are wrong, unusual, or right under other names."""

import math

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
    report = program(merge=lambda q, k, v, g, before: right_merge(q, k, v, g, before) + (g - g).log()[:, None] * 0).check()
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
    assert "depends on the size of the chunks" in str(report) and "token 16" in str(report) and "chunk=64" in str(report)
    fixed = program(merge=banded, step=None, chunk=32)
    assert fixed.check() and fixed._last.info["chunk"] == 32
    with pytest.raises(forge.RuntimeError, match="expected 32, which the definition fixes, got 64"):
        program(merge=banded, step=None, chunk=32, options={"chunk": 64}).check()
    with pytest.raises(ValueError, match="expected 16, 32, 64 or 128 tokens, got 48"):
        program(chunk=48)
