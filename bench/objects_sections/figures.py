"""The pictures: reads and writes as in D3N's Fig. 7 and 8, before a store on this host and behind a link of 1 Gbit/s."""

from measure.chart import bars

PLACES = (("no link", ""), ("1 Gbit/s", "linked-"))
FIGURES = (
    ("reads", "8 clients read 1 GiB of 16 MiB objects", "miss", ("uncached", "miss", "hit")),
    ("writes", "8 clients write 1 GiB of 16 MiB objects", "through", ("uncached", "around", "through")),
)


def draw(report):
    found = {(cell["section"], cell.get("server")): cell.get("bytes_per_s") for cell in report.cells}
    for name, title, section, servers in FIGURES:
        groups = [
            (place, [(server, found[prefix + section, server] / 1e6) for server in servers])
            for place, prefix in PLACES
            if (prefix + section, servers[0]) in found
        ]
        if groups:
            report.plot(name, bars(title, "MB/s", groups))
