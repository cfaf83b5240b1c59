"""What forge.ops is tried with: for every operator a table of values of its keywords, element types, sizes, heads and
layouts, and rows of a covering array over it, each of which is a call with its results in float64."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass

import numpy as np

from covering import covering_array
from forge import ops
from reference import Case, inputs_for, reference

# ------------------------------------------------------------------------------------------------- the table

#: Values of what all operators have. The first of a factor is what row_of assumes where a text leaves it out.
_EVERY = {
    "dtype": ("bfloat16", "float16", "float32"),
    "size": ("64x64", "96x96", "128x128", "256x256", "64x128", "128x96"),
    "tokens": (150, 64, 1),
    "packed": ("no", "int32", "int64"),
    "initial": ("none", "float32", "bfloat16", "float16", "float64", "strided"),
    "output_final_state": (True, False),
    "inputs": ("dense", "strided"),
}
_SCALE = {"scale": (None, 0.3)}
_GROUPS = {"groups": (1, 2, 4)}
_V_FIRST = {"state_v_first": (False, True)}
_POWERS = {"chunk_size": (None, 16, 256)}
_L2NORM = {"use_qk_l2norm_in_kernel": (False, True)}
_BETA = {"beta": ("half", "float32")}
#: beta as it comes: sigmoid in the kernel, or twice that.
_RAW_BETA = {"beta": ("half", "float32", "sigmoid", "float32 sigmoid", "twice sigmoid")}
_GATES = {"gate": ("float32", "half")}
_SMALL = {"size": ("64x64", "128x96"), "tokens": (150,), "inputs": ("dense",)}
_NO_STATES = {"initial": ("none",), "output_final_state": (False,)}

#: Operator -> factor -> values, in place of or beyond those of _EVERY.
TABLE: dict[str, dict[str, tuple]] = {
    "chunk_linear_attn": {**_SCALE, "normalize": (True, False)},
    "chunk_retention": {**_SCALE, **_V_FIRST, **_POWERS},
    "chunk_lightning_attn": {**_SCALE, **_POWERS, "layer": ("0 of 4", "3 of 12")},
    "chunk_simple_gla": {
        **_SCALE,
        **_GROUPS,
        **_V_FIRST,
        **_POWERS,
        "gate": ("float32", "half", "none", "constant", "both"),
    },
    "chunk_gla": {**_SCALE, **_GROUPS, **_V_FIRST, **_POWERS, **_GATES},
    "chunk_rwkv6": {**_SCALE, **_GROUPS, **_POWERS, **_GATES, "u": ("float32", "half")},
    "chunk_hgrn": {**_GATES, "size": ("64x64", "96x96", "100x100", "500x500", "1024x1024")},
    "chunk_delta_rule": {**_SCALE, **_GROUPS, **_L2NORM, **_BETA, "chunk_size": (None, 16)},
    "chunk_gated_delta_rule": {
        **_SCALE,
        **_GROUPS,
        **_V_FIRST,
        **_L2NORM,
        **_RAW_BETA,
        "chunk_size": (None, 16),
        "gate": ("float32", "half", "A_log", "A_log [1,1,H,1] and bias"),
    },
    "chunk_gated_delta_product": {
        **_SCALE,
        **_GROUPS,
        **_L2NORM,
        **_BETA,
        "gate": ("float32", "half", "none"),
        "num_householder": (1, 2, 3),
    },
    "chunk_kda": {
        **_SCALE,
        **_GROUPS,
        **_V_FIRST,
        **_L2NORM,
        **_RAW_BETA,
        "chunk_size": (None, 32),
        "packed": ("no", "int32", "int64", "graph"),
        "disable_recompute": (False, True),
        "return_intermediate_states": (False,),
        "gate": (
            "float32",
            "half",
            "safe",
            "A_log",
            "A_log [1,1,H,1] and bias",
            "bound",
            "bound and bias",
            "bound, A_log and bias",
        ),
    },
    "fused_chunk_linear_attn": {**_SMALL, **_SCALE, "normalize": (True, False)},
    "fused_chunk_retention": {**_SMALL, **_SCALE},
    "fused_chunk_simple_gla": {**_SMALL, **_SCALE, **_GROUPS, "gate": ("float32", "half", "none", "constant", "both")},
    "parallel_retention": {**_SMALL, **_SCALE, **_NO_STATES, "output_attentions": (False, True)},
    "parallel_simple_gla": {
        **_SMALL,
        **_SCALE,
        **_NO_STATES,
        **_GROUPS,
        "gate": ("float32", "half", "none"),
        "output_attentions": (False, True),
    },
}

#: The other parameters that the values of a factor stand for.
STANDS_FOR = {
    "packed": ("cu_seqlens", "cu_seqlens_cpu", "chunk_indices", "use_graph", "max_num_seqs"),
    "initial": ("initial_state",),
    "beta": ("beta", "use_beta_sigmoid_in_kernel", "allow_neg_eigval"),
    "gate": ("g", "w", "g_gamma", "use_gate_in_kernel", "A_log", "dt_bias", "lower_bound", "safe_gate"),
    "layer": ("layer_idx", "num_layers"),
    "inputs": ("q", "r", "k", "v", "x"),
}
#: Other names of what stands in the table.
ALIASES = {
    "chunk_gdn": "chunk_gated_delta_rule",
    "fused_chunk_gla": "chunk_gla",
    "fused_chunk_delta_rule": "chunk_delta_rule",
}


def rows_of(op: str) -> list[dict]:
    """Of the covering array."""
    return [{"op": op, **row} for row in covering_array({**_EVERY, **TABLE[op]})]


def all_rows() -> list[dict]:
    return [row for op in TABLE for row in rows_of(op)]


def text_of(row: dict) -> str:
    """One line, which row_of reads."""
    return " ".join(
        [row["op"], *(f"{name}={str(value).replace(' ', '_')}" for name, value in row.items() if name != "op")]
    )


def row_of(text: str) -> dict:
    op, *given = text.split()
    row = {"op": op}
    for part in given:
        name, _, value = part.partition("=")
        known = {str(v).replace(" ", "_"): v for v in {**_EVERY, **TABLE[op]}[name]}
        row[name] = (
            known[value] if value in known else int(value) if value.isdigit() else value
        )  # values that the table has not, too
    return {"op": op, **{name: values[0] for name, values in {**_EVERY, **TABLE[op]}.items()}, **row}


# ------------------------------------------------------------------------------------------------- a row as a call

#: The case of the recurrence for an operator: kind of gate, whether it is a delta rule.
_KINDS = {
    "retention": ("", False),
    "lightning_attn": ("", False),
    "linear_attn": ("", False),
    "hgrn": ("vector", False),
    "simple_gla": ("scalar", False),
    "gla": ("vector", False),
    "rwkv6": ("vector", False),
    "delta_rule": ("", True),
    "gated_delta_rule": ("scalar", True),
    "gated_delta_product": ("scalar", True),
    "kda": ("vector", True),
}


@dataclass
class Problem:
    """A call: arrays by name in NumPy's float32 (numbers that the types in `types` have), what else is given, and what
    is wanted."""

    row: dict
    arrays: dict[str, np.ndarray]
    types: dict[str, str]  #: of arrays; float32 otherwise
    keywords: dict
    case: Case
    offsets: list[int] | None
    initial: list[np.ndarray] | None

    def wanted(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """(o, final states) in float64, from the rounded inputs."""
        known = {n: a for n, a in self.arrays.items() if n not in ("initial_state", "z")}
        return reference(self.case, known, self.initial, self.offsets)


def _case(row: dict) -> Case:
    gate_of, delta = _KINDS[re.sub(r"^(fused_chunk|chunk|parallel)_", "", row["op"])]
    gate, beta = row.get("gate", "float32"), row.get("beta", "")
    keywords = {n: row[n] for n in ("normalize", "use_qk_l2norm_in_kernel") if n in row}
    if row.get("scale") is not None:
        keywords["scale"] = row["scale"]
    if "sigmoid" in beta:
        keywords["use_beta_sigmoid_in_kernel"] = True
    if "twice" in beta:
        keywords["allow_neg_eigval"] = True
    if "layer" in row:
        keywords["layer_idx"], keywords["num_layers"] = map(int, row["layer"].split(" of "))
    if gate in ("constant", "both"):
        keywords["g_gamma"] = True
    raw = "bounded" if "bound" in gate or gate == "safe" else "plain" if "A_log" in gate else ""
    if raw == "bounded":
        keywords["lower_bound"] = -4.0
    op = re.sub(r"^(fused_chunk|parallel)_", "chunk_", row["op"])
    rows = row.get("num_householder", 1)
    return Case(op, "" if gate in ("none", "constant") else gate_of, delta, rows, keywords, raw, row.get("groups", 1))


def _rounded(a: np.ndarray, dtype: str) -> np.ndarray:
    """To the nearest number of a type, in float32."""
    if dtype == "float16":
        return a.astype(np.float16).astype(np.float32)
    if dtype == "bfloat16":
        bits = a.astype(np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
    return a


def _offsets(row: dict, T: int) -> list[int] | None:
    if row["packed"] == "no":
        return None
    return [0, 0, T // 3, T - T // 2, T - T // 2, T]


def problem_of(row: dict) -> Problem:
    case, dtype = _case(row), row["dtype"]
    K, V = map(int, row["size"].split("x"))
    T, heads = row["tokens"], max(1, 4 // row.get("groups", 2))
    packed, gate = row["packed"] != "no", row.get("gate", "float32")
    x = inputs_for(case, 1 if packed else 2, T, heads, K, V, seed=zlib.crc32(text_of(row).encode()))
    if gate in ("A_log", "bound", "safe"):
        x.pop("dt_bias", None)
    if gate in ("bound", "bound and bias"):
        x.pop("A_log", None)
    if "[1,1,H,1]" in gate:
        x["A_log"] = x["A_log"].reshape(1, 1, -1, 1)
    if row["op"] == "chunk_kda" and "dt_bias" in x and "," in gate:
        x["dt_bias"] = x["dt_bias"].reshape(-1, K)
    half = {"q", "r", "k", "v", "x"} | ({"beta"} if "float32" not in row.get("beta", "half") else set())
    half |= ({"g", "w"} if gate == "half" else set()) | ({"u"} if row.get("u") == "half" else set())
    types = {n: dtype for n in x if n in half}
    offsets = _offsets(row, T)
    x = {n: _rounded(a, types.get(n, "float32")) for n, a in x.items()}
    problem = Problem(row, x, types, _keywords(row, case, offsets), case, offsets, None)
    if row["initial"] != "none":
        _with_initial_states(problem, len(offsets) - 1 if offsets else 2)
    return problem


def _keywords(row: dict, case: Case, offsets: list[int] | None) -> dict:
    """Numbers and flags of the call."""
    known = {n: v for n, v in case.keywords.items() if n not in ("g_gamma", "lower_bound")}
    passed = (
        "chunk_size",
        "state_v_first",
        "num_householder",
        "disable_recompute",
        "return_intermediate_states",
        "output_final_state",
    )
    given = known | {n: row[n] for n in passed if n in row}
    gate = row.get("gate", "")
    if row["op"].startswith("parallel"):
        given.pop("output_final_state")
        given["output_attentions"] = row["output_attentions"] and offsets is None
    if case.raw_gate:
        given["use_gate_in_kernel"] = True
    if case.raw_gate == "bounded":
        given |= {"lower_bound": -4.0, "safe_gate": gate == "safe"}
    if gate == "none" and "product" in row["op"]:
        given["g"] = None
    if row["packed"] == "graph":
        given |= {"use_graph": True, "max_num_seqs": len(offsets) - 1}
    return given


def _with_initial_states(problem: Problem, sequences: int) -> None:
    row, rng = problem.row, np.random.default_rng(1)
    dtype = row["initial"] if row["initial"] != "strided" else "float32"
    first = next(iter(problem.arrays.values()))
    v = problem.arrays.get("v")
    shape = (sequences, first.shape[-1]) if v is None else (sequences, v.shape[2], first.shape[-1], v.shape[-1])
    state = _rounded(np.abs(rng.standard_normal(shape)).astype(np.float32), dtype)
    problem.initial, problem.arrays["initial_state"], problem.types["initial_state"] = [state], state, dtype
    if row.get("state_v_first"):
        problem.arrays["initial_state"] = state.swapaxes(-1, -2)
    if row.get("normalize"):
        z = _rounded(np.abs(rng.standard_normal(shape[:-1])).astype(np.float32), dtype)
        problem.initial.append(z)
        problem.arrays["z"], problem.types["z"] = z[:, None], dtype


# ------------------------------------------------------------------------------------------------- arrays of a library


class InNumPy:
    """Arrays that calls are made with."""

    def array(self, a: np.ndarray, dtype: str):
        if dtype == "bfloat16":
            import ml_dtypes

            return a.astype(ml_dtypes.bfloat16)
        return np.ascontiguousarray(a).astype(dtype)

    def strided(self, a):
        """The same numbers, with strides."""
        return np.repeat(a, 2, -1)[..., ::2]

    def numbers(self, a) -> np.ndarray:
        return np.asarray(a, np.float64)


class InTorch(InNumPy):
    def __init__(self, device: str):
        import torch

        self.torch, self.device = torch, device

    def array(self, a: np.ndarray, dtype: str):
        return self.torch.from_numpy(np.ascontiguousarray(a)).to(self.device, getattr(self.torch, dtype))

    def strided(self, a):
        return a.repeat_interleave(2, -1)[..., ::2]

    def numbers(self, a) -> np.ndarray:
        return a.double().cpu().numpy()


def call_of(problem: Problem, library: InNumPy) -> dict:
    """The keyword arguments."""
    row = problem.row
    x = {n: library.array(a, problem.types.get(n, "float32")) for n, a in problem.arrays.items()}
    if row["inputs"] == "strided":
        x |= {n: library.strided(x[n]) for n in ("q", "r", "k", "v", "x") if n in x}
    if row["initial"] == "strided":
        x |= {n: library.strided(x[n]) for n in ("initial_state", "z") if n in x}
    if "z" in x:
        x["initial_state"] = x["initial_state"], x.pop("z")
    if problem.offsets is not None:
        offsets = np.array(problem.offsets)
        x["cu_seqlens"] = library.array(offsets, "int32" if row["packed"] == "int32" else "int64")
        if row["packed"] == "int64" and "cu_seqlens_cpu" in parameters(row["op"]):
            x["cu_seqlens_cpu"] = (
                InNumPy().array(offsets, "int64")
                if isinstance(x["cu_seqlens"], np.ndarray)
                else library.torch.tensor(problem.offsets)
            )
        if row["packed"] == "int64" and "chunk_indices" in parameters(row["op"]):
            x["chunk_indices"] = library.array(np.zeros((1, 2)), "int64")
    return x | problem.keywords


def parameters(op: str) -> list[str]:
    """Of an operator, but for what is long gone."""
    import inspect

    known = inspect.signature(getattr(ops, op)).parameters.values()
    return [p.name for p in known if p.kind is not p.VAR_KEYWORD]


# ------------------------------------------------------------------------------------------------- judging one

TOLERANCE = {"float32": 1e-5, "bfloat16": 8e-3, "float16": 1.5e-3}


def relative_rms(got: np.ndarray, wanted: np.ndarray) -> float:
    """NaN for another shape."""
    if got.shape != wanted.shape:
        return float("nan")
    return (
        float(np.sqrt(np.mean((got - wanted) ** 2)) / max(np.sqrt(np.mean(wanted**2)), 1e-12)) if wanted.size else 0.0
    )


def errors_of(row: dict, library: InNumPy) -> dict[str, float]:
    """Relative errors of the results of a row's call by their names."""
    problem = problem_of(row)
    call = call_of(problem, library)
    o, more = getattr(ops, row["op"])(**call)[:2]
    wanted, states = problem.wanted()
    errors = {"o": relative_rms(library.numbers(o), wanted)}
    if call.get("output_attentions"):
        scores, v = library.numbers(more), problem.arrays["v"].astype(np.float64)
        scores = scores.repeat(v.shape[2] // scores.shape[1], axis=1)  # without gates, value heads share those of q
        values = np.einsum("bhts,bshv->bthv", scores, v)
        errors["attentions"] = relative_rms(values, wanted)
    elif call.get("output_final_state"):
        for i, (got, state) in enumerate(zip(more if isinstance(more, tuple) else (more,), states, strict=True)):
            numbers = library.numbers(got)
            numbers = numbers.swapaxes(-1, -2) if row.get("state_v_first") else numbers[:, 0] if i else numbers
            errors[f"state {i}"] = relative_rms(numbers, state)
    elif more is not None:
        errors["unwanted"] = float("nan")
    return errors


def failures_of(row: dict, library: InNumPy) -> str:
    """Why a row's call is wrong, or nothing."""
    limit = TOLERANCE[row["dtype"]]
    try:
        errors = errors_of(row, library)
    except Exception as e:  # noqa: BLE001
        return f"{type(e).__name__}: {e}".split("\n")[0]
    wrong = {n: e for n, e in errors.items() if not e < limit}
    return ", ".join(f"{n}: error {e:.2g}, at most {limit}" for n, e in wrong.items())


# ------------------------------------------------------------------------------------------------- compiling one


class _Captured(Exception):
    pass


def kernels_of(row: dict, on: str | None = None):
    """What a row's call would run, for this machine's CPU, or for a GPU that need not be there, by the name of its
    facts."""
    from forge import _calls, attention
    from forge._arrays import library_of

    run = attention.Attention._run

    def captured(self, *given, recurrent=False):
        raise _Captured(self, given)

    attention.Attention._run = captured
    try:
        getattr(ops, row["op"])(**call_of(problem_of(row), InNumPy()))
    except _Captured as request:
        program, (tensors, _, _, _, cu_seqlens, *_) = request.args
    finally:
        attention.Attention._run = run
    arrays = library_of(tensors[0])
    shapes = [x.shape if not program._one_head else (*x.shape[:2], 1, *x.shape[2:]) for x in tensors]
    sequences = None if cu_seqlens is None else len(cu_seqlens) - 1
    shape = _calls.read_shapes(program.signature, shapes, {}, sequences)
    dtype = _calls.dtype_of_call(program.signature, [arrays.dtype(x) for x in tensors])
    asked = dtype, shape.sizes, shape.sequences, shape.tokens, shape.most_heads, cu_seqlens is not None
    return program._compiled_for("cpu", *asked) if on is None else program._compiled_for("cuda", *asked, on=on)


def compile_row(row: dict, on: str) -> None:
    """Plans, emits and compiles what a row's call would run on a GPU."""
    kernels_of(row, on).resources()
