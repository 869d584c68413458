"""The sections of `bench/objects`: each measures one group of its bars."""

from . import disk, forward, large, miss, slow, small, through

# In this order; a section is a function of (setting, report).
SECTIONS = {
    "large": large.measure,
    "small": small.measure,
    "forward": forward.measure,
    "miss": miss.measure,
    "through": through.measure,
    "disk": disk.measure,
    "slow": slow.measure,
}
