"""Copies inside the server."""

import datetime
import random

from suite import equal, refused


def test_between_buckets(s):
    source, target = s.bucket(), s.bucket()
    body = random.Random(3).randbytes((2 << 20) + 5)
    s.s3.put_object(Bucket=source, Key="a b+ü/c", Body=body, Metadata={"one": "1"}, ContentType="text/plain")
    answer = s.s3.copy_object(Bucket=target, Key="copy", CopySource={"Bucket": source, "Key": "a b+ü/c"})
    got = s.s3.get_object(Bucket=target, Key="copy")
    assert got["Body"].read() == body
    equal((got["Metadata"], got["ContentType"], got["ETag"]),
          ({"one": "1"}, "text/plain", answer["CopyObjectResult"]["ETag"]))


def test_directives(s):
    bucket = s.bucket()
    s.s3.put_object(Bucket=bucket, Key="key", Body=b"x", Metadata={"one": "1"}, ContentType="text/plain")
    source = {"Bucket": bucket, "Key": "key"}
    refused(400, "InvalidRequest", s.s3.copy_object, Bucket=bucket, Key="key", CopySource=source)
    s.s3.copy_object(Bucket=bucket, Key="key", CopySource=source, MetadataDirective="REPLACE", Metadata={"two": "2"})
    equal(s.s3.head_object(Bucket=bucket, Key="key")["Metadata"], {"two": "2"})
    s.s3.copy_object(Bucket=bucket, Key="key", CopySource=source, StorageClass="ONEZONE_IA")
    got = s.s3.head_object(Bucket=bucket, Key="key")
    equal((got["StorageClass"], got["Metadata"]), ("ONEZONE_IA", {"two": "2"}))


def test_sources(s):
    bucket = s.bucket()
    s.put(bucket, "key")
    copy = s.s3.copy_object
    refused(404, "NoSuchKey", copy, Bucket=bucket, Key="to", CopySource=f"{bucket}/none")
    refused(404, "NoSuchBucket", copy, Bucket=bucket, Key="to", CopySource="no-such-bucket/key")
    refused(404, "NoSuchBucket", copy, Bucket="no-such-bucket", Key="to", CopySource=f"{bucket}/key")
    copy(Bucket=bucket, Key="to", CopySource=f"/{bucket}/key")
    copy(Bucket=bucket, Key="to", CopySource={"Bucket": bucket, "Key": "key", "VersionId": "null"})
    refused(404, "NoSuchVersion", copy, Bucket=bucket, Key="to",
            CopySource={"Bucket": bucket, "Key": "key", "VersionId": "0123456789abcdef"})
    refused(400, "InvalidArgument", copy, Bucket=bucket, Key="to",
            CopySource={"Bucket": bucket, "Key": "key", "VersionId": "abc"})


def test_conditions(s):
    bucket = s.bucket()
    s.put(bucket, "key")
    head = s.s3.head_object(Bucket=bucket, Key="key")
    etag, date, day = head["ETag"], head["LastModified"], datetime.timedelta(days=1)
    for good, bad in [({"CopySourceIfMatch": etag}, {"CopySourceIfMatch": '"x"'}),
                      ({"CopySourceIfNoneMatch": '"x"'}, {"CopySourceIfNoneMatch": etag}),
                      ({"CopySourceIfModifiedSince": date - day}, {"CopySourceIfModifiedSince": date + day}),
                      ({"CopySourceIfUnmodifiedSince": date + day}, {"CopySourceIfUnmodifiedSince": date - day})]:
        s.s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/key", **good)
        refused(412, "PreconditionFailed", s.s3.copy_object, Bucket=bucket, Key="to", CopySource=f"{bucket}/key", **bad)
