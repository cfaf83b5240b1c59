"""NumPy arrays of every kind: each is read right, or refused in words."""

import re

import numpy as np
import pytest

import forge
from programs import PROGRAMS, random_inputs

X = random_inputs("scalar_gla", 2, 20, 2, 8, 8)
STATE = np.random.default_rng(1).standard_normal((2, 2, 8, 8)).astype(np.float32)
PACKED = {n: a[:1] for n, a in X.items()}
OFFSETS = np.array([0, 7, 20])


@pytest.fixture(scope="module")
def attn():
    return PROGRAMS["scalar_gla"](name="scalar_gla")


def results(attn, **change):
    o, final = attn(**{**X, **change}, output_final_state=True)
    assert type(o) is type(final) is np.ndarray and o.dtype.isnative and final.dtype == np.float32
    return o, final


def swapped(x):
    return x.astype(x.dtype.newbyteorder(">"))


def unaligned(x):
    """The same numbers, one byte off."""
    memory = np.zeros(x.nbytes + 1, np.uint8)[1:]
    y = memory.view(x.dtype).reshape(x.shape)
    y[...] = x
    assert not y.flags.aligned
    return y


def of_a_record(x):
    """A field of packed records: strides are no multiples of the elements."""
    records = np.zeros(x.shape, np.dtype([("flag", "u1"), ("x", x.dtype)]))
    records["x"] = x
    return records["x"]


def read_only(x):
    y = x.copy()
    y.flags.writeable = False
    return y


def spread(x):
    """Every third element of a larger array."""
    y = np.ones((*x.shape[:-1], 3 * x.shape[-1]), x.dtype)[..., ::3]
    y[...] = x
    return y


LAYOUTS = {
    "big-endian": swapped,
    "little-endian": lambda x: x.astype(x.dtype.newbyteorder("<")),
    "unaligned": unaligned,
    "of a record": of_a_record,
    "big-endian and unaligned": lambda x: unaligned(swapped(x)),
    "read-only": read_only,
    "Fortran's order": np.asfortranarray,
    "not contiguous": spread,
    "negative strides": lambda x: np.ascontiguousarray(x[:, ::-1, ..., ::-1])[:, ::-1, ..., ::-1],
    "memmap": lambda x: x.view(np.memmap),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("argument", ["q", "v", "g", "initial_state"])
def test_layouts(attn, argument, layout):
    x = STATE if argument == "initial_state" else X[argument]
    y = LAYOUTS[layout](x)
    assert np.array_equal(x, y)
    before = y.copy()
    for _ in range(2):  # as it comes first, and as it is remembered
        for given in (x, y):
            got = results(attn, **{"initial_state": STATE, argument: given})
            assert all(map(np.array_equal, got, results(attn, initial_state=STATE)))
    assert np.array_equal(y, before) and y.dtype == before.dtype


@pytest.mark.parametrize("argument", ["q", "v", "g"])
def test_zero_strides(attn, argument):
    x = np.broadcast_to(X[argument][:, :1], X[argument].shape)
    assert x.strides[1] == 0
    assert all(map(np.array_equal, results(attn, **{argument: x}), results(attn, **{argument: x.copy()})))


@pytest.mark.parametrize(
    "layout", ["big-endian", "unaligned", "of a record", "read-only", "not contiguous", "negative strides"]
)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_offsets(attn, layout, dtype):
    layouts = {**LAYOUTS, "negative strides": lambda x: x[::-1].copy()[::-1]}
    wanted = attn(**PACKED, cu_seqlens=OFFSETS, return_intermediate_states=True)
    got = attn(**PACKED, cu_seqlens=layouts[layout](OFFSETS.astype(dtype)), return_intermediate_states=True)
    assert np.array_equal(got[0], wanted[0]) and np.array_equal(got[2], wanted[2])


def test_matrices():
    """numpy.matrix has two axes, as gates have without a batch."""
    one = {n: a[0] for n, a in X.items()}
    attn = PROGRAMS["scalar_gla"](name="scalar_gla")
    assert np.array_equal(attn(**{**one, "g": one["g"].view(np.matrix)})[0], attn(**one)[0])
    assert type(attn(**{**one, "g": one["g"].view(np.matrix)})[0]) is np.ndarray


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ">f8", "bfloat16"])
def test_states_of_other_types(attn, dtype):
    dtype = np.dtype(pytest.importorskip("ml_dtypes").bfloat16) if dtype == "bfloat16" else dtype
    state = STATE.astype(dtype)
    wanted = results(attn, initial_state=state.astype(np.float32))
    for given in (state, np.asfortranarray(state)):
        assert all(map(np.array_equal, results(attn, initial_state=given), wanted))


@pytest.mark.parametrize(
    "scale",
    [0.5, np.float32(0.5), np.float64(0.5), np.array(0.5), np.array(0.5, ">f4"), np.float16(0.5), np.longdouble(0.5)],
    ids=repr,
)
def test_numbers(scale):
    assert np.array_equal(
        PROGRAMS["scalar_gla"](name="scalar_gla")(**X, scale=scale)[0],
        PROGRAMS["scalar_gla"](name="scalar_gla")(**X, scale=0.5)[0],
    )


REFUSED = {
    "masked": (
        lambda x: np.ma.masked_greater(x, 0),
        "expected an array without a mask, got a masked one; x.filled(0) has numbers for what is masked",
    ),
    "masked nowhere": (np.ma.masked_array, "expected an array without a mask"),
    "object": (lambda x: x.astype(object), "expected an array of float32, float16 or bfloat16, got object"),
    "structured": (
        lambda x: x.view([("x", x.dtype)]),
        "expected an array of float32, float16 or bfloat16, got [('x', '<f4')]",
    ),
    "complex": (lambda x: x.astype(np.complex64), "expected an array of float32, float16 or bfloat16, got complex64"),
    "longdouble": (
        lambda x: x.astype(np.longdouble),
        f"expected an array of float32, float16 or bfloat16, got {np.dtype(np.longdouble)}",
    ),
    "text": (lambda x: x.astype(str), "expected an array of float32, float16 or bfloat16, got <U"),
    "times": (lambda x: x.astype("m8[s]"), "expected an array of float32, float16 or bfloat16, got timedelta64[s]"),
    "list": (lambda x: x.tolist(), "expected a NumPy array or a PyTorch tensor, got list"),
    "number": (lambda x: 1.0, "expected a NumPy array or a PyTorch tensor, got float"),
    "number of NumPy's": (lambda x: np.float32(1.0), "expected a NumPy array or a PyTorch tensor, got float32"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("argument", ["q", "v", "g", "initial_state"])
def test_refused(attn, argument, kind):
    make, text = REFUSED[kind]
    results(attn, initial_state=STATE)  # of the same layout: what is remembered is of other arrays
    for _ in range(2):
        with pytest.raises(TypeError, match=re.escape(f"scalar_gla: argument {argument!r}: {text}")):
            attn(**{**X, "initial_state": STATE, argument: make(STATE if argument == "initial_state" else X[argument])})


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda x: x.astype(np.float64),
            "expected element type f32, bf16 or f16, got f64; x.astype('float32') converts",
        ),
        (lambda x: x.astype(np.int64), "expected element type f32, bf16 or f16, got i64"),
        (lambda x: x > 0, "expected element type f32, bf16 or f16, got bool"),
        (lambda x: x.astype(np.uint8), "expected element type f32, bf16 or f16, got u8"),
        (lambda x: np.array(x.flat[0]), "expected shape [B, T, H, V], got []"),
    ],
    ids=["float64", "int64", "bool", "uint8", "0-d"],
)
def test_refused_by_the_definition(attn, make, text):
    with pytest.raises(forge.RuntimeError, match=re.escape(f"argument 'v': {text}")):
        attn(**{**X, "v": make(X["v"])})


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_states_are_floating_point(attn, dtype):
    with pytest.raises(
        TypeError, match=f"argument 'initial_state': expected an array of floating-point numbers, got {dtype}"
    ):
        attn(**X, initial_state=STATE.astype(dtype))


@pytest.mark.parametrize("before_chunks", [False, True])
@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        (np.ma.masked_array(OFFSETS), "expected an array without a mask"),
        (
            OFFSETS.astype(object),
            "expected int32 or int64 [N + 1], offsets from 0 to the number of tokens, got object [3]",
        ),
        (
            OFFSETS.astype(np.complex64),
            "expected int32 or int64 [N + 1], offsets from 0 to the number of tokens, got complex64 [3]",
        ),
        (
            OFFSETS.astype(np.uint8),
            "expected int32 or int64 [N + 1], offsets from 0 to the number of tokens, got u8 [3]",
        ),
        (OFFSETS.tolist(), "expected a NumPy array or a PyTorch tensor, got list"),
        (np.array([0, 2**50, 20]), "expected offsets of at most 20 tokens, got "),
        (np.array([0, 2**50]), "expected the number of tokens, 20, as the last offset, got "),
        (np.array([0, 9, 7, 20]), "expected offsets that do not fall, got 7 after 9"),
        (np.array([0, 19]), "expected the number of tokens, 20, as the last offset, got 19"),
    ],
    ids=["masked", "object", "complex", "uint8", "list", "beyond", "beyond at the end", "falling", "too few"],
)
def test_refused_offsets(attn, offsets, text, before_chunks):
    with pytest.raises((TypeError, ValueError, forge.RuntimeError), match=re.escape(f"argument 'cu_seqlens': {text}")):
        attn(**PACKED, cu_seqlens=offsets, return_intermediate_states=before_chunks)


@pytest.mark.parametrize("scale", [np.ma.masked, 1j, np.complex64(1), None, "1", [1.0]], ids=repr)
def test_refused_numbers(scale):
    with pytest.raises(TypeError, match="scalar_gla: argument 'scale': expected a number, got"):
        forge.variants.scalar_gla(**X, scale=scale)


@pytest.mark.parametrize("layout", ["big-endian", "unaligned", "not contiguous"])
def test_operators(layout):
    change = LAYOUTS[layout]
    given = [X[n] for n in "qkvg"]
    wanted = forge.ops.chunk_simple_gla(*given, initial_state=STATE, output_final_state=True)
    got = forge.ops.chunk_simple_gla(*map(change, given), initial_state=change(STATE), output_final_state=True)
    assert all(map(np.array_equal, got, wanted)) and got[0].dtype == np.float32
    with pytest.raises(TypeError, match="argument 'k': expected an array without a mask"):
        forge.ops.chunk_simple_gla(given[0], np.ma.masked_array(given[1]), *given[2:])
