"""What Spark with S3A sees of a store: `spark.py ENDPOINT BUCKET` prints a list of what was found, step by step. It is the same for the same
store, however it is reached.
"""

import json
import random
import re
import sys
import tempfile

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as of

ROWS = 200_000
MIB = 1 << 20
BIG_BYTES = 17 * MIB + 1234
# Of a job, anew at each.
JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
endpoint, bucket = sys.argv[1], sys.argv[2]
root = f"s3a://{bucket}"
found = []


def saw(what, thing):
    found.append([what, thing])


def session(scratch):
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={scratch}",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.hadoop.hadoop.tmp.dir": scratch,
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
        # Deleted otherwise after each upload. A store over a directory refuses that while the folder is not empty, and S3A asks again for minutes.
        "spark.hadoop.fs.s3a.directory.marker.retention": "keep",
        # The least that S3 allows: the big file goes in four parts.
        "spark.hadoop.fs.s3a.multipart.size": str(5 * MIB),
        "spark.hadoop.fs.s3a.multipart.threshold": str(5 * MIB),
    }
    builder = SparkSession.builder.master("local[2]").appName("forebay")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def make_bucket(jvm):
    """S3A makes none; the SDK below it does."""
    at = getattr(jvm, "com.amazonaws.client.builder.AwsClientBuilder$EndpointConfiguration")(endpoint, "us-east-1")
    builder = jvm.com.amazonaws.services.s3.AmazonS3ClientBuilder.standard()
    builder.withPathStyleAccessEnabled(True).withEndpointConfiguration(at).build().createBucket(bucket)


def rows(spark, seed):
    return spark.range(0, ROWS, 1, 4).select(
        "id",
        (of.col("id") % 3).alias("part"),
        (of.xxhash64("id", of.lit(seed)) / of.lit(2.0**63)).alias("value"),
        of.sha2(of.concat_ws("-", "id", of.lit(seed)), 256).alias("text"),
    )


def told(frame):
    """How many rows there are, and what is in them, in whatever order."""
    one = frame.agg(of.count("*"), of.sum("id"), of.sum(of.crc32("text").cast("long")), of.sum(of.xxhash64("value").cast("decimal(38,0)"))).first()
    return [str(value) for value in one]


def tables(spark):
    place = f"{root}/table"
    for seed, mode in ((1, "errorifexists"), (2, "overwrite"), (3, "append")):
        rows(spark, seed).write.mode(mode).partitionBy("part").parquet(place)
        for again in range(2):
            read = spark.read.parquet(place)
            saw(f"all after {mode}, {again}", told(read))
            saw(f"one part after {mode}, {again}", told(read.where("part = 1")))
            saw(f"some rows after {mode}, {again}", told(read.where("id between 70000 and 71000 and value > 0")))
            saw(f"a column after {mode}, {again}", read.select("text").where("text < '01'").count())
    try:
        rows(spark, 4).write.parquet(place)
        saw("written over", "written")
    except Exception as error:
        saw("written over", type(error).__name__)
    some = rows(spark, 5).where("id < 20000")
    for form in ("csv", "json"):
        some.coalesce(2).write.option("header", True).format(form).save(f"{root}/{form}")
        for again in range(2):
            read = spark.read.option("header", True).schema(some.schema).format(form).load(f"{root}/{form}")
            saw(f"{form}, {again}", told(read))
    saw("text lines", spark.read.text(f"{root}/csv").count())


class Files:
    """Hadoop's FileSystem."""

    def __init__(self, spark):
        self.jvm = spark._jvm
        self.fs = self.jvm.org.apache.hadoop.fs.FileSystem.get(self.path("").toUri(), spark._jsc.hadoopConfiguration())

    def path(self, name):
        return self.jvm.org.apache.hadoop.fs.Path(f"{root}/{name}")

    def names(self, name):
        """What is below a name, whose jobs' identities are taken out."""
        listed = self.fs.listFiles(self.path(name), True)
        names = []
        while listed.hasNext():
            status = listed.next()
            names.append([JOB.sub("JOB", status.getPath().toString()), status.getLen()])
        return sorted(names)

    def folders(self, name):
        return sorted([status.getPath().getName(), status.isDirectory()] for status in self.fs.listStatus(self.path(name)))

    def write(self, name, payload):
        out = self.fs.create(self.path(name), True)
        for at in range(0, len(payload), MIB):
            out.write(bytearray(payload[at : at + MIB]))
        out.close()

    def sha256(self, name):
        stream = self.fs.open(self.path(name))
        digest = self.jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream)
        stream.close()
        return digest

    def fails(self, what, call):
        try:
            saw(what, str(call()))
        except Py4JJavaError as error:
            saw(what, error.java_exception.getClass().getName())


def big_file(files):
    payload = random.Random(6).randbytes(BIG_BYTES)
    files.write("files/big", payload)
    for again in range(2):
        saw(f"a big file, {again}", files.sha256("files/big"))
        stream = files.fs.open(files.path("files/big"))
        dice = random.Random(7)
        for _ in range(10):
            start = dice.randrange(BIG_BYTES - 200_000)
            length = dice.randrange(1, 200_000)
            stream.seek(start)
            part = bytes(files.jvm.org.apache.commons.io.IOUtils.toByteArray(stream, length))
            saw(f"{length} bytes at {start}, {again}", part == payload[start : start + length])
        stream.close()
    # Of no hidden attribute, and of a time that is its own.
    saw("its attributes", sorted(key for key in files.fs.getXAttrs(files.path("files/big"))))


def folders(files):
    saw("names", files.names(""))
    saw("folders", files.folders("table"))
    saw("a rename", files.fs.rename(files.path("table"), files.path("moved")))
    saw("renamed", files.names("moved"))
    saw("the old name", files.fs.exists(files.path("table")))
    saw("of a file", files.fs.rename(files.path("files/big"), files.path("files/other")))
    saw("the other", files.sha256("files/other"))
    files.fails("a read of the old one", lambda: files.sha256("files/big"))
    files.write("files/other", b"short")
    saw("written over", files.sha256("files/other"))
    saw("an empty folder", [files.fs.mkdirs(files.path("empty/below")), files.folders("empty")])
    files.fails("a folder that is not empty", lambda: files.fs.delete(files.path("files"), False))
    saw("a delete", files.fs.delete(files.path("csv"), True))
    files.fails("a list of it", lambda: files.folders("csv"))
    saw("of nothing", files.fs.delete(files.path("csv"), True))
    summary = files.fs.getContentSummary(files.path("moved"))
    saw("in sum", [summary.getLength(), summary.getFileCount(), summary.getDirectoryCount()])


with tempfile.TemporaryDirectory() as scratch:
    spark = session(scratch)
    spark.sparkContext.setLogLevel("ERROR")
    make_bucket(spark._jvm)
    tables(spark)
    files = Files(spark)
    big_file(files)
    folders(files)
    saw("the moved table", told(spark.read.parquet(f"{root}/moved")))
    spark.stop()
print(json.dumps(found))
