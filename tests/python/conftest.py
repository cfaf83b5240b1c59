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


def pytest_configure(config):
    config.addinivalue_line("markers", "alone: measures time; nothing else should run beside it")


def pytest_addoption(parser):
    parser.addoption("--shard", metavar="I/N", help="every Nth test only, from the Ith on (0 to N - 1): for N processes at once")


def pytest_collection_modifyitems(config, items):
    """Drops the tests of other shards."""
    if not (shard := config.getoption("--shard")):
        return
    index, count = map(int, shard.split("/"))
    config.hook.pytest_deselected(items=[x for i, x in enumerate(items) if i % count != index])
    items[:] = items[index::count]
