"""The binding of the runtime alone (python/runtime): packages called with arrays, without the compiler's package."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forge

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "python" / "runtime"
LIBRARY = Path(forge._c.library()._name).parent / "libforge_rt.so"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "zoo"
    forge.build(
        "scalar_gla", folder, targets=["native"], sizes={"K=V": 16}, dtypes=["float32"], tokens=[512], tasks=[8],
        chunk_states=True,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def forge_rt():
    os.environ["FORGE_RT_LIBRARY"] = str(LIBRARY)
    sys.path.insert(0, str(SOURCE))
    yield importlib.import_module("forge_rt")
    sys.path.remove(str(SOURCE))
    del os.environ["FORGE_RT_LIBRARY"]


def inputs(B=2, T=100):
    rng = np.random.default_rng(0)
    x = {n: rng.standard_normal((B, T, 2, 16)).astype(np.float32) for n in "qkv"}
    return {**x, "g": -rng.random((B, T, 2)).astype(np.float32)}


def wanted_of(x, **states):
    return forge.variants.scalar_gla(**x, scale=0.5, output_final_state=True, **states)


def test_calls_of_numpy(forge_rt, package):
    loaded = forge_rt.open(package)
    assert loaded.target.startswith("x86-64") and loaded.manifest["name"] == "zoo"
    forward, decode = loaded.find("scalar_gla", "forward"), loaded.find("scalar_gla", "decode")
    assert forward.inputs == ["q", "k", "v", "g"] and forward.scalars == ["scale"] and forward.outputs == ["o"]
    x, pool = inputs(), np.zeros((5, 2, 16, 16), np.float32)
    slots, checkpoints = np.array([3, 1]), np.array([[-1] * 7, [-1, 0, *[-1] * 5]], np.int32)
    chunk = next(k["callable"]["chunk"] for k in loaded.manifest["kernels"])
    o, final = wanted_of(x)
    places = checkpoints[:, : -(-100 // chunk)].copy()
    given = dict(initial_slots=slots, final_slots=slots, before_chunks_s=pool[:1], chunk_slots=places)
    got = forward(**x, scale=0.5, initial_s=np.zeros_like(pool), final_s=pool, **given)["o"]
    np.testing.assert_allclose(got, o, atol=1e-4)
    np.testing.assert_allclose(pool[[3, 1]], final, atol=1e-4)
    np.testing.assert_allclose(pool[0], wanted_of({n: a[1:, :chunk] for n, a in x.items()})[1][0], atol=1e-4)
    token, here = inputs(2, 1), np.empty((2, 1, 2, 16), np.float32)
    states = pool[[3, 1]]
    got = decode(**token, o=here, scale=0.5, initial_s=pool, final_s=pool, initial_slots=slots, final_slots=slots)["o"]
    assert got is here
    np.testing.assert_allclose(got, wanted_of(token, initial_state=states)[0], atol=1e-4)


def test_calls_of_packed_tensors(forge_rt, package):
    torch = pytest.importorskip("torch")
    x = {n: torch.from_numpy(a) for n, a in inputs(1, 60).items()}
    offsets = torch.tensor([0, 13, 60])
    final = torch.empty(2, 2, 16, 16)
    entry = forge_rt.open(package).find("scalar_gla", "forward")
    o = entry(**x, scale=0.5, final_s=final, cu_seqlens=offsets)["o"]
    wanted, states = wanted_of(x, cu_seqlens=offsets)
    assert torch.allclose(o, wanted, atol=1e-4) and torch.allclose(final, states, atol=1e-4)


def test_what_is_refused(forge_rt, package, tmp_path):
    with pytest.raises(forge_rt.Error, match="nowhere"):
        forge_rt.open(tmp_path / "nowhere")
    loaded = forge_rt.open(package)
    with pytest.raises(forge_rt.Error, match="scalar_gla"):
        loaded.find("scalar_gla", "backward")
    entry = loaded.find("scalar_gla", "forward")
    with pytest.raises(TypeError, match="there is no argument 'x'; it takes q, k, v, g, o, initial_s"):
        entry(**inputs(), x=1)
    with pytest.raises(TypeError, match="expected v, scale"):
        entry(**{n: a for n, a in inputs().items() if n != "v"})
    with pytest.raises(TypeError, match="expected one of int32, .*, got complex64"):
        entry(**{**inputs(), "q": np.zeros((2, 100, 2, 16), np.complex64)}, scale=0.5)
    with pytest.raises(forge_rt.Error, match="K = 8"):
        entry(**{**inputs(), "q": np.zeros((2, 100, 2, 8), np.float32)}, scale=0.5)


def test_the_compiler_is_not_needed(package):
    """Nor is anything of `forge`."""
    code = (
        "import forge_rt, sys; print(forge_rt.open(sys.argv[1]).find('scalar_gla', 'decode')); "
        "assert 'forge' not in sys.modules and 'numpy' not in sys.modules"
    )
    env = {"FORGE_RT_LIBRARY": str(LIBRARY), "PYTHONPATH": str(SOURCE), "PATH": ""}
    told = subprocess.run(
        [sys.executable, "-c", code, str(package)], env=env, capture_output=True, text=True, check=True
    ).stdout
    assert told == "<forge_rt.Entry scalar_gla.decode(q, k, v, g, scale)>\n"


# ------------------------------------------------------------------------------------------------------------ replay

COMMAND = LIBRARY.parent / "forge"


NVTX = """#include <stdio.h>
int nvtxRangePushA(const char* name) { printf("begin %s\\n", name); fflush(stdout); return 0; }
int nvtxRangePop(void) { puts("end"); fflush(stdout); return 0; }
"""
MARKED = """import sys, numpy as np, forge_rt
entry = forge_rt.open(sys.argv[1], nvtx=sys.argv[2] == "1").find("scalar_gla", "decode")
x = {n: np.zeros((1, 1, 2, 16), np.float32) for n in "qkv"}
entry(**x, g=np.zeros((1, 1, 2), np.float32), scale=0.5, initial_s=None, final_s=None)
"""


@pytest.mark.parametrize(("option", "environment"), [("1", ""), ("0", "1"), ("0", "")])
def test_ranges_around_calls(package, tmp_path, option, environment):
    """Of a library that only writes down what it is asked for, instead of NVTX's."""
    (tmp_path / "nvtx.c").write_text(NVTX, encoding="utf-8")
    library = tmp_path / "libnvtx3interop.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "nvtx.c"], check=True)
    where = {"LD_LIBRARY_PATH": str(tmp_path), "FORGE_RT_LIBRARY": str(LIBRARY), "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", MARKED, package, option], capture_output=True, text=True, check=False,
        env={**os.environ, **where, "FORGE_NVTX": environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("begin scalar_gla decode\nend\n" if option == "1" or environment else "")


def replayed(*arguments):
    done = subprocess.run([COMMAND, "replay", *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def dumped(forge_rt, package, tmp_path_factory):
    """Files of a call of forward, with states in slots and checkpoints, and of one of decode."""
    folder = tmp_path_factory.mktemp("calls")
    loaded = forge_rt.open(package, dump_folder=folder)
    pool, slots = np.random.default_rng(1).standard_normal((5, 2, 16, 16)).astype(np.float32), np.array([3, 1])
    where = dict(initial_s=pool, final_s=pool, initial_slots=slots, final_slots=slots)
    strided = {n: np.asfortranarray(a) for n, a in inputs().items()}
    loaded.find("scalar_gla", "forward")(**strided, scale=0.5, **where)
    loaded.find("scalar_gla", "decode")(**inputs(2, 3), scale=0.5, **where)
    files = sorted(folder.iterdir())
    assert len(files) == 2 and all(f.suffix == ".forgecall" for f in files)
    return files


@pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")
def test_calls_are_replayed(dumped, package):
    for file in dumped:
        status, text = replayed(file, "--package", package, "--bits")
        assert status == 0 and text.count("the same bits") == 2 and "the results agree" in text, text
        status, text = replayed(file)  # compiled here
        assert status == 0 and "compiled for" in text and "the results agree" in text, text


@pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")
def test_other_results_are_seen(dumped, tmp_path):
    """By kernels that add the scale in place of multiplying with it."""
    text = forge.variants.scalar_gla.definition
    wrong = forge.Attention(text.replace("= mul(%22, %scale)", "= add(%22, %scale)"))
    assert wrong.definition != text
    forge.build(
        wrong, tmp_path / "wrong", targets=["native"], sizes={"K=V": 16}, dtypes=["float32"], entries=["forward"],
        tokens=[512], tasks=[8], chunk_states=True,
    )  # fmt: skip
    status, told = replayed(dumped[0], "--package", tmp_path / "wrong")
    assert status == 1 and "the results differ" in told, told
    assert "final_states.s           the same bits" in told and "o                        relative difference" in told
    status, told = replayed(dumped[1], "--package", tmp_path / "wrong")
    assert status == 1 and "decode" in told, told  # which this package has not


@pytest.mark.skipif(not COMMAND.exists(), reason="the command is not built")
def test_what_is_no_call_is_refused_in_words(dumped, tmp_path):
    whole = dumped[0].read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for content, words in {
        b"": "expected a call that Forge wrote; this is something else",
        b"PK" + whole: "expected a call that Forge wrote",
        whole[:-100]: "truncated or something else",
        whole[: len(whole) // 3]: "truncated or something else",
        bytes(flipped): "damaged: its content is not what its seal says",
    }.items():
        (tmp_path / "file").write_bytes(content)
        status, text = replayed(tmp_path / "file")
        assert status == 1 and words in text and str(tmp_path / "file") in text, text
    status, text = replayed(tmp_path / "nowhere")
    assert status == 1 and "cannot be read: No such file or directory" in text


def test_a_folder_that_cannot_be_written_is_said(forge_rt, package, tmp_path):
    entry = forge_rt.open(package, dump_folder=tmp_path / "nowhere").find("scalar_gla", "decode")
    with pytest.raises(forge_rt.Error, match="cannot be written: No such file"):
        entry(**inputs(1, 1), scale=0.5)
