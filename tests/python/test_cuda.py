"""forge.ops on a GPU: against float64 recurrences, against flash-linear-attention's functions, and what serving asks
for.

    FORGE_LIBRARY=build/device/libforge.so scripts/test-cuda

bench/device-folder makes build/device. Without a GPU all of it is skipped; without flash-linear-attention, its part.
Most of the time goes into compilers, ours and Triton's: scripts/test-cuda runs several processes at once, then the
tests marked `alone`. Times are measured by bench/host_time.py --device cuda.
"""

import contextlib
import functools
import importlib
import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

from decoding import inputs_of, numbers_of, rounded, tokens
from programs import PROGRAMS, random_inputs, recurrence
from reference import CASES, inputs_for, is_half, keywords_for, reference, relative_rms

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

import forge  # noqa: E402
from forge import _c, _launch, ops  # noqa: E402

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1.5e-3}
#: Against flash-linear-attention in float16: its own tests' tolerances (RMS of the difference over RMS of its result).
FLA_TOLERANCE = {"chunk_delta_rule": 6e-3}
FLA_DEFAULT = 5e-3
FLA_MODULES = {"chunk_hgrn": "fla.ops.hgrn.chunk", "chunk_gated_delta_product": "fla.ops.gated_delta_product"}


@pytest.fixture(autouse=True)
def _no_grad():
    with torch.no_grad():
        yield


def on_gpu(case, x: dict, dtype=torch.float32) -> dict:
    return {
        n: (torch.from_numpy(a).to("cuda", dtype) if is_half(case, n) else torch.from_numpy(a).cuda())
        for n, a in x.items()
    }


def as_float64(x: dict) -> dict:
    return {n: a.double().cpu().numpy() for n, a in x.items()}


def states_of(final) -> list:
    return [final[0], final[1][:, 0]] if isinstance(final, tuple) else [final]


def named(name: str):
    return next(c for c in CASES if str(c) == name)


def run(case, x: dict, **more):
    return getattr(ops, case.op)(**x, **keywords_for(case), **more)


@pytest.mark.parametrize(
    "shape",
    [(torch.bfloat16, 2, 300, 2, 128, 128), (torch.float16, 1, 130, 2, 64, 64), (torch.float32, 2, 75, 2, 60, 100)],
    ids=str,
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_the_recurrence(case, shape):
    dtype, *sizes = shape
    x = on_gpu(case, inputs_for(case, *sizes), dtype)
    o, final = run(case, x, output_final_state=True)
    wanted, states = reference(case, as_float64(x))
    assert o.dtype == dtype and o.is_cuda
    assert relative_rms(o.double().cpu(), wanted) < TOLERANCE[dtype]
    for got, state in zip(states_of(final), states, strict=True):
        assert got.dtype == torch.float32 and relative_rms(got.cpu(), state) < TOLERANCE[dtype]


@pytest.mark.parametrize("case", [c for c in CASES if c.op != "chunk_hgrn"], ids=str)
@pytest.mark.parametrize("offsets_dtype", [torch.int32, torch.int64])
def test_packed_with_initial_states(case, offsets_dtype):
    x, offsets = on_gpu(case, inputs_for(case, 1, 300, 2, 128, 128), torch.bfloat16), [0, 0, 17, 17, 210, 300]
    shapes = [s.shape for s in reference(case, as_float64(x), offsets=offsets)[1]]
    initial = [np.abs(np.random.default_rng(1).standard_normal(s)).astype(np.float32) for s in shapes]
    given = [torch.from_numpy(s).cuda() for s in initial]
    o, final = run(case, x, initial_state=(given[0], given[1][:, None]) if len(given) == 2 else given[0],
    output_final_state=True,
                   cu_seqlens=torch.tensor(offsets, dtype=offsets_dtype, device="cuda"))  # fmt: skip
    wanted, states = reference(case, as_float64(x), initial, offsets)
    assert relative_rms(o.double().cpu(), wanted) < 8e-3
    for got, state in zip(states_of(final), states, strict=True):
        assert relative_rms(got.cpu(), state) < 8e-3


@functools.cache
def without_tuning() -> None:
    """Triton's kernels compute the same however they are tuned: the first configuration that compiles does, of dozens.
    Called before flash-linear-attention is imported."""
    os.environ["FLA_DISABLE_BACKEND_DISPATCH"] = "1"
    os.environ["FLA_CACHE_RESULTS"] = "0"  # what was not measured is not to be remembered
    autotuner = pytest.importorskip("triton.runtime.autotuner").Autotuner
    prune, bench = autotuner.prune_configs, autotuner._bench

    def pruned(self, *args, **kwargs):
        self.forge_found = False
        return prune(self, *args, **kwargs)

    def first_only(self, *args, **kwargs):
        if self.forge_found:
            return [float("inf")] * 3
        times = bench(self, *args, **kwargs)
        self.forge_found = times[0] < float("inf")
        return times

    autotuner.prune_configs, autotuner._bench = pruned, first_only


# flash-linear-attention 0.6 has no grouped heads for scalar gates and for RWKV-6 (it reads beyond q then), and takes
# one kind of scalar gates at a time.
NOT_IN_FLA = ("simple_gla grouped", "simple_gla with both gates", "rwkv6 grouped")


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in CASES if str(c) not in NOT_IN_FLA], ids=str)
def test_against_flash_linear_attention(case):
    without_tuning()
    pytest.importorskip("fla.ops")
    module = importlib.import_module(FLA_MODULES.get(case.op, "fla.ops"))
    x = on_gpu(case, inputs_for(case, 2, 500, 2, 64, 64), torch.float16)
    if case.op == "chunk_kda" and not case.raw_gate:
        x["g"] = x["g"].clamp(min=-5)
    theirs, their_final = getattr(module, case.op)(**x, **keywords_for(case), output_final_state=True)
    ours, our_final = run(case, x, output_final_state=True)
    limit = FLA_TOLERANCE.get(case.op, FLA_DEFAULT)
    assert relative_rms(ours.double().cpu(), theirs.double().cpu()) < limit
    for a, b in zip(states_of(our_final), states_of(their_final), strict=True):
        assert relative_rms(a.double().cpu(), b.double().cpu().reshape(a.shape)) < limit


@pytest.mark.parametrize("name", PROGRAMS)
def test_own_programs(name):
    x = {n: torch.from_numpy(a).cuda() for n, a in random_inputs(name, 2, 100, 2, 64, 64).items()}
    half = {n: a if n == "g" else a.bfloat16() for n, a in x.items()}
    o, final = PROGRAMS[name]()(**half, output_final_state=True)
    wanted, wanted_final = recurrence(name, as_float64(half))
    assert (
        o.device == x["v"].device
        and relative_rms(o.double().cpu(), wanted) < 8e-3
        and relative_rms(final.cpu(), wanted_final) < 8e-3
    )


@pytest.mark.alone
def test_runs_on_the_current_stream_without_waiting():
    case = named("gated_delta_rule")
    x = on_gpu(case, inputs_for(case, 1, 128, 2, 64, 64), torch.bfloat16)
    wanted = run(case, x)[0]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run(case, {**x, "v": x["v"] * 2})  # what the driver has not loaded yet it loads now, for which it waits
    torch.cuda.synchronize()
    for cycles in (
        2e8,
        2e9,
        2e10,
    ):  # from 0.1 s on: a call that waited always finds the stream at its end, others only on a slow host
        torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(int(cycles))
                late = x["v"] * 2
                o = run(case, {**x, "v": late})[0]
                waited = stream.query()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
        assert relative_rms(o.double().cpu(), 2 * wanted.double().cpu()) < 8e-3
        if not waited:
            return
    pytest.fail("the call returned after what the stream had to do before it")


def test_graphs_replay_with_other_lengths():
    case = named("gated_delta_rule")
    x = on_gpu(case, inputs_for(case, 1, 200, 2, 64, 64), torch.bfloat16)
    cu = torch.tensor([0, 100, 150, 200], device="cuda")
    run(case, x, output_final_state=True, cu_seqlens=cu)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, final = run(case, x, output_final_state=True, cu_seqlens=cu)
    for offsets in ([0, 100, 150, 200], [0, 1, 1, 200], [0, 64, 128, 200]):
        cu.copy_(torch.tensor(offsets))
        graph.replay()
        torch.cuda.synchronize()
        wanted, states = reference(case, as_float64(x), offsets=offsets)
        assert relative_rms(o.double().cpu(), wanted) < 8e-3 and relative_rms(final.cpu(), states[0]) < 8e-3


def test_strided_views_of_one_projection():
    case = named("gla")
    x = on_gpu(case, inputs_for(case, 2, 100, 2, 64, 64), torch.bfloat16)
    mixed = torch.cat([x["q"], x["k"], x["v"]], dim=-1)
    views = dict(zip("qkv", mixed.split(64, dim=-1)))
    assert torch.equal(run(case, {**x, **views})[0], run(case, x)[0])


@pytest.mark.slow
def test_torch_compile():
    importlib.import_module(
        "torch._inductor.config"
    ).compile_threads = 1  # there is one kernel to compile, and other tests beside this
    case = named("gated_delta_rule")
    x = on_gpu(case, inputs_for(case, 2, 128, 2, 64, 64), torch.bfloat16)
    compiled = torch.compile(lambda *a: torch.relu(ops.chunk_gated_delta_rule(*a)[0]), fullgraph=True)
    assert torch.equal(compiled(*x.values()), torch.relu(run(case, x)[0]))


@pytest.mark.slow
def test_opcheck():
    case = named("gated_delta_rule")
    x = list(on_gpu(case, inputs_for(case, 2, 40, 2, 32, 32)).values())
    torch.library.opcheck(torch.ops.forge.attention.default, ("gated_delta_net", x, [0.25], [], True, None))


@pytest.mark.parametrize(
    ("tokens", "how"),
    [(t, {"strategy": s}) for t in (1, 130) for s in ("auto", "segmented")]
    + [(t, {"entry": "decode"}) for t in (1, 3)],
)
def test_states_in_a_pool(tokens, how):
    """Slots in any order, used in place; a padded sequence; one that starts anew. Through the C ABI, as an engine
    would."""
    case = named("gated_delta_rule")
    x = on_gpu(case, inputs_for(case, 4, tokens, 2, 64, 64), torch.bfloat16)
    options = {"device": "cuda", "dtype": "bf16", "size.K": 64, "size.V": 64, **how}
    compiled = _c.Compiled(_c.variant_definition("gated_delta_net"), options)
    pool = torch.randn(9, 2, 64, 64, device="cuda")
    before, o = pool.clone(), torch.full_like(x["v"], float("nan"))
    slots = torch.tensor([7, -1, 0, 3], dtype=torch.int32, device="cuda")
    started = torch.tensor([1, 1, 0, 1], dtype=torch.uint8, device="cuda")
    names = {torch.bfloat16: "bf16", torch.float32: "f32"}
    places = [*x.values(), o, pool, pool]
    size = compiled.workspace_bytes(4, tokens, 2, False)
    memory = torch.empty(max(1, size), dtype=torch.uint8, device="cuda")
    layout = _launch.Layout(tuple((names[t.dtype], tuple(t.shape), t.stride()) for t in places), None, 1, size)
    for i, x_i in enumerate(places):
        layout.addresses[i] = x_i.data_ptr()
    layout.scalars[0] = 64**-0.5
    layout.args.workspace, layout.args.stream = memory.data_ptr(), torch.cuda.current_stream().cuda_stream
    layout.args.initial_slots = layout.args.final_slots = slots.data_ptr()
    layout.args.has_initial_state = started.data_ptr()
    _c.check(_c.library().forge_launch(compiled._handle, layout.address))
    initial = before[[7, 1, 0, 3]]
    initial[2] = 0
    wanted, states = reference(case, as_float64(x), [initial.cpu().numpy()])
    kept = [0, 2, 3]
    assert relative_rms(o[kept].double().cpu(), wanted[kept]) < 8e-3 and not o[1].any()
    assert relative_rms(pool[[7, 0, 3]].cpu(), states[0][kept]) < 8e-3
    untouched = [1, 2, 4, 5, 6, 8]
    assert torch.equal(pool[untouched], before[untouched])


@pytest.mark.parametrize("strategy", ["auto", "one-pass", "fused", "segmented"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_before_chunks(dtype, strategy):
    """Of sequences side by side and of packed ones: what the tokens before a chunk, called alone, end in."""
    x = {n: torch.from_numpy(a).cuda() for n, a in random_inputs("scalar_gla", 2, 300, 2, 64, 64).items()}
    x = {n: a if n == "g" else a.to(dtype) for n, a in x.items()}
    attn = PROGRAMS["scalar_gla"](options={"strategy": strategy})
    o, final, h = attn(**x, output_final_state=True, return_intermediate_states=True)
    wanted_o, wanted = recurrence("scalar_gla", as_float64(x))
    assert h.shape == (2, 5, 2, 64, 64) and h.dtype == torch.float32
    assert (
        relative_rms(o.double().cpu().numpy(), wanted_o) < TOLERANCE[dtype]
        and relative_rms(final.cpu().numpy(), wanted) < TOLERANCE[dtype]
    )
    for chunk in range(1, 5):
        _, state = recurrence("scalar_gla", as_float64({n: a[:, : 64 * chunk] for n, a in x.items()}))
        assert relative_rms(h[:, chunk].cpu().numpy(), state) < TOLERANCE[dtype]
    assert (h[:, 0] == 0).all()
    packed = {n: a.reshape(1, 600, *a.shape[2:]) for n, a in x.items()}
    _, _, h = attn(
        **packed, cu_seqlens=torch.tensor([0, 0, 300, 300, 600], device="cuda"), return_intermediate_states=True
    )
    assert h.shape == (1, 10, 2, 64, 64) and (h[0, 5] == 0).all()
    _, state = recurrence("scalar_gla", as_float64({n: a[1:, :256] for n, a in x.items()}))
    assert relative_rms(h[:, 9].cpu().numpy(), state) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", forge.variants.names())
def test_decoding_goes_on_where_a_call_ended(name, dtype):
    """One token, then three, then one at a time by a graph, in slots of a pool; one sequence has none. Against the
    forward pass in float32."""
    if name == "contrastive":
        pytest.skip("results depend on the chunk, and a token has none")
    attn, T = getattr(forge.variants, name), 72
    x = {n: torch.from_numpy(a).cuda() for n, a in inputs_of(attn, 3, T, K=64, V=64, D=64).items()}
    x, numbers = rounded(attn, x, lambda a: a.to(dtype)), numbers_of(attn)
    wanted, final = attn(**{n: a.float() for n, a in x.items()}, **numbers, output_final_state=True)
    if not isinstance(final, torch.Tensor):
        pytest.skip("several states, each of which has a pool of its own")
    _, state = attn(**tokens(attn, x, T, 0, 64), **numbers, output_final_state=True)
    slots, kept = torch.tensor([7, -1, 3], dtype=torch.int32, device="cuda"), [0, 2]
    pool = torch.full((9, *state.shape[1:]), 7.0, device="cuda")
    pool[[7, 3]] = state[kept]
    got = [attn.decode(**tokens(attn, x, T, a, b), **numbers, state=pool, slots=slots) for a, b in ((64, 65), (65, 68))]
    static = {n: a.clone() for n, a in tokens(attn, x, T, 68, 69).items()}
    attn.decode(**static, **numbers, state=pool.clone(), slots=slots)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = attn.decode(**static, **numbers, state=pool, slots=slots)
    for t in range(68, T):
        for n, a in tokens(attn, x, T, t, t + 1).items():
            static[n].copy_(a)
        graph.replay()
        got.append(o.clone())
    o = torch.cat(got, 1)
    assert (
        o.dtype == dtype
        and relative_rms(o[kept].double().cpu(), wanted[kept, 64:].double().cpu()) < TOLERANCE[dtype]
        and not o[1].any()
    )
    assert (
        relative_rms(pool[[7, 3]].cpu(), final[kept].cpu()) < TOLERANCE[dtype]
        and (pool[[0, 1, 2, 4, 5, 6, 8]] == 7).all()
    )
    assert attn.info["chunk"] == 1


def bench_decode():
    spec = importlib.util.spec_from_file_location("bench_decode", Path(__file__).parents[2] / "bench" / "decode.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_a_row(layer, x, _beside):
    """Six layers, each of which reads what the one before has made."""
    made = [layer(0, x)]
    for n in range(1, 6):
        made.append(layer(n, {**x, "v": made[-1]}))
    return made


def joined(layer, x, beside):
    """The first, two chains of two beside each other, and one that reads what both have made."""
    made = [layer(0, x)]
    with beside():
        for n in (1, 2):
            made.append(layer(n, {**x, "v": made[-1]}))
    made.append(layer(3, {**x, "v": made[0]}))
    made.append(layer(4, {**x, "v": made[-1]}))
    with beside(join=True):
        pass
    made.append(layer(5, {**x, "v": made[2], "q": made[4]}))
    return made


@pytest.mark.parametrize("model", [in_a_row, joined])
@pytest.mark.parametrize("states", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["gated_delta_net", "kda", "gla", "scalar_gla"])
def test_replays_of_layers_are_calls_one_by_one(name, states, model):
    """A layer's kernel starts while the one before ends: what it reads and writes must be what calls with the device at
    rest in between do, bit by bit. Before every replay the outputs are NaN; some sequences are skipped, others every
    time."""
    attn, B, layers = getattr(forge.variants, name), 40, 6
    numbers = numbers_of(attn)

    def inputs(seed):
        x = inputs_of(attn, B, 1, seed, H=32, HV=32, K=128, V=128)
        return rounded(attn, {n: torch.from_numpy(a).cuda() for n, a in x.items()}, lambda a: a.bfloat16())

    generator = torch.Generator("cuda").manual_seed(1)
    pools = [torch.randn(B + 8, 32, 128, 128, device="cuda", generator=generator).to(states) for _ in range(layers)]
    plain_pools, x = [pool.clone() for pool in pools], inputs(0)
    slots = torch.arange(B, dtype=torch.int32, device="cuda")
    side = torch.cuda.Stream()

    @contextlib.contextmanager
    def beside(join=False):
        if join:
            torch.cuda.current_stream().wait_stream(side)
            yield
        else:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                yield

    def plain_layer(n, inputs):
        o = attn.decode(**inputs, **numbers, state=plain_pools[n], slots=slots)
        torch.cuda.synchronize()
        return o

    def plain():
        return model(plain_layer, x, lambda **_: contextlib.nullcontext())

    plain()
    for pool, plain_pool in zip(pools, plain_pools, strict=True):
        plain_pool.copy_(pool)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        made = model(lambda n, inputs: attn.decode(**inputs, **numbers, state=pools[n], slots=slots), x, beside)
    assert bench_decode().nodes_of(graph) == (layers, 0)  # nothing clears outputs

    for step, replays in enumerate((1, 1, 12, 1)):
        for n, a in inputs(step + 1).items():
            x[n].copy_(a)
        slots.copy_(torch.randperm(B + 8, device="cuda", generator=generator)[:B])
        skipped = [step, 7 + 3 * step, B - 1 - step]
        slots[skipped] = -1
        before = [pool.clone() for pool in pools]
        for o in made:
            o.fill_(float("nan"))
        for _ in range(replays):
            graph.replay()
        for _ in range(replays):
            wanted = plain()
        torch.cuda.synchronize()
        kept = slots >= 0
        for n in range(layers):
            assert torch.equal(made[n], wanted[n]) and torch.equal(pools[n], plain_pools[n]), (step, n)
            assert not made[n][skipped].any() and made[n][kept].flatten(1).any(1).all()
            changed = (pools[n] != before[n]).flatten(1).any(1)
            assert changed.sum() == B - len(skipped) and changed[slots[kept].long()].all()


@pytest.mark.parametrize("wide", [False, True])
def test_decoding_packed_sequences_is_as_on_the_cpu(wide):
    """With the states before every token, of sequences with a slot and without."""
    attn, x = PROGRAMS["gated_delta_net"](), random_inputs("gated_delta_net", 1, 12, 2, 64, 64)
    pool = np.random.default_rng(1).standard_normal((6, 2, 64, 64)).astype(np.float32)
    arrays = {
        "slots": np.array([5, -1, 1, 0], np.int64 if wide else np.int32),
        "cu_seqlens": np.array([0, 1, 4, 4, 12], np.int64),
    }
    on_gpu_pool = torch.from_numpy(pool).cuda()
    on_gpu_arrays = {n: torch.from_numpy(a).cuda() for n, a in {**x, **arrays}.items()}
    o, before = attn.decode(**on_gpu_arrays, state=on_gpu_pool, return_intermediate_states=True)
    wanted, wanted_before = attn.decode(**x, **arrays, state=pool, return_intermediate_states=True)
    kept = [0, *range(4, 12)]
    assert relative_rms(o.double().cpu(), wanted) < 1e-5 and relative_rms(on_gpu_pool.cpu(), pool) < 1e-5
    assert before.shape == (1, 12, 2, 64, 64) and relative_rms(before[:, kept].cpu(), wanted_before[:, kept]) < 1e-5
