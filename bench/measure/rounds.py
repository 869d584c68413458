"""Interleaved rounds: every server has its turn in every round, in another order each time, so that what changes on the
machine meanwhile falls on all of them. A ratio is taken within a round, and the median of the rounds is what counts."""

import contextlib
import statistics

from rig import Rig

from .fio import fio


class Round:
    """What one round has measured: numbers by (job name, server)."""

    def __init__(self):
        self.found = {}

    def put(self, job, server, numbers):
        self.found[job, server] = numbers

    def get(self, job, server, key):
        return self.found[job, server][key]


def compare(setting, section, rounds, servers, jobs, size_bytes, before=None, repeat=True, wanted=lambda _name, _job: True):
    """Runs `jobs` against `servers`: each a function that takes a Rig and gives a target, started anew in each round,
    for with two processes on two processors much depends on where the scheduler puts them at the start.

    `before(server, target, job)` prepares a run; those that are not `wanted(server, job)` are left out. Returns the rounds.
    """
    done = []
    for number in range(rounds):
        this = Round()
        with Rig() as rig:
            targets = {name: start(rig) for name, start in servers.items()}
            for job in jobs:
                names = list(targets) if number % 2 == 0 else list(targets)[::-1]
                for name in filter(lambda name: wanted(name, job), names):
                    after = before(name, targets[name], job) if before else None
                    numbers = fio(
                        getattr(targets[name], "target", targets[name]),
                        job,
                        seconds=setting.seconds,
                        size_bytes=size_bytes,
                        seed=setting.seed + number,
                        repeat=repeat,
                        label=f"{section} {job.name} on {name}",
                    )
                    if after:
                        numbers |= after()
                    this.put(job.name, name, numbers)
        done.append(this)
        setting.say(f"{section}: round {number + 1} of {rounds}")
    return done


def median(rounds, job, server, key):
    """The median of the rounds."""
    return statistics.median(round.get(job, server, key) for round in rounds)


def ratio(rounds, job, server, peer, key):
    """The median of the rounds' ratios of `server` to `peer`."""
    with contextlib.suppress(ZeroDivisionError):
        return statistics.median(round.get(job, server, key) / round.get(job, peer, key) for round in rounds)
    return 0.0
