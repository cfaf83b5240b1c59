"""What the scripts of bench/ measure is what they say: streams wait for one another. PyTorch is stood in for here."""

import contextlib
import importlib.util
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


class Stream:
    """What was queued on it, with the streams that it has waited for since the others had work."""

    def __init__(self):
        self.after = set()

    def wait_stream(self, other):
        self.after |= {other, *other.after}


class Cuda:
    """As much of torch.cuda as capturing a call takes."""

    def __init__(self):
        self.main = self.current = Stream()
        self.Stream = Stream

    def current_stream(self):
        return self.current

    @contextlib.contextmanager
    def stream(self, other):
        before, self.current = self.current, other
        yield
        self.current = before

    def synchronize(self):
        pass

    def CUDAGraph(self, **_):  # noqa: N802
        return object()

    @contextlib.contextmanager
    def graph(self, _):
        yield


class Torch:
    def __init__(self):
        self.cuda = Cuda()


def script(name):
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_calls_on_another_stream_come_after_what_reads_the_states():
    """bench/decode.py copies the states that it compares before it captures the call, which changes them in place:
    without the wait, those of 512 sequences were copied after a second call (state_err 0.39 on an H200)."""
    torch = Torch()
    streams = []
    script("decode").captured([lambda: streams.append(torch.cuda.current_stream())], torch)
    others = [s for s in streams if s is not torch.cuda.main]
    assert others, "the call is warmed up on a stream of its own"
    assert all(torch.cuda.main in s.after for s in others)


@pytest.mark.parametrize("name", ["decode", "vs_fla", "ranks"])
def test_a_stream_of_its_own_waits_for_the_current_one(name):
    """Wherever a script makes a stream, the next line has it wait."""
    lines = (BENCH / f"{name}.py").read_text(encoding="utf-8").splitlines()
    made = [n for n, line in enumerate(lines) if "torch.cuda.Stream()" in line]
    assert made
    for n in made:
        stream = lines[n].split("=")[0].strip()
        assert lines[n + 1].strip().startswith(f"{stream}.wait_stream(torch.cuda.current_stream())")
