"""Mistakes are reported where the user made them, in the user's terms."""

import inspect
import re

import numpy as np
import pytest

import forge
from forge import ConstExpr, LinearAttention, SymbTensor
from programs import PROGRAMS, random_inputs

META = {
    "q": SymbTensor(["T", "H", "K"], dtype="bfloat16"),
    "k": SymbTensor(["T", "H", "K"], dtype="bfloat16"),
    "v": SymbTensor(["T", "H", "V"], dtype="bfloat16"),
    "prev_s": SymbTensor(["NS", "H", "K", "V"], dtype="float32"),
    "chunk_state": SymbTensor(["NC", "H", "K", "V"], dtype="float32"),
}


def chunk(k, v):
    return forge.matmul_out_fp32(k.T, v)


def decay(prev_s, chunk_state):
    return prev_s + chunk_state


def merge(q, k, v, chunk_state):
    return forge.matmul_out_fp32(q, k.T).tril(0) @ v + q @ chunk_state


def build(chunk_mode=chunk, decay_mode=decay, merge_mode=merge, meta=None, **more):
    return LinearAttention(
        input_meta=META if meta is None else meta,
        chunk_mode=chunk_mode,
        decay_mode=decay_mode,
        merge_mode=merge_mode,
        **more,
    )


def wrong_product(k, v):
    return k @ v  # HERE


def wrong_dim(k, v):
    return forge.matmul_out_fp32(k.cumsum(5).T, v)  # HERE


def wrong_inverse(k, v):
    A = forge.matmul_out_fp32(k, k.T)
    return (A.inverse() @ k.float()).T @ v


def wrong_truth(k, v):
    if k.sum() > 0:  # HERE
        return k.T @ v
    return v


def wrong_index(k, v):
    return forge.matmul_out_fp32(k[3:7].T, v)  # HERE


def wrong_rest(k, v):
    return forge.matmul_out_fp32(k[:, 3:].T, v)  # HERE


def wrong_halves(k, v):
    return forge.matmul_out_fp32(k.chunk(2, -1)[0].T, v)  # HERE


def wrong_sum(k, v):
    return forge.concat([k, v], -1)  # HERE


def wrong_mean(k, v):
    return forge.outer(k.mean(0), v.sum(0))  # HERE


def wrong_place(k, v):
    return k.T @ (v * forge.arange(v, v.shape[0]).unsqueeze(1))  # HERE


def wrong_function(k, v):
    return np.linalg.svd(k)  # HERE


def wrong_state(k, v):
    return forge.matmul_out_fp32(v.T, k)


def later_tokens(q, k, v, chunk_state):
    return forge.matmul_out_fp32(q, k.T) @ v  # HERE


def wrong_number(k, v):
    return k.T @ (v * "2")  # HERE


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (wrong_product, "inner sizes differ"),
        (wrong_dim, "dim 5 is out of range"),
        (wrong_truth, "no truth value"),
        (wrong_index, "so many tokens of a chunk"),
        (wrong_rest, "how many elements are left has no name"),
        (wrong_halves, "the axis has no such part"),
        (wrong_sum, "the sizes K and V have no sum"),
        (wrong_mean, "sum(token_mask, 0) counts the chunk's tokens"),
        (wrong_place, "carry the count of tokens as a state"),
        (wrong_function, "numpy.svd is no operation"),
        (wrong_number, "expected a traced tensor or a number"),
    ],
)
def test_a_mistake_points_to_its_line(fn, text):
    lines, first = inspect.getsourcelines(fn)
    line = first + next(i for i, source in enumerate(lines) if "# HERE" in source)
    with pytest.raises(forge.CompileError, match=re.escape(text)) as found:
        build(chunk_mode=fn)
    assert str(found.value).startswith(f"{__file__}:{line}:")


def test_the_compilers_own_findings_point_to_the_line_too():
    lines, first = inspect.getsourcelines(later_tokens)
    line = first + next(i for i, source in enumerate(lines) if "# HERE" in source)
    with pytest.raises(forge.CompileError, match="later token") as found:
        build(merge_mode=later_tokens)
    assert f"{__file__}:{line}:" in str(found.value)


def test_an_inverse_must_be_provable():
    with pytest.raises(forge.CompileError, match="unit lower-triangular"):
        build(chunk_mode=wrong_inverse)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"chunk_mode": wrong_state}, "another shape than declared"),
        ({"chunk_mode": lambda k, v, w: k.T @ v}, "unknown input 'w'\n    expected: one of q, k, v, token_mask"),
        (
            {"chunk_mode": lambda k, v, prev_s: k.T @ v},
            "chunk_mode: 'prev_s' is a state, which this phase does not see\n    expected: one of q, k, v, token_mask\n"
            "    hint:     a chunk's own contribution does not depend on states; take it in decay_mode or merge_mode",
        ),
        (
            {"chunk_mode": lambda k, v, chunk_state: k.T @ v},
            "chunk_mode: 'chunk_state' is a state, which this phase does not see",
        ),
        ({"step": lambda q, k, v, chunk_state: (k, q)}, "it takes the state before the token, prev_s"),
        (
            {
                "chunk_mode": lambda k, v: forge.cache_result(k, "kept").T @ v,
                "step": lambda q, kept, v, prev_s: (prev_s, q),
            },
            "step: 'kept' was cached in a phase of chunks, which a token does not see",
        ),
        ({"chunk_mode": lambda k, v, *rest: k.T @ v}, "expected named parameters"),
        ({"chunk_mode": lambda k, v: (k.T @ v, k)}, "got 2 values"),
        ({"chunk_mode": lambda k, v: 1.0}, "expected a traced tensor"),
        ({"merge_mode": lambda q, chunk_state: chunk_state}, "has no token axis"),
        (
            {"merge_mode": lambda q, k: (q @ k.T).tril()},
            "merge_mode: output 'o' has a second axis of tokens, whose size is the compiler's choice\n    expected: "
            "[C, ...]\n"
            "    got:      bf16[C, C]\n    hint:     multiply scores of tokens with tokens by values: scores @ v",
        ),
        ({"chunk_mode": lambda k, vv: k.T @ vv}, "unknown input 'vv'; did you mean 'v'?"),
        (
            {"chunk_mode": lambda k, v: np.triu_indices_from(k)},
            "numpy.triu_indices_from is no operation of the language",
        ),
        ({"meta": {**META, "scale": None}}, "input_meta['scale']: expected a SymbTensor or a number, got None"),
        ({"meta": {**META, "a b": META["q"]}}, "expected names of letters, digits and _, no digit first, got 'a b'"),
        ({"meta": {**META, 3: META["q"]}}, "expected names of letters, digits and _, no digit first, got 3"),
        ({"meta": {"q": META["q"]}}, "there is no state"),
        ({"meta": {**META, "q": "bfloat16"}}, "expected a SymbTensor or a number"),
        ({"meta": {**META, "q": SymbTensor(["T"])}}, "expected ['T', heads, ...]"),
        (
            {
                "meta": {
                    **META,
                    "q": SymbTensor(["T", "H", ConstExpr("K", 8)]),
                    "k": SymbTensor(["T", "H", ConstExpr("K", 16)]),
                }
            },
            "has other values elsewhere",
        ),
        ({"meta": {}}, "expected a dictionary"),
    ],
)
def test_definitions(change, text):
    with pytest.raises(forge.CompileError, match=re.escape(text)):
        build(**change)


def test_caching_twice():
    def twice(k, v):
        forge.cache_result(k, "x")
        forge.cache_result(v, "x")
        return k.T @ v

    with pytest.raises(forge.CompileError, match="'x' is cached twice"):
        build(chunk_mode=twice)


def test_arguments_of_the_constructor():
    with pytest.raises(TypeError, match="argument 'decay_mode': expected a function"):
        LinearAttention(input_meta=META, chunk_mode=chunk, merge_mode=merge)
    with pytest.raises(TypeError, match="chunk_fn"):
        LinearAttention(input_meta=META, chunk_fn=chunk, decay_mode=decay, merge_mode=merge)
    with pytest.raises(TypeError, match="argument 'sp_group': expected forge.distributed.Group or a process group"):
        build(sp_group=object())
    with pytest.raises(TypeError, match="dtype: expected"):
        SymbTensor(["T", "H", "K"], dtype="int7")
    with pytest.raises(ValueError, match="ConstExpr 'K'"):
        ConstExpr("K", 0)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"strateg": "fused"},
            ValueError,
            "option 'strateg'; did you mean 'strategy'?: expected one of size.<symbol>, batch_invariant, cache_dir,",
        ),
        (
            {"strategy": "fsed"},
            forge.RuntimeError,
            "strategy: expected one of one-pass, fused, decoupled, segmented, got 'fsed'",
        ),
        ({"threads": -1}, forge.RuntimeError, "threads: expected 0 to 65536, got -1"),
        ({"threads": "many"}, ValueError, "option 'threads': expected an integer of 64 bits, got 'many'"),
        ({"tiles": -1}, forge.RuntimeError, "tiles: expected 0 to 4096, got -1"),
        ({"segments": -1}, forge.RuntimeError, "segments: expected 0 to 1048576, got -1"),
        ({"expected_tokens": -1}, forge.RuntimeError, "expected_tokens: expected 0 to"),
        ({"size.Z": 64}, forge.RuntimeError, "sizes: there is no size 'Z'; expected K, V"),
        ({"chunk": 48}, forge.RuntimeError, "chunk: expected 16, 32, 64 or 128, got 48"),
        ({"isa": "avx9"}, forge.RuntimeError, "isa: expected auto, avx512, avx2 or plain, got 'avx9'"),
        ({"rule": "luck"}, forge.RuntimeError, "rule: expected cost or paper, got 'luck'"),
    ],
)
def test_options_are_checked_at_once(options, error, text):
    with pytest.raises(error, match=re.escape(text)):
        build(options=options)


def test_options_that_are_none_or_truth_values():
    assert build(options={"strategy": None, "tuned": False}).options == {"tuned": False}


@pytest.mark.parametrize("name", ["%s", "a b", "3d", "", "é", 3, "x\n"])
def test_names_of_definitions(name):
    text = f"LinearAttention: argument 'name': expected letters, digits and _, no digit first, got {name!r}"
    with pytest.raises(ValueError, match=re.escape(text)):
        build(name=name)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: SymbTensor("THK"), TypeError, "expected a list of dimensions, such as ['T', 'H', 'K'], got 'THK'"),
        (lambda: SymbTensor(3), TypeError, "expected a list of dimensions, such as ['T', 'H', 'K'], got 3"),
        (lambda: SymbTensor(["T", "H", 0]), ValueError, "expected dimensions such as 'K', '2*T' or 64, got 0"),
        (lambda: SymbTensor(["T", "H", -3]), ValueError, "expected dimensions such as 'K', '2*T' or 64, got -3"),
        (lambda: SymbTensor(["T", "K%"]), ValueError, "expected dimensions such as 'K', '2*T' or 64, got 'K%'"),
        (lambda: SymbTensor(["T", "K\n"]), ValueError, "expected dimensions such as 'K', '2*T' or 64, got 'K\\n'"),
        (lambda: SymbTensor(["T"], pad=None), TypeError, "argument 'pad': expected a number, got None"),
        (
            lambda: SymbTensor(["T"], range=3),
            ValueError,
            "argument 'range': expected two numbers, the lower one first, got 3",
        ),
        (lambda: ConstExpr("2K", 3), TypeError, "expected a name of letters, digits and _, no digit first, got '2K'"),
        (lambda: ConstExpr("K", 1.5), TypeError, "ConstExpr 'K': expected a size, or several, got 1.5"),
    ],
)
def test_declarations(make, error, text):
    with pytest.raises(error, match=re.escape(text)):
        make()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda a: a.compile(K=8, V=8, Z=3), TypeError, "there is no size 'Z'; it has K, V"),
        (
            lambda a: a.compile(K=8, V=8, token=3),
            TypeError,
            "there is no size 'token'; did you mean 'tokens'?; it has K, V",
        ),
        (lambda a: a.compile(K=-8, V=8), forge.RuntimeError, "expected 1 to 2147483647 for K, got -8"),
        (lambda a: a.compile(K=8, V=8, tokens=-5), ValueError, "argument 'tokens': expected at least 0, got -5"),
        (lambda a: a.compile(K=8, V=8, heads=0), ValueError, "argument 'heads': expected at least 1, got 0"),
        (
            lambda a: a.compile(K=8, V=8, dtype="int7"),
            TypeError,
            "dtype: expected float32, float16, bfloat16 or the like, got 'int7'",
        ),
        (lambda a: a.benchmark(Z=3), TypeError, "there is no size 'Z'; it has K, V"),
        (lambda a: a.benchmark(T=-64), ValueError, "argument 'T': expected at least 0, got -64"),
        (lambda a: a.benchmark(runs=0), ValueError, "argument 'runs': expected at least 1, got 0"),
    ],
)
def test_looking_inside(call, error, text):
    with pytest.raises(error, match=re.escape(text)):
        call(build())


def call_with(**change):
    x = random_inputs("scalar_gla", 2, 20, 2, 8, 8)
    return PROGRAMS["scalar_gla"]()(**{n: a for n, a in {**x, **change}.items() if a is not None})


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"beta": 1}, TypeError, "unexpected keyword argument 'beta'; it takes q, k, v, g, scale"),
        (
            {"scal": 1},
            TypeError,
            "unexpected keyword argument 'scal'; did you mean 'scale'?; it takes q, k, v, g, scale",
        ),
        (
            {"initial_sate": 1},
            TypeError,
            "unexpected keyword argument 'initial_sate'; did you mean 'initial_state'?; it takes",
        ),
        ({"g": None}, TypeError, "missing 'g'"),
        ({"g": 1.0}, TypeError, "argument 'g': expected a NumPy array or a PyTorch tensor, got float"),
        ({"scale": "a"}, TypeError, "argument 'scale': expected a number, got 'a'"),
        ({"scale": np.ones(3)}, TypeError, "argument 'scale': expected a number, got array([1., 1., 1.])"),
        (
            {"q": np.zeros((2, 20, 2, 8), object)},
            TypeError,
            "argument 'q': expected an array of float32, float16 or bfloat16, got object",
        ),
        (
            {"g": np.zeros((2, 20, 2), np.float16)},
            forge.RuntimeError,
            "argument 'g': expected element type f32, got f16",
        ),
        (
            {"v": np.zeros((2, 20, 2, 8), np.float64)},
            forge.RuntimeError,
            "argument 'v': expected element type f32, bf16 or f16, got f64",
        ),
        (
            {"v": np.zeros((2, 20, 2, 8), np.float16)},
            forge.RuntimeError,
            "argument 'v': expected element type f32, as in the arguments before, got f16",
        ),
        (
            {"v": np.zeros((2, 19, 2, 8), np.float32)},
            forge.RuntimeError,
            "argument 'v': expected T = 20, as in 'q', got",
        ),
        ({"v": np.zeros((3, 20, 2, 8), np.float32)}, forge.RuntimeError, "argument 'v': expected a batch of 2"),
        ({"v": np.zeros((2, 20, 8), np.float32)}, forge.RuntimeError, "argument 'v'"),
        ({"initial_state": np.zeros((1, 2, 8, 8), np.float32)}, ValueError, "expected 2 states, one per sequence"),
        ({"initial_state": np.zeros((2, 2, 8, 9), np.float32)}, forge.RuntimeError, "initial_states.s"),
        ({"initial_state": [np.zeros((2, 2, 8, 8), np.float32)] * 2}, TypeError, "expected 1 states"),
        ({"cu_seqlens": np.array([0, 20])}, ValueError, "batch of 1"),
        (
            {"v": np.zeros((2, 20, 1, 8), np.float32)},
            forge.RuntimeError,
            "argument 'v': expected H = 2, as in 'q', got [2, 20, 1, 8]",
        ),
    ],
)
def test_calls(change, error, text):
    with pytest.raises(error, match=re.escape(text)):
        call_with(**change)


def test_fewer_value_heads_than_key_heads():
    x = random_inputs("scalar_gla", 2, 20, 4, 8, 8)
    with pytest.raises(
        forge.RuntimeError, match=re.escape("argument 'q': expected heads (H) that divide the 2 of 'o', got 4")
    ):
        forge.variants.scalar_gla(**{n: a[:, :, :2] if n in "vg" else a for n, a in x.items()}, scale=1.0)
    with pytest.raises(forge.RuntimeError, match="argument 'o': expected at least one head, got 0"):
        forge.variants.scalar_gla(**{n: a[:, :, :0] for n, a in x.items()}, scale=1.0)


@pytest.mark.parametrize(
    ("offsets", "text"),
    [([0, 10, 19], "as the last offset"), ([0, 12, 10, 20], "do not fall"), ([1, 20], "0 as the first offset")],
)
def test_offsets(offsets, text):
    x = random_inputs("scalar_gla", 1, 20, 2, 8, 8)
    with pytest.raises(forge.RuntimeError, match=text):
        PROGRAMS["scalar_gla"]()(**x, cu_seqlens=np.array(offsets))


@pytest.mark.parametrize(
    ("offsets", "got"),
    [
        ([0, 60], "expected a NumPy array or a PyTorch tensor, got list"),
        (np.array([0.0, 60.0]), "expected int32 or int64 [N + 1], offsets from 0 to the number of tokens, got f64 [2]"),
        (
            np.array([[0, 60]]),
            "expected int32 or int64 [N + 1], offsets from 0 to the number of tokens, got i64 [1, 2]",
        ),
        (np.array(60), "expected int32 or int64 [N + 1], offsets from 0 to the number of tokens, got i64 []"),
        (
            np.array([], np.int32),
            "expected int32 or int64 [N + 1], offsets from 0 to the number of tokens, got i32 [0]",
        ),
        (np.array([0, 70]), "expected the number of tokens, 60, as the last offset, got 70"),
    ],
)
@pytest.mark.parametrize("with_state", [False, True])
def test_offsets_are_named(offsets, got, with_state):
    x = random_inputs("scalar_gla", 1, 60, 2, 8, 8)
    state = np.zeros((1, 2, 8, 8), np.float32) if with_state else None
    with pytest.raises((TypeError, ValueError, forge.RuntimeError), match=re.escape(f"argument 'cu_seqlens': {got}")):
        PROGRAMS["scalar_gla"]()(**x, initial_state=state, cu_seqlens=offsets)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_what_is_none_is_named(name):
    attn, x = PROGRAMS[name](), random_inputs(name, 1, 20, 2, 8, 8)
    for missing in [i.name for i in attn.signature.tensors]:
        with pytest.raises(
            TypeError, match=f"argument '{missing}': expected a NumPy array or a PyTorch tensor, got None"
        ):
            attn(**{**x, missing: None})
    states = [np.zeros((1, 2, *[8] * len(dims)), np.float32) for dims in attn.signature.states.values()]
    with pytest.raises(
        TypeError, match="argument 'initial_state': expected a NumPy array or a PyTorch tensor, got None"
    ):
        attn(**x, initial_state=[*states[:-1], None])


def test_a_failed_call_leaves_the_next_one_alone():
    attn, x = PROGRAMS["scalar_gla"](), random_inputs("scalar_gla", 1, 20, 2, 8, 8)
    before = attn(**x)[0]
    for _ in range(3):
        with pytest.raises(forge.RuntimeError):
            attn(**x, cu_seqlens=np.array([0, 19]))
    assert np.array_equal(attn(**x)[0], before)


def test_a_cache_that_cannot_be_made_is_an_error_with_a_way_out(monkeypatch):
    monkeypatch.setenv("FORGE_CACHE_DIR", "/proc/nowhere")
    q, k, v = (np.ones((1, 3, 1, n), np.float32) for n in (8, 8, 24))
    with pytest.raises(
        forge.RuntimeError,
        match=r"cache directory '/proc/nowhere': cannot be made \(.*\); set FORGE_CACHE_DIR to a directory of your own",
    ):
        build()(q=q, k=k, v=v)


def test_sizes_that_nobody_means_are_refused():
    q, k, v = (np.ones((1, 3, 1, n), np.float32) for n in (8, 8, 16))
    for options, message in [
        ({"segments": 2**63 - 1}, "segments: expected 0 to 1048576, got 9223372036854775807"),
        ({"segments": 2**64}, "option 'segments': expected an integer of 64 bits, got '18446744073709551616'"),
        ({"tiles": 2**40}, "tiles: expected 0 to 4096, got 1099511627776"),
    ]:
        with pytest.raises((forge.RuntimeError, ValueError), match=message):
            build(options=options)(q=q, k=k, v=v)
