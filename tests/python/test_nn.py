"""forge.nn on the CPU: shapes, gradients, causality, states, packed sequences, element types; GLA's layer against its
formulas token by token."""

import io
import re
import sys

import pytest

import forge

NAMES = [n for n in forge.nn.__all__ if n not in ("Layer", "State")]


def test_without_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "forge.nn._layers", raising=False)
    monkeypatch.delattr(forge.nn, "_layers", raising=False)
    with pytest.raises(ImportError, match="forge.nn needs PyTorch"):
        _ = forge.nn.GLA


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def made(torch, name, T=50, **more):
    """(a layer, x [2, T, 32])"""
    torch.manual_seed(0)
    return getattr(forge.nn, name)(32, heads=2, **more), torch.randn(2, T, 32)


def close(a, b, tolerance=1e-5):
    assert a.shape == b.shape and (a - b).norm() <= tolerance * b.norm()


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_everything(torch, name):
    layer, x = made(torch, name)
    o = layer(x.requires_grad_())
    assert o.shape == x.shape and o.dtype == x.dtype and o.isfinite().all()
    (o * torch.randn_like(o)).sum().backward()
    for which, p in [("x", x), *layer.named_parameters()]:
        assert p.grad is not None and p.grad.isfinite().all() and p.grad.norm() > 0, which


@pytest.mark.parametrize("name", NAMES)
def test_later_tokens_change_nothing(torch, name):
    layer, x = made(torch, name)
    before = layer(x)
    x[:, 33:] = torch.randn(2, 17, 32)
    after = layer(x)
    close(after[:, :33], before[:, :33], 1e-6)
    assert all((after[:, t] - before[:, t]).norm() > 1e-3 * before[:, t].norm() for t in range(33, 50))


@pytest.mark.parametrize("split", [1, 2, 23, 49])
@pytest.mark.parametrize("name", NAMES)
def test_two_calls_are_one(torch, name, split):
    """The state at a split, of few tokens too, and its gradients."""
    layer, x = made(torch, name)
    weights = torch.randn_like(x)
    whole, last = layer(x, return_state=True)
    first, state = layer(x[:, :split], return_state=True)
    second, end = layer(x[:, split:], state, return_state=True)
    assert isinstance(state, forge.nn.State)
    close(torch.cat([first, second], 1), whole)
    for a, b in zip(flat(end), flat(last), strict=True):
        close(a, b)
    grads = [torch.autograd.grad((o * weights).sum(), list(layer.parameters()))
             for o in (torch.cat([first, second], 1), whole)]  # fmt: skip
    for a, b in zip(*grads):
        close(a, b, 1e-4)


def flat(state) -> list:
    if isinstance(state, (tuple, list)):
        return [x for part in state for x in flat(part)]
    return [] if state is None else [state]


@pytest.mark.parametrize("name", NAMES)
def test_packed_sequences_do_not_see_each_other(torch, name):
    layer, x = made(torch, name)
    offsets = [0, 1, 20, 20, 50]
    x = x[:1]
    packed = layer(x, cu_seqlens=torch.tensor(offsets, dtype=torch.int32))
    alone = [layer(x[:, a:b]) for a, b in zip(offsets, offsets[1:]) if b > a]
    close(packed, torch.cat(alone, 1))


@pytest.mark.parametrize("name", NAMES)
def test_element_types(torch, name):
    """bfloat16 throughout, and under autocast."""
    layer, x = made(torch, name)
    wanted = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        o = layer(x)
        o.float().sum().backward()
    close(o.float(), wanted, 0.05)
    close(layer.bfloat16()(x.bfloat16()).float(), wanted, 0.05)


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_saved_and_loaded(torch, name):
    layer, x = made(torch, name)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(x), layer(x))
    other, _ = made(torch, name)
    other.load_state_dict(layer.state_dict())
    assert repr(other) == repr(layer) and repr(layer).startswith(name)


@pytest.mark.parametrize("name", ["GLA", "GatedDeltaNet", "Mamba2", "RWKV6"])
def test_sizes(torch, name):
    layer, x = made(torch, name, key=24, value=40)
    assert (layer.key, layer.value) == (24, 40) and layer(x).shape == x.shape


def test_gla_is_the_layer_of_its_paper(torch):
    """Section 4.4 of arXiv:2312.06635, token by token in float64."""
    layer, x = made(torch, "GLA")
    o = layer(x)
    layer, x = layer.double(), x.double()
    q, k, v = (p(x).unflatten(-1, (2, -1)) for p in (layer.q, layer.k, layer.v))
    alpha = torch.sigmoid(layer.alpha[1](layer.alpha[0](x))).pow(1 / 16).unflatten(-1, (2, -1))
    state, read = x.new_zeros(2, 2, 8, 16), []
    for t in range(x.shape[1]):
        state = state * alpha[:, t, :, :, None] + k[:, t, :, :, None] * v[:, t, :, None, :]
        read.append(torch.einsum("bhk,bhkv->bhv", q[:, t] * 8**-0.5, state))
    heads = torch.stack(read, 1)
    normal = (heads - heads.mean(-1, keepdim=True)) * (heads.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
    gate = layer.gated(x)
    close(o.double(), layer.out(normal.flatten(2) * gate * gate.sigmoid()))


def test_a_layer_of_ones_own(torch):
    class Sums(forge.nn.Layer):
        norm = None

        def attend(self, q, k, v, x, **states):
            return forge.ops.chunk_linear_attn(q, k, v, normalize=False, **states)

    layer, x = Sums(32, heads=2, conv=3), torch.randn(1, 20, 32)
    a, state = layer(x[:, :7], return_state=True)
    close(torch.cat([a, layer(x[:, 7:], state)], 1), layer(x))
    with pytest.raises(NotImplementedError, match="Layer has no attend"):
        forge.nn.Layer(32)(x)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda nn: nn.DeltaNet(30, heads=4), "key: expected a size, as 30 is no multiple of 4 heads"),
        (lambda nn: nn.Mamba2(32, heads=4, key_heads=3), "heads: expected a multiple of key_heads = 3, got 4"),
        (lambda nn: nn.RWKV6(32, conv=4), "conv: expected 0"),
    ],
)
def test_sizes_that_do_not_fit(torch, wrong, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        wrong(forge.nn)


def test_states_of_packed_sequences_are_refused(torch):
    layer, x = made(torch, "DeltaNet")
    _, state = layer(x[:1], return_state=True)
    with pytest.raises(ValueError, match="take none for packed sequences"):
        layer(x[:1], state, cu_seqlens=torch.tensor([0, 20, 50]))
