"""S3 stores, each over a directory of the test: versitygw, the embedded one, Ceph RGW; and other people's S3 clients."""

import json
import os
from pathlib import Path

from .process import run
from .server import free_port, listens, program
from .verdict import check, eventually, need, skip

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
KEY, SECRET = "forebaytest", "forebaysecret"


def made(script, seconds, *words):
    """What a script that installs something prints; the test is skipped where it cannot."""
    try:
        done = run(SCRIPTS / script, *words, ok=(0, 1), seconds=seconds)
    except AssertionError:
        skip(f"scripts/{script} was not done within {seconds} s; run it first")
    if done.returncode != 0:
        skip(f"{script}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'it failed'}")
    return Path(done.stdout.strip().splitlines()[-1])


def s3_clients(which="common"):
    """The directory of boto3's python, aws, s3cmd and rclone; of pyarrow's and s3fs' python if it is "data", of
    pyspark's if it is "spark", of tests' if it is "suite"."""
    return made("s3-clients", 280, which)


def keys_file(rig, name, clients):
    """A file of keys for a gateway that verifies; `clients` maps (key, secret) to grants. To the store it is the owner."""
    pairs = [("[store]", (KEY, SECRET), None)] + [("[[client]]", pair, grants) for pair, grants in clients.items()]
    lines = []
    for table, (key, secret), grants in pairs:
        lines += [table, f'access_key = "{key}"', f'secret_key = "{secret}"']
        lines += [] if grants is None else [f"grants = {json.dumps(grants)}"]
    path = rig.path(name)
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return path


def versitygw():
    """Its program."""
    return made("versitygw", 280)


class Store:
    """versitygw on a port of its own; KEY and SECRET are its owner's. `host`: where, if it is not here (bench/measure/hosts.py)."""

    # See s3/transcript.py.
    lacks = ()
    # The id of the user that KEY is of.
    owner = KEY

    def __init__(self, rig, name="store", host=None):
        self.rig, self.name, self.host = rig, name, host
        self.address = host.address if host else "127.0.0.1"
        self.program = versitygw()
        self.port = free_port()
        self.process = None

    def uri(self):
        return f"http://{self.address}:{self.port}"

    def start(self, *flags):
        """With further flags of versitygw."""
        directories = [self.rig.path(f"{self.name}.{part}") for part in ("iam", "versions", "data")]
        for directory in directories:
            directory.mkdir(exist_ok=True)
        iam, versions, data = directories
        argv = [
            self.program, "--port", f"{self.address}:{self.port}", "--access", KEY, "--secret", SECRET, "--iam-dir", iam,
            "--keep-alive", *flags, "posix", "--versioning-dir", versions, data,
        ]
        self.process = self.rig.start(*(self.host.words(*argv) if self.host else argv), name=self.name)
        eventually(self._answers, "versitygw listens")

    def kill(self):
        self.process.kill()

    def user(self, key, secret):
        """Somebody else with an account."""
        run(
            self.program, "admin", "--access", KEY, "--secret", SECRET, "--endpoint-url", self.uri(), "create-user", "--access", key, "--secret",
            secret, "--role", "user",
        )

    def principal(self, key):
        """What a policy calls that user."""
        return key

    def _answers(self):
        check(self.process.alive(), f"versitygw ended: {self.process.tail()}")
        return listens(self.port, self.address)


class TlsStore(Store):
    """The same over HTTPS, with a certificate that vouches for itself."""

    def __init__(self, rig, name="store"):
        super().__init__(rig, name)
        self.certificate = rig.path(f"{name}.pem")

    def uri(self):
        return f"https://{self.address}:{self.port}"

    def start(self, *flags):
        key = self.rig.path(f"{self.name}.key")
        run(
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=store", "-addext",
            f"subjectAltName=IP:{self.address}", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", self.certificate,
        )
        super().start("--cert", self.certificate, "--key", key, *flags)


class EmbeddedStore:
    """The project's own program around the crate s3s-fs; one owner, no versions, no policies."""

    lacks = ("versions", "empty-tails")

    def __init__(self, rig, name="store"):
        self.rig, self.name = rig, name
        self.program = program("embedded-store")
        self.port = free_port()
        self.process = None

    def uri(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        directory = self.rig.path(f"{self.name}.data")
        directory.mkdir(exist_ok=True)
        self.process = self.rig.start(
            self.program, "--listen", f"127.0.0.1:{self.port}", "--key", KEY, "--secret", SECRET, directory, name=self.name
        )
        eventually(lambda: listens(self.port), "the embedded store listens")


class CephStore:
    """Ceph's RGW with a cluster of one daemon each, on this machine; needs root."""

    lacks = ()
    owner = "owner"

    def __init__(self, rig):
        need("ceph-mon", "ceph-mgr", "ceph-osd", "ceph", "radosgw", "radosgw-admin")
        if os.geteuid() != 0:
            skip("Ceph's daemons need root")
        self.rig = rig
        self.directory = rig.path("ceph")
        self.port = free_port()

    def uri(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        self.rig.at_end(self.stop)
        run(SCRIPTS / "ceph-up", self.directory, self.port, free_port(), KEY, SECRET, seconds=240)

    def user(self, key, secret):
        """Somebody else with an account, of that name."""
        words = ("--uid", key, "--display-name", key, "--access-key", key, "--secret-key", secret)
        run("radosgw-admin", "user", "create", *words, seconds=120, env={"CEPH_CONF": str(self.directory / "ceph.conf")})

    def principal(self, key):
        """What a policy calls that user."""
        return f"arn:aws:iam:::user/{key}"

    def stop(self):
        pids = [int(path.read_text()) for path in (self.directory / "run").glob("*.pid")]
        run(SCRIPTS / "ceph-up", "--stop", self.directory)
        eventually(lambda: not any(runs(pid) for pid in pids), "Ceph's daemons have ended")


def runs(pid):
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def s3_environment(directory, key=KEY, secret=SECRET):
    """What S3 clients look at, and nothing of the machine's own."""
    return {
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": str(directory / "no-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(directory / "no-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "HOME": str(directory),
        "PATH": os.environ["PATH"],
    }
