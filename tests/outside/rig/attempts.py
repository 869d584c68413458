"""Somebody before a gateway who wants what is cached for others: see s3/adversary.py."""

from pathlib import Path

from .process import run
from .server import free_port
from .store import s3_clients, s3_environment
from .verdict import check

ADVERSARY = Path(__file__).resolve().parents[1] / "s3" / "adversary.py"
OTHER = ("mallory", "mallorysecret")


def attempts(rig, name, mode, store, pairs, **s3):
    """Starts a gateway and lets the adversary loose on it."""
    listen = f"127.0.0.1:{free_port()}"
    forebay = rig.forebay({}, s3={"listen": listen, "backend": store.uri(), **s3}, name=name)
    words = [word for pair in pairs for word in pair]
    other = store.principal(OTHER[0])
    done = run(s3_clients() / "python", ADVERSARY, listen, mode, *words, other, seconds=120, env=s3_environment(rig.directory))
    check(done.stdout.endswith("done\n"), done.stdout)
    forebay.stop()
    said = forebay.process.log.read_text(errors="replace")
    check(not any(secret in said for _, secret in pairs), "a secret is in the log")
