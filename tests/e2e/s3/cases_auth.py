"""Signatures: accepted ones, and the errors of refused ones."""

import calendar
import email.utils
import hashlib
import hmac
import http.client
import re
import time
import urllib.parse

import boto3
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

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
    get = s.s3.generate_presigned_url("get_object", {**key, "ResponseContentType": "a/b"}, ExpiresIn=6000)
    equal(fetch(s, "PUT", put, b"body")[0], 200)
    equal(fetch(s, "GET", get), (200, b"body"))
    status, body = fetch(s, "PUT", get, b"body")
    equal((status, code_of(body)), (403, "SignatureDoesNotMatch"))
    status, body = fetch(s, "GET", get.replace("a%2Fb", "a%2Fc"))
    equal((status, code_of(body)), (403, "SignatureDoesNotMatch"))
    status, body = fetch(s, "GET", get, headers={"x-amz-meta-a": "1"})
    equal((status, code_of(body)), (403, "AccessDenied"))
    status, body = fetch(s, "GET", get.replace("X-Amz-Expires=6000", "X-Amz-Expires=604801"))
    equal((status, code_of(body)), (403, "AccessDenied"))
    status, body = fetch(s, "GET", get.replace("X-Amz-Expires=6000", "X-Amz-Expires=-1"))
    equal((status, code_of(body)), (403, "AccessDenied"))


def test_presigned_parameters_in_place_of_headers(s):
    """As in URLs of old boto and of today's JavaScript SDK; a header with the same value is accepted."""
    bucket = s.open_bucket()
    given = {"x-amz-acl": "public-read", "x-amz-meta-one": "1", "x-amz-storage-class": "STANDARD_IA"}
    old = old_client(s).generate_presigned_url("put_object", {
        "Bucket": bucket, "Key": "key", "ACL": "public-read", "Metadata": {"one": "1"}, "StorageClass": "STANDARD_IA"})
    # A checksum there is not compared with the body: the signer did not know the body.
    query = urllib.parse.urlencode({**given, "x-amz-checksum-crc32": "AAAAAA==", "x-amz-sdk-checksum-algorithm": "CRC32"})
    request = AWSRequest("PUT", f"{s.endpoint}/{bucket}/key?{query}")
    S3SigV4QueryAuth(Credentials(*s.keys), "s3", "us-east-1").add_auth(request)
    for url, headers in ((old, {}), (old, given), (request.url, {})):
        equal(fetch(s, "PUT", url, b"body", headers), (200, b""))
        head = s.s3.head_object(Bucket=bucket, Key="key")
        equal((head["Metadata"], head["StorageClass"]), ({"one": "1"}, "STANDARD_IA"))
        equal(len(s.s3.get_object_acl(Bucket=bucket, Key="key")["Grants"]), 2)
        s.s3.delete_object(Bucket=bucket, Key="key")
    for url, headers in ((old, {"x-amz-acl": "private"}), (old.replace("public-read", "private"), {}),
                         (request.url.replace("public-read", "private"), {})):
        status, body = fetch(s, "PUT", url, b"body", headers)
        equal((status, code_of(body)), (403, "SignatureDoesNotMatch"))


def presign(s, method, path, query):
    """A signed URL with any parameters."""
    request = AWSRequest(method, f"{s.endpoint}{path}?{urllib.parse.urlencode(query)}")
    S3SigV4QueryAuth(Credentials(*s.keys), "s3", "us-east-1").add_auth(request)
    return request.url


def test_presigned_copy(s):
    bucket = s.bucket()
    s.put(bucket, "from", body=b"body")
    for name in "x-amz-copy-source", "X-Amz-Copy-Source":
        url = presign(s, "PUT", f"/{bucket}/{name}", {name: f"/{bucket}/from"})
        equal(fetch(s, "PUT", url)[0], 200)
        equal(s.body(bucket, name), b"body")


def test_presigned_conditions(s):
    """A URL that may create and not overwrite: its holder cannot remove the condition."""
    bucket = s.bucket()
    for name in "If-None-Match", "if-none-match":
        url = presign(s, "PUT", f"/{bucket}/{name}", {name: "*"})
        equal(fetch(s, "PUT", url, b"first")[0], 200)
        for headers in {}, {"If-None-Match": '"other"'}:
            status, body = fetch(s, "PUT", url, b"second", headers)
            equal((status, code_of(body)), (412, "PreconditionFailed"))
        status, body = fetch(s, "PUT", url.replace(f"{name}=%2A", f"{name}=other"), b"second")
        equal((status, code_of(body)), (403, "SignatureDoesNotMatch"))
        equal(s.body(bucket, name), b"first")
    key = f"/{bucket}/If-None-Match"
    tag = s.s3.head_object(Bucket=bucket, Key="If-None-Match")["ETag"]
    equal(fetch(s, "GET", presign(s, "GET", key, {"If-None-Match": tag}))[0], 304)
    equal(fetch(s, "GET", presign(s, "GET", key, {"If-Match": "other"}))[0], 412)
    equal(fetch(s, "GET", presign(s, "GET", key, {"If-Unmodified-Since": "Thu, 01 Jan 2015 00:00:00 GMT"}))[0], 412)
    equal(fetch(s, "GET", presign(s, "GET", key, {"If-Modified-Since": "Fri, 01 Jan 2016 00:00:00 GMT"}))[0], 200)
    equal(fetch(s, "PUT", presign(s, "PUT", key, {"If-Match": "other"}), b"second")[0], 412)
    # Extra parameters of older SDKs have no effect, and unsupported ones are refused.
    equal(fetch(s, "GET", presign(s, "GET", key, {"Content-Type": "a/b", "Cache-Control": "no-cache"}))[0], 200)
    equal(fetch(s, "GET", presign(s, "GET", key, {"Range": "bytes=0-0"}))[0], 200)


def test_signed_chunks(s):
    """A body with a valid seed signature must be signed chunk by chunk."""
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
    host_id = body.split(b"<HostId>")[1].split(b"<")[0].decode()
    equal(headers.get("x-amz-id-2", host_id), host_id)
    equal(headers["content-type"], "application/xml")


def test_scope_of_any_region(s):
    """Also an empty one, as signed by clients with the region \"\"."""
    bucket = s.bucket()
    for region in ("", "mars-1"):
        client = nebula.Client(s.plain.split("//")[1], *s.keys, region=region)
        try:
            equal(client.request("PUT", f"/{bucket}/key", region.encode())[0], 200)
        finally:
            client.close()
        equal(s.body(bucket, "key"), region.encode())


def old_client(s, secret_key=None, **options):
    """By Signature Version 2, always over HTTP: a session signs nothing."""
    return boto3.client("s3", endpoint_url=s.endpoint, region_name="us-east-1", verify=s.authority,
                        aws_access_key_id=s.keys[0], aws_secret_access_key=secret_key or s.keys[1],
                        config=Config(signature_version="s3", retries={"max_attempts": 1},
                                      s3={"addressing_style": "path"}, **options))


def test_signature_version_2(s):
    bucket, old = s.open_bucket(), old_client(s)
    old.put_object(Bucket=bucket, Key="a b/ü+%", Body=b"body", ContentType="a/b", Metadata={"one": "1", "Two": "2"},
                   ACL="private")
    answer = old.get_object(Bucket=bucket, Key="a b/ü+%", ResponseContentType="c/d", Range="bytes=0-1")
    equal((answer["Body"].read(), answer["ContentType"], answer["Metadata"]), (b"bo", "c/d", {"one": "1", "two": "2"}))
    refused(403, "SignatureDoesNotMatch", old_client(s, "wrong").get_object, Bucket=bucket, Key="key")
    if tuple(int(number) for number in boto3.__version__.split(".")[:2]) < (1, 28):
        return  # some older ones sign invalid paths like "/bucket?acl?acl"
    old.get_bucket_acl(Bucket=bucket)
    equal(old.list_objects_v2(Bucket=bucket, Prefix="a b/ü")["KeyCount"], 1)
    upload = old.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]
    part = old.upload_part(Bucket=bucket, Key="parts", UploadId=upload, PartNumber=1, Body=b"part")
    old.complete_multipart_upload(Bucket=bucket, Key="parts", UploadId=upload,
                                  MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    equal(s.body(bucket, "parts"), b"part")
    equal(len(old.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "parts"}]})["Deleted"]), 1)


def with_header(client, name, value):
    client.meta.events.register("before-call.s3.*",
                                lambda params, **_: params["headers"].update({name: value}))
    return client


def test_dates_of_signature_version_2(s):
    bucket = s.bucket()
    for date, code in [("Bad Date", "AccessDenied"), ("", "AccessDenied"),
                       ("Tue, 07 Jul 1950 21:53:04 GMT", "AccessDenied"),
                       ("Tue, 07 Jul 2010 21:53:04 GMT", "RequestTimeTooSkewed"),
                       ("Tue, 07 Jul 9999 21:53:04 GMT", "RequestTimeTooSkewed")]:
        refused(403, code, with_header(old_client(s), "x-amz-date", date).put_object, Bucket=bucket, Key="key", Body=b"x")
    for value, status, code in [("AWS HAHAHA", 400, "InvalidArgument"), ("AWS nobody:c2ln", 403, "InvalidAccessKeyId")]:
        got = fetch(s, "GET", f"{s.endpoint}/{bucket}", headers={
            "Authorization": value, "Date": email.utils.formatdate(usegmt=True)})
        equal((got[0], code_of(got[1])), (status, code))


def test_presigned_by_signature_version_2(s):
    bucket, old = s.open_bucket(), old_client(s)
    key = {"Bucket": bucket, "Key": "a b/ü+%"}
    put = old.generate_presigned_url("put_object", {**key, "ContentType": "a/b"})
    get = old.generate_presigned_url("get_object", {**key, "ResponseContentType": "c/d"}, ExpiresIn=6000)
    equal(fetch(s, "PUT", put, b"body", {"Content-Type": "a/b"})[0], 200)
    equal(fetch(s, "GET", get), (200, b"body"))
    wrong = [(get.replace("Signature=", "Signature=a"), "SignatureDoesNotMatch"),
             (get.replace("c%2Fd", "c%2Fe"), "SignatureDoesNotMatch"),
             (re.sub("Expires=[0-9]+", "Expires=1000000000", get), "AccessDenied"),
             (re.sub("&Expires=[0-9]+", "", get), "AccessDenied"),
             (old.generate_presigned_url("get_object", key, ExpiresIn=-10), "AccessDenied")]
    for url, code in wrong:
        status, body = fetch(s, "GET", url)
        equal((status, code_of(body)), (403, code))


def test_dates_as_in_mail(s):
    """Signed with a Date and no x-amz-date; the zone may have the format of mail."""
    bucket = s.bucket()
    host, now = urllib.parse.urlsplit(s.plain).netloc, time.gmtime()
    day, stamp = time.strftime("%Y%m%d", now), time.strftime("%Y%m%dT%H%M%SZ", now)
    # An hour away, on the same day.
    other = "+0100" if now.tm_hour >= 12 else "-0100"
    for zone, status in ("GMT", 200), ("+0000", 200), ("-0000", 200), (other, 403):
        headers = {"date": email.utils.formatdate(calendar.timegm(now), usegmt=True)[:-3] + zone, "host": host,
                   "x-amz-content-sha256": "UNSIGNED-PAYLOAD"}
        names, scope = sorted(headers), f"{day}/us-east-1/s3/aws4_request"
        canonical = "\n".join(["GET", f"/{bucket}", "", *(f"{n}:{headers[n]}" for n in names), "", ";".join(names),
                               "UNSIGNED-PAYLOAD"])
        key = ("AWS4" + s.keys[1]).encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={s.keys[0]}/{scope}, SignedHeaders={';'.join(names)}, "
                                    f"Signature={hmac.new(key, text.encode(), hashlib.sha256).hexdigest()}")
        connection = http.client.HTTPConnection(host, timeout=180)
        connection.request("GET", f"/{bucket}", headers=headers)
        answer = connection.getresponse()
        assert answer.status == status, (zone, answer.status, answer.read())
        connection.close()
