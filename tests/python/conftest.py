"""Kernels of the tests are kept apart from the user's."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("FORGE_CACHE_DIR", str(ROOT / "build" / "python-kernels"))
sys.path[:0] = [str(ROOT / "python"), str(Path(__file__).parent)]
