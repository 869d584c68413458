"""What boto3 sees of a store, and of the same store through the gateway, compared step by step."""

import json
from pathlib import Path

from .process import run
from .server import free_port
from .store import KEY, SECRET, s3_clients, s3_environment
from .verdict import check, equal

TRANSCRIPT = Path(__file__).resolve().parents[1] / "s3" / "transcript.py"


def no_difference(rig, store, steps_min, name="transcript", pair=(KEY, SECRET), keys=None, alike=None):
    """Fails the test unless the transcripts of a store that runs are equal, as long as they should be, and full of hits. `pair`: whose
    requests the gateway gets; `keys`: of its configuration; `alike`: the store that is asked without a gateway, if it is not the same."""
    listen = f"127.0.0.1:{free_port()}"
    forebay = rig.forebay({}, s3={"listen": listen, "backend": store.uri(), **(keys or {})}, name=f"forebay-of-{name}")
    found = []
    # Of one length, since answers name them.
    for endpoint, bucket, pair in (((alike or store).uri(), f"{name}-one", (KEY, SECRET)), (f"http://{listen}", f"{name}-two", pair)):
        environment = s3_environment(rig.directory, *pair)
        said = run(s3_clients() / "python", TRANSCRIPT, endpoint, bucket, *store.lacks, seconds=240, env=environment).stdout
        found.append(json.loads(said.replace(bucket, "BUCKET")))
    forebay.stop()
    one, two = found
    hits, (one, two) = two["cache"]["HIT"], (one["said"], two["said"])
    print(f"{hits} hits in {len(two)} steps", flush=True)
    equal(len(two), len(one), "what boto3 did through the gateway")
    check(len(one) > steps_min, f"only {len(one)} steps")
    check(hits > len(two) * 0.28, f"only {hits} of {len(two)} steps were hits")
    differ = [(direct, through) for direct, through in zip(one, two) if direct != through]
    for direct, through in differ[:10]:
        print(f"- {direct}\n+ {through}", flush=True)
    equal(len(differ), 0, f"steps of {len(one)} that differ through the gateway")
