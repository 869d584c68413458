"""What pyarrow and s3fs see of a store: `tables.py ENDPOINT BUCKET` prints a list of what was found, step by step. It is the same for the same
store, however it is reached.
"""

import hashlib
import json
import random
import sys
import warnings

import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet
import s3fs

ROWS = 300_000
endpoint, bucket = sys.argv[1], sys.argv[2]
found = []


def saw(what, thing):
    if isinstance(thing, bytes):
        thing = [len(thing), hashlib.sha256(thing).hexdigest()]
    found.append([what, thing])


def table(seed):
    dice = random.Random(seed)
    return pyarrow.table(
        {
            "id": pyarrow.array(range(ROWS)),
            "part": pyarrow.array([at % 3 for at in range(ROWS)]),
            "value": pyarrow.array([dice.random() for _ in range(ROWS)]),
            "text": pyarrow.array([f"{dice.getrandbits(64):x}" for _ in range(ROWS)]),
        }
    )


def arrow():
    fs = pyarrow.fs.S3FileSystem(endpoint_override=endpoint.removeprefix("http://"), scheme="http", region="us-east-1", allow_bucket_creation=True)
    fs.create_dir(bucket)
    one = table(1)
    # Over 5 MiB: in parts.
    pyarrow.parquet.write_table(one, f"{bucket}/t/one.parquet", filesystem=fs, row_group_size=50_000)
    for again in range(2):
        read = pyarrow.parquet.read_table(f"{bucket}/t/one.parquet", filesystem=fs)
        saw(f"the whole table, {again}", read.equals(one))
        columns = pyarrow.parquet.read_table(f"{bucket}/t/one.parquet", columns=["value"], filters=[("id", "<", 1000)], filesystem=fs)
        saw(f"a column of some rows, {again}", [columns.num_rows, pyarrow.compute.sum(columns["value"]).as_py()])
    pyarrow.dataset.write_dataset(one, f"{bucket}/set", filesystem=fs, format="parquet", partitioning=["part"], existing_data_behavior="overwrite_or_ignore")
    for again in range(2):
        rows = pyarrow.dataset.dataset(f"{bucket}/set", filesystem=fs, partitioning=["part"]).to_table(filter=pyarrow.dataset.field("part") == 1)
        saw(f"a part of a dataset, {again}", [rows.num_rows, pyarrow.compute.sum(rows["id"]).as_py()])
    with fs.open_input_file(f"{bucket}/t/one.parquet") as file:
        size = file.size()
        dice = random.Random(2)
        for at in range(40):
            start = dice.randrange(size)
            saw(f"bytes at {start}", file.read_at(min(dice.randrange(1, 300_000), size - start), start))
    pyarrow.parquet.write_table(table(3), f"{bucket}/t/one.parquet", filesystem=fs)
    saw("the other table", pyarrow.parquet.read_table(f"{bucket}/t/one.parquet", filesystem=fs).equals(table(3)))
    names = fs.get_file_info(pyarrow.fs.FileSelector(bucket, recursive=True))
    saw("names", sorted((info.path, info.size if info.is_file else None) for info in names))
    fs.copy_file(f"{bucket}/t/one.parquet", f"{bucket}/t/two.parquet")
    fs.delete_file(f"{bucket}/t/one.parquet")
    saw("a deleted one", str(fs.get_file_info(f"{bucket}/t/one.parquet").type))
    try:
        fs.open_input_file(f"{bucket}/t/one.parquet").read()
        saw("a read of it", "read")
    except OSError as error:
        saw("a read of it", type(error).__name__)


def fsspec():
    fs = s3fs.S3FileSystem(client_kwargs={"endpoint_url": endpoint}, use_listings_cache=False, skip_instance_cache=True)
    payload = random.Random(4).randbytes(9_000_000)
    with fs.open(f"{bucket}/f/big", "wb", block_size=5 << 20) as file:
        file.write(payload)
    fs.pipe(f"{bucket}/f/small", b"small")
    for again in range(2):
        saw(f"all, {again}", fs.cat_file(f"{bucket}/f/big") == payload)
        saw(f"a range, {again}", fs.cat_file(f"{bucket}/f/big", start=4_000_001, end=5_000_000))
        saw(f"the end, {again}", fs.cat_file(f"{bucket}/f/big", start=-100))
        saw(f"many ranges, {again}", [part == payload[at : at + 5000] for at, part in ((at, fs.cat_file(f"{bucket}/f/big", start=at, end=at + 5000)) for at in range(0, 9_000_000, 900_000))])
    for cache in ("readahead", "none", "all"):
        with fs.open(f"{bucket}/f/big", "rb", cache_type=cache, block_size=1 << 20) as file:
            file.seek(7_777_777)
            saw(f"after a seek, {cache}", file.read(100_000))
            file.seek(3)
            saw(f"and back, {cache}", file.read(10))
    saw("names", sorted(fs.ls(f"{bucket}/f", detail=False)))
    saw("found", sorted(fs.glob(f"{bucket}/**/*.parquet")))
    saw("told", [fs.info(f"{bucket}/f/big")["size"], fs.exists(f"{bucket}/f/none"), fs.isdir(f"{bucket}/f")])
    fs.pipe(f"{bucket}/f/small", b"other")
    saw("another one", fs.cat_file(f"{bucket}/f/small"))
    fs.copy(f"{bucket}/f/small", f"{bucket}/f/copy")
    fs.rm(f"{bucket}/f/small")
    saw("after rm", [fs.exists(f"{bucket}/f/small"), fs.cat_file(f"{bucket}/f/copy").decode()])
    fs.rm(f"{bucket}/f", recursive=True)
    saw("after all", fs.find(f"{bucket}/f"))


warnings.simplefilter("ignore")
arrow()
fsspec()
print(json.dumps(found))
