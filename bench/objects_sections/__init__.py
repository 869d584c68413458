"""The sections of `bench/objects`: each measures one group of its bars."""

from . import d3n, disk, forward, large, linked, miss, ranges, slow, small, through

# In this order; a section is a function of (setting, report).
SECTIONS = {
    "large": large.measure,
    "small": small.measure,
    "forward": forward.measure,
    "miss": miss.measure,
    "through": through.measure,
    "linked": linked.measure,
    "disk": disk.measure,
    "ranges": ranges.measure,
    "d3n": d3n.measure,
    "slow": slow.measure,
}
