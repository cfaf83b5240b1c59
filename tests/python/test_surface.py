"""What users see of the package: its names, what is said of names that there are not, copies, and a notice while
compilers run."""

import copy
import io
import multiprocessing
import pickle
import re
import threading

import numpy as np
import pytest

import forge
from forge import ConstExpr, SymbTensor, _notice
from programs import PROGRAMS, random_inputs

X = random_inputs("scalar_gla", 1, 40, 2, 8, 8)


# -- names -------------------------------------------------------------------------------------------------------------


def test_names_are_what_is_public():
    assert set(dir(forge)) == {*forge.__all__, "__version__"}
    for place in (forge.ops, forge.nn):
        assert dir(place) == sorted(place.__all__)
    assert set(dir(forge.variants)) == {*forge.variants.names(), "names"}
    methods = [
        "benchmark",
        "check",
        "compile",
        "cost",
        "decode",
        "definition",
        "explain",
        "info",
        "name",
        "options",
        "resources",
        "signature",
        "source",
        "vjp",
    ]
    assert dir(forge.variants.gla) == dir(PROGRAMS["scalar_gla"]()) == methods
    assert not [
        n
        for place in (forge, forge.ops, forge.variants, forge.variants.gla)
        for n in dir(place)
        if n.startswith("_") and n != "__version__"
    ]
    for place in (forge, forge.ops, forge.variants, forge.variants.gla.compile(K=8, V=8)):
        assert all(hasattr(place, name) for name in dir(place))


def test_errors_are_called_what_users_import():
    for name in ("Error", "CompileError", "RuntimeError", "InternalError", "PerformanceWarning"):
        error = getattr(forge, name)
        assert f"{error.__module__}.{error.__qualname__}" == f"forge.{name}"
        assert type(pickle.loads(pickle.dumps(error("what")))) is error


def test_names_have_docstrings():
    documented = [n for n in dir(forge) if callable(getattr(forge, n)) and n not in ("zeros_like", "ones_like")]
    assert not [n for n in documented if not getattr(forge, n).__doc__]
    assert not [n for n in forge.ops.__all__ if not getattr(forge.ops, n).__doc__]


@pytest.mark.parametrize(
    ("look", "text"),
    [
        (
            lambda: forge.matmul_out_f32,
            "module 'forge' has no attribute 'matmul_out_f32'; did you mean 'matmul_out_fp32'?",
        ),
        (
            lambda: forge.LinearAttenton,
            "module 'forge' has no attribute 'LinearAttenton'; did you mean 'LinearAttention'?",
        ),
        (lambda: forge.xyzzy, "module 'forge' has no attribute 'xyzzy'"),
        (
            lambda: forge.ops.chunk_gated_delta,
            "module 'forge.ops' has no attribute 'chunk_gated_delta'; did you mean 'chunk_gated_delta_",
        ),
        (lambda: forge.nn.Gated, "module 'forge.nn' has no attribute 'Gated'"),
        (
            lambda: forge.variants.gated_deltanet,
            "forge.variants has no 'gated_deltanet'; did you mean 'gated_delta_net'?; it has linear_attention,",
        ),
        (
            lambda: PROGRAMS["scalar_gla"](step=lambda q: q.cumsm(0)),
            "forge.Tensor has no 'cumsm'; did you mean 'cumsum'?",
        ),
    ],
)
def test_names_that_there_are_not(look, text):
    with pytest.raises(AttributeError, match=re.escape(text)):
        look()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"scal": 1.0}, "chunk_gla() got an unexpected keyword argument 'scal'; did you mean 'scale'?"),
        (
            {"initial_stat": None},
            "chunk_gla() got an unexpected keyword argument 'initial_stat'; did you mean 'initial_state'?",
        ),
        ({"xyzzy": None}, "chunk_gla() got an unexpected keyword argument 'xyzzy'"),
        ({"scale": "a"}, "`scale` must be a number, got 'a'"),
    ],
)
def test_keywords_of_operators_that_there_are_not(change, text):
    x = random_inputs("scalar_gla", 1, 40, 2, 8, 8)
    with pytest.raises(TypeError, match=re.escape(text)):
        forge.ops.chunk_gla(x["q"], x["k"], x["v"], x["k"], **change)


# -- copies ------------------------------------------------------------------------------------------------------------


def copies(x):
    return [
        copy.copy(x),
        copy.deepcopy(x),
        *(pickle.loads(pickle.dumps(x, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)),
    ]


@pytest.mark.parametrize("called_before", [False, True])
def test_variants_can_be_copied(called_before):
    attn = PROGRAMS["scalar_gla"](options={"strategy": "fused"}, sizes={"K": [8, 16]})
    if called_before:
        attn(**X)
    for other in copies(attn):
        assert other is not attn and type(other) is type(attn) and dir(other) == dir(attn)
        assert (other.definition, other.name, other.options) == (attn.definition, attn.name, attn.options)
        assert np.array_equal(other(**X)[0], attn(**X)[0]) and other.info["strategy"] == "fused"
        with pytest.raises(forge.RuntimeError, match="K = 8 or 16, as its ConstExpr says"):
            other(**random_inputs("scalar_gla", 1, 40, 2, 32, 8))
    compiled = attn.compile(K=8, V=8)
    assert all(other.info["kernels"] == compiled.info["kernels"] for other in copies(compiled))


def test_what_else_is_public_can_be_copied():
    q = SymbTensor(["2*T", ConstExpr("H", [2, 4]), 64], "bfloat16", pad=1.0, range=(0, 1))
    for other in copies(q):
        assert (other.dims, other.dtype, other.pad, other.range) == (q.dims, q.dtype, q.pad, q.range)
    assert all(str(r) == str(x) for x in [PROGRAMS["scalar_gla"]().check(K=8, V=8)] for r in copies(x))
    assert all(r == x for x in [forge.variants.scalar_gla.benchmark(T=32, H=1, K=8, V=8, runs=1)] for r in copies(x))
    for x in (
        forge.bfloat16,
        forge.exp,
        forge.add,
        forge.cumsum,
        forge.concat,
        forge.ops.chunk_gla,
        forge.Tensor,
        forge.CompileError,
    ):
        assert pickle.loads(pickle.dumps(x)) == x
    error = copy.copy(forge.RuntimeError("text"))
    assert str(error) == "text" and isinstance(error, RuntimeError)


def in_another_process(attn, x):
    return attn(**x, output_final_state=True)


def test_variants_go_to_spawned_processes():
    attn, ready = PROGRAMS["scalar_gla"](), forge.variants.scalar_gla
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for a, x in ((attn, X), (ready, {**X, "scale": 0.25})):
            assert all(map(np.array_equal, pool.apply(in_another_process, (a, x)), in_another_process(a, x)))


# -- the notice --------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def __init__(self, is_terminal=True):
        super().__init__()
        self.written, self.is_terminal = threading.Event(), is_terminal

    def isatty(self):
        return self.is_terminal

    def flush(self):
        self.written.set()


def on_a_terminal(monkeypatch, seconds) -> Terminal:
    """Standard error from now on; pytest sets it before a test, after its fixtures."""
    for name in ("CI", "FORGE_NOTICES", "TERM"):
        monkeypatch.delenv(name, raising=False)
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr(_notice, "SECONDS", seconds)
    return stream


def test_a_notice_comes_and_goes(monkeypatch):
    terminal = on_a_terminal(monkeypatch, 0)
    with pytest.raises(KeyError), _notice.notice("compiling"):
        assert terminal.written.wait(60)
        assert terminal.getvalue() == "\rcompiling"
        raise KeyError
    assert terminal.getvalue() == "\rcompiling\r\x1b[K"


def test_a_notice_fits_on_a_line(monkeypatch):
    terminal = on_a_terminal(monkeypatch, 0)
    with _notice.notice("x" * 500):
        assert terminal.written.wait(60)
    assert len(terminal.getvalue()) < 90


def test_what_is_quick_needs_no_notice(monkeypatch):
    terminal = on_a_terminal(monkeypatch, 3600)
    with _notice.notice("compiling"):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("why", ["no terminal", "closed", "none", "CI", "FORGE_NOTICES", "TERM"])
def test_where_nobody_looks_there_is_no_notice(monkeypatch, why):
    terminal = on_a_terminal(monkeypatch, 0)
    values = {"CI": "true", "FORGE_NOTICES": "0", "TERM": "dumb"}
    if why in values:
        monkeypatch.setenv(why, values[why])
    elif why == "none":
        monkeypatch.setattr("sys.stderr", None)
    else:
        terminal.is_terminal = False
        if why == "closed":
            terminal.close()
    monkeypatch.setattr(_notice.threading, "Timer", None)  # nothing is begun
    with _notice.notice("compiling"):
        pass


def test_first_compilations_give_notice(monkeypatch):
    said = []
    monkeypatch.setattr("forge._variant.notice", lambda text: (said.append(text), _notice.notice(text))[1])
    attn = PROGRAMS["scalar_gla"]()
    attn(**X)
    attn(**X)
    assert said == ["forge: compiling attention for cpu (f32, K = 8, V = 8) …"]
