"""forge.build: packages from Python, which libforge_rt loads (here through ctypes)."""

from __future__ import annotations

import ctypes
import json
import subprocess
from pathlib import Path

import pytest

import forge
from forge import SymbTensor


def variant() -> forge.LinearAttention:
    meta = {n: SymbTensor(["T", "H", d], dtype="bfloat16") for n, d in (("q", "K"), ("k", "K"), ("v", "V"))}
    meta |= {"prev_s": SymbTensor(["NS", "H", "K", "V"]), "scale": 0.5}
    return forge.LinearAttention(
        input_meta=meta,
        chunk_mode=lambda k, v: forge.matmul_out_fp32(k.T, v),
        decay_mode=lambda prev_s, chunk_state: prev_s + chunk_state,
        merge_mode=lambda q, k, v, chunk_state, scale: ((q @ k.T).tril() @ v + q @ chunk_state) * scale,
    )


def test_a_definition_of_ones_own_and_a_ready_made_one(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    own = variant()
    files = forge.build(
        [own, "hgrn"],
        tmp_path / "mine",
        targets=["x86-64"],
        sizes={"K=V": [16, 32], "D": 32},
        dtypes=[forge.float32, "bfloat16"],
        entries=["decode"],
        progress=lambda done, all, what: seen.append((done, all)),  # noqa: A006
    )
    assert {file.name for file in files} == {"SEALS", "manifest.json", "mine.h", "x86-64.so"}
    assert all(file.exists() for file in files)
    manifest = json.loads((tmp_path / "mine" / "manifest.json").read_text())
    assert [d["name"] for d in manifest["definitions"]] == [own.name, "hgrn"]
    assert manifest["forge_package"] == 4
    assert sorted(seen) == [(n + 1, len(seen)) for n in range(len(seen))]
    libraries = Path(forge._c.library()._name).parent
    if not (libraries / "libforge_rt.so").exists():
        return  # an installed package: the runtime is one of its own
    rt = ctypes.CDLL(str(libraries / "libforge_rt.so"))
    rt.forge_rt_error.restype = rt.forge_rt_target.restype = ctypes.c_char_p
    rt.forge_rt_target.argtypes = [ctypes.c_void_p]
    package = ctypes.c_void_p()
    assert rt.forge_rt_open(str(tmp_path / "mine").encode(), None, ctypes.byref(package)) == 0, rt.forge_rt_error()
    assert rt.forge_rt_target(package) == b"x86-64"


def test_what_cannot_be_built_is_refused(tmp_path: Path) -> None:
    with pytest.raises(forge.RuntimeError, match="target: expected one of x86-64"):
        forge.build("gla", tmp_path / "p", targets=["sm_20"], sizes={"K=V": 64})
    with pytest.raises(forge.RuntimeError, match="expected a size for K"):
        forge.build("gla", tmp_path / "p", targets=["x86-64"], sizes={"V": 64})
    with pytest.raises(TypeError, match="dtype"):
        forge.build("gla", tmp_path / "p", targets=["x86-64"], sizes={"K=V": 64}, dtypes=["int7"])


def test_a_grid_that_was_measured_decides(tmp_path: Path) -> None:
    """forge tune over several shapes, into a file that forge build takes."""
    command = Path(forge._c.library()._name).parent / "forge"
    if not command.exists():
        pytest.skip("the command is not built")

    def run(*arguments: object) -> str:
        return subprocess.run([command, *map(str, arguments)], capture_output=True, text=True, check=True).stdout

    file, sizes = tmp_path / "measured.jsonl", ("--dtype", "f32")
    shapes = (
        "--T",
        "64,128",
        "--H",
        "1,2",
        "--K",
        16,
        "--V",
        16,
        "--candidates",
        1,
        "--runs",
        1,
        "--strategy",
        "one-pass",
    )
    told = run("tune", "scalar_gla", *sizes, *shapes, "--database", file, "--cache", tmp_path / "cache")
    assert "[1/4] B = 1, T = 64, H = 1" in told and "[4/4] B = 1, T = 128, H = 2" in told
    measured = {json.loads(line)["shape"] for line in file.read_text().splitlines()}
    assert len(measured) == 4 and not (tmp_path / "cache" / "tuning.jsonl").exists()
    run(
        "build", "scalar_gla", *sizes, "--size", "K=V=16", "--targets", "native", "--entries", "forward", "--tokens",
        "64,128", "--tasks", "1,2", "--database", file, "-o", tmp_path / "p", "--cache", tmp_path / "cache",
    )  # fmt: skip
    rows = [line for line in run("explain", tmp_path / "p").splitlines() if "strategy" in line]
    assert rows and all("(measured)" in row for row in rows)
