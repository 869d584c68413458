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
