"""How a test says what it found."""

import os
import random
import shutil
import sys
import time

SKIPPED = 77


def skip(why):
    """Ends the test: it cannot be done here, and `why` says what is missing."""
    print(f"skipped: {why}", flush=True)
    sys.exit(SKIPPED)


def need(*programs):
    """Ends the test when a program is missing."""
    for program in programs:
        if shutil.which(program) is None:
            skip(f"{program} is not installed (`make deps` installs it)")


def check(truth, what):
    """Fails the test unless `truth`."""
    if not truth:
        raise AssertionError(what)


def equal(found, expected, what):
    """Fails the test unless both are the same; long values are cut."""
    if found != expected:
        raise AssertionError(f"{what}: found {_short(found)}, expected {_short(expected)}")


def eventually(condition, what, seconds=10.0, pause=0.05):
    """Waits until `condition()` is true and returns what it gave; fails the test when it stays false."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(pause)


def seed():
    """A fresh seed (or the one in TEST_SEED), printed so that a failure can be repeated."""
    value = int(os.environ.get("TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"seed {value} (TEST_SEED={value} repeats it)", flush=True)
    return value


def _short(value):
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}... ({len(text)} characters)"
