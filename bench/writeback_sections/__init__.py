"""The sections of `bench/writeback`: each measures one group of its bars."""

from . import random, recovery, stall, stream

# In this order; a section is a function of (setting, report).
SECTIONS = {
    "random": random.measure,
    "stream": stream.measure,
    "stall": stall.measure,
    "recovery": recovery.measure,
}
