"""Signatures: who is let in, and how who is not is told."""

import urllib.parse

import nebula
from suite import code_of, equal, refused


def test_wrong_keys(s):
    refused(403, "SignatureDoesNotMatch", s.client(secret_key="wrong").list_buckets)
    refused(403, "InvalidAccessKeyId", s.client(access_key="nobody").list_buckets)
    equal(s.client(unsigned=True).list_buckets()["Buckets"], [])
    refused(403, "403", s.client(secret_key="wrong").head_bucket, Bucket="any")


def test_nothing_is_stored_without_a_good_signature(s):
    bucket = s.bucket()
    refused(403, "SignatureDoesNotMatch", s.client(secret_key="wrong").put_object, Bucket=bucket, Key="key",
            Body=b"x" * 100000)
    refused(403, "AccessDenied", s.client(unsigned=True).put_object, Bucket=bucket, Key="key", Body=b"x")
    equal(s.s3.list_objects_v2(Bucket=bucket)["KeyCount"], 0)


def fetch(s, method, url, body=None, headers=None):
    parts = urllib.parse.urlsplit(url)
    connection = s.connection(url)
    try:
        connection.request(method, f"{parts.path}?{parts.query}", body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_presigned(s):
    bucket = s.bucket()
    key = {"Bucket": bucket, "Key": "a b/ü+%"}
    put = s.s3.generate_presigned_url("put_object", key)
    get = s.s3.generate_presigned_url("get_object", {**key, "ResponseContentType": "a/b"}, ExpiresIn=60)
    equal(fetch(s, "PUT", put, b"body")[0], 200)
    equal(fetch(s, "GET", get), (200, b"body"))
    status, body = fetch(s, "PUT", get, b"body")
    equal((status, code_of(body)), (403, "SignatureDoesNotMatch"))
    status, body = fetch(s, "GET", get.replace("a%2Fb", "a%2Fc"))
    equal((status, code_of(body)), (403, "SignatureDoesNotMatch"))
    status, body = fetch(s, "GET", get, headers={"x-amz-meta-a": "1"})
    equal((status, code_of(body)), (403, "AccessDenied"))
    status, body = fetch(s, "GET", get.replace("X-Amz-Expires=60", "X-Amz-Expires=604801"))
    equal((status, code_of(body)), (403, "AccessDenied"))
    status, body = fetch(s, "GET", get.replace("X-Amz-Expires=60", "X-Amz-Expires=-1"))
    equal((status, code_of(body)), (403, "AccessDenied"))


def test_signed_chunks(s):
    """The body that a good seed signature came with must be signed chunk by chunk."""
    bucket = s.bucket()
    forged = b"5;chunk-signature=" + b"0" * 64 + b"\r\nhello\r\n0;chunk-signature=" + b"0" * 64 + b"\r\n\r\n"
    status, _, body = s.raw("PUT", f"/{bucket}/key", forged, headers={
        "x-amz-content-sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "content-encoding": "aws-chunked",
        "x-amz-decoded-content-length": "5"})
    equal((status, code_of(body)), (403, "SignatureDoesNotMatch"))
    equal(s.raw("GET", f"/{bucket}/key")[0], 404)


def test_payload_hash(s):
    bucket = s.bucket()
    status, _, body = s.raw("PUT", f"/{bucket}/key", b"body", headers={"x-amz-content-sha256": "0" * 64})
    equal((status, code_of(body)), (400, "XAmzContentSHA256Mismatch"))
    status, _, body = s.raw("PUT", f"/{bucket}/key", b"body", headers={"x-amz-content-sha256": "none"})
    equal((status, code_of(body)), (400, "InvalidArgument"))
    equal(s.raw("GET", f"/{bucket}/key")[0], 404)


def test_errors_tell_what_they_are_about(s):
    bucket = s.bucket()
    status, headers, body = s.raw("GET", f"/{bucket}/missing")
    equal(status, 404)
    for text in ["<Code>NoSuchKey</Code>", "<Key>missing</Key>", f"<BucketName>{bucket}</BucketName>",
                 f"<Resource>/{bucket}/missing</Resource>", "<RequestId>", "<HostId>"]:
        assert text.encode() in body, text
    request_id = body.split(b"<RequestId>")[1].split(b"<")[0].decode()
    equal(headers["x-amz-request-id"], request_id)
    equal(headers["content-type"], "application/xml")


def test_scope_of_any_region(s):
    """Also of none, as clients sign that were given the region \"\"."""
    bucket = s.bucket()
    for region in ("", "mars-1"):
        client = nebula.Client(s.plain.split("//")[1], *s.keys, region=region)
        try:
            equal(client.request("PUT", f"/{bucket}/key", region.encode())[0], 200)
        finally:
            client.close()
        equal(s.body(bucket, "key"), region.encode())
