"""forge.ops on the CPU against float64 recurrences: NumPy arrays, and PyTorch tensors where there is PyTorch."""

import ml_dtypes
import numpy as np
import pytest
from reference import CASES, inputs_for, is_half, keywords_for, reference, relative_rms

import forge
from forge import ops

TOLERANCE = {"float32": 1e-5, "bfloat16": 8e-3, "float16": 1.5e-3}
TYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def rounded(case, x: dict, dtype: str) -> dict:
    return {n: a.astype(TYPES[dtype]) if is_half(case, n) else a for n, a in x.items()}


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


@pytest.mark.parametrize("case", [c for c in CASES if c.op != "chunk_hgrn"], ids=str)
def test_packed_with_initial_states(case):
    x, offsets = inputs_for(case, 1, 90, 2, 16, 12), [0, 0, 17, 81, 90]
    shapes = [s.shape for s in reference(case, x, offsets=offsets)[1]]
    initial = [np.abs(np.random.default_rng(1).standard_normal(s)).astype(np.float32) for s in shapes]
    given = (initial[0], initial[1][:, None]) if len(initial) == 2 else initial[0]
    o, final = getattr(ops, case.op)(**x, **keywords_for(case), initial_state=given, output_final_state=True, cu_seqlens=np.array(offsets))
    wanted, states = reference(case, x, initial, offsets)
    assert relative_rms(o, wanted) < 1e-5
    for got, state in zip(final_list(final), states, strict=True):
        assert relative_rms(got, state) < 1e-5


def by_name(name: str):
    return next(c for c in CASES if str(c) == name)


def test_hgrn_goes_on_from_a_state():
    case = by_name("hgrn")
    x, h = inputs_for(case, 2, 40, 1, 24, 24), np.ones((2, 24), np.float32)
    o, final = ops.chunk_hgrn(x["x"], x["g"], h, True)
    wanted, states = reference(case, x, [h])
    assert relative_rms(o, wanted) < 1e-5 and relative_rms(final, states[0]) < 1e-5


@pytest.mark.parametrize("op", ["chunk_simple_gla", "chunk_gla", "chunk_gated_delta_rule", "chunk_kda"])
def test_states_with_v_first(op):
    case = next(c for c in CASES if c.op == op)
    x, run = inputs_for(case, 2, 30, 2, 16, 12), getattr(ops, op)
    initial = np.random.default_rng(2).standard_normal((2, 2, 16, 12)).astype(np.float32)
    o, final = run(**x, initial_state=initial, output_final_state=True)
    swapped, other = run(**x, initial_state=np.ascontiguousarray(initial.swapaxes(-1, -2)), output_final_state=True, state_v_first=True)
    assert other.shape == (2, 2, 12, 16) and np.array_equal(other.swapaxes(-1, -2), final) and np.array_equal(o, swapped)
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
        ({"cp_context": object()}, NotImplementedError, "cp_context"),
    ]:
        with pytest.raises(error, match=text):
            ops.chunk_gated_delta_rule(**x, **wrong)
    with pytest.raises(ValueError, match="`chunk_size` must be either 32 or 64"):
        ops.chunk_kda(**inputs_for(by_name("kda"), 1, 20, 1, 8, 8), chunk_size=16)
    with pytest.raises(forge.RuntimeError, match="argument 'v'"):
        ops.chunk_gated_delta_rule(**{**x, "v": x["v"][:, :10]})
