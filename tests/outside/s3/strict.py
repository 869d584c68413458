"""Whether what clients saw of a store is what one register for each key could have shown them.

An operation of a key is a write of a version (0: there is none; None: it is not known which), or a read that saw one. It takes effect at one instant between its beginning
and its end. `violations` looks for an order of instants in which each read sees the last write before it; it follows all states that
are possible at a time, of which there are few since few operations overlap. `python3 strict.py` tries the checks on histories that are known.
"""

import sys
from dataclasses import dataclass


@dataclass
class Operation:
    """Times in seconds of one clock; `end` is None for a write that may be done at any later time, or never."""

    key: str
    is_write: bool
    version: int | None
    begin: float
    end: float | None
    what: str
    # Through the gateway, or past it.
    through: bool = True
    # It failed: the write was done by its end, or not at all.
    failed: bool = False

    def __str__(self):
        end = "?" if self.end is None else f"{self.end:.4f}"
        way = "through" if self.through else "past"
        return f"{self.begin:.4f}..{end} {way:7} {'write' if self.is_write else 'read '} {self.key} = {self.version} ({self.what})"


def violations(operations):
    """Reads of one key that no order explains, each left out once it is found."""
    events = [(it.begin, 0, at) for at, it in enumerate(operations)]
    events += [(it.end, 1, at) for at, it in enumerate(operations) if it.end is not None]
    states, pending, found = {(0, frozenset())}, set(), []
    for _, is_end, at in sorted(events):
        if not is_end:
            pending.add(at)
            continue
        after = _after(states, pending, operations, at)
        if operations[at].failed:
            after |= {(version, done) for version, done in states if at not in done}
        if after:
            states = {(version, done - {at}) for version, done in after}
        else:
            # A write can always be put in: this is a read.
            found.append(operations[at])
            states = {(version, done - {at}) for version, done in states}
        pending.discard(at)
    return found


def _after(states, pending, operations, wanted):
    """The states that may follow in which the operation has taken effect."""
    seen, left, after = set(), list(states), set()
    while left:
        version, done = left.pop()
        # A read that fits may take effect now: nothing is lost by that.
        done |= {at for at in pending - done if not operations[at].is_write and operations[at].version == version}
        if (version, done) in seen:
            continue
        seen.add((version, done))
        if wanted in done:
            after.add((version, done))
            continue
        # What was written by who knows what is what is read next.
        left += [
            (operations[at].version, done | {at}) for at in pending - done if operations[at].is_write or version is None
        ]
    return after


def stale(operations, ttl_s):
    """Reads of one key that saw what had been replaced longer than `ttl_s` ago, or through the gateway, when they began; and
    reads past the gateway that saw what had been replaced at all."""
    writes = [it for it in operations if it.is_write]
    found = []
    for read in operations:
        if read.is_write:
            continue
        written = [it for it in writes if it.version in (read.version, None) and it.begin <= read.end]
        replaced = [it for it in writes if it.version not in (read.version, None) and _is_done(it) and it.end < _horizon(read, it, ttl_s)]
        latest = max((it.begin for it in replaced), default=None)
        # It may be from a write that had not ended when the last of those that count began.
        explained = any(it.end is None or latest is None or it.end >= latest for it in written)
        if not explained and not (read.version == 0 and latest is None):
            found.append(read)
    return found


def _is_done(write):
    return write.end is not None and not write.failed


def _horizon(read, write, ttl_s):
    """What had ended by then the read must see, or something later."""
    return read.begin - (ttl_s if read.through and not write.through else 0)


def self_test():
    """Each check sees what it is for, and nothing in what is sound."""
    def operation(word):
        """`w1@3-5`, `r1@4-6`, `d2@4-6`: a write, a read through the gateway, a read past it; `p1@3-5` a write past it, `f1@3-5` one that
        failed; `x` for a version that is not known."""
        what, times = word.split("@")
        begin, end = times.split("-")
        kind, version = what[0], None if what[1:] == "x" else int(what[1:])
        return Operation("k", kind in "wpf", version, float(begin), float(end) if end else None, word, kind in "wr", kind == "f")

    for text, count in (
        ("w1@1-2 r1@3-4", 0),
        ("r0@1-2 w1@1-2 r1@3-4", 0),
        ("w1@1-2 w2@3-4 r1@5-6", 1),
        ("w1@1-2 w2@3-6 r1@4-5 r2@4-5", 0),
        ("w1@1-2 w2@3-9 r2@4-5 r1@6-7", 1),
        ("w1@1-2 w2@3-9 r1@4-5 r2@6-7 r2@10-11", 0),
        ("w1@1-2 w0@3-4 r1@5-6", 1),
        ("w1@1-2 w0@3-4 r0@5-6 w1@7-8 r1@9-10", 0),
        ("w1@1-2 w2@3- r1@5-6 r2@7-8 r1@9-10", 1),
        ("w1@1-9 w2@1-9 r1@10-11 r2@12-13", 1),
        ("w1@1-9 w2@1-9 r1@2-3 r2@4-5 r1@6-7", 1),
        ("r7@1-2", 1),
        ("w1@1-2 f2@3-4 r1@5-6", 0),
        ("w1@1-2 f2@3-4 r2@5-6 r1@7-8", 1),
        ("w1@1-2 f2@3-4 r1@5-6 r2@7-8", 1),
        ("w1@1-2 fx@3-4 r7@5-6 r7@7-8 r1@9-10", 1),
        ("w1@1-2 fx@3-4 r1@5-6 r7@7-8", 1),
    ):
        found = violations([operation(word) for word in text.split()])
        assert len(found) == count, f"{text}: {[str(it) for it in found]}"
    for text, count in (
        ("p1@1-2 p2@3-4 r1@5-6", 0),
        ("p1@1-2 p2@3-4 r1@15-16", 1),
        ("p1@1-2 w2@3-4 r1@5-6", 1),
        ("p1@1-2 p2@3-4 d1@5-6", 1),
        ("p1@1-2 p2@3-4 r0@5-6", 0),
        ("p1@11-12 r0@13-14", 0),
        ("p1@11-12 r0@33-34", 1),
        ("p1@1-4 w2@3-5 r1@6-7", 0),
    ):
        found = stale([operation(word) for word in text.split()], 10)
        assert len(found) == count, f"{text}: {[str(it) for it in found]}"


if __name__ == "__main__":
    self_test()
    sys.exit(0)
