"""Rounds in which servers have their turns, in another order each time; ratios within a round, medians of rounds."""

import statistics

from measure.rounds import Round


def turns(setting, section, servers, measure):
    """`measure(name, server)` gives numbers. Returns the rounds."""
    done = []
    for number in range(setting.rounds):
        this = Round()
        names = list(servers) if number % 2 == 0 else list(servers)[::-1]
        for name in names:
            this.put(section, name, measure(name, servers[name]))
        done.append(this)
        setting.say(f"{section}: round {number + 1} of {setting.rounds}")
    return done


def cells(report, section, rounds):
    for job, server in rounds[0].found:
        keys = rounds[0].found[job, server]
        report.cell(section, server=server, rounds=len(rounds), **{key: median(rounds, section, server, key) for key in keys})


def median(rounds, section, server, key):
    return round(statistics.median(this.get(section, server, key) for this in rounds), 3)


def ratio(rounds, section, server, peer, key):
    return statistics.median(this.get(section, server, key) / this.get(section, peer, key) for this in rounds)
