"""Programs of the paper's kind: right in every way of calling them, and the same program as the C++ definitions."""

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import forge
from forge import _c
from programs import PROGRAMS, random_inputs, recurrence
from reference import relative_rms

TOLERANCE = {"float32": 1e-5, "bfloat16": 8e-3, "float16": 1.5e-3}
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def cast(x: dict, dtype: str) -> dict:
    """16-bit where the programs declare it: everything but gates."""
    return {n: a if n == "g" else a.astype(DTYPES[dtype]) for n, a in x.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_batch(name, dtype):
    attn = PROGRAMS[name]()
    x = cast(random_inputs(name, 2, 100, 2, 60, 36), dtype)
    o, final = attn(**x, output_final_state=True)
    wanted_o, wanted_final = recurrence(name, x)
    assert o.dtype == DTYPES[dtype] and final.dtype == np.float32
    assert relative_rms(o, wanted_o) < TOLERANCE[dtype]
    assert relative_rms(final, wanted_final) < TOLERANCE[dtype]


@pytest.mark.parametrize("offsets_dtype", [np.int32, np.int64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_packed_with_states(name, offsets_dtype):
    attn = PROGRAMS[name]()
    x = random_inputs(name, 1, 150, 2, 32, 20)
    offsets = [0, 70, 70, 71, 150]
    final_like = recurrence(name, x, offsets=offsets)[1]
    initial = np.random.default_rng(1).standard_normal(final_like.shape).astype(np.float32)
    wanted_o, wanted_final = recurrence(name, x, initial, offsets)
    packed = {n: a[0] for n, a in x.items()}
    o, final = attn(
        **packed, initial_state=initial, output_final_state=True, cu_seqlens=np.array(offsets, offsets_dtype)
    )
    assert relative_rms(o, wanted_o[0]) < 1e-5 and relative_rms(final, wanted_final) < 1e-5
    with_batch, no_state = attn(**x, initial_state=initial, cu_seqlens=np.array(offsets, offsets_dtype))
    assert no_state is None and np.array_equal(with_batch[0], o)


def test_resuming_is_the_same_as_going_on():
    attn, x = PROGRAMS["gated_delta_net"](), random_inputs("gated_delta_net", 1, 130, 2, 32, 32)
    whole, last = attn(**x, output_final_state=True)
    first, state = attn(**{n: a[:, :64] for n, a in x.items()}, output_final_state=True)
    second, resumed = attn(**{n: a[:, 64:] for n, a in x.items()}, initial_state=state, output_final_state=True)
    assert relative_rms(np.concatenate([first, second], axis=1), whole) < 1e-5 and relative_rms(resumed, last) < 1e-5


def test_strided_views_are_not_copied():
    attn, x = PROGRAMS["scalar_gla"](), random_inputs("scalar_gla", 2, 70, 3, 16, 16)
    mixed = np.concatenate([x["q"], x["k"], x["v"]], axis=-1)
    views = {"q": mixed[..., :16], "k": mixed[..., 16:32], "v": mixed[..., 32:]}
    o, _ = attn(**views, g=np.ascontiguousarray(x["g"].transpose(0, 2, 1)).transpose(0, 2, 1))
    assert relative_rms(o, recurrence("scalar_gla", x)[0]) < 1e-5


def test_no_tokens():
    attn, x = PROGRAMS["delta_net"](), random_inputs("delta_net", 2, 0, 2, 16, 16)
    initial = np.ones((2, 2, 16, 16), np.float32)
    o, final = attn(**x, initial_state=initial, output_final_state=True)
    assert o.shape == (2, 0, 2, 16) and np.array_equal(final, initial)


def test_scale_may_be_given():
    attn, x = PROGRAMS["scalar_gla"](), random_inputs("scalar_gla", 1, 20, 1, 8, 8)
    assert relative_rms(attn(**x, scale=2.0)[0], recurrence("scalar_gla", x, scale=2.0)[0]) < 1e-5
    assert relative_rms(attn(*[x[n] for n in "qkvg"], 2.0)[0], recurrence("scalar_gla", x, scale=2.0)[0]) < 1e-5


@pytest.mark.parametrize("gate", [0.0, -1000.0, -np.inf])
@pytest.mark.parametrize("name", ["scalar_gla", "vector_gla", "gated_delta_net"])
def test_extreme_gates(name, gate):
    attn, x = PROGRAMS[name](), random_inputs(name, 1, 70, 1, 16, 16)
    x["g"] = np.full_like(x["g"], gate)
    assert relative_rms(attn(**x)[0], recurrence(name, x)[0]) < 1e-5


def structure(program: str) -> dict:
    """The results of a program as expressions: whatever its values are called, and in whatever order they stand."""
    values = {}
    for name, type_, operation, operands, attributes in re.findall(
        r"%([\w.]+): (\w+\[.*?\]) = (\w+)\((.*?)\)(?: \{(.*)\})?$", program, re.MULTILINE
    ):
        values[name] = (
            operation,
            type_,
            attributes,
            *(values[x.strip()[1:]] for x in operands.split(",") if x.strip()),
        )
    return {result: values[value] for result, value in re.findall(r'(\w+ "\w+") = %([\w.]+)', program)}


@pytest.mark.parametrize("name", ["scalar_gla", "delta_net", "gated_delta_net"])
def test_the_same_program_as_in_cpp(name):
    python, cpp = (
        structure(_c.lower(text, "optimized")) for text in (PROGRAMS[name]().definition, _c.variant_definition(name))
    )
    assert set(cpp) == {'state "s"', 'input "o"'}
    assert python == cpp


def test_other_programs_are_not_the_same():
    python, cpp = (
        structure(_c.lower(text, "optimized"))
        for text in (PROGRAMS["delta_net"]().definition, _c.variant_definition("gated_delta_net"))
    )
    assert python != cpp


@pytest.mark.parametrize("name", PROGRAMS)
def test_text_is_a_fixpoint(name):
    printed = _c.lower(PROGRAMS[name]().definition, "definition")
    assert _c.lower(printed, "definition") == printed


def test_constant_sizes_are_known_and_kept():
    sizes = {"H": 2, "K": 16, "V": 16}
    attn = PROGRAMS["scalar_gla"](sizes=sizes)
    x = random_inputs("scalar_gla", 1, 40, 2, 16, 16)
    assert relative_rms(attn(**x)[0], recurrence("scalar_gla", x)[0]) < 1e-5
    with pytest.raises(forge.RuntimeError, match=r"argument 'q': expected K = 16, as its ConstExpr says, got 32"):
        attn(**random_inputs("scalar_gla", 1, 40, 2, 32, 16))
    with pytest.raises(forge.RuntimeError, match="H = 2"):
        attn(**random_inputs("scalar_gla", 1, 40, 4, 16, 16))


def test_a_16_bit_chunk_state_is_rounded_but_carried_in_float32():
    attn, x = (
        PROGRAMS["scalar_gla"](chunk_dtype="bfloat16"),
        cast(random_inputs("scalar_gla", 1, 200, 2, 32, 32), "bfloat16"),
    )
    o, final = attn(**x, output_final_state=True)
    wanted_o, wanted_final = recurrence("scalar_gla", x)
    assert relative_rms(o, wanted_o) < 8e-3 and relative_rms(final, wanted_final) < 8e-3


AHEAD = dict(sizes={"H": 2, "K": [16, 32], "V": 16}, chunk_dtype="bfloat16", enable_aot=True)


def test_ahead_of_time(tmp_path):
    """A package of all choices of sizes lands in code_dir; calls and decode come from it."""
    attn = PROGRAMS["scalar_gla"](**AHEAD, code_dir=str(tmp_path))
    (package,) = [p for p in tmp_path.iterdir() if p.name != "cache"]
    assert re.fullmatch(r"attention-bf16-native-[0-9a-f]{12}", package.name)
    assert {"manifest.json", "SEALS", "attention.h"} <= {p.name for p in package.iterdir()}
    other = PROGRAMS["scalar_gla"](**{**AHEAD, "enable_aot": False})
    for K in (16, 32):
        x = cast(random_inputs("scalar_gla", 2, 100, 2, K, 16), "bfloat16")
        o, state = attn(**x, output_final_state=True)
        assert attn.info["engine"] == "package" and attn.info["sizes"] == {"K": K, "V": 16}
        wanted, wanted_state = other(**x, output_final_state=True)
        assert relative_rms(o, wanted) < 8e-3 and relative_rms(state, wanted_state) < 8e-3
        token = {name: value[:, :1] if name != "scale" else value for name, value in x.items()}
        pools = state.copy(), state.copy()
        o, wanted = (a.decode(**token, state=pool) for a, pool in zip((attn, other), pools))
        assert attn.info["engine"] == "package"
        assert relative_rms(o, wanted) < 8e-3 and relative_rms(*pools) < 1e-3
        copied = pickle.loads(pickle.dumps(attn))
        assert np.array_equal(copied(**x)[0], attn(**x)[0]) and copied.info["engine"] == "package"
    with pytest.raises(forge.RuntimeError, match="expected K = 16 or 32, as its ConstExpr says, got 8"):
        attn(**random_inputs("scalar_gla", 1, 40, 2, 8, 16))


def test_ahead_of_time_needs_no_compiler_later(tmp_path):
    """Neither to begin nor to call: the next process finds the package."""
    code = (
        "import numpy as np, ml_dtypes, programs\n"
        "attn = programs.PROGRAMS['scalar_gla'](sizes={'H': 2, 'K': 16, 'V': 16}, enable_aot=True, "
        f"code_dir={str(tmp_path)!r}, chunk_dtype='bfloat16')\n"
        "x = programs.random_inputs('scalar_gla', 1, 40, 2, 16, 16)\n"
        "o = attn(**{n: v.astype(ml_dtypes.bfloat16) if n in 'qkv' else v for n, v in x.items()})[0]\n"
        "print(attn.info['engine'], float(abs(o.astype(np.float32)).sum()))\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(forge.__file__).resolve().parents[1])])
    env = {**os.environ, "PYTHONPATH": path, "FORGE_LIBRARY": str(_c.library()._name)}
    told = []
    for more in ({}, {"PATH": "/nowhere", "CXX": "/nowhere/c++", "FORGE_CACHE_DIR": str(tmp_path / "empty")}):
        done = subprocess.run(
            [sys.executable, "-c", code], env=env | more, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    assert told[0] == told[1] and told[0].startswith("package ")
    assert not (tmp_path / "empty").exists()


def test_a_damaged_package_is_refused(tmp_path):
    PROGRAMS["scalar_gla"](**AHEAD, code_dir=str(tmp_path))
    (seals,) = tmp_path.glob("attention-*/SEALS")
    seals.write_text(seals.read_text()[:-3])
    x = cast(random_inputs("scalar_gla", 1, 40, 2, 16, 16), "bfloat16")
    with pytest.raises(forge.RuntimeError, match="SEALS"):
        PROGRAMS["scalar_gla"](**AHEAD, code_dir=str(tmp_path))(**x)
