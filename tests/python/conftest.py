"""Tests run on the installed package, or on the repository's where none is; kernels are kept apart from the user's."""

import hashlib
import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("FORGE_CACHE_DIR", str(ROOT / "build" / "python-kernels"))
sys.path.insert(0, str(Path(__file__).parent))
if importlib.util.find_spec("forge") is None:
    sys.path.insert(0, str(ROOT / "python"))


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: nothing else should run on the GPU beside it")
    config.addinivalue_line("markers", "slow: begun before the others")


def pytest_addoption(parser):
    parser.addoption(
        "--claims",
        metavar="FOLDER",
        help="for several processes at once: each runs the tests that no other has claimed in this folder",
    )


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_runtest_protocol(item):
    """Leaves out what another process has claimed."""
    if not (folder := item.config.getoption("--claims")):
        return None
    try:
        (Path(folder) / hashlib.sha256(item.nodeid.encode()).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        return True
    return None
