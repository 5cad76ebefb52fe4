"""Tags of objects and buckets."""

import json

from suite import equal, opened, refused


def tags(**items):
    return {"TagSet": [{"Key": key, "Value": value} for key, value in sorted(items.items())]}


def of(s, bucket, key, **options):
    return {"TagSet": s.s3.get_object_tagging(Bucket=bucket, Key=key, **options)["TagSet"]}


def test_life(s):
    bucket = s.bucket()
    s.put(bucket, "key")
    etag = s.s3.head_object(Bucket=bucket, Key="key")["ETag"]
    equal(of(s, bucket, "key"), tags())
    s.s3.put_object_tagging(Bucket=bucket, Key="key", Tagging=tags(b="2", a="", ünï="grün & = %"[:4]))
    equal(of(s, bucket, "key"), tags(b="2", a="", ünï="grün"))
    got = s.s3.get_object(Bucket=bucket, Key="key")
    equal((got["TagCount"], got["ETag"], got["Body"].read()), (3, etag, b"x"))
    s.s3.put_object_tagging(Bucket=bucket, Key="key", Tagging=tags(only="this one"))
    equal(of(s, bucket, "key", VersionId="null"), tags(only="this one"))
    answer = s.s3.delete_object_tagging(Bucket=bucket, Key="key")
    equal(answer["ResponseMetadata"]["HTTPStatusCode"], 204)
    equal(of(s, bucket, "key"), tags())
    assert "TagCount" not in s.s3.get_object(Bucket=bucket, Key="key")


def test_the_count_needs_the_right_to_the_tags(s):
    one, two = s.one(), s.two()
    bucket = opened(one, f"{s.prefix}{next(s.numbers)}")
    one.put_object(Bucket=bucket, Key="key", Body=b"x", Tagging="a=1&b=2")
    here = {"Bucket": bucket, "Key": "key"}
    for more, whole, version in [([], None, None), (["s3:GetObjectTagging"], "2", None),
                                 (["s3:GetObjectVersionTagging"], None, "2")]:
        one.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": "222222222222"}, "Resource": f"arn:aws:s3:::{bucket}/*",
             "Action": ["s3:GetObject", "s3:GetObjectVersion", *more]}]}))
        for call in (two.get_object, two.head_object):
            for options, count in [({}, whole), ({"VersionId": "null"}, version)]:
                got = call(**here, **options)
                equal(got["ResponseMetadata"]["HTTPHeaders"].get("x-amz-tagging-count"), count)
    equal(one.get_object(**here)["TagCount"], 2)


def test_with_a_write(s):
    bucket = s.bucket()
    s.s3.put_object(Bucket=bucket, Key="key", Body=b"x", Tagging="foo=bar&b%20c&x=%2F", Metadata={"m": "1"})
    equal(of(s, bucket, "key"), tags(**{"foo": "bar", "b c": "", "x": "/"}))
    got = s.s3.head_object(Bucket=bucket, Key="key")
    equal((got["Metadata"], got["ResponseMetadata"]["HTTPHeaders"]["x-amz-tagging-count"]), ({"m": "1"}, "3"))
    for bad, code in [("a=1&a=2", "InvalidArgument"), ("a=%zz", "InvalidArgument"), ("=x", "InvalidTag"),
                      ("&".join(f"k{i}=v" for i in range(11)), "InvalidTag"), ("aws:x=1", "InvalidTag")]:
        refused(400, code, s.s3.put_object, Bucket=bucket, Key="bad", Body=b"x", Tagging=bad)
    s.put(bucket, "key")
    equal(of(s, bucket, "key"), tags())


def test_with_an_upload(s):
    bucket = s.bucket()
    upload = s.s3.create_multipart_upload(Bucket=bucket, Key="key", Tagging="a=1&b=2", Metadata={"m": "1"})["UploadId"]
    etags = [s.s3.upload_part(Bucket=bucket, Key="key", UploadId=upload, PartNumber=number, Body=body)["ETag"]
             for number, body in enumerate([b"x" * (5 << 20), b"y"], 1)]
    s.s3.complete_multipart_upload(Bucket=bucket, Key="key", UploadId=upload, MultipartUpload={
        "Parts": [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(etags, 1)]})
    equal(of(s, bucket, "key"), tags(a="1", b="2"))
    s.s3.put_object_tagging(Bucket=bucket, Key="key", Tagging=tags(c="3"))
    got = s.s3.head_object(Bucket=bucket, Key="key", PartNumber=2)
    equal((got["ContentLength"], got["PartsCount"], got["Metadata"]), (1, 2, {"m": "1"}))


def test_copies(s):
    bucket = s.bucket()
    s.s3.put_object(Bucket=bucket, Key="key", Body=b"x", Tagging="a=1", Metadata={"m": "1"})
    source = {"Bucket": bucket, "Key": "key"}
    s.s3.copy_object(Bucket=bucket, Key="same", CopySource=source)
    equal(of(s, bucket, "same"), tags(a="1"))
    s.s3.copy_object(Bucket=bucket, Key="other", CopySource=source, TaggingDirective="REPLACE", Tagging="b=2")
    equal((of(s, bucket, "other"), s.s3.head_object(Bucket=bucket, Key="other")["Metadata"]), (tags(b="2"), {"m": "1"}))
    s.s3.copy_object(Bucket=bucket, Key="meta", CopySource=source, MetadataDirective="REPLACE", Metadata={"n": "2"})
    equal((of(s, bucket, "meta"), s.s3.head_object(Bucket=bucket, Key="meta")["Metadata"]), (tags(a="1"), {"n": "2"}))
    s.s3.copy_object(Bucket=bucket, Key="none", CopySource=source, TaggingDirective="REPLACE")
    equal(of(s, bucket, "none"), tags())


def test_limits(s):
    bucket = s.bucket()
    s.put(bucket, "key")

    def put(**items):
        return s.s3.put_object_tagging(Bucket=bucket, Key="key", Tagging=tags(**items))

    put(**{str(i) + "k" * 127: "ü" * 256 for i in range(10)})
    equal(len(of(s, bucket, "key")["TagSet"]), 10)
    refused(400, "InvalidTag", put, **{str(i): "v" for i in range(11)})
    refused(400, "InvalidTag", put, **{"k" * 129: "v"})
    refused(400, "InvalidTag", put, k="v" * 257)
    refused(400, "InvalidTag", put, **{"a&b": "v"})
    equal(len(of(s, bucket, "key")["TagSet"]), 10)
    twice = {"TagSet": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]}
    refused(400, "InvalidTag", s.s3.put_object_tagging, Bucket=bucket, Key="key", Tagging=twice)
    for body in (b"<Tagging/>", b"<Other/>", b"<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>", b""):
        status, _, answer = s.raw("PUT", f"/{bucket}/key", body, {"tagging": ""})
        assert status == 400 and b"<Code>MalformedXML</Code>" in answer, answer


def test_missing(s):
    bucket = s.bucket()
    for call, more in [(s.s3.get_object_tagging, {}), (s.s3.put_object_tagging, {"Tagging": tags(a="1")}),
                       (s.s3.delete_object_tagging, {})]:
        refused(404, "NoSuchKey", call, Bucket=bucket, Key="none", **more)
        refused(404, "NoSuchBucket", call, Bucket="no-such-bucket", Key="none", **more)


def test_of_a_bucket(s):
    bucket = s.bucket()
    refused(404, "NoSuchTagSet", s.s3.get_bucket_tagging, Bucket=bucket)
    answer = s.s3.put_bucket_tagging(Bucket=bucket, Tagging=tags(Hello="World", a="1"))
    equal(answer["ResponseMetadata"]["HTTPStatusCode"], 204)
    equal(s.s3.get_bucket_tagging(Bucket=bucket)["TagSet"], tags(Hello="World", a="1")["TagSet"])
    s.s3.put_bucket_tagging(Bucket=bucket, Tagging=tags(**{str(i): "v" for i in range(50)}))
    refused(400, "InvalidTag", s.s3.put_bucket_tagging, Bucket=bucket, Tagging=tags(**{str(i): "v" for i in range(51)}))
    equal(s.s3.delete_bucket_tagging(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"], 204)
    refused(404, "NoSuchTagSet", s.s3.get_bucket_tagging, Bucket=bucket)
    s.s3.put_bucket_tagging(Bucket=bucket, Tagging=tags(a="1"))
    s.s3.delete_bucket(Bucket=bucket)
    s.s3.create_bucket(Bucket=bucket)
    refused(404, "NoSuchTagSet", s.s3.get_bucket_tagging, Bucket=bucket)
