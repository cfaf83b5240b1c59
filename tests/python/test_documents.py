"""The Python of the documents and the examples runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import forge

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("document", ["README.md", "docs/python.md"])
def test_documents(document, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    program = tmp_path / "document.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    run([program], tmp_path)


@pytest.mark.parametrize("example", ["new_variant.py", "quickstart.py"])
def test_examples(example, tmp_path):
    assert run([ROOT / "examples" / example], tmp_path)


def run(command: list, folder: Path) -> str:
    env = {**os.environ, "PYTHONPATH": str(Path(forge.__file__).resolve().parents[1]), "MPLCONFIGDIR": str(folder)}
    done = subprocess.run([sys.executable, *map(str, command)], env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
