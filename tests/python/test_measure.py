"""Times say what other processes had of the machine meanwhile."""

import dataclasses
import os
import subprocess
import sys

from programs import PROGRAMS


def test_times_under_load_say_so():
    attn = PROGRAMS["gated_delta_net"]()
    call = {"T": 128, "H": 2, "K": 16, "V": 16, "runs": 3}
    attn.benchmark(**call)  # compiles
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        timing = attn.benchmark(**call)
    finally:
        for process in others:
            process.kill()
            process.wait()
    if not os.path.exists("/proc/stat"):
        return
    assert 0.05 <= timing.others <= 1 and timing.under_load and "under load: other processes used" in str(timing)
    assert "under load" not in str(dataclasses.replace(timing, others=0.0))
