"""What the documents show runs: every block of README.md and docs, as far as it needs neither a network nor a GPU.

Python runs as in a fresh environment: with the standard library, this package and the dependencies that it declares,
and nothing else. Shell commands run if they are Forge's own, on the CPU or for a GPU that need not be there; of the
others, what they name is there, and their options are. C++ is what files of the repository say, which other tests
compile and run.
"""

import csv
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import forge
from forge import _c

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "build" / "forge"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: What Python blocks may need, in a comment before them. They run where NVRTC or nvcc is installed; where PyTorch or
#: transformers is, by themselves; those that need flash-linear-attention, and a GPU with it, are compiled only.
COMPILER, PYTORCH, FLA = "a CUDA compiler", "PyTorch", "flash-linear-attention"
TRANSFORMERS = "transformers"
_BLOCK = re.compile(
    rf"(?:<!-- needs ({COMPILER}|{PYTORCH}|{FLA}|{TRANSFORMERS}) -->\n)?^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def blocks(document: Path, language: str) -> list[tuple[str, str]]:
    """(what is needed, text) of each block in a language."""
    return [
        (needs, text) for needs, kind, text in _BLOCK.findall(document.read_text(encoding="utf-8")) if kind == language
    ]


def with_blocks(language: str) -> list[Path]:
    return [d for d in DOCUMENTS if blocks(d, language)]


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def test_blocks_are_of_languages_that_are_tested():
    kinds = {kind for d in DOCUMENTS for _, kind, _ in _BLOCK.findall(d.read_text(encoding="utf-8"))}
    assert kinds - {"text", "cmake", "c", "toml", "json", "bibtex", "eval"} <= {"python", "sh", "cpp"}


# -- Python ------------------------------------------------------------------------------------------------------------


def has_cuda_compiler() -> bool:
    try:
        return bool(forge.variants.linear_attention.resources(on="a100", K=16, V=16))
    except forge.RuntimeError:
        return False


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Path:
    """A folder with what `pip install .` installs."""
    site = tmp_path_factory.mktemp("site")
    declared = re.search(
        r"^dependencies = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )[1]
    for name in re.findall(r'"([\w-]+)', declared):
        package = Path(importlib.util.find_spec(name.replace("-", "_")).origin).parent
        for folder in (package, package.with_name(f"{name}.libs")):  # libraries that a wheel brings
            if folder.exists():
                (site / folder.name).symlink_to(folder)
    for folder in forge.__path__:  # two in an editable installation
        (site / "forge").mkdir(exist_ok=True)
        for file in Path(folder).iterdir():
            (site / "forge" / file.name).symlink_to(file)
    return site


def run(program: str, site: Path, folder: Path) -> str:
    library = next(p for p in _c._candidates() if p.exists())
    env = {**os.environ, "PYTHONPATH": str(site), "FORGE_LIBRARY": str(library)}
    done = subprocess.run(
        [sys.executable, "-S", "-W", "error", program], env=env, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("document", with_blocks("python"), ids=name_of)
def test_python(document, fresh, tmp_path):
    compiler = has_cuda_compiler() if any(needs == COMPILER for needs, _ in blocks(document, "python")) else False
    program = tmp_path / "document.py"
    program.write_text(
        "\n".join(text for needs, text in blocks(document, "python") if needs in ("", COMPILER if compiler else "")),
        encoding="utf-8",
    )
    for _, text in blocks(document, "python"):
        compile(text, name_of(document), "exec")
    run(program, fresh, tmp_path)


WITH_PYTORCH = [
    (d, n) for d in DOCUMENTS for n, (needs, _) in enumerate(blocks(d, "python")) if needs in (PYTORCH, TRANSFORMERS)
]


@pytest.mark.parametrize(("document", "number"), WITH_PYTORCH, ids=lambda x: name_of(x) if isinstance(x, Path) else x)
def test_python_with_pytorch(document, number, tmp_path):
    pytest.importorskip("torch")
    if blocks(document, "python")[number][0] == TRANSFORMERS:
        pytest.importorskip("transformers")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(folder).parent) for folder in forge.__path__)}
    done = subprocess.run(
        [sys.executable, "-c", blocks(document, "python")[number][1]],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("example", ["new_variant.py", "quickstart.py"])
def test_examples(example, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).resolve().parents[1]), "MPLCONFIGDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / example],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout, done.stdout + done.stderr


def test_the_example_that_trains(tmp_path):
    """A few steps of it: its task, its files, its progress."""
    pytest.importorskip("torch")
    env = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).resolve().parents[1]), "MPLCONFIGDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "train_recall.py", "--steps", "3", "--batch", "2", "--every", "1"],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (
        re.search(r"DeltaNet +accuracy .*, of rewritten keys .*, after 3 steps", done.stdout)
        and "3/3 loss" in done.stderr
    )
    results = json.loads((tmp_path / "train_recall.json").read_text(encoding="utf-8"))["results"]
    assert [*results] == ["DeltaNet", "Sums", "LinearAttention"]
    assert all(r["step"] == [1, 2, 3] and len(r["accuracy"]) == 3 for r in results.values())


def test_the_measurement_of_quality(tmp_path):
    """A few steps of it: a row per layer, learning rate and test; of each layer the better run in the table."""
    pytest.importorskip("torch")
    env = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).resolve().parents[1])}
    options = "--layers GLA Sums --rates 0.01 0.001 --steps 2 --every 1 --batch 2 --csv found.csv"
    done = subprocess.run(
        [sys.executable, ROOT / "bench" / "quality" / "quality.py", "recall", *options.split()],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    head, *lines = (tmp_path / "found.csv").read_text(encoding="utf-8").splitlines()
    rows = [*csv.DictReader(lines)]
    assert head.startswith("# ") and options in head and len(rows) == 2 * 2 * 2
    for name in ("GLA", "Sums"):
        ends = [float(r["result"]) for r in rows if r["layer"] == name and r["step"] == "2"]
        assert f"| {name} | {max(ends):.3f} |" in done.stdout


# -- the shell ---------------------------------------------------------------------------------------------------------


def commands(document: Path) -> list[list[str]]:
    """The commands of a document's shell blocks, as words."""
    lines = [line for _, text in blocks(document, "sh") for line in text.replace("\\\n", " ").splitlines()]
    parts = [part for line in lines for part in re.split(r"&&|;", line.split(" #")[0])]
    return [words for words in map(shlex.split, parts) if words]


COMMANDS = sorted({tuple(words) for d in with_blocks("sh") for words in commands(d)})
#: Commands of ours that take more than some seconds: they measure.
MEASURE = ("bench", "tune")


@pytest.mark.parametrize("document", with_blocks("sh"), ids=name_of)
def test_shell_can_be_parsed(document, tmp_path):
    for _, text in blocks(document, "sh"):
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not COMMAND.exists(), reason="the forge command is not built")
@pytest.mark.parametrize("words", [c for c in COMMANDS if c[0] == "forge"], ids=" ".join)
def test_the_forge_command(words, tmp_path):
    if any((w.isupper() and not w.startswith("-")) or "|" in w for w in words[1:]):  # stands for something
        words = (*words[:1], "--help")
    (tmp_path / "program.ir").write_text(_c.lower(_c.variant_definition("gla"), "joined"), encoding="utf-8")
    on_gpu = any(w.startswith("cuda") for w in words)
    if words[1] in MEASURE and not on_gpu:
        known = subprocess.run([COMMAND, words[1], "--help"], capture_output=True, text=True, check=True).stdout
        assert all(w.split("=")[0] in known for w in words if w.startswith("-"))
        return
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "FORGE_PYTHON": sys.executable}
    if words == ("forge", "explain", "zoo"):  # the package that another command builds
        smallest = "--targets x86-64 --size K=V=16 --dtype f32 --entries forward --tokens 64 --tasks 8"
        subprocess.run([COMMAND, "build", "retnet", *smallest.split(), "-o", "zoo"], env=env, cwd=tmp_path, check=True)
    done = subprocess.run([COMMAND, *words[1:]], env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    if on_gpu:  # which is looked for once the options are understood
        assert done.returncode == 1 and done.stderr.startswith("forge: device: "), done.stdout + done.stderr
    elif words[1] == "check-compile" and done.returncode:
        assert "no CUDA compiler" in done.stderr
    else:
        assert done.returncode == 0 and done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("words", [c for c in COMMANDS if c[0] != "forge"], ids=" ".join)
def test_other_commands_are_there(words):
    paths = [w for w in words if re.match(r"(scripts|bench|tools|examples)/", w)]
    assert all((ROOT / p).exists() for p in paths), words
    if words[0].startswith("scripts/"):
        assert os.access(ROOT / words[0], os.X_OK)
    elif words[0] in ("python", "python3") and paths:
        options = set(re.findall(r'add_argument\(\s*"(--?\w[\w-]*)"', (ROOT / paths[0]).read_text(encoding="utf-8")))
        assert {w.split("=")[0] for w in words if w.startswith("-")} <= options
    elif words[0] == "cmake" and "--target" in words:
        target = words[words.index("--target") + 1]
        lists = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8") + (ROOT / "tests" / "CMakeLists.txt").read_text(
            encoding="utf-8"
        )
        assert target in lists or target.removeprefix("example_") in [p.stem for p in (ROOT / "examples").iterdir()]
    else:
        assert (
            words[0].startswith("build/")
            or words[0] == "."
            or shutil.which(words[0])
            or words[0] in ("pip", "cmake", "apt-get", "sudo", "docker")
        )


# -- C++ ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", with_blocks("cpp"), ids=name_of)
def test_cpp_is_the_repositorys(document):
    """… or parses with its headers."""
    sources = [
        p.read_text(encoding="utf-8")
        for folder in ("examples", "variants", "tests")
        for p in (ROOT / folder).rglob("*.cpp")
    ]
    for _, text in blocks(document, "cpp"):
        if any(text.strip() in source for source in sources):
            continue
        done = subprocess.run(
            ["g++", "-std=c++20", "-fsyntax-only", "-I", ROOT / "include", "-I", ROOT, "-x", "c++", "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"in no file of the repository, and {done.stderr}\n{text}"
