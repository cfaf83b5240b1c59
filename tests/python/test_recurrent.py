"""forge.ops.fused_recurrent_*: what the chunk operators compute, also where the kernels of decode do."""

import numpy as np
import pytest

from forge import _c, ops

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _numbers_of_its_own(monkeypatch):
    """What a test draws does not depend on which tests ran before in the process."""
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(7))


def _normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _given(name, b, t):
    """Arguments of the operator that both forms have, by name, and the shape of a state."""
    h, k, v = 2, 8, 12
    if name == "hgrn":
        return {"x": _normal(b, t, 10), "g": -np.abs(_normal(b, t, 10))}, (10,)
    x = {"q": _normal(b, t, h, k), "k": _normal(b, t, h, k) / 4, "v": _normal(b, t, h, v)}
    gates, beta = -np.abs(_normal(b, t, h)), RNG.random((b, t, h), np.float32)
    wide = -np.abs(_normal(b, t, h, k))
    more = {
        "simple_gla": {"g": gates},
        "gla": {"g": wide},
        "rwkv6": {"w": wide, "u": _normal(h, k)},
        "delta_rule": {"beta": beta},
        "gated_delta_rule": {"g": gates, "beta": beta},
        "kda": {"g": wide, "beta": beta},
        "lightning_attn": {"layer_idx": 1, "num_layers": 4},
    }
    if name == "rwkv6":
        x["r"] = x.pop("q")
    return {**x, **more.get(name, {})}, (h, k, v)


NAMES = [n.removeprefix("fused_recurrent_") for n in ops.__all__ if n.startswith("fused_recurrent_")]


@pytest.mark.parametrize("name", NAMES)
def test_is_what_the_chunk_operator_computes(name):
    chunk, recurrent = getattr(ops, "chunk_" + name), getattr(ops, "fused_recurrent_" + name)
    program = "gated_delta_rule" if name == "gdn" else name
    for b, t in ((3, 1), (2, 5), (1, 40)):
        x, state = _given(program, b, t)
        initial = _normal(b, *state)
        before = initial.copy()
        other = {("gk" if name == "gla" and n == "g" else n): value for n, value in x.items()}
        plain = {"normalize": False} if name == "linear_attn" else {}
        o, final = recurrent(**other, initial_state=initial, output_final_state=True, **plain)
        expected, after = chunk(**x, initial_state=initial, output_final_state=True, **plain)
        np.testing.assert_allclose(o, expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(final, after, rtol=1e-4, atol=1e-4)
        assert np.array_equal(initial, before)  # states are not advanced in place
        alone, none = recurrent(**other, **plain)
        np.testing.assert_allclose(alone, chunk(**x, **plain)[0], rtol=1e-4, atol=1e-4)
        assert none is None
        again, _ = recurrent(**other, initial_state=initial, output_final_state=True, **plain)
        assert np.array_equal(again, o)


def test_packed_sequences_and_states_of_either_order():
    x, state = _given("gated_delta_rule", 1, 9)
    offsets, initial = np.array([0, 1, 6, 9]), _normal(3, *state)
    o, final = ops.fused_recurrent_gated_delta_rule(
        **x, initial_state=initial, output_final_state=True, cu_seqlens=offsets
    )
    expected, after = ops.chunk_gated_delta_rule(
        **x, initial_state=initial, output_final_state=True, cu_seqlens=offsets
    )
    np.testing.assert_allclose(o, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(final, after, rtol=1e-4, atol=1e-4)
    halves = ops.fused_recurrent_gated_delta_rule(
        **x, initial_state=initial.astype(np.float16), output_final_state=True, cu_seqlens=offsets
    )
    np.testing.assert_allclose(halves[1], after, rtol=1e-2, atol=1e-2)  # converted, as everywhere
    swapped = np.ascontiguousarray(initial.swapaxes(-1, -2))
    o2, final2 = ops.fused_recurrent_gated_delta_rule(
        **x, initial_state=swapped, output_final_state=True, cu_seqlens=offsets, state_v_first=True
    )
    assert np.array_equal(o, o2) and np.array_equal(final, final2.swapaxes(-1, -2))


@pytest.mark.parametrize("t", [3, 40])
def test_vectors_of_several_types_are_taken_in_float32(t):
    x, state = _given("gated_delta_rule", 2, t)
    halves = {n: x[n].astype(np.float16) for n in ("v", "beta")}
    initial = _normal(2, *state)
    wide = {**x, **{n: half.astype(np.float32) for n, half in halves.items()}}
    for call in (ops.fused_recurrent_gated_delta_rule, ops.chunk_gated_delta_rule):
        o, final = call(**{**x, **halves}, initial_state=initial, output_final_state=True)
        expected, after = call(**wide, initial_state=initial, output_final_state=True)
        assert o.dtype == np.float16 and np.array_equal(o, expected.astype(np.float16))
        assert np.array_equal(final, after)


def test_few_tokens_take_the_kernels_of_decode(monkeypatch):
    entries = []
    find = _c.Compiled.__init__

    def noted(self, definition, options, *more):
        entries.append(options.get("entry", "forward"))
        find(self, definition, options, *more)

    monkeypatch.setattr(_c.Compiled, "__init__", noted)
    for t, wanted in ((16, "decode"), (17, "forward")):
        h, k, v = 1, 20, 28  # sizes that no other test has
        x = {"q": _normal(1, t, h, k), "k": _normal(1, t, h, k), "v": _normal(1, t, h, v)}
        entries.clear()
        ops.fused_recurrent_retention(**x, output_final_state=True)
        assert entries == [wanted]


@pytest.mark.parametrize("name", ["gated_delta_rule", "kda", "gla", "delta_rule", "rwkv6"])
def test_inputs_of_several_types(name):
    """As FLA's kernels take them; outputs have v's type."""
    x, _ = _given(name, 2, 5)
    gate = {"gk" if name == "gla" and n == "g" else n: a for n, a in x.items()}
    mixed = {n: a.astype(np.float16) if n in ("v", "beta") else a for n, a in gate.items()}
    rounded = {n: a.astype(np.float32) for n, a in mixed.items()}
    recurrent = getattr(ops, "fused_recurrent_" + name)
    wanted, after = recurrent(**rounded, output_final_state=True)
    for _ in range(2):  # the first call, and one like it
        o, final = recurrent(**mixed, output_final_state=True)
        assert o.dtype == np.float16
        np.testing.assert_array_equal(o, wanted.astype(o.dtype))
        np.testing.assert_array_equal(final, after)


def test_what_is_left_out_is_refused():
    x, _ = _given("delta_rule", 1, 3)
    no_rate = {n: x[n] for n in ("q", "k", "v")}
    one = np.ones(x["beta"].shape, np.float32)
    assert np.array_equal(
        ops.fused_recurrent_delta_rule(**no_rate)[0], ops.fused_recurrent_delta_rule(**no_rate, beta=one)[0]
    )
    with pytest.raises(NotImplementedError, match="fused_recurrent_gla: argument 'gv'"):
        ops.fused_recurrent_gla(**no_rate, gk=_normal(1, 3, 2, 8), gv=_normal(1, 3, 2, 12))
    with pytest.raises(NotImplementedError, match="argument 'reverse'"):
        ops.fused_recurrent_retention(**no_rate, reverse=True)
    with pytest.raises(_c.RuntimeError, match="fused_recurrent_kda: argument 'g': expected shape"):
        ops.fused_recurrent_kda(**no_rate, g=x["beta"], beta=x["beta"])
