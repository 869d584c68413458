"""The sections of `bench/contention`: each measures one group of its bars."""

from . import concurrency, figures, levels, neighbours

# In this order; a section is a function of (setting, report).
SECTIONS = {
    "contention": figures.measure_contention,
    "mixed": figures.measure_mixed,
    "slow-disk": figures.measure_slow_disk,
    "levels": levels.measure,
    "concurrency": concurrency.measure,
    "neighbours": neighbours.measure,
}

# What NetCAS reports of the same figures.
PAPER = {
    "netcas_contended_of_orthus_paper_4_jobs": 3.5,
    "netcas_contended_of_orthus_paper_16_jobs": 1.2,
    "netcas_of_cache_only_free_max": 2.42,
}

ABOUT = """# contention

Hits split on real paths: a cache disk of 160 MB/s, a store behind a link of 120 MB/s and 2 ms, reads of 64 KiB, each of a
page on the cache disk; strangers are iperf3's. How, and what the bars are: [benchmarks](../benchmarks.md#contention). The same
in virtual time: [split-contention](../experiments.md#split-contention), [split-levels](../experiments.md#split-levels),
[split-neighbours](../experiments.md#split-neighbours). NetCAS reports 3.5 times Orthus (`orthus-paper`) while contended with 4
jobs, 1.2 times with 16, and up to 2.42 times the cache alone on a free link.

"""
