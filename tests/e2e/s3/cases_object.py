"""Objects: bytes, headers, ranges, conditions, deletion."""

import base64
import datetime
import email.header
import hashlib
import random
import urllib.parse

from cases_auth import old_client, with_header
from suite import code_of, equal, refused


def test_sizes(s):
    bucket = s.bucket()
    for size in [0, 1, 255, 4095, 4096, 4097, 65536, 65537, 1 << 20, (1 << 20) + 1, 7654321]:
        body = random.Random(size).randbytes(size)
        answer = s.s3.put_object(Bucket=bucket, Key=f"{size}", Body=body)
        equal(answer["ETag"], f'"{hashlib.md5(body).hexdigest()}"')
        got = s.s3.get_object(Bucket=bucket, Key=f"{size}")
        equal((got["ContentLength"], got["ETag"]), (size, answer["ETag"]))
        assert got["Body"].read() == body, f"{size} bytes came back different"


def test_keys(s):
    bucket = s.bucket()
    keys = ["a", "a/b", "a//b", "/a", "a/", "../a", "./a", "a b", "a+b", "a%b", "a%2Fb", "ä", "日本", "🌈/🦄",
            "a?b", "a#b", "a&b=c", "a;b", "<a>'\"", "a\\b", "k" * 1024, "ü" * 512, "~a_b-c.d!*()"]
    for key in keys:
        s.put(bucket, key, body=key.encode())
    for key in keys:
        equal(s.body(bucket, key), key.encode())
        s.s3.head_object(Bucket=bucket, Key=key)
    listed = [o["Key"] for o in s.s3.list_objects_v2(Bucket=bucket)["Contents"]]
    equal(listed, sorted(keys, key=lambda k: k.encode()))
    refused(400, "KeyTooLongError", s.s3.put_object, Bucket=bucket, Key="k" * 1025, Body=b"")


def test_key_with_control_characters(s):
    bucket = s.bucket()
    s.put(bucket, "a\x01\x1fb\n")
    equal(s.body(bucket, "a\x01\x1fb\n"), b"x")
    listed = s.s3.list_objects_v2(Bucket=bucket, EncodingType="url")["Contents"]
    equal([o["Key"] for o in listed], ["a%01%1Fb%0A"])
    # XML 1.0 cannot contain such a key, so DeleteObjects cannot name it.
    s.s3.delete_object(Bucket=bucket, Key="a\x01\x1fb\n")


def test_overwrite_and_delete(s):
    bucket = s.bucket()
    s.put(bucket, "key", body=b"one")
    s.put(bucket, "key", body=b"second")
    equal(s.body(bucket, "key"), b"second")
    s.s3.delete_object(Bucket=bucket, Key="key")
    s.s3.delete_object(Bucket=bucket, Key="key")
    refused(404, "NoSuchKey", s.s3.get_object, Bucket=bucket, Key="key")
    refused(404, "404", s.s3.head_object, Bucket=bucket, Key="key")
    refused(404, "NoSuchBucket", s.s3.get_object, Bucket="no-such-bucket", Key="key")
    refused(404, "NoSuchBucket", s.s3.put_object, Bucket="no-such-bucket", Key="key", Body=b"x" * 100000)


def test_headers_and_metadata(s):
    bucket = s.bucket()
    kept = {"CacheControl": "no-cache", "ContentDisposition": "attachment", "ContentEncoding": "gzip",
            "ContentLanguage": "nl", "ContentType": "text/plain"}
    metadata = {"one": "1", "with-dash": "a b  c", "empty": ""}
    s.s3.put_object(Bucket=bucket, Key="key", Body=b"x", Metadata=metadata, StorageClass="STANDARD_IA",
                    Expires=datetime.datetime(2030, 1, 1), **kept)
    for got in [s.s3.get_object(Bucket=bucket, Key="key"), s.s3.head_object(Bucket=bucket, Key="key")]:
        for name, value in kept.items():
            equal(got[name], value)
        equal(got["Metadata"], metadata)
        equal(got["StorageClass"], "STANDARD_IA")
        equal(got["ResponseMetadata"]["HTTPHeaders"]["expires"], "Tue, 01 Jan 2030 00:00:00 GMT")
    s.put(bucket, "plain")
    equal(s.s3.head_object(Bucket=bucket, Key="plain")["ContentType"], "binary/octet-stream")
    equal(s.s3.list_objects_v2(Bucket=bucket)["Contents"][0]["StorageClass"], "STANDARD_IA")
    refused(400, "MetadataTooLarge", s.s3.put_object, Bucket=bucket, Key="key", Metadata={"k": "v" * 2048})
    refused(400, "InvalidStorageClass", s.s3.put_object, Bucket=bucket, Key="key", StorageClass="NONE")


def test_metadata_beyond_ascii(s):
    """UTF-8 is returned as RFC 2047; text received as RFC 2047 stays unchanged. Over a session bytes stay bytes."""
    bucket = s.bucket()
    for sent, text in [("Grüße €", "Grüße €"), ("plain", "plain"), ("=?UTF-8?B?w7w=?=", "ü")]:
        with_header(old_client(s), "x-amz-meta-text", sent).put_object(Bucket=bucket, Key="key", Body=b"x")
        got = s.raw("HEAD", f"/{bucket}/key")[1]["x-amz-meta-text"]
        equal(got.isascii(), True)
        equal(str(email.header.make_header(email.header.decode_header(got))), text)


def test_response_headers(s):
    bucket = s.bucket()
    s.put(bucket, "key")
    got = s.s3.get_object(Bucket=bucket, Key="key", ResponseContentType="a/b", ResponseCacheControl="c",
                          ResponseContentDisposition="d", ResponseContentLanguage="e", ResponseContentEncoding="f")
    equal((got["ContentType"], got["CacheControl"], got["ContentDisposition"], got["ContentLanguage"],
           got["ContentEncoding"]), ("a/b", "c", "d", "e", "f"))
    status, headers, _ = s.raw("GET", f"/{bucket}/key", query={"response-content-type": "a\r\nX-Evil: 1"})
    equal((status, "x-evil" in headers), (400, False))


def test_ranges(s):
    bucket = s.bucket()
    body = random.Random(1).randbytes(3 << 20)
    s.put(bucket, "key", body=body)
    size = len(body)
    for text, first, last in [("0-0", 0, 0), ("0-9", 0, 9), ("1048570-1048590", 1048570, 1048590),
                              (f"{size - 1}-", size - 1, size - 1), ("100-", 100, size - 1), ("-7", size - 7, size - 1),
                              (f"5-{size * 2}", 5, size - 1), (f"-{size * 2}", 0, size - 1)]:
        got = s.s3.get_object(Bucket=bucket, Key="key", Range=f"bytes={text}")
        equal(got["ResponseMetadata"]["HTTPStatusCode"], 206)
        equal(got["ContentRange"], f"bytes {first}-{last}/{size}")
        assert got["Body"].read() == body[first:last + 1], text
    for text in ["bytes=9-1", "bytes=a-b", "rows=1-2", "bytes=0-1,4-5"]:
        equal(s.s3.get_object(Bucket=bucket, Key="key", Range=text)["ContentLength"], size)
    answer = refused(416, "InvalidRange", s.s3.get_object, Bucket=bucket, Key="key", Range=f"bytes={size}-")
    equal(answer["ResponseMetadata"]["HTTPHeaders"]["content-range"], f"bytes */{size}")
    equal(s.s3.head_object(Bucket=bucket, Key="key", Range="bytes=1-2")["ContentLength"], 2)
    got = s.s3.get_object(Bucket=bucket, Key="key", PartNumber=1)
    equal(got["ContentLength"], size)


def test_conditions_of_reading(s):
    bucket = s.bucket()
    s.put(bucket, "key")
    got = s.s3.head_object(Bucket=bucket, Key="key")
    etag, date, second = got["ETag"], got["LastModified"], datetime.timedelta(seconds=1)
    read = {"Bucket": bucket, "Key": "key"}
    s.s3.get_object(**read, IfMatch=etag)
    refused(412, "PreconditionFailed", s.s3.get_object, **read, IfMatch='"x"')
    refused(304, "304", s.s3.get_object, **read, IfNoneMatch=etag)
    s.s3.get_object(**read, IfNoneMatch='"x"')
    for key, condition, refusal in [("key", {"if-none-match": etag}, (412, "PreconditionFailed")),
                                    ("absent", {"if-match": "*"}, (404, "NoSuchKey"))]:
        status, _, body = s.raw("PUT", f"/{bucket}/{key}", b"new", headers=condition)
        equal((status, code_of(body)), refusal)
    refused(304, "304", s.s3.get_object, **read, IfModifiedSince=date)
    s.s3.get_object(**read, IfModifiedSince=date - second)
    s.s3.get_object(**read, IfUnmodifiedSince=date)
    refused(412, "PreconditionFailed", s.s3.get_object, **read, IfUnmodifiedSince=date - second)
    s.s3.get_object(**read, IfMatch=etag, IfUnmodifiedSince=date - second)
    refused(304, "304", s.s3.head_object, **read, IfNoneMatch=etag, IfModifiedSince=date - second)


def test_conditions_of_writing(s):
    bucket = s.bucket()
    path = f"/{bucket}/key"
    equal(s.raw("PUT", path, b"1", headers={"If-None-Match": "*"})[0], 200)
    status, _, body = s.raw("PUT", path, b"2", headers={"If-None-Match": "*"})
    equal((status, code_of(body)), (412, "PreconditionFailed"))
    etag = s.s3.head_object(Bucket=bucket, Key="key")["ETag"]
    equal(s.raw("PUT", path, b"3", headers={"If-Match": etag})[0], 200)
    equal(s.raw("PUT", path, b"4", headers={"If-Match": etag})[0], 412)
    equal(s.raw("PUT", f"/{bucket}/none", b"5", headers={"If-Match": etag})[0], 404)
    equal(s.body(bucket, "key"), b"3")
    equal(s.raw("DELETE", path, headers={"If-Match": etag})[0], 412)
    equal(s.raw("DELETE", path, headers={"If-Match": s.s3.head_object(Bucket=bucket, Key="key")["ETag"]})[0], 204)


def test_only_one_of_many_creates_wins(s):
    import concurrent.futures
    bucket = s.bucket()

    def create(number):
        return s.raw("PUT", f"/{bucket}/key", str(number).encode(), headers={"If-None-Match": "*"})[0]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(create, range(16)))
    equal(sorted(answers), [200] + [412] * 15)


def test_content_md5(s):
    bucket = s.bucket()
    good = base64.b64encode(hashlib.md5(b"body").digest()).decode()
    bad = base64.b64encode(hashlib.md5(b"other").digest()).decode()
    s.s3.put_object(Bucket=bucket, Key="key", Body=b"body", ContentMD5=good)
    refused(400, "BadDigest", s.s3.put_object, Bucket=bucket, Key="key", Body=b"BODY", ContentMD5=bad)
    refused(400, "InvalidDigest", s.s3.put_object, Bucket=bucket, Key="key", Body=b"BODY", ContentMD5="bad")
    equal(s.body(bucket, "key"), b"body")


def test_delete_many(s):
    bucket = s.bucket()
    keys = [f"k{i}&<é" for i in range(50)]
    s.put(bucket, *keys)
    answer = s.s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": k} for k in keys + ["none"]]})
    equal(sorted(d["Key"] for d in answer["Deleted"]), sorted(keys + ["none"]))
    equal(s.s3.list_objects_v2(Bucket=bucket)["KeyCount"], 0)
    answer = s.s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "none"}], "Quiet": True})
    equal(answer.get("Deleted"), None)
    refused(400, "MalformedXML", s.s3.delete_objects, Bucket=bucket,
            Delete={"Objects": [{"Key": str(i)} for i in range(1001)]})
    status, _, body = s.raw("POST", f"/{bucket}", b"<Delete/>", query={"delete": ""})
    equal((status, code_of(body)), (400, "InvalidRequest"))


def test_versions_of_a_bucket_without_versioning(s):
    bucket = s.bucket()
    s.put(bucket, "a", "b")
    versions = s.s3.list_object_versions(Bucket=bucket)["Versions"]
    equal([(v["Key"], v["VersionId"], v["IsLatest"]) for v in versions], [("a", "null", True), ("b", "null", True)])
    equal(s.body(bucket, "a", VersionId="null"), b"x")
    refused(404, "NoSuchVersion", s.s3.get_object, Bucket=bucket, Key="a", VersionId="0123456789abcdef")
    refused(400, "InvalidArgument", s.s3.get_object, Bucket=bucket, Key="a", VersionId="abc")


def test_attributes(s):
    bucket = s.bucket()
    s.put(bucket, "key", body=b"123456789")
    got = s.s3.get_object_attributes(Bucket=bucket, Key="key", ObjectAttributes=["ETag", "ObjectSize", "StorageClass"])
    equal((got["ETag"], got["ObjectSize"], got["StorageClass"]), (hashlib.md5(b"123456789").hexdigest(), 9, "STANDARD"))


def test_nothing_is_archived(s):
    bucket = s.bucket()
    s.put(bucket, "key")
    refused(403, "InvalidObjectState", s.s3.restore_object, Bucket=bucket, Key="key", RestoreRequest={"Days": 1})
    refused(404, "NoSuchKey", s.s3.restore_object, Bucket=bucket, Key="none", RestoreRequest={"Days": 1})
    refused(404, "NoSuchKey", s.s3.get_object_torrent, Bucket=bucket, Key="key")


def test_chunks_of_http(s):
    """A body of unknown length, with an end mark."""
    bucket = s.bucket()
    url = urllib.parse.urlsplit(s.client().generate_presigned_url("put_object", {"Bucket": bucket, "Key": "key"}))
    connection = s.connection(s.endpoint)
    connection.request("PUT", f"{url.path}?{url.query}", iter([b"one", b"two" * 100000]), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})
    equal(connection.getresponse().status, 200)
    connection.close()
    equal(s.body(bucket, "key"), b"one" + b"two" * 100000)


def test_a_range_with_blanks_is_none(s):
    bucket = s.bucket()
    s.put(bucket, "key", body=b"0123456789")
    for text in "bytes= -1", "bytes=0 -1", "bytes=0- 1":
        equal(s.ask("GET", f"/{bucket}/key", b"", None, {"Range": text})[::2], (200, b"0123456789"))
    equal(s.ask("GET", f"/{bucket}/key", b"", None, {"Range": "bytes=-1"})[::2], (206, b"9"))


def test_names_of_headers_as_aws_writes_them(s):
    """HTTP ignores the case, but clients that were only tested with AWS may not."""
    bucket = s.bucket()
    s.s3.put_object(Bucket=bucket, Key="key", Body=b"x", ContentType="a/b", CacheControl="no-cache", ContentEncoding="x",
                    ContentLanguage="de", ContentDisposition="inline", Expires=datetime.datetime(2030, 1, 1), Metadata={"One": "1"})
    for options in {}, {"ResponseContentType": "c/d", "ResponseExpires": datetime.datetime(2031, 1, 1)}:
        url = s.s3.generate_presigned_url("get_object", {"Bucket": bucket, "Key": "key", **options})
        parts = urllib.parse.urlsplit(url)
        connection = s.connection(url)
        connection.request("GET", f"{parts.path}?{parts.query}")
        names = [name for name, _ in connection.getresponse().getheaders()]
        connection.close()
        for wanted in ("Content-Type", "Cache-Control", "Content-Encoding", "Content-Language", "Content-Disposition", "Expires",
                       "ETag", "Last-Modified", "Content-Length", "Date", "Server", "x-amz-meta-one", "x-amz-request-id", "x-amz-id-2"):
            assert names.count(wanted) == 1, (wanted, names)


def test_details_of_errors(s):
    """The given value and the limit, in S3's elements for them."""
    bucket = s.bucket()
    s.put(bucket, "key")

    def told(status, code, *elements, method="PUT", path="key", **more):
        got, _, body = s.raw(method, f"/{bucket}/{path}" if path is not None else "/", b"x", **more)
        assert (got, code_of(body)) == (status, code), (got, body)
        for element in elements:
            assert element.encode() in body, (element, body)

    told(400, "InvalidArgument", "<ArgumentName>x-amz-acl</ArgumentName><ArgumentValue>none</ArgumentValue>", headers={"x-amz-acl": "none"})
    told(400, "InvalidArgument", "<ArgumentName>x-amz-copy-source</ArgumentName><ArgumentValue>x-amz-copy-source</ArgumentValue>",
         headers={"x-amz-copy-source": "x"})
    told(400, "InvalidArgument", "<ArgumentName>x-amz-metadata-directive</ArgumentName>",
         headers={"x-amz-copy-source": f"{bucket}/key", "x-amz-metadata-directive": "x"})
    told(400, "InvalidArgument", "<ArgumentName>x-amz-server-side-encryption</ArgumentName><ArgumentValue>x</ArgumentValue>",
         headers={"x-amz-server-side-encryption": "x"})
    told(400, "InvalidArgument", "<ArgumentName>partNumber</ArgumentName><ArgumentValue>x</ArgumentValue>",
         query={"uploadId": "x", "partNumber": "x"})
    told(400, "InvalidArgument", "<ArgumentName>max-parts</ArgumentName>", method="GET", query={"uploadId": "x", "max-parts": "x"})
    told(400, "InvalidDigest", "<Content-MD5>x</Content-MD5>", headers={"content-md5": "x"})
    told(400, "BadDigest", "<ExpectedDigest>00000000000000000000000000000000</ExpectedDigest>",
         "<CalculatedDigest>ndTkYSaMgDT1yFZOFVxnpg==</CalculatedDigest>", headers={"content-md5": "AAAAAAAAAAAAAAAAAAAAAA=="})
    told(400, "InvalidStorageClass", "<StorageClassRequested>x</StorageClassRequested>", headers={"x-amz-storage-class": "x"})
    told(400, "MetadataTooLarge", "<Size>2049</Size>", "<MaxSizeAllowed>2048</MaxSizeAllowed>", headers={"x-amz-meta-a": "x" * 2048})
    told(400, "KeyTooLongError", "<Size>1025</Size>", "<MaxSizeAllowed>1024</MaxSizeAllowed>", path="k" * 1025)
    told(501, "NotImplemented", "<Header>x-amz-mfa</Header>", headers={"x-amz-mfa": "x"})
    told(405, "MethodNotAllowed", "<Method>POST</Method><ResourceType>OBJECT</ResourceType>", method="POST")
    told(405, "MethodNotAllowed", "<Method>PUT</Method><ResourceType>SERVICE</ResourceType>", path=None)
