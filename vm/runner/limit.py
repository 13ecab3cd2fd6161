# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long a guest may take, in processor time of its emulator. On a shared machine a guest takes longer by the clock,
but no more processor time."""

import os
import time
from pathlib import Path

# How many times the limit may pass by the clock. A guest that waits forever uses next to none of the processor.
BY_THE_CLOCK = 5
TICKS = os.sysconf("SC_CLK_TCK")


def processor_time(pid):
    """The seconds that all threads of a process have used, those that ended included; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name before the last bracket may have spaces. utime and stime are the fields 14 and 15, behind two others.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Limit:
    def __init__(self, seconds, pid, clock=time.monotonic):
        self.seconds = seconds
        self.pid = pid
        self.clock = clock
        self.began = clock()

    def exceeded(self):
        """The limit that the guest has exceeded, in words, or None."""
        used = processor_time(self.pid)
        if used is None:
            return None
        if used > self.seconds:
            return f"the guest used more than {self.seconds} s of a processor"
        if self.clock() - self.began > BY_THE_CLOCK * self.seconds:
            return (f"the guest did not end within {BY_THE_CLOCK * self.seconds} s, of which it used {used:.0f} s of a "
                    "processor: it waits for something, or the machine is very busy")
        return None
