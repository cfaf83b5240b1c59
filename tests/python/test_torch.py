"""PyTorch on the CPU: the same numbers as NumPy, torch.compile, opcheck."""

from functools import partial

import numpy as np
import pytest

from programs import PROGRAMS, random_inputs
from reference import CASES, inputs_for, is_half, keywords_for

torch = pytest.importorskip("torch")

import forge  # noqa: E402
from forge import ops  # noqa: E402
from forge.attention import Attention  # noqa: E402


def tensors(case, x: dict, dtype=torch.float32) -> dict:
    return {n: torch.from_numpy(a).to(dtype) if is_half(case, n) else torch.from_numpy(a) for n, a in x.items()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_same_as_numpy(case):
    x = inputs_for(case, 1, 75, 2, 32, 16)
    o, final = getattr(ops, case.op)(**tensors(case, x), **keywords_for(case), output_final_state=True)
    wanted, wanted_final = getattr(ops, case.op)(**x, **keywords_for(case), output_final_state=True)
    assert o.dtype == torch.float32 and np.array_equal(o.numpy(), wanted)
    for got, state in zip(
        final if isinstance(final, tuple) else [final],
        wanted_final if isinstance(wanted_final, tuple) else [wanted_final],
        strict=True,
    ):
        assert np.array_equal(got.numpy(), state)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiles_without_graph_breaks(case):
    x = tensors(case, inputs_for(case, 1, 40, 2, 16, 16), torch.bfloat16)
    names = list(x)

    def twice(*args):
        o, final = getattr(ops, case.op)(**dict(zip(names, args)), **keywords_for(case), output_final_state=True)
        return o * 2, final

    torch._dynamo.reset()
    compiled = torch.compile(twice, fullgraph=True, backend="aot_eager")
    o, final = compiled(*x.values())
    wanted, wanted_final = twice(*x.values())
    assert torch.equal(o, wanted)
    pairs = zip(final, wanted_final) if isinstance(final, tuple) else [(final, wanted_final)]
    assert all(torch.equal(a, b) for a, b in pairs)


def test_compiles_for_any_length():
    case = next(c for c in CASES if c.op == "chunk_gated_delta_rule")
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *a: ops.chunk_gated_delta_rule(*a)[0], fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for T in (33, 64, 100):
        x = tensors(case, inputs_for(case, 2, T, 2, 16, 16)).values()
        assert torch.equal(compiled(*x), ops.chunk_gated_delta_rule(*x)[0])


@pytest.mark.parametrize("packed", [False, True])
def test_opcheck(packed):
    x = inputs_for(next(c for c in CASES if c.op == "chunk_gated_delta_rule"), 1, 40, 2, 16, 16)
    given = [torch.from_numpy(a) for a in x.values()]
    initial, offsets = ([torch.zeros(2, 2, 16, 16)], torch.tensor([0, 7, 40])) if packed else ([], None)
    torch.library.opcheck(torch.ops.forge.attention.default, ("gated_delta_net", given, [0.25], initial, True, offsets))


@pytest.fixture
def worked_out(monkeypatch) -> list:
    """The names of attentions whose plans were looked for."""
    names, plan = [], Attention._plan
    monkeypatch.setattr(
        Attention, "_plan", lambda self, *args, **more: (names.append(self.name), plan(self, *args, **more))[1]
    )
    return names


def inputs_of(seed: int, T: int = 50) -> tuple:
    torch.manual_seed(seed)
    q, k, v = (torch.randn(2, T, 2, 16) for _ in range(3))
    return q, k, v, -torch.rand(2, T, 2, 16)


def test_calls_like_earlier_ones_are_not_worked_out_again(worked_out):
    first, second = inputs_of(1), inputs_of(2)
    wanted = ops.chunk_gla(*(x.numpy() for x in second), scale=0.3, output_final_state=True)
    ops.chunk_gla(*first, scale=0.3, output_final_state=True)
    worked_out.clear()
    got = ops.chunk_gla(*second, scale=0.3, output_final_state=True)
    assert not worked_out
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(got, wanted))


def swapped(x: dict) -> dict:
    """With a state that has its last two axes exchanged."""
    q, v = x["q"], x["v"]
    state = torch.randn(len(q), v.shape[2], q.shape[-1], v.shape[-1], generator=torch.Generator().manual_seed(len(x)))
    return {**x, "initial_state": state.mT.contiguous(), "state_v_first": True}


MADE = {
    "chunk_kda": lambda x: {**x, "g": x["g"].half(), "beta": x["beta"].double()},
    "chunk_gated_delta_rule": swapped,
    "chunk_gated_delta_product": lambda x: {**x, "g": None},
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nor_are_calls_whose_tensors_are_made_of_arguments(case, worked_out):
    """Wide gates, sums of them, biases in another shape, constants, states with their axes exchanged."""
    for change in (lambda x: x, *([MADE[case.op]] if case.op in MADE else [])):
        first, second = (change(tensors(case, inputs_for(case, 1, 45, 2, 32, 16, seed))) for seed in (1, 2))
        run = partial(getattr(ops, case.op), **keywords_for(case))
        in_numpy = {n: a.numpy() if isinstance(a, torch.Tensor) else a for n, a in second.items()}
        wanted = run(**in_numpy)[0]
        run(**first)
        worked_out.clear()
        assert np.array_equal(run(**second)[0].numpy(), wanted) and not worked_out


def test_what_differs_from_earlier_calls_is_seen(worked_out):
    """Each of these has the shapes of an earlier call."""
    q, k, v, g = x = inputs_of(3)
    ops.chunk_gla(*x)

    def in_numpy(a):
        return a.numpy() if isinstance(a, torch.Tensor) else a

    def check(*args, **kwargs):
        worked_out.clear()
        got = ops.chunk_gla(*args, **kwargs)[0]
        assert worked_out
        assert np.array_equal(
            got.numpy(), ops.chunk_gla(*map(in_numpy, args), **{n: in_numpy(a) for n, a in kwargs.items()})[0]
        )

    check(q=k, k=q, v=v, g=g)
    check(q, v, k, g, scale=2.0)
    strided = q.transpose(2, 3).contiguous().transpose(2, 3)
    check(strided, k, v, g)
    check(q, k, v, g, initial_state=torch.randn(2, 2, 16, 16))
    given = q.clone()
    ops.chunk_gla(given, k, v, g)
    given.set_(given.untyped_storage(), 0, given.shape, (800, 16, 1600, 1))  # the same tensor, laid out anew
    check(given, k, v, g)
    double = g.double()
    assert torch.equal(ops.chunk_gla(q, k, v, double)[0], ops.chunk_gla(q, k, v, g)[0])
    assert ops.chunk_gla(q.clone().requires_grad_(), k, v, g)[0].requires_grad


def test_a_tensor_given_twice_says_nothing_of_later_calls():
    """Its places among the arguments cannot be told apart: calls with the same shapes are not remembered from that
    one."""
    q, k, v, g = inputs_of(4, T=40)
    ops.chunk_gla(k, k, v, g)
    for _ in range(2):  # worked out, then remembered
        assert np.array_equal(
            ops.chunk_gla(q, k, v, g)[0].numpy(), ops.chunk_gla(*(x.numpy() for x in (q, k, v, g)))[0]
        )
    assert np.array_equal(ops.chunk_gla(k, k, v, g)[0].numpy(), ops.chunk_gla(*(x.numpy() for x in (k, k, v, g)))[0])


def test_a_number_in_a_tensor_is_read_in_every_call():
    """scale, say: calls whose other arguments are alike may differ in it."""
    x = inputs_of(5, T=30)
    for scale in (0.25, 4.0, 4.0, 0.25):
        wanted = ops.chunk_gla(*x, scale=scale)[0]
        assert torch.equal(ops.chunk_gla(*x, scale=torch.tensor(scale))[0], wanted)
        assert torch.equal(ops.chunk_gla(*x, scale=torch.tensor([scale]))[0], wanted)


def test_arguments_that_are_not_needed_do_not_keep_calls_from_being_remembered(worked_out):
    """As serving engines give them."""
    q, k, v, g = (x[:1] for x in inputs_of(6))
    more = {"cu_seqlens": torch.tensor([0, 20, 50]), "cu_seqlens_cpu": torch.tensor([0, 20, 50])}
    first = ops.chunk_gla(q, k, v, g, **more)[0]
    worked_out.clear()
    assert torch.equal(ops.chunk_gla(q, k, v, g, **more)[0], first) and not worked_out


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_initial_states_of_other_types(dtype):
    """Are converted to float32 in every call, also in those that are remembered, and through the operator of
    torch.compile."""
    x = inputs_of(7)
    for seed in (1, 2):
        state = torch.randn(2, 2, 16, 16, generator=torch.Generator().manual_seed(seed)).to(dtype)
        wanted = ops.chunk_gla(*x, initial_state=state.float(), output_final_state=True)
        got = ops.chunk_gla(*x, initial_state=state, output_final_state=True)
        v_first = ops.chunk_gla(*x, initial_state=state.mT, output_final_state=True, state_v_first=True)
        assert torch.equal(got[0], wanted[0]) and torch.equal(got[1], wanted[1]) and got[1].dtype == torch.float32
        assert torch.equal(v_first[0], wanted[0]) and torch.equal(v_first[1].mT, wanted[1])
        o, final = torch.ops.forge.attention("gla", list(x), [0.25], [state], True, None)
        assert torch.equal(o, wanted[0]) and torch.equal(final, wanted[1])
    h, flat, gates = torch.randn(2, 32).to(dtype), x[0].flatten(2), x[3].flatten(2)
    got, wanted = ops.chunk_hgrn(flat, gates, h, True), ops.chunk_hgrn(flat, gates, h.float(), True)
    assert torch.equal(got[0], wanted[0]) and torch.equal(got[1], wanted[1])


@pytest.mark.parametrize("gated", [True, False])
def test_parallel_forms(gated):
    q, k, v, g = inputs_of(8)
    run, x = (ops.parallel_simple_gla, (q, k, v, g[..., 0])) if gated else (ops.parallel_retention, (q, k, v))
    for got, wanted in zip(run(*x, output_attentions=True), run(*(a.numpy() for a in x), output_attentions=True)):
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=1e-6)


def test_torchs_functions_trace():
    """torch.exp(x) and x.exp() are one thing."""
    from forge import ConstExpr, LinearAttention, SymbTensor

    H, K, V = ConstExpr("H", 2), ConstExpr("K", 16), ConstExpr("V", 16)
    meta = {n: SymbTensor(["T", H, d], dtype=torch.bfloat16) for n, d in (("q", K), ("k", K), ("v", V))}
    meta |= {"g": SymbTensor(["T", H], dtype=torch.float32), "prev_s": SymbTensor(["NS", H, K, V], dtype=torch.float32)}
    meta |= {"chunk_state": SymbTensor(["NC", H, K, V], dtype=torch.float32), "scale": K**-0.5}

    def chunk_mode(k, v, g):
        assert k.dtype == torch.bfloat16 and k.size(1) == 16
        decay = torch.exp(torch.sum(g, dim=0) - torch.cumsum(g, dim=0))
        return torch.matmul(torch.transpose((k * decay[:, None]).float(), 0, 1), v.to(torch.float32))

    def decay_mode(prev_s, chunk_state, g):
        return prev_s * torch.exp(g.sum(0)) + chunk_state

    def merge_mode(q, k, v, g, chunk_state, scale):
        G = torch.cumsum(g, 0)
        scores = torch.tril((q @ k.T).float() * torch.exp(torch.unsqueeze(G, 1) - torch.unsqueeze(G, 0)))
        return (scores @ v.float() + (q.float() @ chunk_state) * torch.exp(G)[:, None]) * scale

    attn = LinearAttention(input_meta=meta, chunk_mode=chunk_mode, decay_mode=decay_mode, merge_mode=merge_mode)
    x = {n: torch.from_numpy(a) for n, a in random_inputs("scalar_gla", 2, 50, 2, 16, 16).items()}
    o, final = attn(**x, output_final_state=True)
    wanted, wanted_final = PROGRAMS["scalar_gla"]()(**x, output_final_state=True)
    torch.testing.assert_close(o, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(final, wanted_final, rtol=1e-4, atol=1e-5)


def test_torchs_functions_take_apart_and_put_together():
    import forge

    def merge(q):
        first, second = torch.chunk(q, 2, dim=-1)
        turned = torch.cat([torch.floor(second), -torch.round(first)], dim=-1)
        return torch.stack(
            [turned - torch.mean(turned, -1, keepdim=True), torch.zeros_like(q), torch.cumprod(q, dim=1), q], dim=1
        )

    meta = {"q": forge.SymbTensor(["T", "H", 8], "float32"), "prev_s": forge.SymbTensor(["NS", "H", 8])}
    attn = forge.LinearAttention(
        meta,
        chunk_mode=lambda q: q.sum(0),
        decay_mode=lambda prev_s, chunk_state: prev_s + chunk_state,
        merge_mode=merge,
    )
    x = 3 * torch.randn(2, 70, 3, 8)
    turned = torch.cat([x[..., 4:].floor(), -x[..., :4].round()], -1)
    wanted = torch.stack([turned - turned.mean(-1, keepdim=True), torch.zeros_like(x), x.cumprod(-1), x], -2)
    o, final, before = attn(q=x, output_final_state=True, return_intermediate_states=True)
    assert torch.allclose(o, wanted, rtol=1e-5, atol=1e-5) and before.shape == (2, 2, 3, 8)
    assert torch.allclose(before[:, 1], x[:, :64].sum(1), atol=1e-4) and torch.allclose(final, x.sum(1), atol=1e-4)


def test_states_of_other_types_are_remembered_too(worked_out):
    q, k, v, g = inputs_of(1)
    state = torch.randn(2, 2, 16, 16).double()
    wanted = ops.chunk_gla(q, k, v, g, initial_state=state.float(), output_final_state=True)
    for x in (state, state.mT.contiguous().mT, state.bfloat16().double()):
        ops.chunk_gla(q, k, v, g, initial_state=x, output_final_state=True)
    worked_out.clear()
    got = ops.chunk_gla(q, k, v, g, initial_state=state, output_final_state=True)
    assert not worked_out and all(map(torch.equal, got, wanted)) and state.dtype == torch.float64


def test_views_that_are_negated_when_they_are_read():
    """Of conjugates: their memory has the numbers with the other sign."""
    q, k, v, g = inputs_of(1)
    lazy = torch.complex(torch.zeros_like(q), -q).conj().imag
    assert lazy.is_neg() and torch.equal(lazy, q)
    plain = torch.complex(q, q).imag  # of the same type, shape and strides
    for x in (plain, lazy, plain):
        assert torch.equal(ops.chunk_gla(x, k, v, g)[0], ops.chunk_gla(q, k, v, g)[0])


def test_tensors_that_are_not_dense_are_refused():
    q, k, v, g = inputs_of(1)
    with pytest.raises(
        TypeError, match="argument 'q': expected a dense tensor, got one of layout torch.sparse_coo; x.to_dense"
    ):
        ops.chunk_gla(q.to_sparse(), k, v, g)
    with pytest.raises(TypeError, match="argument 'scale': expected a number, got tensor"):
        forge.variants.gla(q=q, k=k, v=v, g=g, scale=torch.tensor(1j))


# -- decoding ----------------------------------------------------------------------------------------------------------


def test_decoding_is_the_same_as_in_numpy():
    attn, x = PROGRAMS["gated_delta_net"](), random_inputs("gated_delta_net", 3, 2, 2, 8, 12)
    for dtype in (np.int32, np.int64):
        pool, slots = (
            np.random.default_rng(0).standard_normal((6, 2, 8, 12)).astype(np.float32),
            np.array([3, -1, 4], dtype),
        )
        ours = torch.from_numpy(pool.copy())
        address, given = ours.data_ptr(), {n: torch.from_numpy(a) for n, a in x.items()}
        o, before = attn.decode(**given, state=ours, slots=torch.from_numpy(slots), return_intermediate_states=True)
        wanted, wanted_before = attn.decode(**x, state=pool, slots=slots, return_intermediate_states=True)
        assert np.array_equal(o.numpy(), wanted) and np.array_equal(ours.numpy(), pool) and ours.data_ptr() == address
        assert np.array_equal(before[[0, 2]].numpy(), wanted_before[[0, 2]])
    nothing = attn.decode(**{n: a[:0] for n, a in given.items()}, state=ours, slots=torch.zeros(0, dtype=torch.int32))
    assert nothing.shape == (0, 2, 2, 12)


def test_decoding_refuses_what_it_cannot_write():
    attn, x = (
        PROGRAMS["scalar_gla"](),
        {n: torch.from_numpy(a) for n, a in random_inputs("scalar_gla", 2, 1, 2, 8, 8).items()},
    )
    pool, slots = torch.zeros(4, 2, 8, 8), torch.tensor([[1, 0], [3, 0]])
    attn.decode(**x, state=pool, slots=slots[:, 0])  # a column of a table
    for state, error, text in (
        (pool.double(), TypeError, "bfloat16 or float16, written in place, got torch.float64"),
        (
            torch.zeros(4, 2, 8, 8, dtype=torch.complex64).conj().imag,
            TypeError,
            "written in place, got a view of negated numbers",
        ),
        (pool.to_sparse(), TypeError, "written in place, got a tensor of layout torch.sparse_coo"),
        (pool[:1].expand(4, 2, 8, 8), forge.RuntimeError, "expected an element of its own for every number"),
        (pool.numpy(), TypeError, "expected an array of the same library as 'q'"),
        (pool.clone().requires_grad_(), NotImplementedError, "decode has no gradients"),
    ):
        with pytest.raises(error, match=text):
            attn.decode(**x, state=state, slots=slots[:, 0])
    with pytest.raises(NotImplementedError, match="decode has no gradients"):
        attn.decode(**{**x, "v": x["v"].clone().requires_grad_()}, state=pool)
