"""The package: what importing costs, what it holds, and that it agrees with the compiler about the language."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import forge
from forge import _c, _tensor
from programs import PROGRAMS, random_inputs

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = str(Path(forge.__file__).resolve().parents[1])


def python(code: str) -> str:
    env = {**os.environ, "PYTHONPATH": PACKAGE}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_importing_loads_little():
    """Neither arrays nor the library, and of Python's own modules none that are large or for errors only:
    bench/host_time.py measures."""
    code = (
        "import sys; before = set(sys.modules); import forge; print(*set(sys.modules) - before); "
        "assert forge._c._library is None"
    )
    loaded = {name.partition(".")[0] for name in python(code).split()}
    assert "forge" in loaded
    assert not loaded & {
        "numpy",
        "torch",
        "ml_dtypes",
        "difflib",
        "multiprocessing",
        "asyncio",
        "unittest",
        "email",
        "http",
        "logging",
        "statistics",
        "decimal",
        "random",
    }
    assert (
        python("import sys, forge; print('forge.ops' in sys.modules, 'forge.variants' in sys.modules)") == "False False"
    )


def calls_of(function) -> list[str]:
    """The names of Python functions that a call goes through."""
    names = []
    sys.setprofile(lambda frame, event, _: names.append(frame.f_code.co_name) if event == "call" else None)
    try:
        function()
    finally:
        sys.setprofile(None)
    return names


@pytest.mark.parametrize("one_of_each", [False, True], ids=["one call", "two by turns"])
def test_calls_like_earlier_ones_do_little(one_of_each, monkeypatch):
    """What follows from types and shapes is not worked out again, nor is anything compiled or described."""
    attn, x = PROGRAMS["scalar_gla"](), random_inputs("scalar_gla", 2, 20, 2, 8, 8)
    others = random_inputs("scalar_gla", 1, 70, 2, 8, 8)
    state = np.zeros((2, 2, 8, 8), np.float32)

    def call():
        attn(**x, initial_state=state, output_final_state=True)
        forge.ops.chunk_simple_gla(*x.values())
        if one_of_each:
            attn(**others)

    call()
    for name in ("Plan", "read_shapes"):
        monkeypatch.setattr(f"forge.attention.{name}", None)
    monkeypatch.setattr("forge._launch.Layout", None)
    monkeypatch.setattr("forge._c.Compiled", None)
    names = calls_of(call)
    assert len(names) < (90 if one_of_each else 65), names
    assert not {"_new_plan", "read", "verify", "__init__"} & set(names)


def test_the_zoo_comes_from_the_library():
    assert len(forge.variants.names()) >= 13 and "gated_delta_net" in dir(forge.variants)
    x = random_inputs("gated_delta_net", 1, 70, 2, 16, 16)
    o, final = forge.variants.gated_delta_net(**x, scale=0.25, output_final_state=True)
    own, own_final = PROGRAMS["gated_delta_net"]()(**x, output_final_state=True)
    assert np.array_equal(o, own) and np.array_equal(final, own_final)
    with pytest.raises(AttributeError, match="gated_delta_net"):
        _ = forge.variants.no_such_thing
    with pytest.raises(TypeError, match="missing the number 'scale'"):
        forge.variants.gated_delta_net(**x)


def test_every_operation_of_the_compiler_is_there():
    language = (ROOT / "docs/ops.md").read_text(encoding="utf-8").split("## Made by the compiler")[0]
    named_otherwise = {"to", "select", "slice", "linear_scan_from", "part", "size"}  # x.to(dtype), x[:, 0], x[::2], …
    names = set(re.findall(r"^\| `(\w+)` \| \w+ \|", language, re.MULTILINE)) - named_otherwise - {"param", "constant"}
    assert len(names) > 40 and names <= set(dir(forge)), names - set(dir(forge))
    elementwise = re.findall(r"^\| `(\w+)` \| 1 \|  \|", language.split("## Elementwise, two")[0], re.MULTILINE)
    assert set(elementwise) == set(_tensor.UNARY)


def test_functions_mean_what_numpys_mean():
    """Every elementwise function, and NumPy's own names for them, through a variant that has one token of one
    number."""
    meta = {"q": forge.SymbTensor(["T", "H", "V"], "float32"), "prev_s": forge.SymbTensor(["NS", "H", "V"])}
    x = np.array([0.25, 0.5, 1.0, 2.0], np.float32).reshape(1, 1, 1, 4)
    functions = {
        "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "tanh": np.tanh, "abs":
        np.abs, "sin": np.sin, "cos": np.cos, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "sign": np.sign,
        "neg": np.negative, "exp2": np.exp2, "square": np.square, "sigmoid": lambda a: 1 / (1 + np.exp(-a)), "softplus":
        lambda a: np.log1p(np.exp(a)), "reciprocal": lambda a: 1 / a, "rsqrt": lambda a: a**-0.5, "silu": lambda a: a /
        (1 + np.exp(-a)), "relu": lambda a: a * (a > 0), "logsigmoid": lambda a: -np.log1p(np.exp(-a)),
    }  # fmt: skip
    for name, fn in functions.items():
        spellings = [getattr(forge, name)] + ([fn] if isinstance(fn, np.ufunc) else [])
        for spelling in spellings:
            attn = forge.LinearAttention(
                meta,
                chunk_mode=lambda q: q.sum(0),
                decay_mode=lambda prev_s, chunk_state: prev_s + chunk_state,
                merge_mode=lambda q, spelling=spelling: spelling(q) + (1.0 - q) * 2 / 4 - 0.5,
            )
            np.testing.assert_allclose(attn(q=x)[0], fn(x) + (1 - x) * 2 / 4 - 0.5, rtol=2e-6, atol=1e-6, err_msg=name)


def test_looking_inside():
    attn = PROGRAMS["gated_delta_net"]()
    assert "state-bound" in attn.explain(K=16, V=16) and "#include" in attn.source(K=16, V=16)
    with pytest.raises(TypeError, match="K, V"):
        attn.explain(dtype="f32")
    timing = attn.benchmark(T=128, H=2, K=16, V=16, runs=3)
    assert timing.seconds > 0 and "tokens/s" in str(timing)


def test_what_a_call_costs():
    attn = PROGRAMS["gated_delta_net"]()
    cost = attn.cost(on="h200", tokens=8192, heads=32, K=128, V=128)
    assert (cost.device, cost.tokens, cost.heads, cost.entry) == ("NVIDIA H200", 8192, 32, "forward")
    assert cost.state_bytes == 4 * 128 * 128 and cost.seconds > cost.roofline_seconds > 0
    assert cost.flops == sum(k["flops"] for k in cost.kernels) and cost.bound in str(cost) and "<svg" in cost.html
    assert attn.cost(on="h200", tokens=32768, heads=32, K=128, V=128).seconds > 3 * cost.seconds
    decoding = forge.variants.gated_delta_net.cost(on="h200", entry="decode", heads=32, sequences=64, K=128, V=128)
    assert decoding.bound == "memory" and decoding.tokens == 1
    assert attn.cost(on="h200", tokens=6000, heads=32, K=128, V=128).tokens == 6000
    with pytest.raises(TypeError, match="K, V"):
        PROGRAMS["gated_delta_net"]().cost(dtype="f32")


def test_looking_inside_for_a_gpu_that_is_not_there():
    attn = PROGRAMS["gated_delta_net"]()
    assert "NVIDIA H200: compute capability 9.0" in attn.explain(
        on="h200", K=128, V=128
    ) and "__grid_constant__ Call" in attn.source(on="a100", K=128, V=128)
    attn(**random_inputs("gated_delta_net", 1, 70, 2, 16, 16))
    assert "NVIDIA A100" in attn.explain(on="a100")  # the last call's sizes and types
    assert attn.info["device"] == "cpu" and "NVIDIA" not in attn.explain()
    compiled = attn.compile(on="rtx4090", K=64, V=64)
    assert compiled.info["on"] == "rtx4090" and compiled.info["arch"] == "sm_89"
    with pytest.raises(
        forge.RuntimeError,
        match="on: expected a100, b200, h200, rtx4090, rtx5090, or a file with the facts of a GPU, got 'h300'",
    ):
        attn.explain(on="h300")
    try:
        kernels = attn.resources(on="h200", dtype="bf16")
    except forge.RuntimeError as missing:
        assert "no CUDA compiler" in str(missing)
    else:
        assert all(k["registers"] > 0 for k in kernels) and [k["kernel"] for k in kernels]


def test_looking_inside_is_of_the_last_call():
    attn = PROGRAMS["scalar_gla"]()
    small, large = random_inputs("scalar_gla", 1, 70, 2, 16, 16), random_inputs("scalar_gla", 1, 70, 2, 32, 32)
    for x, size in [(small, 16), (large, 32), (small, 16), (large, 32)]:  # the last two find their plans
        attn(**x)
        assert attn.info["sizes"] == {"K": size, "V": size}
        assert attn.explain() == attn.explain(K=size, V=size) and attn.source() == attn.source(K=size, V=size)
    attn.compile(K=64, V=64)
    attn.check(K=8, V=8)
    assert attn.info["sizes"] == {"K": 32, "V": 32}


def test_slower_kernels_than_need_be_are_said_once():
    attn = PROGRAMS["scalar_gla"]()
    with pytest.warns(
        forge.PerformanceWarning, match="size 12 of axis V is no multiple of 64\\n        way out: pad it to 64"
    ) as said:
        assert attn.compile(on="h200", K=128, V=12).info["engine"] == "portable"
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attn.compile(on="h200", K=64, V=12)  # the same reason
        assert attn.compile(on="h200", K=128, V=128).info["engine"] == "warp-groups"
        assert attn.compile(on="a100", K=128, V=128).info["engine"] == "warps"  # there is nothing better
        PROGRAMS["scalar_gla"](options={"engine": "portable"}).compile(on="h200", K=128, V=12)  # as it was asked for
        attn(**random_inputs("scalar_gla", 1, 70, 2, 16, 16))
    with pytest.warns(forge.PerformanceWarning, match="all inputs are of 32 bits, and channels decay by themselves"):
        PROGRAMS["vector_gla"]().compile(on="h200", dtype="f32", K=64, V=64)


def test_check_finds_a_wrong_program():
    def step(k, v, beta, q, prev_s, scale):
        s = prev_s + forge.outer(k, (v - k @ prev_s) * beta)
        return s, q @ s * scale

    assert PROGRAMS["delta_net"](step=step).check(K=16, V=16)
    report = PROGRAMS["delta_net"](
        step=lambda k, v, beta, q, prev_s, scale: (prev_s + forge.outer(k, v * beta), q @ prev_s * scale)
    ).check(K=16, V=16)
    assert not report and "FAIL, first at token" in str(report)
    assert "there is no step" in str(PROGRAMS["delta_net"]().check(K=16, V=16))


def test_threads_share_a_variant():
    attn, x = PROGRAMS["scalar_gla"](), random_inputs("scalar_gla", 1, 70, 2, 16, 16)
    wanted, wrong = attn(**x)[0], []

    def work():
        for _ in range(50):
            if not np.array_equal(attn(**x)[0], wanted):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_structs_have_the_sizes_of_the_header():
    assert (ctypes.sizeof(_c.Tensor), ctypes.sizeof(_c.Args), ctypes.sizeof(_c.Bounds)) == (32, 128, 40)


def test_a_wrong_library_is_refused(tmp_path):
    code = (
        "import os; os.environ['FORGE_LIBRARY'] = '/nowhere/libforge.so'\nimport forge\n"
        "try: forge.variants.names()\nexcept ImportError as e: print(e)"
    )
    assert python(code) == "libforge.so is in none of: /nowhere/libforge.so"


def test_the_library_is_found_beside_either_folder_of_an_editable_installation(tmp_path):
    """The package then consists of the clone's Python files and of an installed folder with the library."""
    source, installed = tmp_path / "clone" / "forge", tmp_path / "site" / "forge"
    shutil.copytree(Path(forge.__file__).parent, source, ignore=shutil.ignore_patterns("lib", "__pycache__"))
    (installed / "lib").mkdir(parents=True)
    (installed / "lib" / "libforge.so").symlink_to(next(p for p in _c._candidates() if p.exists()))
    code = (
        "import sys, importlib.util as u\n"
        f"folders = [{str(source)!r}, {str(installed)!r}]\n"
        "spec = u.spec_from_file_location('forge', folders[0] + '/__init__.py', submodule_search_locations=folders)\n"
        "sys.modules['forge'] = forge = u.module_from_spec(spec); spec.loader.exec_module(forge); "
        "print(len(forge.variants.names()))"
    )
    env = {name: value for name, value in os.environ.items() if name != "FORGE_LIBRARY"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and int(done.stdout) >= 13, done.stderr


TAKES_A_LIBRARY = "SKBUILD AND FORGE_LIBRARY" in (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")


@pytest.mark.skipif(not TAKES_A_LIBRARY, reason="every installation builds the library, which takes minutes")
def test_an_editable_installation(tmp_path):
    library = next(p for p in _c._candidates() if p.exists()).resolve()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python, options = (
        tmp_path / "venv" / "bin" / "python",
        ["-C", f"cmake.define.FORGE_LIBRARY={library}", "-C", f"build-dir={tmp_path / 'build'}"],
    )
    command = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        *options,
        "-e",
        ROOT,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Could not find a version that satisfies the requirement scikit-build-core" in done.stderr:
        pytest.skip("there is no package index")
    assert done.returncode == 0, done.stderr
    code = "import forge; print(forge.__file__); assert len(forge.variants.names()) >= 13"
    env = {name: value for name, value in os.environ.items() if name not in ("FORGE_LIBRARY", "PYTHONPATH")}
    place = subprocess.run(
        [python, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert Path(place.strip()) == ROOT / "python" / "forge" / "__init__.py"
