"""The version, which CMakeLists.txt says: the build of a wheel leaves it in _build.py, and a checkout has
CMakeLists.txt itself."""

from __future__ import annotations

import re
from pathlib import Path


def _of_checkout() -> str:
    try:
        text = (Path(__file__).resolve().parents[2] / "CMakeLists.txt").read_text(encoding="utf-8")
    except OSError:
        return "0+unknown"
    found = re.search(r"project\(forge VERSION ([0-9.]+)", text)
    return found[1] if found else "0+unknown"


try:
    from ._build import VERSION  # type: ignore[import-not-found, import-untyped, unused-ignore]  # pyright: ignore[reportMissingImports]
except ImportError:
    VERSION = _of_checkout()

__version__: str = VERSION
