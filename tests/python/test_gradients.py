"""Gradients on the CPU: operators under autograd against finite differences of the float64 recurrence, packed, grouped,
with states; torch.compile, opcheck, checkpointing; vjp of definitions in NumPy."""

import numpy as np
import pytest

from programs import PROGRAMS, random_inputs
from reference import CASES, inputs_for, keywords_for, reference

torch = pytest.importorskip("torch")

import forge  # noqa: E402
from forge import ops  # noqa: E402

OFFSETS = [0, 17, 17, 40]


def run(case, x: dict, initial=None, packed=False):
    """(output, [final states])"""
    more = {} if initial is None else {"initial_state": tuple(initial) if len(initial) > 1 else initial[0]}
    if packed:
        more["cu_seqlens"] = torch.tensor(OFFSETS)
    o, final = getattr(ops, case.op)(**x, **keywords_for(case), **more, output_final_state=True)
    return o, list(final) if isinstance(final, tuple) else [final]


def as_given(case, initial):
    """Initial states in the operator's shape."""
    return initial if len(initial) < 2 else [initial[0], initial[1][:, None]]


@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_of_operators(case, packed):
    """d loss along a random direction in each argument, by autograd in float32 and by differences in float64."""
    rng = np.random.default_rng(3)
    x = inputs_for(case, 1 if packed else 2, 40, 2, 16, 8)
    offsets = OFFSETS if packed else None
    o, final = reference(case, x, offsets=offsets)
    initial = [np.abs(rng.standard_normal(s.shape)) * 0.3 for s in final]
    weights = [rng.standard_normal(a.shape) for a in (o, *final)]

    def loss(x, initial):
        o, final = reference(case, x, initial, offsets)
        return sum((w * a).sum() for w, a in zip(weights, [o, *final]))

    given = {n: torch.from_numpy(a).requires_grad_() for n, a in x.items()}
    states = [torch.from_numpy(s.astype(np.float32)).requires_grad_() for s in initial]
    o, final = run(case, given, as_given(case, states), packed)
    shaped = [torch.from_numpy(w).reshape(a.shape) for w, a in zip(weights, [o, *final])]
    sum((w * a).sum() for w, a in zip(shaped, [o, *final])).backward()
    wide = {n: a.astype(np.float64) for n, a in x.items()}
    every = [*((n, wide, n, given[n]) for n in wide), *((f"state {i}", initial, i, s) for i, s in enumerate(states))]
    for name, values, key, tensor in every:
        at, direction = values[key], rng.standard_normal(values[key].shape)
        by_differences = []
        for step in (1e-4, -1e-4):
            values[key] = at + step * direction
            by_differences.append(loss(wide, initial))
        values[key] = at
        wanted = (by_differences[0] - by_differences[1]) / 2e-4
        terms = tensor.grad.double().numpy() * direction
        assert abs(terms.sum() - wanted) <= 2e-4 * (np.abs(terms).sum() + 1e-2), name


def test_the_same_bits_twice():
    case = next(c for c in CASES if c.name == "gated_delta_rule grouped")
    grads = []
    for _ in range(2):
        x = {n: torch.from_numpy(a).requires_grad_() for n, a in inputs_for(case, 2, 150, 2, 32, 32).items()}
        run(case, x)[0].square().sum().backward()
        grads.append([a.grad for a in x.values()])
    assert all(torch.equal(a, b) for a, b in zip(*grads))


@pytest.mark.parametrize("name", ["chunk_gla", "chunk_gated_delta_rule", "chunk_hgrn", "chunk_linear_attn"])
def test_under_torch_compile(name):
    case = next(c for c in CASES if c.op == name)
    x = inputs_for(case, 1, 40, 2, 16, 16)
    grads = []
    for compiled in (False, True):
        torch._dynamo.reset()
        given = [torch.from_numpy(a).requires_grad_() for a in x.values()]

        def loss(*args):
            o, final = run(case, dict(zip(x, args)))
            return (o * 2).sum() + sum(s.square().sum() for s in final)

        (torch.compile(loss, fullgraph=True, backend="aot_eager") if compiled else loss)(*given).backward()
        grads.append([a.grad for a in given])
    for a, b in zip(*grads):  # in eager mode the states before chunks are kept, here they are made again
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["gla", "gated_delta_net", "rwkv6", "hgrn"])
def test_kept_and_remade_states(name):
    text = forge._c.variant_definition(name)
    attentions = [forge.Attention(text, options={"checkpoint": way}) for way in ("keep", "remake")]
    sizes = {"T": 150, "H": 2, "HV": 2, "K": 16, "V": 8, "D": 16}
    for offsets in (None, torch.tensor([0, 70, 70, 150])):
        torch.manual_seed(1)
        given, scalars = {}, {}
        for i in attentions[0].signature.inputs:
            shape = [sizes[d] for d in i.dims]
            if i.kind == "scalar":
                scalars[i.name] = 0.3
            else:
                x = torch.randn((1, *shape) if i.kind == "input" else shape)
                given[i.name] = torch.nn.functional.logsigmoid(x) if i.name in ("g", "w") else 0.3 * x
        found = []
        for attention in attentions:
            inputs = {n: x.clone().requires_grad_() for n, x in given.items()}
            o, final = attention(**inputs, **scalars, cu_seqlens=offsets, output_final_state=True)
            (o.square().sum() + final.square().sum()).backward()
            found.append([x.grad for x in inputs.values()])
        for a, b in zip(*found):
            assert (a - b).abs().max() <= 1e-4 * b.abs().max()
    with pytest.raises(ValueError, match="options\\['checkpoint'\\]: expected auto, keep or remake"):
        forge.Attention(text, options={"checkpoint": "some"})
    decided = forge.Attention(text, options={"checkpoint": "keep", "strategy": "one-pass"})
    with pytest.raises(RuntimeError, match="options\\['checkpoint'\\]: expected auto or remake"):
        decided(**{n: x.clone().requires_grad_() for n, x in given.items()}, **scalars)


HEAD_FIRST = """linear_attention @headed {
  head d: f32[H, K]
  input q: f32[T, H, K]
  input k: f32[T, H, K]
  input v: f32[T, H, V]
  state s: f32[K, V]
  output o: f32[T, H, V]
  func @step {
    %d: f32[K] = param() {name="d", role=head}
    %q: f32[K] = param() {name="q", role=input}
    %k: f32[K] = param() {name="k", role=input}
    %v: f32[V] = param() {name="v", role=input}
    %prev_s: f32[K, V] = param() {name="s", role=state}
    %w: f32[K] = sigmoid(%d)
    %wc: f32[K, 1] = unsqueeze(%w) {dim=1}
    %ds: f32[K, V] = mul(%prev_s, %wc)
    %kc: f32[K, 1] = unsqueeze(%k) {dim=1}
    %vr: f32[1, V] = unsqueeze(%v) {dim=0}
    %kv: f32[K, V] = mul(%kc, %vr)
    %s: f32[K, V] = add(%ds, %kv)
    %qr: f32[1, K] = unsqueeze(%q) {dim=0}
    %ro: f32[1, V] = matmul(%qr, %s)
    %o: f32[V] = squeeze(%ro) {dim=0}
    return state "s" = %s, input "o" = %o
  }
}
"""


@pytest.mark.parametrize("tokens", [0, 1, 70])
def test_of_a_definition_that_begins_with_an_input_per_head(tokens):
    found = []
    for way in ("auto", "remake"):
        torch.manual_seed(2)
        d = torch.randn(2, 8, requires_grad=True)
        x = [torch.randn(1, tokens, 2, 8, requires_grad=True) for _ in range(3)]
        o, final = forge.Attention(HEAD_FIRST, options={"checkpoint": way})(d, *x, output_final_state=True)
        (o.sum() + final.sum()).backward()
        found.append([d.grad, *(a.grad for a in x)])
    for a, b in zip(*found):
        torch.testing.assert_close(a, b)


def test_opcheck():
    q, k, v = (torch.randn(1, 20, 2, 8, requires_grad=True) for _ in range(3))
    g = (-torch.rand(1, 20, 2)).requires_grad_()
    ops.chunk_simple_gla(q, k, v, g)
    seen = []
    original = torch.ops.forge.attention.default

    class Look(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is original:
                seen.append(args)
            return func(*args, **(kwargs or {}))

    with Look(), torch.no_grad():
        torch.compile(lambda *a: ops.chunk_simple_gla(*a)[0], backend="eager")(q, k, v, g)
    if seen:  # the operator's own arguments
        args = [[x.detach().requires_grad_() for x in seen[0][1]] if i == 1 else a for i, a in enumerate(seen[0])]
        torch.library.opcheck(original, tuple(args))


def test_only_where_they_are_wanted():
    case = next(c for c in CASES if c.op == "chunk_gla")
    x = {n: torch.from_numpy(a) for n, a in inputs_for(case, 1, 30, 1, 8, 8).items()}
    x["v"].requires_grad_()
    o, final = run(case, x)
    o.sum().backward()
    assert x["v"].grad is not None and x["q"].grad is None
    with torch.no_grad():
        assert not run(case, x)[0].requires_grad
    (again,) = torch.autograd.grad(run(case, x)[0].square().sum(), x["v"], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable|twice|does not require grad"):
        again.sum().backward()


def test_of_an_initial_state_alone():
    """No gradient of an input, so that no output of the backward pass says how many heads there are."""
    case = next(c for c in CASES if c.op == "chunk_simple_gla")
    x = {n: torch.from_numpy(a) for n, a in inputs_for(case, 2, 30, 2, 8, 8).items()}
    start = torch.randn(2, 2, 8, 8)

    def gradient(of_inputs):
        given = {n: a.clone().requires_grad_(of_inputs) for n, a in x.items()}
        initial = start.clone().requires_grad_()
        o, (final,) = run(case, given, [initial])
        (o.square().sum() + final.square().sum()).backward()
        return initial.grad

    torch.testing.assert_close(gradient(False), gradient(True), rtol=1e-5, atol=1e-5)


def test_checkpointing():
    case = next(c for c in CASES if c.op == "chunk_kda" and not c.raw_gate and c.groups == 1)
    x = inputs_for(case, 1, 30, 1, 8, 8)
    grads = []
    for checkpointed in (False, True):
        given = [torch.from_numpy(a).requires_grad_() for a in x.values()]

        def call(*args):
            return run(case, dict(zip(x, args)))[0]

        o = torch.utils.checkpoint.checkpoint(call, *given, use_reentrant=False) if checkpointed else call(*given)
        o.square().sum().backward()
        grads.append([a.grad for a in given])
    assert all(torch.equal(a, b) for a, b in zip(*grads))


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_vjp_of_definitions(name):
    """In NumPy, and the same numbers by autograd, which asks for no gradients of scalars: another program."""
    attn, x = PROGRAMS[name](), random_inputs(name, 2, 50, 2, 16, 12)
    (o, final), pullback = attn.vjp(**x)
    wanted_o, wanted_final = attn(**x, output_final_state=True)
    assert np.array_equal(o, wanted_o)
    rng = np.random.default_rng(0)
    grad_o = rng.standard_normal(o.shape).astype(o.dtype)
    finals = list(final) if isinstance(final, tuple) else [final]
    grad_final = [rng.standard_normal(s.shape).astype(np.float32) for s in finals]
    grads = pullback(grad_o, tuple(grad_final) if len(grad_final) > 1 else grad_final[0])
    given = {n: torch.from_numpy(a).requires_grad_() if isinstance(a, np.ndarray) else a for n, a in x.items()}
    to, tfinal = attn(**given, output_final_state=True)
    tfinals = list(tfinal) if isinstance(tfinal, tuple) else [tfinal]
    torch.autograd.backward([to, *tfinals], [torch.from_numpy(grad_o), *map(torch.from_numpy, grad_final)])
    for n, a in given.items():
        if isinstance(a, torch.Tensor):
            assert grads[n].shape == x[n].shape, n
            np.testing.assert_allclose(grads[n], a.grad.numpy(), rtol=1e-5, atol=1e-5, err_msg=n)
    with pytest.raises(TypeError, match="grad_output"):
        pullback([grad_o, grad_o, grad_o, grad_o])


def test_check():
    report = PROGRAMS["scalar_gla"]().check(backward=True)
    assert report


def test_what_has_no_gradients():
    attn, x = PROGRAMS["scalar_gla"](), random_inputs("scalar_gla", 1, 10, 1, 8, 8)
    given = {n: torch.from_numpy(a) if isinstance(a, np.ndarray) else a for n, a in x.items()}
    given["v"].requires_grad_()
    with pytest.raises(NotImplementedError, match="return_intermediate_states"):
        attn(**given, return_intermediate_states=True)
    with pytest.raises(NotImplementedError, match="decode has no gradients"):
        attn.decode(**given, state=torch.zeros(1, 1, 8, 8))
    with pytest.raises(forge.RuntimeError, match="expected one-pass, fused or decoupled"):
        attn.compile(dtype="f32", entry="backward", K=8, V=8).explain() and forge.Attention(
            attn.definition, options={"strategy": "segmented"}
        ).compile(dtype="f32", entry="backward", K=8, V=8)


STABILISED = """
linear_attention @stabilised {
  input q: f32[T, H, K]
  input k: f32[T, H, K]
  input v: f32[T, H, V]
  input i: f32[T, H]
  input f: f32[T, H]
  state s: f32[K, V]
  state n: f32[K]
  state m: f32[]
  output o: f32[T, H, V]
  func @step {
    %q: f32[K] = param() {name="q", role=input}
    %k: f32[K] = param() {name="k", role=input}
    %v: f32[V] = param() {name="v", role=input}
    %i: f32[] = param() {name="i", role=input}
    %f: f32[] = param() {name="f", role=input}
    %prev_s: f32[K, V] = param() {name="s", role=state}
    %prev_n: f32[K] = param() {name="n", role=state}
    %prev_m: f32[] = param() {name="m", role=state}
    %kept: f32[] = add(%f, %prev_m)
    %m: f32[] = maximum(%kept, %i)
    %10: f32[] = sub(%kept, %m)
    %old: f32[] = exp(%10)
    %12: f32[] = sub(%i, %m)
    %new: f32[] = exp(%12)
    %key: f32[K] = mul(%k, %new)
    %15: f32[K, 1] = unsqueeze(%key) {dim=1}
    %16: f32[1, V] = unsqueeze(%v) {dim=0}
    %17: f32[K, V] = mul(%15, %16)
    %18: f32[K, V] = mul(%prev_s, %old)
    %s: f32[K, V] = add(%18, %17)
    %20: f32[K] = mul(%prev_n, %old)
    %n: f32[K] = add(%20, %key)
    %22: f32[K] = mul(%q, %n)
    %23: f32[] = sum(%22) {dim=0}
    %24: f32[] = abs(%23)
    %25: f32[] = neg(%m)
    %26: f32[] = exp(%25)
    %weight: f32[] = maximum(%24, %26)
    %28: f32[1, K] = unsqueeze(%q) {dim=0}
    %29: f32[1, V] = matmul(%28, %s)
    %30: f32[V] = squeeze(%29) {dim=0}
    %o: f32[V] = div(%30, %weight)
    return state "s" = %s, state "n" = %n, state "m" = %m, input "o" = %o
  }
}
"""


def test_what_keeps_exponents_small_has_no_gradient_unless_states_have():
    """Autograd asks for gradients to inputs alone where states have none, and for all of them else: with final states
    whose gradients are zero both are the same."""
    attn = forge.Attention(STABILISED, options={"checkpoint": "remake"})
    generator = torch.Generator().manual_seed(3)
    shapes = [(1, 40, 2, 8)] * 3 + [(1, 40, 2)] * 2

    def gradients(of_states: float | None):
        generator.manual_seed(3)
        given = [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]
        o, states = attn(*given, output_final_state=of_states is not None)
        loss = (o * torch.randn(o.shape, generator=generator)).sum()
        loss = loss + sum((of_states or 0) * x.sum() for x in states or ())
        return list(torch.autograd.grad(loss, given))

    alone, zero, other = gradients(None), gradients(0.0), gradients(1.0)
    entries = {key[2] for key in attn._backward_passes}
    assert entries == {True, False}
    for a, b in zip(alone, zero):
        assert (a - b).abs().max() <= 1e-4 * b.abs().max()
    assert any((a - c).abs().max() > 1e-3 for a, c in zip(alone, other))
