"""The sections of `bench/volume`: each measures one group of the volume's bars."""

from . import backend, disk, idle, instructions, memory, metadata

# In this order; a section is a function of (setting, report).
SECTIONS = {
    "instructions": instructions.measure,
    "memory": memory.measure,
    "disk-in-process": disk.measure_in_process,
    "disk-over-nbd": disk.measure_over_nbd,
    "backend-delay": backend.measure_delay,
    "backend-rate": backend.measure_rate,
    "backend-unpaced": backend.measure_unpaced,
    "intent-map": backend.measure_intent_map,
    "metadata": metadata.measure,
    "idle": idle.measure_idle,
    "growth": idle.measure_growth,
}
