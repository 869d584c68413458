"""Cells (what was measured) and bars (what it has to be), as JSON, as a table and as a picture."""

import json
import sys

from . import rounds as of

MISSED = 4


class Report:
    """Collects a benchmark's cells and bars."""

    def __init__(self, experiment, setting):
        self.experiment = experiment
        self.setting = setting
        self.setup = {}
        self.cells = []
        self.bars = []
        self.about = ""
        self.paper = {}
        self.directions = []
        self.tables = []
        self.plots = {}

    def cell(self, section, **values):
        self.cells.append({"section": section, **values})

    def skipped(self, section, why):
        self.cells.append({"section": section, "skipped": why})
        self.setting.say(f"{section}: skipped: {why}")

    def cells_of(self, section, rounds):
        """A cell for every job and server of rounds: medians, and the rounds themselves for who wants them."""
        for job, server in rounds[0].found:
            numbers = {
                key: round(of.median(rounds, job, server, key), 3) for key in rounds[0].found[job, server]
            }
            each = [round(this.get(job, server, "iops")) for this in rounds]
            self.cell(section, job=job, server=server, rounds=len(rounds), **numbers, iops_of_rounds=each)

    def bar(self, name, value, bar, at_least, peer=None):
        """A promise: `value` is at least, or at most, `bar`."""
        ok = value >= bar if at_least else value <= bar
        self.bars.append({"name": name, "value": round(value, 4), "bar": bar, "at_least": at_least, "ok": ok})
        if peer:
            self.bars[-1]["peer"] = peer
        self.setting.say(line(self.bars[-1]))

    def direction(self, name, value, at_least):
        """Who wins: what a short, noisy run has to show."""
        self.directions.append({"name": name, "value": round(value, 4), "bar": at_least, "ok": value >= at_least})

    def table(self, title, head, rows):
        """Told instead of the cells."""
        self.tables.append((title, head, rows))

    def plot(self, name, svg):
        self.plots[name] = svg

    def value(self):
        """The one object that is printed."""
        found = {
            "experiment": self.experiment,
            "setup": self.setup,
            "cells": self.cells,
            "paper": self.paper,
            "bars": self.bars,
        }
        if self.setting.quick:
            found["directions"] = self.directions or [
                {"name": bar["name"], "winner": "forebay" if bar["ok"] else bar.get("peer", "the bar")}
                for bar in self.bars
            ]
        return found

    def finish(self, output, directory):
        """Prints, writes into `directory`, and gives the exit code."""
        if output == "json":
            json.dump(self.value(), sys.stdout)
            print()
        else:
            print("\n".join([*map(line, self.bars), *self.skips()]))
        if directory:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{self.experiment}.json").write_text(json.dumps(self.value(), indent=1) + "\n")
            (directory / f"{self.experiment}.md").write_text(self.about + table(self.value(), self.tables, self.plots))
            (directory / f"{self.experiment}.svg").write_text(picture(self.bars))
            for name, svg in self.plots.items():
                (directory / f"{self.experiment}-{name}.svg").write_text(svg)
        missed = [bar for bar in self.bars if not bar["ok"]]
        return MISSED if missed and not self.setting.quick else 0

    def skips(self):
        return [f"skipped  {cell['section']}: {cell['skipped']}" for cell in self.cells if "skipped" in cell]


def line(bar):
    word = "met   " if bar["ok"] else "MISSED"
    peer = f"  (of {bar['peer']})" if "peer" in bar else ""
    return f"{word}  {bar['name']}: {bar['value']:g}, {'at least' if bar['at_least'] else 'at most'} {bar['bar']:g}{peer}"


def table(value, tables=(), plots=()):
    """Markdown: machine, bars, and the tables; without any, the cells. The pictures lie beside it."""
    setup = value["setup"]
    rows = [f"Measured on {setup.get('processor')}, {setup.get('processors')} processors, Linux {setup.get('kernel')}, "
            f"{setup.get('memory_bytes', 0) >> 30} GiB of memory; cache disk on {setup.get('cache_filesystem')}. "
            f"Forebay {setup.get('commit')}; {', '.join(setup.get('versions', {}).values())}.", ""]
    rows += ["| bar | value | wanted | met |", "|---|---|---|---|"]
    for bar in value["bars"]:
        wanted = f"{'>=' if bar['at_least'] else '<='} {bar['bar']:g}"
        rows.append(f"| {bar['name']} | {bar['value']:g} | {wanted} | {'yes' if bar['ok'] else '**no**'} |")
    for title, head, lines in tables:
        rows += ["", title, "", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
        rows += [f"| {' | '.join(line)} |" for line in lines]
    rows += [""] + [f"![{name}]({value['experiment']}-{name}.svg)" for name in plots]
    return "\n".join([*rows, *([] if tables else of_cells(value["cells"]))]) + "\n"


def of_cells(cells):
    rows = ["| section | job | server | IOPS | MB/s | p50 us | p99 us |", "|---|---|---|---|---|---|---|"]
    for cell in cells:
        if "iops" in cell:
            numbers = [f"{cell['iops']:.0f}", f"{cell.get('bytes_per_s', 0) / 1e6:.0f}"]
            numbers += [f"{cell[key]:.1f}" for key in ("p50_us", "p99_us")]
            rows.append(f"| {' | '.join([cell['section'], cell['job'], cell['server'], *numbers])} |")
    others = [cell for cell in cells if "iops" not in cell]
    return [*rows, "", *(f"- {cell['section']}: {json.dumps({k: v for k, v in cell.items() if k != 'section'})}" for cell in others)]


def picture(bars):
    """An SVG: how far each value lies from its bar, in logarithms; right of the line is met."""
    import math

    height, middle, scale = 18 * len(bars) + 20, 560, 110
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{height}" font-family="sans-serif" font-size="11">']
    for at, bar in enumerate(bars):
        gain = bar["value"] / bar["bar"] if bar["at_least"] else bar["bar"] / max(bar["value"], 1e-9)
        length = max(-2.0, min(3.0, math.log2(max(gain, 1e-9)))) * scale
        top = 10 + 18 * at
        colour = "#2a7d4f" if bar["ok"] else "#b3372f"
        left, width = (middle, length) if length >= 0 else (middle + length, -length)
        parts.append(f'<text x="10" y="{top + 10}">{bar["name"]}: {bar["value"]:g}</text>')
        parts.append(f'<rect x="{left:.0f}" y="{top}" width="{max(width, 1):.0f}" height="13" fill="{colour}"/>')
    parts.append(f'<line x1="{middle}" x2="{middle}" y1="0" y2="{height}" stroke="black"/></svg>')
    return "\n".join(parts) + "\n"
