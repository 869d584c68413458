"""The same as `miss` and `through` with the store behind a link of 1 Gbit/s: where a cache is of use."""

from measure import hosts
from rig import Rig

from . import miss, through

LINK_BYTES_PER_SECOND = 125_000_000
WHERE = ", 1 Gbit/s"


def measure(setting, report):
    if not hosts.inside():
        report.skipped("linked", "no network namespaces with shaped links here")
        return
    with Rig() as rig:
        hosts.begin(rig)
        hosts.switch()
        hosts.run("ip", "addr", "add", f"{hosts.NETWORK}.100/24", "dev", "switch")
        store = hosts.Host("store", 1)
        store.shape(LINK_BYTES_PER_SECOND)
        miss.measure(setting, report, store, "linked-miss", WHERE)
        through.measure(setting, report, store, "linked-through", WHERE)
