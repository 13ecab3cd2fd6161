# SPDX-License-Identifier: MIT OR Apache-2.0
"""A guest's limit is the processor time of its emulator; one that waits forever ends as well."""

import signal
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from runner import streams  # noqa: E402
from runner.limit import BY_THE_CLOCK, Limit, processor_time  # noqa: E402

# A program may have such a name
TWO_THREADS = """
import ctypes, hashlib, threading
ctypes.CDLL(None).prctl(15, b"a ) b 1 2 3", 0, 0, 0)
def work():
    while True:
        hashlib.sha256(bytes(1 << 20))
threading.Thread(target=work).start()
work()
"""


class Log:
    def look(self):
        pass

    def stuck(self, now):
        return False


def check(holds, message):
    if not holds:
        sys.exit(message)


def process(*command):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


now = 0.0
busy = process(sys.executable, "-c", TWO_THREADS)
idle = process("sleep", "1000")
try:
    # A stopped process gets no processor time, as on a busy machine.
    idle.send_signal(signal.SIGSTOP)
    limit = Limit(20, idle.pid, clock=lambda: now)
    now = 20.0 * BY_THE_CLOCK
    check(limit.exceeded() is None, f"ended by the clock: {limit.exceeded()}")
    now += 1
    check("did not end within 100 s" in (limit.exceeded() or ""), f"not ended by the clock: {limit.exceeded()}")

    # A clock that stands still: only processor time can end this one.
    before = time.process_time()
    outcome = streams.follow(busy, {}, Log(), Limit(1, busy.pid, clock=lambda: now))
    check("more than 1 s of a processor" in (outcome.timed_out or ""), f"not ended by processor time: {outcome.timed_out}")
    check(busy.poll() == -signal.SIGKILL, f"still there: {busy.poll()}")
    check(time.process_time() - before < 1, "the runner counted as the guest")
    check(processor_time(busy.pid) is None and Limit(1, busy.pid).exceeded() is None, "a process that is gone")
finally:
    for each in busy, idle:
        each.kill()
        each.wait()
