"""Processes that end with the process that started them."""

import os
import signal
import subprocess
import sys
import time

CHILD = "import time; from lazymdp._parent import end_with_parent; end_with_parent(); print('up', flush=True); {work}"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE, text=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(1000)
"""


def test_a_process_whose_main_thread_waits_ends_when_its_parent_is_killed():
    code = PARENT.format(child=CHILD.format(work="time.sleep(1000)"))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        time.sleep(0.6)
        os.kill(child, 0)  # it runs as long as its parent
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("the process is still there")


def test_a_process_whose_parent_has_ended_before_it_looks_ends_at_once():
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        pass
    late = CHILD.replace("end_with_parent()", f"end_with_parent({ended.pid})").format(work="time.sleep(1000)")
    assert subprocess.run([sys.executable, "-c", late], stdout=subprocess.DEVNULL, timeout=60.0).returncode == 1
