"""Encryption at rest."""

import base64
import hashlib
import random

from cases_access import denied, made, policy
from suite import equal, refused


def customer(seed):
    key = random.Random(seed).randbytes(32)
    return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": base64.b64encode(key).decode(),
            "SSECustomerKeyMD5": base64.b64encode(hashlib.md5(key).digest()).decode()}


def source(seed):
    return {f"CopySource{name}": value for name, value in customer(seed).items()}


# boto3 encodes a customer's key itself, so it is passed unencoded.
def raw_key(options):
    return {name: base64.b64decode(value) if name.endswith("SSECustomerKey") else value
            for name, value in options.items() if not name.endswith("MD5")}


def c(seed):
    return raw_key(customer(seed))


def test_of_the_server(s):
    bucket = s.bucket()
    for size in (0, 1, 13, 2048, 2049, 65536, 65537, (1 << 20) + 3, (5 << 20) + 1):
        body = random.Random(size).randbytes(size)
        answer = s.s3.put_object(Bucket=bucket, Key="key", Body=body, ServerSideEncryption="AES256")
        equal((answer["ServerSideEncryption"], answer["ETag"]), ("AES256", f'"{hashlib.md5(body).hexdigest()}"'))
        got = s.s3.get_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")
        assert got["Body"].read() == body, size
        equal((got["ServerSideEncryption"], got["ContentLength"]), ("AES256", size))
        for first, last in [(0, 0), (1, 1), (15, 17), (65530, 65545), (size - 2, size - 1)]:
            if 0 <= first <= last < size:
                assert s.body(bucket, "key", Range=f"bytes={first}-{last}") == body[first:last + 1], (size, first)
    equal(s.s3.head_object(Bucket=bucket, Key="key")["ServerSideEncryption"], "AES256")
    equal([o["Size"] for o in s.s3.list_objects_v2(Bucket=bucket)["Contents"]], [size])


def test_of_a_customer(s):
    bucket = s.bucket()
    body = random.Random(1).randbytes((1 << 20) + 77)
    answer = s.s3.put_object(Bucket=bucket, Key="key", Body=body, **c(1))
    assert hashlib.md5(body).hexdigest() not in answer["ETag"]
    equal(answer["SSECustomerKeyMD5"], customer(1)["SSECustomerKeyMD5"])
    got = s.s3.get_object(Bucket=bucket, Key="key", **c(1))
    assert got["Body"].read() == body
    equal((got["SSECustomerAlgorithm"], got["ETag"]), ("AES256", answer["ETag"]))
    assert s.body(bucket, "key", Range="bytes=1000-70000", **c(1)) == body[1000:70001]
    refused(400, "InvalidRequest", s.s3.get_object, Bucket=bucket, Key="key")
    refused(403, "AccessDenied", s.s3.get_object, Bucket=bucket, Key="key", **c(2))
    try:
        s.s3.head_object(Bucket=bucket, Key="key")
        raise AssertionError("not refused")
    except s.s3.exceptions.ClientError as error:
        equal(error.response["ResponseMetadata"]["HTTPStatusCode"], 400)
    s.s3.head_object(Bucket=bucket, Key="key", **c(1))
    s.put(bucket, "plain")
    refused(400, "InvalidRequest", s.s3.get_object, Bucket=bucket, Key="plain", **c(1))


def test_refusals(s):
    bucket = s.bucket()
    key = customer(1)
    prefix = "x-amz-server-side-encryption"
    name = {"a": f"{prefix}-customer-algorithm", "k": f"{prefix}-customer-key", "m": f"{prefix}-customer-key-MD5", "s": prefix,
            "i": f"{prefix}-aws-kms-key-id"}
    a, k, m = key.values()
    for headers, code in [({"a": a}, "InvalidArgument"), ({"a": a, "k": k}, "InvalidArgument"), ({"a": a, "m": m}, "InvalidArgument"),
                          ({"k": k, "m": m}, "InvalidArgument"), ({"a": "AES128", "k": k, "m": m}, "InvalidEncryptionAlgorithmError"),
                          ({"a": a, "k": k, "m": "AAAAAAAAAAAAAAAAAAAAAA=="}, "InvalidArgument"),
                          ({"a": a, "k": "c2hvcnQ=", "m": m}, "InvalidArgument"), ({"a": a, "k": k, "m": m, "s": "AES256"}, "InvalidArgument"),
                          ({"a": a, "k": k, "m": m, "s": "aws:kms"}, "InvalidArgument"), ({"s": "AES256", "i": "one"}, "InvalidArgument"),
                          ({"s": "aes:kms"}, "InvalidArgument"), ({"i": "one"}, "InvalidArgument"), ({"s": "aws:kms:dsse"}, "NotImplemented")]:
        status, _, body = s.raw("PUT", f"/{bucket}/key", b"x", None, {name[n]: v for n, v in headers.items()})
        assert f"<Code>{code}</Code>".encode() in body, (headers, status, body)
    s.s3.put_object(Bucket=bucket, Key="key", Body=b"x", ServerSideEncryption="AES256")
    equal(s.raw("GET", f"/{bucket}/key", b"", None, {prefix: "AES256"})[0], 400)


def test_default_of_a_bucket(s):
    bucket = s.bucket()

    def put(**rule):
        s.s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [{"ApplyServerSideEncryptionByDefault": rule}]})

    put(SSEAlgorithm="AES256")
    equal(s.s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"][0]["ApplyServerSideEncryptionByDefault"],
          {"SSEAlgorithm": "AES256"})
    equal(s.s3.put_object(Bucket=bucket, Key="key", Body=b"some text")["ServerSideEncryption"], "AES256")
    got = s.s3.get_object(Bucket=bucket, Key="key")
    equal((got["Body"].read(), got["ServerSideEncryption"]), (b"some text", "AES256"))
    refused(400, "InvalidArgument", put, SSEAlgorithm="AES256", KMSMasterKeyID="x")
    equal(s.s3.delete_bucket_encryption(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"], 204)
    assert "ServerSideEncryption" not in s.s3.put_object(Bucket=bucket, Key="key", Body=b"x")
    refused(404, "ServerSideEncryptionConfigurationNotFoundError", s.s3.get_bucket_encryption, Bucket=bucket)


def upload(s, bucket, create, part, bodies):
    number = s.s3.create_multipart_upload(Bucket=bucket, Key="key", **create)["UploadId"]
    parts = [{"PartNumber": n, "ETag": s.s3.upload_part(Bucket=bucket, Key="key", UploadId=number, PartNumber=n, Body=body, **part)["ETag"]}
             for n, body in enumerate(bodies, 1)]
    return number, lambda: s.s3.complete_multipart_upload(Bucket=bucket, Key="key", UploadId=number, MultipartUpload={"Parts": parts})


def test_uploads_in_parts(s):
    bucket = s.bucket()
    bodies = [random.Random(n).randbytes((5 << 20) + n) for n in (1, 2, 3)]
    whole = b"".join(bodies)
    for create, part, read in [({"ServerSideEncryption": "AES256"}, {}, {}), (c(1), c(1), c(1))]:
        number, complete = upload(s, bucket, create, part, bodies)
        if part:
            for wrong, status, code in [({}, 400, "InvalidRequest"), (c(2), 400, "InvalidRequest")]:
                refused(status, code, s.s3.upload_part, Bucket=bucket, Key="key", UploadId=number, PartNumber=9, Body=b"x", **wrong)
        complete()
        assert s.body(bucket, "key", **read) == whole
        for first in (0, (5 << 20) - 3, (5 << 20) + 1, 2 * (5 << 20)):
            assert s.body(bucket, "key", Range=f"bytes={first}-{first + 100000}", **read) == whole[first:first + 100001], first
        assert s.s3.get_object(Bucket=bucket, Key="key", PartNumber=2, **read)["Body"].read() == bodies[1]


def test_copies_under_each_kind_of_key(s):
    bucket = s.bucket()
    body = random.Random(9).randbytes((1 << 20) + 9)
    s.s3.put_object(Bucket=bucket, Key="plain", Body=body)
    s.s3.put_object(Bucket=bucket, Key="own", Body=body, **c(1))
    s.s3.put_object(Bucket=bucket, Key="server", Body=body, ServerSideEncryption="AES256")
    sources = {"plain": {}, "own": raw_key(source(1)), "server": {}}
    targets = [({}, {}), ({"ServerSideEncryption": "AES256"}, {}), (c(2), c(2))]
    for key, read in sources.items():
        for write, again in targets:
            answer = s.s3.copy_object(Bucket=bucket, Key="to", CopySource=f"{bucket}/{key}", **read, **write)
            got = s.s3.get_object(Bucket=bucket, Key="to", **again)
            assert got["Body"].read() == body, (key, write)
            kind = write.get("ServerSideEncryption") or (None if write or key == "plain" else "AES256")
            equal((got.get("ServerSideEncryption"), got["ETag"]), (kind, answer["CopyObjectResult"]["ETag"]))
    refused(400, "InvalidRequest", s.s3.copy_object, Bucket=bucket, Key="to", CopySource=f"{bucket}/own")
    refused(403, "AccessDenied", s.s3.copy_object, Bucket=bucket, Key="to", CopySource=f"{bucket}/own", **raw_key(source(2)))
    s.s3.copy_object(Bucket=bucket, Key="plain", CopySource=f"{bucket}/plain", ServerSideEncryption="AES256")
    # A copy onto itself: another key, and then none.
    own = s.body(bucket, "own", **c(1))
    s.s3.copy_object(Bucket=bucket, Key="own", CopySource=f"{bucket}/own", **raw_key(source(1)), **c(2))
    equal(s.body(bucket, "own", **c(2)), own)
    s.s3.copy_object(Bucket=bucket, Key="own", CopySource=f"{bucket}/own", **raw_key(source(2)))
    equal(s.body(bucket, "own"), own)
    refused(400, "InvalidRequest", s.s3.copy_object, Bucket=bucket, Key="own", CopySource=f"{bucket}/own")
    assert s.body(bucket, "plain") == body


def test_of_named_keys(s):
    bucket = s.bucket()

    def put(**options):
        return s.s3.put_object(Bucket=bucket, Key="key", Body=b"some text", ServerSideEncryption="aws:kms", **options)

    answer = put(SSEKMSKeyId="testkey-1", BucketKeyEnabled=True)
    equal((answer["ServerSideEncryption"], answer["SSEKMSKeyId"], answer["BucketKeyEnabled"]), ("aws:kms", "testkey-1", True))
    assert hashlib.md5(b"some text").hexdigest() not in answer["ETag"]
    got = s.s3.get_object(Bucket=bucket, Key="key")
    equal((got["Body"].read(), got["SSEKMSKeyId"]), (b"some text", "testkey-1"))
    put(SSEKMSKeyId="arn:aws:kms:us-east-1:1:key/testkey-2")
    equal((s.body(bucket, "key"), s.s3.head_object(Bucket=bucket, Key="key")["SSEKMSKeyId"]), (b"some text", "testkey-2"))
    refused(400, "InvalidArgument", put)
    refused(400, "KMS.NotFoundException", put, SSEKMSKeyId="unknown")
    s.s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [
        {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "testkey-2"}, "BucketKeyEnabled": True}]})
    s.put(bucket, "key")
    equal((s.body(bucket, "key"), s.s3.head_object(Bucket=bucket, Key="key")["SSEKMSKeyId"]), (b"x", "testkey-2"))


def test_policies_name_a_key_in_either_way(s):
    one = s.one()
    bucket = made(s, one)
    arn = "arn:aws:kms:us-east-1:111122223333:key/testkey-"
    for condition in ({"StringEquals": "testkey-1"}, {"StringEquals": arn + "1"}, {"ArnEquals": arn + "1"}, {"StringNotEquals": arn + "2"},
                      {"ArnNotLike": "arn:aws:kms:*:*:key/*2"}):
        (operator, value), = condition.items()
        one.put_bucket_policy(Bucket=bucket, Policy=policy(
            {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{bucket}/*",
             "Condition": {operator: {"s3:x-amz-server-side-encryption-aws-kms-key-id": value}}}))
        for name in "testkey-", arn, "arn:aws:kms:r:1:key/testkey-":
            put = {"Bucket": bucket, "Key": "key", "Body": b"x", "ServerSideEncryption": "aws:kms"}
            denied(one.put_object, SSEKMSKeyId=name + "1", **put)
            one.put_object(SSEKMSKeyId=name + "2", **put)


def test_copies(s):
    """By the request or the bucket's default, not by the source; but an encrypted source never becomes plain text."""
    bucket, preset = s.bucket(), s.bucket()
    s.s3.put_bucket_encryption(Bucket=preset, ServerSideEncryptionConfiguration={"Rules": [
        {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": "testkey-2"}}]})
    sources = {"plain": {}, "s3": {"ServerSideEncryption": "AES256"}, "customer": c(1),
               "kms": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "testkey-1"}}
    for name, options in sources.items():
        s.s3.put_object(Bucket=bucket, Key=name, Body=b"text", **options)
        read = raw_key(source(1)) if name == "customer" else {}
        wanted = None if name == "plain" else "AES256"
        for target, asked, told in (bucket, {}, wanted), (preset, {}, "aws:kms"), (preset, {"ServerSideEncryption": "AES256"}, "AES256"):
            done = s.s3.copy_object(Bucket=target, Key="copy", CopySource=f"{bucket}/{name}", **asked, **read)
            equal((name, done.get("ServerSideEncryption")), (name, told))
            got = s.s3.get_object(Bucket=target, Key="copy")
            equal((got["Body"].read(), got.get("ServerSideEncryption")), (b"text", told))
