"""forge.ops on the CPU against float64 recurrences: NumPy arrays, and PyTorch tensors where there is PyTorch."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import forge
from forge import ops
from reference import CASES, inputs_for, is_half, keywords_for, reference, relative_rms

TOLERANCE = {"float32": 1e-5, "bfloat16": 8e-3, "float16": 1.5e-3}
TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def rounded(case, x: dict, dtype: str) -> dict:
    return {n: a.astype(TYPES[dtype]) if is_half(case, n) else a for n, a in x.items()}


def by_name(name: str):
    return next(c for c in CASES if str(c) == name)


def final_list(final) -> list:
    return [final[0], final[1][:, 0]] if isinstance(final, tuple) else [final]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_the_recurrence(case, dtype):
    x = rounded(case, inputs_for(case, 2, 75, 2, 36, 20), dtype)
    o, final = getattr(ops, case.op)(**x, **keywords_for(case), output_final_state=True)
    wanted, states = reference(case, x)
    assert o.dtype == TYPES[dtype]
    assert relative_rms(o, wanted) < TOLERANCE[dtype]
    for got, state in zip(final_list(final), states, strict=True):
        assert got.dtype == np.float32 and relative_rms(got, state) < TOLERANCE[dtype]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_packed_with_initial_states(case):
    x, offsets = inputs_for(case, 1, 90, 2, 16, 12), [0, 0, 17, 81, 90]
    shapes = [s.shape for s in reference(case, x, offsets=offsets)[1]]
    initial = [np.abs(np.random.default_rng(1).standard_normal(s)).astype(np.float32) for s in shapes]
    given = (initial[0], initial[1][:, None]) if len(initial) == 2 else initial[0]
    o, final = getattr(ops, case.op)(
        **x, **keywords_for(case), initial_state=given, output_final_state=True, cu_seqlens=np.array(offsets)
    )
    wanted, states = reference(case, x, initial, offsets)
    assert relative_rms(o, wanted) < 1e-5
    for got, state in zip(final_list(final), states, strict=True):
        assert relative_rms(got, state) < 1e-5


def test_hgrn_goes_on_from_a_state():
    case = by_name("hgrn")
    x, h = inputs_for(case, 2, 40, 1, 24, 24), np.ones((2, 24), np.float32)
    o, final = ops.chunk_hgrn(x["x"], x["g"], h, True)
    wanted, states = reference(case, x, [h])
    assert relative_rms(o, wanted) < 1e-5 and relative_rms(final, states[0]) < 1e-5


def test_hgrn_does_not_round_its_gates():
    """Of slow gates 16 bits keep too little: the states of 2000 tokens would be some percent off."""
    x = inputs_for(by_name("hgrn"), 1, 2000, 1, 8, 8)
    x = {"x": x["x"].astype(np.float16), "g": x["g"] * 1e-3 - 1e-3}
    o, final = ops.chunk_hgrn(**x, output_final_state=True)
    wanted, states = reference(by_name("hgrn"), x)
    assert (
        o.dtype == np.float16
        and relative_rms(o, wanted) < TOLERANCE["float16"]
        and relative_rms(final, states[0]) < 1e-5
    )


STATE_TYPES = (np.float16, ml_dtypes.bfloat16, np.float64)


@pytest.mark.parametrize("case", [by_name(n) for n in ("gla", "hgrn", "linear_attn normalized", "kda")], ids=str)
def test_initial_states_of_other_types(case):
    """Are converted to float32, dense or not, alone or in a tuple; final states are float32."""
    x, run = inputs_for(case, 2, 30, 2, 16, 12), getattr(ops, case.op)
    shapes = [s.shape for s in reference(case, x)[1]]
    for dtype in STATE_TYPES:
        initial = [np.abs(np.random.default_rng(1).standard_normal(s)).astype(dtype) for s in shapes]
        strided = [np.repeat(s, 2, -1)[..., ::2] for s in initial]
        for states in (initial, strided):
            given = tuple(states) if len(states) == 2 else states[0]
            o, final = run(**x, **keywords_for(case), initial_state=given, output_final_state=True)
            wanted, after = reference(case, x, initial)
            assert relative_rms(o, wanted) < 1e-5
            for got, state in zip(final_list(final), after, strict=True):
                assert got.dtype == np.float32 and relative_rms(got, state) < 1e-5


def test_a_normaliser_without_a_state():
    """Either of the two may be None, which is zero."""
    case = by_name("linear_attn normalized")
    x = inputs_for(case, 2, 30, 2, 16, 12)
    kv, z = (
        np.abs(np.random.default_rng(1).standard_normal(s.shape)).astype(np.float32) for s in reference(case, x)[1]
    )
    for given, initial in [((kv, None), (kv, z * 0)), (kv, (kv, z * 0)), ((None, z), (kv * 0, z))]:
        assert relative_rms(ops.chunk_linear_attn(**x, initial_state=given)[0], reference(case, x, initial)[0]) < 1e-5
    kv[:] = np.inf
    assert not np.isnan(ops.chunk_linear_attn(**{**x, "q": x["q"] + 1}, initial_state=kv)[0]).any()


@pytest.mark.parametrize(
    "op", ["chunk_retention", "chunk_simple_gla", "chunk_gla", "chunk_gated_delta_rule", "chunk_kda"]
)
def test_states_with_v_first(op):
    case = next(c for c in CASES if c.op == op)
    x, run = inputs_for(case, 2, 30, 2, 16, 12), getattr(ops, op)
    initial = np.random.default_rng(2).standard_normal((2, 2, 16, 12)).astype(np.float32)
    o, final = run(**x, initial_state=initial, output_final_state=True)
    given = np.ascontiguousarray(initial.swapaxes(-1, -2))
    swapped, other = run(**x, initial_state=given, output_final_state=True, state_v_first=True)
    in_float64 = run(**x, initial_state=given.astype(np.float64), output_final_state=True, state_v_first=True)
    assert np.array_equal(in_float64[0], swapped) and np.array_equal(in_float64[1], other)
    assert (
        other.shape == (2, 2, 12, 16) and np.array_equal(other.swapaxes(-1, -2), final) and np.array_equal(o, swapped)
    )
    with pytest.warns(DeprecationWarning, match="state_v_first"):
        assert np.array_equal(run(**x, transpose_state_layout=True)[0], run(**x)[0])
    with pytest.raises(ValueError, match="both"):
        run(**x, state_v_first=True, transpose_state_layout=True)


def test_argument_order_is_flash_linear_attentions():
    x = inputs_for(by_name("gated_delta_rule"), 1, 20, 1, 8, 8)
    by_position, _ = ops.chunk_gated_delta_rule(x["q"], x["k"], x["v"], x["g"], x["beta"], 0.5, None, True)
    assert np.array_equal(by_position, ops.chunk_gated_delta_rule(**x, scale=0.5)[0])


def test_mistakes_are_named():
    x = inputs_for(by_name("gated_delta_rule"), 2, 20, 1, 8, 8)
    for wrong, error, text in [
        ({"chunks": 64}, TypeError, "unexpected keyword argument 'chunks'"),
        ({"chunk_size": 128}, ValueError, "chunk_size"),
        ({"cu_seqlens": np.array([0, 20])}, ValueError, "batch of 1"),
        ({"head_first": True}, DeprecationWarning, "head_first"),
        ({"use_gate_in_kernel": True}, ValueError, "A_log"),
        ({"allow_neg_eigval": True}, ValueError, "use_beta_sigmoid_in_kernel"),
        ({"initial_state": np.zeros((3, 1, 8, 8), np.float32)}, ValueError, "initial_state"),
        (
            {"initial_state": np.zeros((2, 1, 8, 9), np.float32)},
            forge.RuntimeError,
            "argument 'initial_state': expected V = 8, as 'v' says",
        ),
        ({"cp_context": object()}, TypeError, "cp_context: expected forge.distributed.partition"),
    ]:
        with pytest.raises(error, match=text):
            ops.chunk_gated_delta_rule(**x, **wrong)
    with pytest.raises(ValueError, match="`chunk_size` must be either 32 or 64"):
        ops.chunk_kda(**inputs_for(by_name("kda"), 1, 20, 1, 8, 8), chunk_size=16)
    with pytest.raises(forge.RuntimeError, match="chunk_gated_delta_rule: argument 'v': expected T = 20, as 'q' says"):
        ops.chunk_gated_delta_rule(**{**x, "v": x["v"][:, :10]})
    with pytest.raises(forge.RuntimeError, match="chunk_rwkv6: argument 'r': expected shape \\[B, T, H, K\\]"):
        ops.chunk_rwkv6(*(x[n] for n in ("g", "k", "v", "g", "g")))
    with pytest.raises(
        TypeError, match="chunk_gla: argument 'g': expected a NumPy array or a PyTorch tensor, got NoneType"
    ):
        ops.chunk_gla(x["q"], x["k"], x["v"], None)
    with pytest.raises(ValueError, match="`chunk_size` must be a power of 2, got 48"):
        ops.chunk_gla(**inputs_for(by_name("gla"), 1, 20, 1, 8, 8), chunk_size=48)


# ------------------------------------------------------------------------------------------------- heads

#: Operators by which of their arguments have value heads.
HEADED = {
    str(c): c
    for c in CASES
    if str(c)
    in (
        "linear_attn",
        "linear_attn normalized",
        "retention",
        "lightning_attn",
        "simple_gla",
        "simple_gla without gates",
        "simple_gla with both gates",
        "gla",
        "rwkv6",
        "delta_rule",
        "gated_delta_rule",
        "gated_delta_rule raw",
        "gated_delta_product 2",
        "gated_delta_product 3",
        "kda",
        "kda raw",
    )
}
#: These give every head of q its own decay or normaliser: there is no telling what groups of value heads would mean.
UNGROUPED = ("linear_attn normalized", "retention", "lightning_attn")


@pytest.mark.parametrize("name", HEADED)
def test_numbers_of_heads(name):
    """Every argument with its own number of heads: what flash-linear-attention means by it, or an error that names the
    argument."""
    case, run = HEADED[name], getattr(ops, HEADED[name].op)
    first = "r" if case.op == "chunk_rwkv6" else "q"
    for H, HV in [(2, 2), (2, 4), (1, 3), (4, 2), (2, 3), (2, 1), (3, 4)]:
        grouped = replace(case, groups=HV) if HV % H else replace(case, groups=HV // H)
        x = inputs_for(grouped, 1, 20, 1 if HV % H else H, 8, 8)
        if HV % H:
            x |= {n: np.repeat(x[n], H, 2) for n in (first, "k")}
        if HV % H or (H != HV and name in UNGROUPED):
            with pytest.raises(ValueError, match=f"{case.op}: argument 'v': expected .*H.*, got"):
                run(**x, **keywords_for(case))
            continue
        initial = [
            np.abs(np.random.default_rng(1).standard_normal(s.shape)).astype(np.float32)
            for s in reference(grouped, x)[1]
        ]
        o, final = run(
            **x,
            **keywords_for(case),
            initial_state=tuple(initial) if len(initial) == 2 else initial[0],
            output_final_state=True,
        )
        wanted, states = reference(grouped, x, initial)
        assert relative_rms(o, wanted) < 1e-5, (H, HV)
        for got, state in zip(final_list(final), states, strict=True):
            assert relative_rms(got, state) < 1e-5, (H, HV)


@pytest.mark.parametrize("name", HEADED)
def test_arguments_with_other_heads_are_refused(name):
    case, run = HEADED[name], getattr(ops, HEADED[name].op)
    x = inputs_for(case, 1, 20, 4, 8, 8)
    state = np.zeros((1, 4, 8, 8), np.float32)
    for argument, a in {**x, "initial_state": state}.items():
        heads = 1 if argument == "initial_state" else 0 if a.ndim < 3 else 2
        if argument in ("A_log", "dt_bias"):
            continue  # say their shape elsewhere
        for n in (2, 8):
            if argument == "v" and n == 8 and all(i in (*"qrkv",) for i in x) and name not in UNGROUPED:
                continue  # then v says how many value heads there are
            wrong = np.take(a, range(2), heads) if n == 2 else np.repeat(a, 2, heads)
            with pytest.raises(ValueError, match=f"{case.op}: argument '.*': expected .*H"):
                run(**{**x, argument: wrong}, **keywords_for(case))


def test_raw_gates_in_whatever_shape():
    """Layers keep A_log as [1, 1, H, 1], and one head of it as a number."""
    for op, H, bias in [
        ("chunk_kda", 3, (3, 16)),
        ("chunk_kda", 1, (16,)),
        ("chunk_gated_delta_rule", 3, (1, 3)),
        ("chunk_gated_delta_rule", 1, ()),
    ]:
        case = next(c for c in CASES if c.op == op and c.raw_gate)
        x = inputs_for(case, 1, 20, H, 16, 8)
        wanted = getattr(ops, op)(**x, **keywords_for(case))[0]
        for shape in [(1, 1, H, 1), (H, 1), *([()] if H == 1 else [])]:
            other = {**x, "A_log": x["A_log"].reshape(shape), "dt_bias": x["dt_bias"].reshape(bias)}
            assert np.array_equal(getattr(ops, op)(**other, **keywords_for(case))[0], wanted)
        with pytest.raises(forge.RuntimeError, match=f"{op}: argument 'A_log': expected {H} numbers"):
            getattr(ops, op)(**{**x, "A_log": np.zeros(H + 1, np.float32)}, **keywords_for(case))


# --------------------------------------------------------------------------------------------- other names and keywords


def test_other_names():
    assert ops.chunk_gdn is ops.chunk_gated_delta_rule
    for name in (
        "linear_attn normalized",
        "retention",
        "simple_gla",
        "simple_gla with constant gates",
        "gla",
        "delta_rule",
    ):
        case = by_name(name)
        x, keywords = inputs_for(case, 2, 40, 2, 16, 8), keywords_for(case)
        wanted = getattr(ops, case.op)(**x, **keywords, output_final_state=True)
        got = getattr(ops, "fused_" + case.op)(**x, **keywords, output_final_state=True)
        assert np.array_equal(got[0], wanted[0]) and all(
            np.array_equal(a, b) for a, b in zip(final_list(got[1]), final_list(wanted[1]), strict=True)
        )


@pytest.mark.parametrize("name", ["retention", "simple_gla", "simple_gla grouped", "simple_gla without gates"])
def test_parallel_forms(name):
    case = by_name(name)
    x = inputs_for(case, 2, 40, 2, 16, 8)
    parallel = getattr(ops, case.op.replace("chunk", "parallel"))
    wanted, _ = reference(case, x)
    o, none = parallel(**x)
    assert none is None and relative_rms(o, wanted) < 1e-5
    o, scores = parallel(**x, output_attentions=True)
    heads = x["v"].shape[2]
    assert (
        scores.shape == (2, heads, 40, 40) and relative_rms(np.einsum("bhts,bshv->bthv", scores, x["v"]), wanted) < 1e-5
    )
    packed = {n: a[:1] for n, a in x.items()}
    o, _ = parallel(**packed, cu_seqlens=np.array([0, 13, 40]))
    assert relative_rms(o, reference(case, packed, offsets=[0, 13, 40])[0]) < 1e-5
    with pytest.raises(ValueError, match="not packed"):
        parallel(**packed, cu_seqlens=np.array([0, 13, 40]), output_attentions=True)


def test_keywords_that_say_how_flash_linear_attention_is_to_compute():
    for name in ("rwkv6", "gla", "simple_gla", "retention"):
        case = by_name(name)
        x = inputs_for(case, 1, 70, 2, 16, 8)
        for chunk_size in (1, 32, 256):
            o, _ = getattr(ops, case.op)(**x, chunk_size=chunk_size)
            assert relative_rms(o, reference(case, x)[0]) < 1e-5
    x, offsets = inputs_for(by_name("kda"), 1, 70, 2, 16, 8), np.array([0, 30, 70, 70])
    wanted = ops.chunk_kda(**x, cu_seqlens=offsets)[0]
    for more in ({}, {"max_num_seqs": 3}):
        assert np.array_equal(ops.chunk_kda(**x, cu_seqlens=offsets, use_graph=True, **more)[0], wanted)
    with pytest.raises(ValueError, match="max_num_seqs"):
        ops.chunk_kda(**x, cu_seqlens=offsets, use_graph=True, max_num_seqs=4)
