"""Server access logging: lines of one bucket's requests, as objects of another."""

import re
import shlex
import time

from suite import equal, refused


def logs(s, bucket, prefix, wanted):
    """The lines so far, once one has what is wanted in it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        keys = [o["Key"] for o in s.s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])]
        lines = [line for key in keys for line in s.body(bucket, key).decode().splitlines()]
        if any(wanted in line for line in lines):
            return keys, lines
    raise AssertionError(f"no line with {wanted} after 30 s")


def enable(s, bucket, target, prefix, **more):
    s.s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={
        "LoggingEnabled": {"TargetBucket": target, "TargetPrefix": prefix, **more}})


def disable(s, bucket, target, prefix):
    """What is asked last is told last: nothing more comes after."""
    s.s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={})
    logs(s, target, prefix, "REST.PUT.LOGGING")


def test_lines(s):
    bucket, target = s.bucket(), s.bucket()
    enable(s, bucket, target, "logs/")
    equal(s.s3.get_bucket_logging(Bucket=bucket)["LoggingEnabled"], {"TargetBucket": target, "TargetPrefix": "logs/"})
    s.s3.put_object(Bucket=bucket, Key="a b/c", Body=b"12345")
    equal(s.body(bucket, "a b/c"), b"12345")
    refused(404, "NoSuchKey", s.s3.get_object, Bucket=bucket, Key="none")
    keys, lines = logs(s, target, "logs/", "NoSuchKey")
    assert all(re.fullmatch(r"logs/\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d-[0-9a-f]{16}", key) for key in keys), keys
    line = next(line for line in lines if "REST.GET.OBJECT" in line and " 200 " in line)
    fields = shlex.split(line.replace("[", '"').replace("]", '"'))
    equal((fields[1], fields[6], fields[7], fields[9], fields[10], fields[11]),
          (bucket, "REST.GET.OBJECT", "a%20b/c", "200", "-", "5"))
    equal(fields[4], s.keys[0])
    disable(s, bucket, target, "logs/")
    assert "LoggingEnabled" not in s.s3.get_bucket_logging(Bucket=bucket)


def test_partitioned(s):
    bucket, target = s.bucket(), s.bucket()
    enable(s, bucket, target, "p/", TargetObjectKeyFormat={"PartitionedPrefix": {"PartitionDateSource": "EventTime"}}) \
        if "TargetObjectKeyFormat" in s.s3.meta.service_model.shape_for("LoggingEnabled").members else \
        s.raw("PUT", f"/{bucket}", f"<BucketLoggingStatus><LoggingEnabled><TargetBucket>{target}</TargetBucket><TargetPrefix>p/</TargetPrefix>"
              "<TargetObjectKeyFormat><PartitionedPrefix/></TargetObjectKeyFormat></LoggingEnabled></BucketLoggingStatus>".encode(), {"logging": ""})
    s.put(bucket, "key")
    keys, _ = logs(s, target, "p/", "REST.PUT.OBJECT")
    assert re.fullmatch(rf"p/[^/]+/us-east-1/{bucket}/\d{{4}}/\d\d/\d\d/[0-9-]+-[0-9a-f]{{16}}", keys[0]), keys
    disable(s, bucket, target, "p/")


def test_refusals(s):
    bucket = s.bucket()
    refused(400, "InvalidTargetBucketForLogging", enable, s, bucket, "no-such-bucket", "x")
    status, _, body = s.raw("PUT", f"/{bucket}", b"<BucketLoggingStatus><LoggingEnabled/></BucketLoggingStatus>", {"logging": ""})
    assert status == 400 and b"MalformedXML" in body
