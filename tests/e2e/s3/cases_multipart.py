"""Multipart uploads, by single calls and by boto3's transfer manager with its defaults."""

import hashlib
import io
import random

from boto3.s3.transfer import TransferConfig

from suite import code_of, equal, refused

MIB = 1 << 20


def start(s, bucket, key, **options):
    return s.s3.create_multipart_upload(Bucket=bucket, Key=key, **options)["UploadId"]


def part(s, bucket, key, upload, number, body):
    answer = s.s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=body)
    return {"PartNumber": number, "ETag": answer["ETag"]}


def complete(s, bucket, key, upload, parts):
    return s.s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={"Parts": parts})


def test_by_hand(s):
    bucket = s.bucket()
    bodies = [random.Random(i).randbytes(5 * MIB + i) for i in range(2)] + [b"tail"]
    upload = start(s, bucket, "key", ContentType="text/plain", Metadata={"one": "1"})
    parts = [part(s, bucket, "key", upload, i * 2 + 1, body) for i, body in enumerate(bodies)]
    refused(404, "NoSuchKey", s.s3.get_object, Bucket=bucket, Key="key")
    answer = complete(s, bucket, "key", upload, parts)
    whole = b"".join(bodies)
    md5s = b"".join(hashlib.md5(body).digest() for body in bodies)
    equal(answer["ETag"], f'"{hashlib.md5(md5s).hexdigest()}-3"')
    got = s.s3.get_object(Bucket=bucket, Key="key")
    assert got["Body"].read() == whole
    equal((got["ContentType"], got["Metadata"], got["ETag"]), ("text/plain", {"one": "1"}, answer["ETag"]))
    equal(s.body(bucket, "key", Range="bytes=5242875-5242885"), whole[5242875:5242886])
    got = s.s3.get_object(Bucket=bucket, Key="key", PartNumber=2)
    equal((got["PartsCount"], got["ContentRange"]), (3, f"bytes {5 * MIB}-{10 * MIB}/{len(whole)}"))
    assert got["Body"].read() == bodies[1]
    refused(416, "InvalidPartNumber", s.s3.get_object, Bucket=bucket, Key="key", PartNumber=4)
    # A client without the answer repeats the request; with other parts, or after the key was replaced, it gets
    # NoSuchUpload.
    equal(complete(s, bucket, "key", upload, parts)["ETag"], answer["ETag"])
    refused(404, "NoSuchUpload", complete, s, bucket, "key", upload, parts[:1])
    s.put(bucket, "key")
    refused(404, "NoSuchUpload", complete, s, bucket, "key", upload, parts)


def test_transfer_manager(s):
    bucket = s.bucket()
    body = random.Random(4).randbytes(20 * MIB + 3)
    s.s3.upload_fileobj(io.BytesIO(body), bucket, "key")
    back = io.BytesIO()
    s.s3.download_fileobj(bucket, "key", back)
    assert back.getvalue() == body
    s.s3.copy({"Bucket": bucket, "Key": "key"}, bucket, "copy", Config=TransferConfig(multipart_threshold=MIB))
    assert s.body(bucket, "copy") == body


def test_refusals(s):
    bucket = s.bucket()
    upload = start(s, bucket, "key")
    first, second = part(s, bucket, "key", upload, 1, b"small"), part(s, bucket, "key", upload, 2, b"tail")
    refused(400, "EntityTooSmall", complete, s, bucket, "key", upload, [first, second])
    refused(400, "InvalidPartOrder", complete, s, bucket, "key", upload, [second, first])
    refused(400, "InvalidPart", complete, s, bucket, "key", upload, [{"PartNumber": 1, "ETag": '"x"'}])
    refused(400, "InvalidPart", complete, s, bucket, "key", upload, [{"PartNumber": 9, "ETag": first["ETag"]}])
    refused(404, "NoSuchUpload", complete, s, bucket, "other", upload, [first])
    refused(404, "NoSuchUpload", part, s, bucket, "key", "abc", 1, b"x")
    refused(404, "NoSuchBucket", start, s, "no-such-bucket", "key")
    status, _, body = s.raw("PUT", f"/{bucket}/key", b"x", query={"uploadId": upload, "partNumber": "10001"})
    equal((status, code_of(body)), (400, "InvalidArgument"))
    complete(s, bucket, "key", upload, [second])
    equal(s.body(bucket, "key"), b"tail")


def test_lists_and_abort(s):
    bucket = s.bucket()
    upload = start(s, bucket, "a/1")
    other = start(s, bucket, "b")
    part(s, bucket, "a/1", upload, 1, b"one")
    part(s, bucket, "a/1", upload, 3, b"three")
    got = s.s3.list_parts(Bucket=bucket, Key="a/1", UploadId=upload)
    equal([(p["PartNumber"], p["Size"]) for p in got["Parts"]], [(1, 3), (3, 5)])
    got = s.s3.list_parts(Bucket=bucket, Key="a/1", UploadId=upload, MaxParts=1)
    equal((got["IsTruncated"], got["NextPartNumberMarker"]), (True, 1))
    got = s.s3.list_multipart_uploads(Bucket=bucket)
    equal([(u["Key"], u["UploadId"]) for u in got["Uploads"]], [("a/1", upload), ("b", other)])
    got = s.s3.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    equal([p["Prefix"] for p in got["CommonPrefixes"]], ["a/"])
    s.s3.abort_multipart_upload(Bucket=bucket, Key="a/1", UploadId=upload)
    refused(404, "NoSuchUpload", s.s3.abort_multipart_upload, Bucket=bucket, Key="a/1", UploadId=upload)
    refused(404, "NoSuchUpload", s.s3.list_parts, Bucket=bucket, Key="a/1", UploadId=upload)
    s.s3.abort_multipart_upload(Bucket=bucket, Key="b", UploadId=other)
    equal(s.s3.list_multipart_uploads(Bucket=bucket).get("Uploads"), None)


def test_copied_parts(s):
    bucket = s.bucket()
    body = random.Random(5).randbytes(11 * MIB)
    s.put(bucket, "source", body=body)
    upload = start(s, bucket, "key")
    parts = []
    for number, first, last in [(1, 100, 6 * MIB), (2, 6 * MIB + 1, len(body) - 1)]:
        answer = s.s3.upload_part_copy(Bucket=bucket, Key="key", UploadId=upload, PartNumber=number,
                                       CopySource=f"{bucket}/source", CopySourceRange=f"bytes={first}-{last}")
        parts.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
    complete(s, bucket, "key", upload, parts)
    assert s.body(bucket, "key") == body[100:]
    refused(400, "InvalidArgument", s.s3.upload_part_copy, Bucket=bucket, Key="key", UploadId=start(s, bucket, "key"),
            PartNumber=1, CopySource=f"{bucket}/source", CopySourceRange=f"bytes=0-{len(body)}")
