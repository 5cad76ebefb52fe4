"""Copies inside the server."""

import datetime
import json
import random

from suite import code_of, equal, opened, refused


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
                      ({"CopySourceIfModifiedSince": date - day}, {"CopySourceIfModifiedSince": date}),
                      ({"CopySourceIfUnmodifiedSince": date + day}, {"CopySourceIfUnmodifiedSince": date - day})]:
        s.s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/key", **good)
        refused(412, "PreconditionFailed", s.s3.copy_object, Bucket=bucket, Key="to", CopySource=f"{bucket}/key", **bad)


def test_how_a_source_is_said(s):
    """A plus is a space; a URL is its path; a condition that fails is named."""
    bucket = s.bucket()
    s.put(bucket, "a b", body=b"body")
    for source in f"{bucket}/a+b", f"/{bucket}/a%20b", f"http://example.com/{bucket}/a+b", f"https://s3.example.com/{bucket}/a%20b":
        status, _, body = s.ask("PUT", f"/{bucket}/to", b"", {}, {"x-amz-copy-source": source})
        assert (status, code_of(body)) == (200, None), (source, body)
        equal(s.body(bucket, "to"), b"body")
        s.s3.delete_object(Bucket=bucket, Key="to")
    name, value = "x-amz-copy-source-if-none-match", "*"
    answer = s.raw("PUT", f"/{bucket}/to", b"", {}, {"x-amz-copy-source": f"{bucket}/a+b", name: value})[2]
    assert code_of(answer) == "PreconditionFailed" and b"<Condition>x-amz-copy-source-If-None-Match<" in answer, answer
    name, value = "x-amz-copy-source-if-unmodified-since", "Thu, 01 Jan 2015 00:00:00 GMT"
    answer = s.raw("PUT", f"/{bucket}/to", b"", {}, {"x-amz-copy-source": f"{bucket}/a+b", name: value})[2]
    assert code_of(answer) == "PreconditionFailed" and b"<Condition>x-amz-copy-source-If-Unmodified-Since<" in answer, answer


def allowed(owner, bucket, *actions):
    """Lets the second account do that with the bucket's objects."""
    owner.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": {"AWS": "222222222222"}, "Resource": [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"],
         "Action": actions}]}))


def test_a_source_whose_requesters_pay(s):
    one, two = s.one(), s.two()
    source, target = (opened(owner, f"{s.prefix}{next(s.numbers)}") for owner in (one, two))
    one.put_object(Bucket=source, Key="key", Body=b"x", Tagging="a=1")
    allowed(one, source, "s3:GetObject", "s3:GetObjectTagging")
    one.put_bucket_request_payment(Bucket=source, RequestPaymentConfiguration={"Payer": "Requester"})
    upload = two.create_multipart_upload(Bucket=target, Key="parts")["UploadId"]
    copy = {"Bucket": target, "Key": "copy", "CopySource": f"{source}/key"}
    part = {**copy, "Key": "parts", "UploadId": upload, "PartNumber": 1}
    for call, options in (two.copy_object, copy), (two.upload_part_copy, part):
        refused(403, "AccessDenied", call, **options)
        equal(call(**options, RequestPayer="requester")["RequestCharged"], "requester")
    # Of both buckets, and said once.
    two.put_bucket_request_payment(Bucket=target, RequestPaymentConfiguration={"Payer": "Requester"})
    refused(403, "AccessDenied", two.copy_object, **copy)
    equal(two.copy_object(**copy, RequestPayer="requester")["RequestCharged"], "requester")
    one.copy_object(Bucket=source, Key="copy", CopySource=f"{source}/key")


def test_missing_sources_are_told_to_callers_that_may_list(s):
    one, two = s.one(), s.two()
    source, target = (opened(owner, f"{s.prefix}{next(s.numbers)}") for owner in (one, two))
    upload = two.create_multipart_upload(Bucket=target, Key="parts")["UploadId"]
    key = {"Bucket": source, "Key": "none"}
    version = {**key, "VersionId": "0123456789abcdef"}
    for actions, of_key, of_version in [(["s3:GetObject", "s3:GetObjectVersion"], (403, "AccessDenied"), (403, "AccessDenied")),
                                        (["s3:Get*", "s3:ListBucket"], (404, "NoSuchKey"), (403, "AccessDenied")),
                                        (["s3:Get*", "s3:ListBucketVersions"], (403, "AccessDenied"), (404, "NoSuchVersion"))]:
        allowed(one, source, *actions)
        for of, answer in (key, of_key), (version, of_version):
            refused(*answer, two.copy_object, Bucket=target, Key="copy", CopySource=of)
            refused(*answer, two.upload_part_copy, Bucket=target, Key="parts", UploadId=upload, PartNumber=1, CopySource=of)
    refused(404, "NoSuchKey", one.copy_object, Bucket=source, Key="copy", CopySource=key)
