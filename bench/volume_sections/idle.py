"""What costs when nothing happens, and what grows when much does."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

from measure import fio
from measure.fio import Job
from rig import KIB, MIB, GIB, Rig

from . import servers


def measure_idle(setting, report):
    section = "idle"
    seconds = 2 if setting.quick else 15
    with Rig() as rig:
        backend = servers.start_backend(rig, "unpaced", 256 * MIB)
        served = servers.over(backend, rig, setting)
        served.warm(64 * MIB)
        clients = [served.forebay.client() for _ in range(4)]
        served.forebay.settle()
        time.sleep(1)
        before = served.forebay.process.cpu_seconds()
        time.sleep(seconds)
        share = (served.forebay.process.cpu_seconds() - before) / seconds
    report.cell(section, clients=len(clients), seconds=seconds, processor_share=share)
    report.bar("idle_processor_share", share, 0.01, False)


def measure_growth(setting, report):
    """A volume far larger than both tiers, random and sequential reads and writes, for `--minutes`."""
    section = "growth"
    size_bytes = 4 * GIB
    seconds = setting.minutes * 60
    with Rig() as rig:
        backend = servers.start_backend(rig, "unpaced", size_bytes)
        served = servers.over(backend, rig, setting, memory="128MiB", disk_size="512MiB" if setting.quick else "1GiB")
        process = served.forebay.process
        jobs = Job("randrw", 4 * KIB, 16, mix_read_percent=70), Job("rw", 256 * KIB, 4, mix_read_percent=70)
        samples = []
        with ThreadPoolExecutor() as pool:
            loads = [pool.submit(fio, served.target, job, seconds=seconds, size_bytes=size_bytes) for job in jobs]
            while not all(load.done() for load in loads):
                samples.append((process.resident_bytes(), process.descriptors()))
                time.sleep(min(1.0, seconds / 30))
        for load in loads:
            load.result()  # A load that failed has measured nothing.
        served.forebay.settle(60)
        stats = served.forebay.stats()
        written = process.written_bytes()
        most = process.resident_bytes("VmHWM")
    third = max(1, len(samples) // 3)
    # The first third holds the filling of the tiers; what comes after must be level.
    memory = [statistics.median(row[0] for row in part) for part in (samples[third:2 * third], samples[-third:])]
    descriptors = [max(row[1] for row in part) for part in (samples[third:2 * third], samples[-third:])]
    disk = stats["disk"]
    sectors = disk["table_sector_writes"] + disk["intent_writes"]
    admitted = stats["volumes"][0]["admitted_bytes"]
    report.cell(
        section,
        minutes=setting.minutes,
        resident_bytes_second_third=memory[0],
        resident_bytes_last_third=memory[1],
        resident_bytes_max=most,
        memory_bytes_configured=128 * MIB,
        descriptors_second_third=descriptors[0],
        descriptors_last_third=descriptors[1],
        admitted_bytes=admitted,
        slot_write_bytes=disk["slot_write_bytes"],
        sector_write_bytes=4 * KIB * sectors,
        kernel_write_bytes=written,
    )
    report.bar("growth_resident_memory", memory[1] / memory[0], 1.02, False)
    report.bar("growth_descriptors", descriptors[1] - descriptors[0], 0, False)
    report.bar("resident_bytes_vs_configured_memory", most / (128 * MIB), 1.0, False)
    report.bar("cache_disk_bytes_written_per_byte_admitted", written / max(1, admitted), 1.1, False)
