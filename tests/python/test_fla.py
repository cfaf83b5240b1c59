"""forge.fla: functions of a small package that is called fla (no PyTorch needed), and of flash-linear-attention itself,
layers of it included, where it is installed."""

import importlib
import logging
import re
import sys
import warnings

import numpy as np
import pytest

import forge
from forge import _launch
from programs import random_inputs

#: File: text. `calls` has what ran in FLA's place for it.
PACKAGE = {
    "fla/__init__.py": "__version__ = '0'\n",
    "fla/ops/__init__.py": "from .gla import *\n__all__ = ['chunk_gla', 'fused_recurrent_gsa']\n",
    "fla/ops/gla/__init__.py": "from .chunk import chunk_gla\nfrom .recurrent import fused_recurrent_gsa\n",
    "fla/ops/gla/chunk.py": (
        "calls = []\ndef chunk_gla(*args, **kwargs):\n    calls.append(kwargs)\n    return 'of fla', None\n"
    ),
    "fla/ops/gla/recurrent.py": "def fused_recurrent_gsa(*args, **kwargs):\n    return 'recurrent', None\n",
    "fla/ops/gla/backend.py": "def chunk_gla(*args, **kwargs):\n    return 'a backend', None\n",
    "fla/ops/hgrn/__init__.py": "def chunk_hgrn(*args, **kwargs):\n    return 'of fla', None\n",
    "fla/layers.py": "from fla.ops.gla import chunk_gla as attend, fused_recurrent_gsa\nfrom fla.ops import gla\n",
    "fla/late.py": "from fla.ops.gla.chunk import chunk_gla\n",
}


@pytest.fixture
def fla(tmp_path, monkeypatch):
    """A function that imports modules of the small package."""
    for file, text in PACKAGE.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    of_the_other = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "fla"}
    for name in of_the_other:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda name: importlib.import_module(f"fla.{name}")
    forge.fla.unpatch()
    for name in [n for n in sys.modules if n.partition(".")[0] == "fla"]:
        del sys.modules[name]


def gla(T=40, seed=0):
    x = random_inputs("scalar_gla", 1, T, 2, 8, 8)
    g = -np.random.default_rng(seed).random((1, T, 2, 8), np.float32)
    return x["q"], x["k"], x["v"], g


def everything() -> dict:
    return {(n, a): x for n, m in sys.modules.items() if n.partition(".")[0] == "fla" for a, x in vars(m).items()}


def test_functions_are_replaced_wherever_they_are(fla):
    layers, backend, recurrent = fla("layers"), fla("ops.gla.backend"), fla("ops.gla.recurrent")
    assert forge.fla.patch() == ("chunk_gla", "chunk_hgrn")
    wanted = forge.ops.chunk_gla(*gla())[0]
    for function in (
        layers.attend,
        layers.gla.chunk_gla,
        fla("ops").chunk_gla,
        fla("ops.gla.chunk").chunk_gla,
        fla("late").chunk_gla,  # imported after the patch
    ):
        assert np.array_equal(function(*gla())[0], wanted)
    assert not fla("ops.gla.chunk").calls
    assert backend.chunk_gla()[0] == "a backend"  # another function of the same name
    assert (
        layers.fused_recurrent_gsa is recurrent.fused_recurrent_gsa and layers.fused_recurrent_gsa()[0] == "recurrent"
    )
    assert layers.attend.__name__ == "chunk_gla" and layers.attend.__wrapped__(None)[0] == "of fla"


def test_what_was_there_comes_back(fla):
    fla("layers"), fla("ops.hgrn")
    before = everything()
    forge.fla.patch()
    assert everything() != before
    kept = fla("layers").attend
    late = fla("late")
    forge.fla.unpatch()
    assert {key: x for key, x in everything().items() if key in before and x is not before[key]} == {}
    assert late.chunk_gla is before["fla.ops.gla.chunk", "chunk_gla"]
    assert kept(*gla())[0] == "of fla"  # by whom else it is kept
    forge.fla.unpatch()
    assert everything().items() >= before.items()


def test_twice_is_once(fla):
    fla("layers")
    first = forge.fla.patch()
    there = everything()
    assert forge.fla.patch() == first and everything() == there
    forge.fla.unpatch()
    assert fla("layers").attend(*gla())[0] == "of fla"
    forge.fla.patch()
    assert fla("layers").attend is there["fla.layers", "attend"]


def test_for_a_while(fla):
    attend = lambda: fla("layers").attend(*gla())[0]  # noqa: E731
    with pytest.raises(KeyError), forge.fla.patched() as names:
        assert "chunk_gla" in names and isinstance(attend(), np.ndarray)
        with forge.fla.patched():
            pass
        assert isinstance(attend(), np.ndarray)  # the outer one goes on
        raise KeyError
    assert isinstance(attend(), str)
    forge.fla.patch()
    with forge.fla.patched():
        pass
    assert isinstance(attend(), np.ndarray)


def test_what_is_refused_goes_to_fla_and_is_said_once(fla, caplog, monkeypatch):
    monkeypatch.setattr("forge._patch.said", set())
    q, k, v, g = gla()
    with caplog.at_level(logging.INFO, "forge"), forge.fla.patched():
        attend = fla("layers").attend
        assert attend(q, k, v, g, xyzzy=True)[0] == "of fla"  # a keyword that there is not
        assert attend(q, k, v[:, :3], g)[0] == attend(q, k, v[:, :5], g)[0] == "of fla"
        assert attend(q.astype(np.float64), k, v, g)[0] == "of fla"
    assert fla("ops.gla.chunk").calls == [{"xyzzy": True}, {}, {}, {}]
    summary, *refused = [r.getMessage() for r in caplog.records]
    assert re.fullmatch(r"forge\.fla: 2 operators of FLA 0 .*; left alone: fused_recurrent_gsa", summary)
    assert len(refused) == 3 and all(
        text.startswith("forge.fla: a call of chunk_gla is left to FLA") for text in refused
    )
    assert "unexpected keyword argument 'xyzzy'" in refused[0]


def test_what_fails_while_it_runs_is_no_refusal(fla, monkeypatch):
    made = _launch.Launcher.__init__

    def failing(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self._launch = lambda *_: 2

    monkeypatch.setattr(_launch.Launcher, "__init__", failing)
    with forge.fla.patched(), pytest.raises(forge.RuntimeError):
        fla("layers").attend(*gla(T=71))  # of a length that no other test has: launchers are kept
    assert fla("ops.gla.chunk").calls == []


def test_without_fla(monkeypatch):
    monkeypatch.setitem(sys.modules, "fla", None)
    with pytest.raises(ImportError, match="pip install flash-linear-attention"):
        forge.fla.patch()


# -- with PyTorch ------------------------------------------------------------------------------------------------------


def test_gradients_and_torch_compile(fla):
    torch = pytest.importorskip("torch")
    x = [torch.from_numpy(a).requires_grad_() for a in gla()]
    layers = fla("layers")
    with forge.fla.patched():
        for run in (layers.attend, torch.compile(lambda *a: layers.attend(*a), fullgraph=True)):
            grads = torch.autograd.grad(run(*x)[0].square().sum(), x)
            wanted = torch.autograd.grad(forge.ops.chunk_gla(*x)[0].square().sum(), x)
            assert all(torch.equal(a, b) for a, b in zip(grads, wanted))


# -- flash-linear-attention itself -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Triton without a GPU
        try:
            return importlib.import_module("fla.layers")
        except Exception as why:  # whatever Triton says of the machine
            pytest.skip(f"flash-linear-attention: {why}")


def test_arguments_are_those_of_fla(real):
    """Calls by position and by name mean the same."""
    import inspect

    from fla import ops

    for name in sorted(set(forge.ops.__all__) & set(ops.__all__)):
        theirs, ours = (inspect.signature(getattr(place, name)).parameters for place in (ops, forge.ops))
        named = [p for p in theirs.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert [p.name for p in named] == list(ours)[: len(named)], name
        assert all(ours[p.name].default in (p.default, None) for p in named), name


def plain_norm(torch, gated):
    """Instead of FLA's fused norms, which are Triton's."""

    def norm(x, gate=None):
        x = x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt()
        return x * torch.nn.functional.silu(gate) if gated else x

    return norm


def layer_and_reference(real, name):
    """A layer of FLA, and its operator token by token, from FLA too."""
    import torch
    from fla.ops.gated_delta_rule import naive_recurrent_gated_delta_rule
    from fla.ops.gla.naive import naive_recurrent_gla

    torch.manual_seed(0)
    if name == "GatedLinearAttention":
        layer = real.GatedLinearAttention(hidden_size=64, num_heads=2, use_short_conv=False)
        layer.g_norm_swish_gate.forward = plain_norm(torch, True)
        return layer, "chunk_gla", lambda q, k, v, g, **_: naive_recurrent_gla(q, k, v, g)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that short convolutions are crucial
        layer = real.GatedDeltaNet(hidden_size=64, num_heads=2, head_dim=32, use_short_conv=False)
    layer.o_norm.forward = plain_norm(torch, True)

    def rule(q, k, v, g, beta, A_log, dt_bias, **_):
        q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
        g = -A_log.exp() * torch.nn.functional.softplus(g.float() + dt_bias)
        return naive_recurrent_gated_delta_rule(q, k, v, beta.sigmoid(), g)

    return layer, "chunk_gated_delta_rule", rule


@pytest.mark.parametrize("name", ["GatedLinearAttention", "GatedDeltaNet"])
def test_layers_of_fla(real, name, monkeypatch):
    """Forward and backward on the CPU."""
    import torch

    layer, operator, token_by_token = layer_and_reference(real, name)
    module = sys.modules[type(layer).__module__]
    x = torch.randn(2, 100, 64, generator=torch.Generator().manual_seed(1))

    def grads():
        layer.zero_grad()
        o = layer(x)[0]
        (o * torch.arange(64)).sum().backward()
        return [o.detach(), *(p.grad for p in layer.parameters() if p.grad is not None)]

    own = getattr(module, operator)
    with forge.fla.patched():
        assert getattr(module, operator) is not own
        ours = grads()
    assert getattr(module, operator) is own
    monkeypatch.setattr(module, operator, token_by_token)
    wanted = grads()
    assert len(ours) == len(wanted) > 5
    for a, b in zip(ours, wanted):
        assert (a - b).norm() <= 1e-4 * b.norm()
