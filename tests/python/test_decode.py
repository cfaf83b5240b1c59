"""Decoding: a few tokens at a time, with states in slots that are written in place, is what the forward pass over all
tokens gives."""

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import forge
from decoding import SIZES, inputs_of, listed, numbers_of, rounded, tokens
from forge import LinearAttention, SymbTensor
from programs import PROGRAMS, random_inputs, recurrence
from reference import relative_rms
from test_package import calls_of

SLOTS, UNUSED = np.array([3, 0, 4]), [1, 2, 5]  #: of three sequences, in a pool of six


def two_states():
    """Normalised linear attention of squares: s = s + k² v^T, z = z + k², o = s^T q² / (z q² + 1)."""

    def merge(q, k, v, chunk_s, chunk_z):
        scores = ((q * q) @ (k * k).T).tril()
        return (scores @ v + (q * q) @ chunk_s) / (scores.sum(1, keepdim=True) + (q * q) @ chunk_z.unsqueeze(1) + 1.0)

    meta = {n: SymbTensor(["T", "H", d], "bfloat16") for n, d in (("q", "K"), ("k", "K"), ("v", "V"))}
    return LinearAttention(
        {**meta, "prev_s": SymbTensor(["NS", "H", "K", "V"]), "prev_z": SymbTensor(["NS", "H", "K"])},
        chunk_mode=lambda k, v: {"chunk_s": (k * k).T @ v, "chunk_z": (k * k).sum(0)},
        decay_mode=lambda prev_s, prev_z, chunk_s, chunk_z: {"prev_s": prev_s + chunk_s, "prev_z": prev_z + chunk_z},
        merge_mode=merge,
        name="two_states",
    )


def shifted(with_step: bool = True):
    """Keys with the tokens before: S = S + (k + prev_token(k)) v^T."""

    def chunk(k, v):
        return forge.cache_result(k + forge.prev_token(k), "keys").T @ v

    def step(q, k, v, prev_s):
        s = prev_s + forge.outer(k + forge.prev_token(k), v)
        return s, q @ s

    meta = {n: SymbTensor(["T", "H", d], "bfloat16") for n, d in (("q", "K"), ("k", "K"), ("v", "V"))}
    return LinearAttention(
        {**meta, "prev_s": SymbTensor(["NS", "H", "K", "V"])},
        chunk_mode=chunk,
        decay_mode=lambda prev_s, chunk_state: prev_s + chunk_state,
        merge_mode=lambda q, v, keys, chunk_state: (q @ keys.T).tril() @ v + q @ chunk_state,
        step=step if with_step else None,
        name="shifted",
    )


def in_chunks(**how):
    """Reads the state before the chunk, for which the length of chunks matters."""
    return LinearAttention(
        {"q": SymbTensor(["T", "H", "V"]), "prev_s": SymbTensor(["NS", "H", "V"])},
        chunk_mode=lambda q: q.sum(0),
        decay_mode=lambda prev_s, chunk_state: prev_s + chunk_state,
        merge_mode=lambda q, chunk_state: q + chunk_state,
        name="in_chunks",
        **how,
    )


MADE = {"two_states": two_states, "shifted": shifted, "shifted_without_step": lambda: shifted(False)}
MADE |= {f"python_{name}": make for name, make in PROGRAMS.items()}
OBJECTIVES = Path(__file__).resolve().parents[2] / "variants" / "objectives"  # which tests/numerics decodes, and mamba3
ZOO = [n for n in forge.variants.names() if n != "mamba3" and not (OBJECTIVES / f"{n}.cpp").exists()]
ALL = [*ZOO, *MADE]


def named(name: str):
    return MADE[name]() if name in MADE else getattr(forge.variants, name)


def pool_of(states, slots=SLOTS, count: int = 6):
    """Pools with these states in slots, and sevens in the others; as the definition has one or several."""
    pools = []
    for s in listed(states):
        pools.append(np.full((count, *s.shape[1:]), 7, np.float32))
        pools[-1][slots] = s
    return tuple(pools) if isinstance(states, tuple) else pools[0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ALL)
def test_goes_on_where_a_call_ended(name, dtype):
    attn, T = named(name), 40
    tolerance = 1e-5 if dtype == "float32" else 8e-3
    half, numbers = rounded(attn, inputs_of(attn, 3, T), lambda a: a.astype(ml_dtypes.bfloat16)), numbers_of(attn)
    exact = {n: a.astype(np.float32) for n, a in half.items()}
    wanted, final = attn(**exact, **numbers, output_final_state=True)
    x = exact if dtype == "float32" else half
    _, state = attn(**tokens(attn, x, T, 0, 33), **numbers, output_final_state=True)
    pools = pool_of(state)
    got = [
        attn.decode(**tokens(attn, x, T, a, b), **numbers, state=pools, slots=SLOTS)
        for a, b in ((33, 34), (34, 37), (37, 40))
    ]
    assert [o.shape[1] for o in got] == [1, 3, 3] and got[0].dtype == x[attn.signature.tensors[0].name].dtype
    assert relative_rms(np.concatenate(got, 1), wanted[:, 33:]) < tolerance
    for pool, s in zip(listed(pools), listed(final), strict=True):
        assert relative_rms(pool[SLOTS], s) < tolerance and (pool[UNUSED] == 7).all()
    assert (attn.info["strategy"], len(attn.info["kernels"])) == (
        "one-pass",
        2 if attn.signature.carried else 1,
    )  # the last copies last rows


# -- slots -------------------------------------------------------------------------------------------------------------

X = random_inputs("gated_delta_net", 3, 4, 2, 8, 12)
STATE = np.random.default_rng(1).standard_normal((3, 2, 8, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def attn():
    return PROGRAMS["gated_delta_net"](name="gdn")


@pytest.fixture(scope="module")
def wanted():
    return recurrence("gated_delta_net", X, STATE)


def test_without_slots_the_first_ones(attn, wanted):
    for count in (3, 5):
        pool = pool_of(STATE, [0, 1, 2], count)
        o = attn.decode(**X, state=pool)
        assert relative_rms(o, wanted[0]) < 1e-5 and relative_rms(pool[:3], wanted[1]) < 1e-5 and (pool[3:] == 7).all()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, ">i4"])
def test_slots_of_any_kind(attn, wanted, dtype):
    table = np.stack([SLOTS, SLOTS + 1], 1).astype(dtype)
    for slots in (SLOTS.astype(dtype), table[:, 0], SLOTS[::-1].astype(dtype)[::-1]):
        pool = pool_of(STATE)
        assert relative_rms(attn.decode(**X, state=pool, slots=slots), wanted[0]) < 1e-5
        assert relative_rms(pool[SLOTS], wanted[1]) < 1e-5


def test_no_two_sequences_have_one_slot(attn):
    pool = pool_of(STATE)
    before = pool.copy()
    message = r"argument 'slots': expected a slot of its own for every sequence, got slot 5 for the sequences 0 and 2"
    with pytest.raises(forge.RuntimeError, match=message):
        attn.decode(**X, state=pool, slots=np.array([5, 1, 5]))
    np.testing.assert_array_equal(pool, before)


def test_slots_of_a_layout_are_read_anew(attn, wanted):
    for slots in (np.array([0, 1, 2]), np.array([5, 1, 0])):
        pool = pool_of(STATE, slots)
        assert (
            relative_rms(attn.decode(**X, state=pool, slots=slots), wanted[0]) < 1e-5
            and relative_rms(pool[slots], wanted[1]) < 1e-5
        )


def test_sequences_without_a_slot_are_skipped(attn, wanted):
    pool, kept = pool_of(STATE), [0, 2]
    o = attn.decode(**X, state=pool, slots=np.array([3, -1, 4]))
    assert relative_rms(o[kept], wanted[0][kept]) < 1e-5 and not o[1].any()
    assert relative_rms(pool[[3, 4]], wanted[1][kept]) < 1e-5 and np.array_equal(pool[0], STATE[1])


def test_pools_of_any_strides(attn, wanted):
    """As parts of larger slots, with the axes of a state exchanged, and in several dimensions of an engine's own."""
    for whole, view in (
        (np.zeros((6, 2, 8, 13), np.float32), lambda a: a[..., 1:]),
        (np.zeros((6, 2, 12, 8), np.float32), lambda a: a.swapaxes(2, 3)),
        (np.zeros((12, 2, 8, 12), np.float32), lambda a: a[::-2]),
    ):
        pool = view(whole)
        pool[SLOTS] = STATE
        assert (
            relative_rms(attn.decode(**X, state=pool, slots=SLOTS), wanted[0]) < 1e-5
            and relative_rms(pool[SLOTS], wanted[1]) < 1e-5
        )
        assert whole.sum() == pytest.approx(pool.sum(), rel=1e-4)


@pytest.mark.parametrize("with_batch", [True, False])
def test_packed(attn, with_batch):
    offsets, x = [0, 1, 4, 4, 12], {n: a.reshape(1, 12, *a.shape[2:]) for n, a in X.items()}
    initial = np.random.default_rng(2).standard_normal((4, 2, 8, 12)).astype(np.float32)
    o, final = recurrence("gated_delta_net", x, initial, offsets)
    slots = np.array([5, 2, 1, 0])
    pool = pool_of(initial, slots)
    given = x if with_batch else {n: a[0] for n, a in x.items()}
    got, before = attn.decode(
        **given, state=pool, slots=slots, cu_seqlens=np.array(offsets), return_intermediate_states=True
    )
    assert got.shape == given["v"].shape and before.shape == (*got.shape[:-2], 2, 8, 12)
    assert relative_rms(got.reshape(o.shape), o) < 1e-5 and relative_rms(pool[slots], final) < 1e-5
    before = before.reshape(12, 2, 8, 12)
    assert all(np.array_equal(before[at], initial[n]) for n, at in ((0, 0), (1, 1), (3, 4)))


def test_one_sequence_and_nothing(attn, wanted):
    pool = STATE[:1].copy()
    assert relative_rms(attn.decode(**{n: a[0] for n, a in X.items()}, state=pool), wanted[0][0]) < 1e-5
    assert relative_rms(pool, wanted[1][:1]) < 1e-5
    pool = pool_of(STATE)
    before = pool.copy()
    assert attn.decode(**{n: a[:, :0] for n, a in X.items()}, state=pool, slots=SLOTS).shape == (3, 0, 2, 12)
    assert attn.decode(**{n: a[:0] for n, a in X.items()}, state=pool, slots=SLOTS[:0]).shape == (0, 4, 2, 12)
    assert attn.decode(**{n: a[:0] for n, a in X.items()}, state=pool).shape == (0, 4, 2, 12)
    assert np.array_equal(pool, before)


# -- states before tokens ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["python_gated_delta_net", "delta_product", "two_states", "shifted", "hgrn"])
def test_takes_tokens_back(name):
    """Of four tokens the first two, one and none are kept; then others come."""
    attn, T = named(name), 8
    x, numbers = inputs_of(attn, 3, T), numbers_of(attn)
    _, state = attn(**tokens(attn, x, T, 0, 4), **numbers, output_final_state=True)
    pools = pool_of(state)
    o, before = attn.decode(
        **tokens(attn, x, T, 4, 8), **numbers, state=pools, slots=SLOTS, return_intermediate_states=True
    )
    assert np.array_equal(o, attn.decode(**tokens(attn, x, T, 4, 8), **numbers, state=pool_of(state), slots=SLOTS))
    own = [n for n in attn.signature.states if n not in attn.signature.carried]
    assert len(listed(before)) == len(own)
    first, kept = pool_of(state), np.array([2, 1, 0])
    for pool, h, s in zip(listed(pools), listed(before), listed(state)):
        assert h.shape == (3, 4, *s.shape[1:]) and np.array_equal(h[:, 0], s)
        pool[SLOTS] = h[np.arange(3), kept]
    for pool, started, last in zip(listed(pools), listed(first), attn.signature.states):
        if last in attn.signature.carried:  # the row of the token before, or what the slot had
            rows = x[last.removeprefix("last_")]
            pool[SLOTS] = np.where((kept > 0)[:, None, None], rows[np.arange(3), 4 + kept - 1], started[SLOTS])
    for n in range(3):
        alone = {i.name: x[i.name][n : n + 1] if i.kind == "input" else x[i.name] for i in attn.signature.tensors}
        until = 4 + int(kept[n])
        _, wanted = attn(**tokens(attn, alone, T, 0, until), **numbers, output_final_state=True)
        assert all(
            relative_rms(pool[SLOTS[n]], s[0]) < 1e-5 for pool, s in zip(listed(pools), listed(wanted), strict=True)
        )


def test_states_before_chunks_come_apart_from_last_rows():
    """A call's own states before chunks do not have those that follow from prev_token among them."""
    attn = shifted()
    x = inputs_of(attn, 2, 70)
    _, final, before = attn(**x, output_final_state=True, return_intermediate_states=True)
    assert len(final) == 2 and before.shape == (2, 2, SIZES["H"], SIZES["K"], SIZES["V"])


# -- what calls have in common -----------------------------------------------------------------------------------------


def test_calls_like_earlier_ones_do_little(attn, monkeypatch):
    pool, slots = pool_of(STATE), SLOTS.copy()

    def call():
        attn.decode(**X, state=pool, slots=slots)

    call()
    for name in ("Plan", "read_shapes", "Pools"):
        monkeypatch.setattr(f"forge.attention.{name}", None)
    monkeypatch.setattr("forge._launch.Layout", None)
    monkeypatch.setattr("forge._c.Compiled", None)
    names = calls_of(call)
    assert len(names) < 35, names


def test_any_number_of_tokens_is_one_variant():
    attn = PROGRAMS["scalar_gla"]()
    for T in (1, 7, 100):
        attn.decode(**random_inputs("scalar_gla", 2, T, 2, 8, 8), state=np.zeros((2, 2, 8, 8), np.float32))
    assert len(attn._compiled) == 1
    compiled = attn.compile(dtype="f32", sequences=2, heads=2, K=8, V=8, entry="decode")
    assert [compiled] == list(attn._compiled.values())


def test_options_of_forward_passes_are_left_out(wanted):
    options = {"strategy": "segmented", "chunk": 32, "segments": 2, "tiles": 1, "engine": "portable", "isa": "plain"}
    attn = PROGRAMS["gated_delta_net"](options=options)
    pool = pool_of(STATE)
    assert relative_rms(attn.decode(**X, state=pool, slots=SLOTS), wanted[0]) < 1e-5
    assert (attn.info["strategy"], attn.info["chunk"], attn.info["arch"]) == ("one-pass", 1, "plain")
    attn(**X)
    assert (attn.info["strategy"], attn.info["chunk"]) == ("segmented", 32)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("name", ["gated_delta_net", "two_states", "shifted"])
def test_states_of_sixteen_bits(name, dtype):
    """They are computed with in float32, and rounded once: the same bits as of float32 pools that hold them."""
    attn = named(name)
    x, numbers = inputs_of(attn, 3, 2), numbers_of(attn)
    states = attn(**x, **numbers, output_final_state=True)[1]
    halves = [s if n in attn.signature.carried else s.astype(dtype)
              for n, s in zip(attn.signature.states, listed(states))]  # fmt: skip
    pools = [np.concatenate([s, np.full_like(s, 7)]) for s in halves]
    wide = [p.astype(np.float32) for p in pools]
    slots = np.array([3, 0, 5])
    for pool, floats in zip(pools, wide):
        pool[slots] = pool[:3]
        floats[slots] = floats[:3]
    wanted = attn.decode(**x, **numbers, state=tuple(wide), slots=slots)
    got = attn.decode(**x, **numbers, state=tuple(pools), slots=slots)
    for a, b in zip(listed(got), listed(wanted)):
        np.testing.assert_array_equal(a, b)
    for pool, floats in zip(pools, wide):
        np.testing.assert_array_equal(pool[slots], floats[slots].astype(pool.dtype))
    if len(pools) > 1:
        with pytest.raises(TypeError, match=r"argument 'state': .*expected (states of one type|float32), got"):
            attn.decode(**x, **numbers, state=(wide[0], pools[0].copy() if name == "two_states" else
                                               pools[1].astype(dtype)))  # fmt: skip


def test_looking_inside():
    attn = PROGRAMS["scalar_gla"](name="scalar_gla")
    assert attn.check(entry="decode")
    decoding = attn.compile(entry="decode", on="h200", K=64, V=64)
    assert decoding.info["chunk"] == 1 and len(decoding.info["kernels"]) == 1
    assert (
        attn.source() != attn.source(entry="forward") != attn.source(entry="decode")
        and attn.explain(entry="decode") == decoding.explain()
    )
    attn.decode(**random_inputs("scalar_gla", 1, 1, 2, 8, 8), state=np.zeros((1, 2, 8, 8), np.float32))
    assert attn.info["device"] == "cpu" and attn.info["chunk"] == 1 and "// scalar_gla.cu\n" in attn.source(on="a100")


# -- refused in words --------------------------------------------------------------------------------------------------

POOL = pool_of(STATE)


def read_only(x):
    y = x.copy()
    y.flags.writeable = False
    return y


def unaligned(x):
    return np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)


def strided(x, *strides):
    return np.lib.stride_tricks.as_strided(x, x.shape, strides)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (
            {"state": POOL.astype("int32")},
            TypeError,
            "gdn: argument 'state': expected float32, bfloat16 or float16, written in place, got int32",
        ),
        ({"state": POOL.astype("float64")}, TypeError, "bfloat16 or float16, written in place, got float64"),
        ({"state": POOL.astype(">f4")}, TypeError, "bfloat16 or float16, written in place, got another byte order"),
        ({"state": unaligned(POOL)}, TypeError, "written in place, got an array off its alignment"),
        ({"state": read_only(POOL)}, TypeError, "written in place, got an array that is read-only"),
        ({"state": np.ma.masked_array(POOL)}, TypeError, "written in place, got a masked array"),
        (
            {"state": np.broadcast_to(POOL[0], POOL.shape)},
            TypeError,
            "written in place, got an array that is read-only",
        ),
        (
            {"state": strided(POOL, 0, *POOL.strides[1:])},
            forge.RuntimeError,
            "argument 'state': s: expected an element of its own for every number",
        ),
        (
            {"state": strided(POOL, 400, *POOL.strides[1:])},
            forge.RuntimeError,
            "argument 'state': s: expected an element of its own for every number",
        ),
        (
            {"state": POOL[..., :8]},
            forge.RuntimeError,
            "argument 'state': s: expected shape [slots, 2, 8, 12], got [6, 2, 8, 8]",
        ),
        (
            {"state": POOL[0]},
            forge.RuntimeError,
            "argument 'state': s: expected shape [slots, 2, 8, 12], got [2, 8, 12]",
        ),
        (
            {"state": POOL[:2], "slots": None},
            forge.RuntimeError,
            "s: expected 3 slots at least, one per sequence, got 2; `slots` says which",
        ),
        ({"state": None}, TypeError, "argument 'state': expected a NumPy array or a PyTorch tensor, got None"),
        ({"state": (POOL, POOL)}, TypeError, "argument 'state': expected 1 states (s), got 2"),
        ({"state": {"S": POOL}}, TypeError, "argument 'state': expected ['s'], got ['S']; did you mean 's'?"),
        ({"slots": [3, 0, 4]}, TypeError, "argument 'slots': expected a NumPy array or a PyTorch tensor, got list"),
        ({"slots": SLOTS[:2]}, ValueError, "argument 'slots': expected 3 slots, one per sequence, got shape [2]"),
        (
            {"slots": SLOTS.astype(float)},
            ValueError,
            "argument 'slots': expected int32 or int64 [N], a slot for each sequence, got f64 [3]",
        ),
        ({"slots": np.array([3, 6, 4])}, forge.RuntimeError, "gdn: argument 'slots': expected slots below 6, got 6"),
        ({"slot": SLOTS}, TypeError, "gdn.decode() got an unexpected keyword argument 'slot'; did you mean 'slots'?"),
        (
            {"output_final_state": True},
            TypeError,
            "gdn.decode() got an unexpected keyword argument 'output_final_state'; it takes q, k, v, g, beta, scale",
        ),
        ({"q": None}, TypeError, "argument 'q': expected a NumPy array or a PyTorch tensor, got None"),
    ],
)
def test_arguments(attn, change, error, text):
    for _ in range(2):
        attn.decode(**X, state=POOL.copy(), slots=SLOTS)  # what is right is remembered
        with pytest.raises(error, match=re.escape(text)):
            attn.decode(**{**X, "state": POOL.copy(), "slots": SLOTS, **change})


def test_missing_inputs_and_states(attn):
    with pytest.raises(TypeError, match=re.escape("gdn.decode() is missing 'beta'")):
        attn.decode(**{n: a for n, a in X.items() if n != "beta"}, state=POOL.copy())
    with pytest.raises(TypeError, match="'state'"):
        attn.decode(**X)


def test_states_share_no_memory():
    attn = two_states()
    x = inputs_of(attn, 3, 2)
    s, z = np.zeros((6, 2, 16, 12), np.float32), np.zeros((6, 2, 16), np.float32)
    attn.decode(**x, state=(s, z))
    for shared in (s[..., 0], s.reshape(-1)[-192:].reshape(6, 2, 16)):
        with pytest.raises(
            forge.RuntimeError,
            match="state': z: expected memory of its own, as states are written in place, got some of s's",
        ):
            attn.decode(**x, state=(s, shared))
    slot = np.zeros(
        (6, 2 * 16 * 12 + 2 * 16), np.float32
    )  # as an engine lays them out: both states in a slot of one pool
    parts = slot[:, : 2 * 16 * 12].reshape(6, 2, 16, 12), slot[:, 2 * 16 * 12 :].reshape(6, 2, 16)
    assert np.shares_memory(parts[0], slot)
    wanted = attn.decode(**x, state={"z": z * 0, "s": s * 0}, slots=SLOTS)
    assert (
        np.array_equal(attn.decode(**x, state=parts, slots=SLOTS), wanted)
        and slot[SLOTS].any(1).all()
        and not slot[UNUSED].any()
    )


def test_last_rows_may_not_be_left_out():
    attn = shifted()
    x, s = inputs_of(attn, 3, 2), np.zeros((3, 2, 16, 12), np.float32)
    attn(**x, initial_state=s)
    why = "; the next call looks back to last_k"
    with pytest.raises(TypeError, match=re.escape(f"argument 'state': expected 2 states (s, last_k), got 1{why}")):
        attn.decode(**x, state=s)
    with pytest.raises(TypeError, match=re.escape(f"argument 'state': expected ['s', 'last_k'], got ['s']{why}")):
        attn.decode(**x, state={"s": s})


def test_what_depends_on_chunks_needs_a_step():
    q, s = np.zeros((1, 1, 2, 8), np.float32), np.zeros((1, 2, 8), np.float32)
    with pytest.raises(
        forge.RuntimeError,
        match="in_chunks: entry: decode needs a step, as the phases depend on chunks of 16 tokens; add a step",
    ):
        in_chunks(chunk=16).decode(q=q, state=s)
