"""Tests run on the installed package, or on the repository's where none is; kernels are kept apart from the user's."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("FORGE_CACHE_DIR", str(ROOT / "build" / "python-kernels"))
sys.path.insert(0, str(Path(__file__).parent))
if importlib.util.find_spec("forge") is None:
    sys.path.insert(0, str(ROOT / "python"))
