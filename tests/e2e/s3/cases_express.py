"""Directory buckets (S3 Express One Zone): names, sessions, listings, appends. This file signs the requests of
sessions: an older boto3 does not support them."""

import base64
import hashlib
import re
import threading
import urllib.parse
import zlib

import boto3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

import nebula
from suite import code_of, equal, refused

ZONE = "test-az1"
MAKE = ("<CreateBucketConfiguration><Location><Type>{type}</Type><Name>{zone}</Name></Location><Bucket><Type>Directory</Type>"
        "<DataRedundancy>SingleAvailabilityZone</DataRedundancy></Bucket></CreateBucketConfiguration>")


def send(s, method, target, body=b"", headers=None):
    """As root, over the suite's transport: (status, headers, body)."""
    headers = headers or {}
    if s.by_rdma:
        return s.sessions[s.keys].perform(method, target, {k.lower(): v for k, v in headers.items()}, body)
    path, _, query = target.partition("?")
    pairs = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
    return s.raw(method, path, body, pairs, headers)


def make(s, name, type="AvailabilityZone", zone=ZONE, body=None):
    body = MAKE.format(type=type, zone=zone) if body is None else body
    return send(s, "PUT", f"/{name}", body.encode())


def directory(s):
    name = f"{s.prefix}{next(s.numbers)}--{ZONE}--x-s3"
    status, _, body = make(s, name)
    equal((status, code_of(body)), (200, None))
    return name


def element(body, name):
    return re.search(f"<{name}>(.*?)</{name}>".encode(), body).group(1).decode()


class Key:
    """The result of CreateSession, or the caller's own key."""

    def __init__(self, s, bucket, mode=None, key=None):
        self.s, self.token = s, None
        self.key, self.secret = key or s.keys
        headers = {"x-amz-create-session-mode": mode} if mode else {}
        status, _, body = self.send("GET", f"/{bucket}?session", headers=headers)
        equal((status, code_of(body)), (200, None))
        self.key, self.secret, self.token = (element(body, name) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken"))

    def send(self, method, target, body=b"", headers=None, header="x-amz-s3session-token", service="s3express"):
        """A request signed with this key, over HTTP or HTTPS: (status, headers, body)."""
        headers = dict(headers or {})
        if self.token:
            headers[header] = self.token
        url = (self.s.plain if self.s.by_rdma else self.s.endpoint) + target
        request = AWSRequest(method=method, url=url, data=body, headers=headers)
        S3SigV4Auth(Credentials(self.key, self.secret), service, "us-east-1").add_auth(request)
        connection = self.s.connection(url)
        try:
            connection.request(method, target, body, dict(request.headers))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()


def listed(s, query="x-id=ListDirectoryBuckets"):
    return re.findall(rb"<Name>(.*?)</Name>", send(s, "GET", f"/?{query}")[2])


def test_life(s):
    bucket = directory(s)
    head = s.s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
    equal((head["x-amz-bucket-location-type"], head["x-amz-bucket-location-name"]), ("AvailabilityZone", ZONE))
    assert bucket not in [b["Name"] for b in s.s3.list_buckets()["Buckets"]]
    equal(listed(s), [bucket.encode()])
    equal(code_of(make(s, bucket)[2]), "BucketAlreadyOwnedByYou")
    s.put(bucket, "folder/key", body=b"abc")
    got = s.s3.get_object(Bucket=bucket, Key="folder/key")
    equal((got["Body"].read(), got["StorageClass"]), (b"abc", "EXPRESS_ONEZONE"))
    assert not re.fullmatch('"[0-9a-f]{32}"', got["ETag"]), "the ETag is an MD5"
    refused(409, "BucketNotEmpty", s.s3.delete_bucket, Bucket=bucket)
    s.s3.delete_object(Bucket=bucket, Key="folder/key")
    s.s3.delete_bucket(Bucket=bucket)
    equal(listed(s), [])
    refused(404, "NoSuchBucket", s.s3.list_objects_v2, Bucket=bucket)


def test_names(s):
    for name, code in [("base--x-s3", "InvalidBucketName"), ("--az--x-s3", "InvalidBucketName"), ("b.c--az--x-s3", "InvalidBucketName"),
                       ("b---x-s3", "InvalidBucketName"), ("base--other--x-s3", "InvalidLocationConstraint")]:
        equal((name, code_of(make(s, name)[2])), (name, code))
    name = f"base--{ZONE}--x-s3"
    equal(code_of(make(s, name, type="LocalZone")[2]), "InvalidLocationConstraint")
    for body in ("", "<CreateBucketConfiguration/>", MAKE.format(type="AvailabilityZone", zone=ZONE).replace("Directory", "General")):
        equal(code_of(make(s, name, body=body)[2]), "InvalidRequest")
    equal(code_of(make(s, "plain-name")[2]), "InvalidBucketName")
    equal(listed(s), [])


def test_lists_of_buckets(s):
    names = sorted(directory(s).encode() for _ in range(3))
    equal(listed(s, "max-directory-buckets=2"), names[:2])
    status, _, body = send(s, "GET", "/?max-directory-buckets=2")
    token = element(body, "ContinuationToken").replace("=", "%3D")
    equal(listed(s, f"max-directory-buckets=2&continuation-token={token}"), names[2:])
    equal(listed(s, "max-directory-buckets=0"), [])
    for bad in ("1001", "-1", "x"):
        equal(code_of(send(s, "GET", f"/?max-directory-buckets={bad}")[2]), "InvalidArgument")


def test_session(s):
    bucket, other = directory(s), directory(s)
    plain = s.bucket()
    writer, reader = Key(s, bucket), Key(s, bucket, "ReadOnly")
    equal(writer.send("PUT", f"/{bucket}/key", b"body")[0], 200)
    for key in (writer, reader):
        equal(key.send("GET", f"/{bucket}/key")[2], b"body")
        equal(key.send("HEAD", f"/{bucket}")[0], 200)
        equal(re.findall(rb"<Key>(.*?)</Key>", key.send("GET", f"/{bucket}?list-type=2")[2]), [b"key"])
        for target in (f"/{other}?list-type=2", f"/{bucket}?session", f"/{bucket}?policy"):
            status, _, body = key.send("GET", target)
            equal((target, status, code_of(body)), (target, 403, "AccessDenied"))
        equal(code_of(key.send("GET", "/")[2]), "AccessDenied")
        equal(code_of(key.send("GET", f"/{plain}?list-type=2")[2]), "AuthorizationHeaderMalformed")
        # A token of one kind is not valid as the other.
        equal(code_of(key.send("GET", f"/{bucket}/key", header="x-amz-security-token")[2]), "InvalidToken")
        equal(code_of(key.send("GET", f"/{bucket}/key", header="x-amz-security-token", service="s3")[2]), "InvalidToken")
    # Nor is another bucket the source of a copy.
    s.put(other, "there"), s.put(plain, "there")
    upload = element(writer.send("POST", f"/{bucket}/parts?uploads")[2], "UploadId")
    for target in ("/copy", f"/parts?partNumber=1&uploadId={upload}"):
        for source, wanted in ((f"{bucket}/key", 200), (f"{other}/there", 403), (f"{plain}/there", 403)):
            equal((source, writer.send("PUT", f"/{bucket}{target}", headers={"x-amz-copy-source": source})[0]), (source, wanted))
    for method, target in (("PUT", "/other"), ("DELETE", "/key"), ("POST", "/up?uploads")):
        status, _, body = reader.send(method, f"/{bucket}{target}")
        equal((target, status, code_of(body)), (target, 403, "AccessDenied"))
    equal(writer.send("DELETE", f"/{bucket}/key")[0], 204)
    # Nor is the next bucket of the name the session's.
    equal(writer.send("DELETE", f"/{bucket}/parts?uploadId={upload}")[0], 204)
    s.s3.delete_object(Bucket=bucket, Key="copy"), s.s3.delete_bucket(Bucket=bucket)
    equal(writer.send("PUT", f"/{bucket}/key", b"body")[0], 404)
    equal(code_of(make(s, bucket)[2]), None)
    equal(writer.send("PUT", f"/{bucket}/key", b"body")[0], 403)
    writer, reader = Key(s, bucket), Key(s, bucket, "ReadOnly")
    equal(writer.send("PUT", f"/{bucket}/key", b"body")[0], 200)
    equal(code_of(send(s, "GET", f"/{bucket}?session", headers={"x-amz-create-session-mode": "WriteOnly"})[2]), "InvalidArgument")
    equal(send(s, "GET", f"/{plain}?session")[0], 405)
    writer.token = writer.token[:-8] + "AAAAAAA="
    equal(code_of(writer.send("GET", f"/{bucket}/key")[2]), "InvalidToken")
    reader.secret += "x"
    equal(code_of(reader.send("GET", f"/{bucket}/key")[2]), "SignatureDoesNotMatch")


def test_session_of_others(s):
    """Another owner gets no session; with a policy it gets one, with the rights of that policy."""
    bucket = directory(s)
    two = nebula.Client(s.plain.split("//")[1], "TWOACCESSKEY", "two-secret-key-0123456789")
    equal(two.request("GET", f"/{bucket}", query={"session": ""})[0], 403)
    s.s3.put_bucket_policy(Bucket=bucket, Policy=(
        '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"222222222222"},'
        f'"Action":"s3express:CreateSession","Resource":"arn:aws:s3:::{bucket}"}}]}}'))
    key = Key(s, bucket, key=("TWOACCESSKEY", "two-secret-key-0123456789"))
    equal(key.send("PUT", f"/{bucket}/key", b"two")[0], 200)
    equal(key.send("GET", f"/{bucket}/key")[2], b"two")
    equal(two.request("GET", f"/{bucket}/key")[0], 403)
    # Those are rights to sources in the bucket, too, and to none elsewhere.
    plain = s.bucket()
    s.put(plain, "key")
    source = {"x-amz-copy-source": f"/{bucket}/key"}
    status, _, body = key.send("POST", f"/{bucket}/parts?uploads")
    equal((status, code_of(body)), (200, None))
    for target, headers, want in [
            (f"{bucket}/copy", source, 200),
            (f"{bucket}/parts?partNumber=1&uploadId={element(body, 'UploadId')}", source, 200),
            (f"{bucket}/copy", {**source, "x-amz-source-expected-bucket-owner": "222222222222"}, 403),
            (f"{bucket}/copy", {"x-amz-copy-source": f"/{plain}/key"}, 403),
            (f"{bucket}/copy", {"x-amz-copy-source": f"/{bucket}/none"}, 404),
            (f"{bucket}/renamed?renameObject", {"x-amz-rename-source": "copy"}, 200)]:
        equal((target, key.send("PUT", f"/{target}", headers=headers)[0]), (target, want))
    equal(key.send("GET", f"/{bucket}/renamed")[2], b"two")
    s.s3.put_bucket_policy(Bucket=bucket, Policy=(
        '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"222222222222"},'
        f'"Action":"s3express:CreateSession","Resource":"arn:aws:s3:::{bucket}",'
        '"Condition":{"StringEquals":{"s3express:SessionMode":"ReadOnly"}}}]}'))
    for mode, status in (({}, 403), ({"x-amz-create-session-mode": "ReadWrite"}, 403),
                         ({"x-amz-create-session-mode": "ReadOnly"}, 200)):
        equal(two.request("GET", f"/{bucket}", query={"session": ""}, headers=mode)[0], status)
    reader = Key(s, bucket, "ReadOnly", key=("TWOACCESSKEY", "two-secret-key-0123456789"))
    equal(reader.send("PUT", f"/{bucket}/copy", headers=source)[0], 403)
    equal(reader.send("PUT", f"/{bucket}/more?renameObject", headers={"x-amz-rename-source": "renamed"})[0], 403)
    two.close()


def test_token_beside_a_native_session(s):
    """Over RDMA the native session identifies the caller: a token can only restrict it."""
    if not s.by_rdma:
        return
    bucket, other = directory(s), directory(s)
    reader = {"x-amz-s3session-token": Key(s, bucket, "ReadOnly").token}
    equal(send(s, "PUT", f"/{bucket}/key", b"x")[0], 200)
    equal(send(s, "GET", f"/{bucket}/key", headers=reader)[0], 200)
    equal(send(s, "DELETE", f"/{bucket}/key", headers=reader)[0], 403)
    equal(send(s, "GET", f"/{other}?list-type=2", headers=reader)[0], 403)
    s.two()  # with a session of its own, and without rights here
    keys = ("TWOACCESSKEY", "two-secret-key-0123456789")
    equal(s.sessions[keys].perform("GET", f"/{bucket}/key", reader, b"")[0], 403)
    equal(code_of(send(s, "GET", f"/{bucket}/key", headers={"x-amz-s3session-token": "bad"})[2]), "InvalidToken")


def test_boto3_makes_sessions_itself(s):
    bucket = directory(s)
    if not hasattr(s.s3, "create_session") or s.by_rdma:
        return
    client = boto3.client("s3", endpoint_url=s.endpoint, region_name="us-east-1", verify=s.authority,
                          aws_access_key_id=s.keys[0], aws_secret_access_key=s.keys[1],
                          config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}))
    seen = []
    client.meta.events.register("before-send.s3", lambda request, **_: seen.append(
        (request.method, "x-amz-s3session-token" in {k.lower() for k in request.headers})))
    client.put_object(Bucket=bucket, Key="key", Body=b"x" * 100_000)
    equal(client.get_object(Bucket=bucket, Key="key")["Body"].read(), b"x" * 100_000)
    client.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "key"})
    equal([k["Key"] for k in client.list_objects_v2(Bucket=bucket)["Contents"]], ["copy", "key"])
    client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "key"}, {"Key": "copy"}]})
    equal([b["Name"] for b in client.list_directory_buckets()["Buckets"]], [bucket])
    equal(seen[:3], [("GET", False), ("PUT", True), ("GET", True)])
    client.close()


def test_listing(s):
    bucket = directory(s)
    s.put(bucket, "a/1", "a/2", "a/b/3", "top")
    got = s.s3.list_objects_v2(Bucket=bucket, Delimiter="/", Prefix="a/")
    equal(([k["Key"] for k in got["Contents"]], [p["Prefix"] for p in got["CommonPrefixes"]]), (["a/1", "a/2"], ["a/b/"]))
    first = s.s3.list_objects_v2(Bucket=bucket, MaxKeys=3, FetchOwner=True)
    assert all("Owner" not in k for k in first["Contents"])
    equal(first["Contents"][0]["StorageClass"], "EXPRESS_ONEZONE")
    rest = s.s3.list_objects_v2(Bucket=bucket, ContinuationToken=first["NextContinuationToken"])
    equal([k["Key"] for k in first["Contents"] + rest["Contents"]], ["a/1", "a/2", "a/b/3", "top"])
    for bad in ({"Prefix": "a"}, {"Delimiter": "b"}, {"Delimiter": "//"}, {"StartAfter": "a/1"}):
        refused(400, "InvalidArgument", s.s3.list_objects_v2, Bucket=bucket, **bad)


def test_declined_features(s):
    bucket = directory(s)
    s.put(bucket, "key")
    one = {"Bucket": bucket, "Key": "key"}
    for call, options in [
            (s.s3.list_objects, {"Bucket": bucket}), (s.s3.list_object_versions, {"Bucket": bucket}),
            (s.s3.get_bucket_versioning, {"Bucket": bucket}), (s.s3.get_bucket_acl, {"Bucket": bucket}),
            (s.s3.get_bucket_website, {"Bucket": bucket}), (s.s3.get_bucket_cors, {"Bucket": bucket}),
            (s.s3.get_object_acl, one), (s.s3.get_object_tagging, one), (s.s3.get_bucket_location, {"Bucket": bucket}),
            (s.s3.put_object, {**one, "Tagging": "a=b"})]:
        refused(501, "NotImplemented", call, **options)
    refused(400, "InvalidStorageClass", s.s3.put_object, **one, StorageClass="STANDARD")
    refused(400, "InvalidStorageClass", s.s3.put_object, Bucket=s.bucket(), Key="key", StorageClass="EXPRESS_ONEZONE")
    refused(400, "AccessControlListNotSupported", s.s3.put_object, **one, ACL="public-read")
    refused(400, "InvalidArgument", s.s3.get_object, **one, VersionId="00000000000000000000000000000001")
    refused(404, "NoSuchBucketPolicy", s.s3.get_bucket_policy, Bucket=bucket)


def test_parts_and_copies(s):
    bucket, plain = directory(s), s.bucket()
    upload = s.s3.create_multipart_upload(Bucket=bucket, Key="key")["UploadId"]
    parts = [b"x" * (5 << 20), b"y" * 1000]
    etags = [s.s3.upload_part(Bucket=bucket, Key="key", UploadId=upload, PartNumber=n, Body=body)["ETag"]
             for n, body in enumerate(parts, 1)]
    s.s3.complete_multipart_upload(Bucket=bucket, Key="key", UploadId=upload, MultipartUpload={
        "Parts": [{"PartNumber": n, "ETag": etag} for n, etag in enumerate(etags, 1)]})
    equal(s.body(bucket, "key"), b"".join(parts))
    s.s3.copy_object(Bucket=plain, Key="copy", CopySource={"Bucket": bucket, "Key": "key"})
    s.s3.copy_object(Bucket=bucket, Key="back", CopySource={"Bucket": plain, "Key": "copy"})
    equal(s.body(bucket, "back"), b"".join(parts))
    equal(s.s3.head_object(Bucket=bucket, Key="back")["StorageClass"], "EXPRESS_ONEZONE")
    assert "StorageClass" not in s.s3.head_object(Bucket=plain, Key="copy")


def append(s, bucket, key, offset, body, **headers):
    """(status, code or the object's size)"""
    status, answer, text = send(s, "PUT", f"/{bucket}/{key}", body,
                                {"x-amz-write-offset-bytes": str(offset), **{k.replace("_", "-"): v for k, v in headers.items()}})
    size = {k.lower(): v for k, v in answer.items()}.get("x-amz-object-size")
    return status, code_of(text) or (size and int(size))


def test_append(s):
    bucket = directory(s)
    equal(append(s, bucket, "log", 1, b"x"), (404, "NoSuchKey"))
    equal(append(s, bucket, "log", 0, b"first "), (200, None))
    whole = b"first "
    for piece in (b"second ", b"y" * 100_000, b"z", b"w" * 5_000_000, b"last"):
        equal(append(s, bucket, "log", len(whole) - 1, piece), (400, "InvalidWriteOffset"))
        equal(append(s, bucket, "log", 0, piece), (400, "InvalidWriteOffset"))
        equal(append(s, bucket, "log", len(whole), piece), (200, len(whole) + len(piece)))
        whole += piece
    equal(s.body(bucket, "log"), whole)
    for first, last in ((0, 5), (3, 20), (100_000, 100_020), (len(whole) - 6, len(whole) - 1)):
        equal(s.body(bucket, "log", Range=f"bytes={first}-{last}"), whole[first:last + 1])
    equal(s.s3.head_object(Bucket=bucket, Key="log")["ContentLength"], len(whole))
    s.s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "log"})
    equal(s.body(bucket, "copy"), whole)
    # To an object that is small (its body is in the index), large, empty, or was uploaded in parts.
    for body in (b"", b"s" * 10, b"m" * 50_000, b"l" * 3_000_000):
        s.put(bucket, "put", body=body)
        equal(append(s, bucket, "put", len(body), b"tail"), (200, len(body) + 4))
        equal(s.body(bucket, "put"), body + b"tail")
    equal(append(s, bucket, "put", len(body) + 4, b""), (400, "InvalidRequest"))
    equal(append(s, bucket, "put", len(body) + 4, b"x", **{"x-amz-meta-a": "b"}), (400, "InvalidRequest"))
    equal(append(s, bucket, "put", "x", b"x"), (400, "InvalidArgument"))
    equal(append(s, s.bucket(), "put", 0, b"x"), (501, "NotImplemented"))


def test_append_keeps_what_the_object_is(s):
    bucket = directory(s)
    crc = zlib.crc32(b"one")
    s.s3.put_object(Bucket=bucket, Key="key", Body=b"one", Metadata={"a": "b"}, ContentType="text/x",
                    ChecksumCRC32=base64.b64encode(crc.to_bytes(4, "big")).decode())
    before = s.s3.head_object(Bucket=bucket, Key="key")["ETag"]
    wrong = base64.b64encode(bytes(4)).decode()
    equal(append(s, bucket, "key", 3, b"two", **{"x-amz-checksum-crc32": wrong}), (400, "BadDigest"))
    equal(append(s, bucket, "key", 3, b"two", **{"x-amz-checksum-sha1": base64.b64encode(hashlib.sha1(b"two").digest()).decode()}),
          (400, "InvalidRequest"))
    equal(append(s, bucket, "key", 3, b"two", **{"if-match": '"no"'}), (412, "PreconditionFailed"))
    equal(append(s, bucket, "key", 3, b"two", **{"if-match": before}), (200, 6))
    got = s.s3.get_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")
    equal((got["Body"].read(), got["Metadata"], got["ContentType"]), (b"onetwo", {"a": "b"}, "text/x"))
    equal(got["ChecksumCRC32"], base64.b64encode(zlib.crc32(b"onetwo").to_bytes(4, "big")).decode())
    assert got["ETag"] != before
    # The object's encryption is used.
    s.s3.put_object(Bucket=bucket, Key="sealed", Body=b"one", ServerSideEncryption="AES256")
    equal(append(s, bucket, "sealed", 3, b"two"), (200, 6))
    equal(append(s, bucket, "sealed", 6, b"2", **{"x-amz-server-side-encryption": "aws:kms",
                                                  "x-amz-server-side-encryption-aws-kms-key-id": "testkey-1"}),
          (400, "EncryptionTypeMismatch"))
    equal(append(s, bucket, "sealed", 6, b"x" * 70_000, **{"x-amz-server-side-encryption": "AES256"}), (200, 70_006))
    got = s.s3.get_object(Bucket=bucket, Key="sealed")
    equal((got["Body"].read(), got["ServerSideEncryption"]), (b"onetwo" + b"x" * 70_000, "AES256"))
    equal(s.body(bucket, "sealed", Range="bytes=2-8"), b"etwoxxx")


def test_append_by_many(s):
    """Of several appends at the same offset one succeeds, and nothing is lost."""
    bucket = directory(s)
    equal(append(s, bucket, "log", 0, b"0"), (200, None))
    lock, won = threading.Lock(), []

    def run(name):
        size = 1
        while size < 21:
            if s.by_rdma:
                with lock:
                    status, code = append(s, bucket, "log", size, name)
            else:
                status, code = append(s, bucket, "log", size, name)
            if status == 200:
                won.append((size, name))
            else:
                assert (status, code) in ((400, "InvalidWriteOffset"), (409, "ConditionalRequestConflict")), (status, code)
            size += 1

    threads = [threading.Thread(target=run, args=(name,)) for name in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = s.body(bucket, "log")
    equal(got[1:], b"".join(name for _, name in sorted(won)))
    equal([size for size, _ in sorted(won)], list(range(1, len(got))))


def rename(s, bucket, key, source, **headers):
    status, _, body = send(s, "PUT", f"/{bucket}/{key}?renameObject", b"",
                           {"x-amz-rename-source": source, **{k.replace("_", "-"): v for k, v in headers.items()}})
    return status, code_of(body)


def test_rename(s):
    bucket = directory(s)
    for name, body in (("small", b"s" * 10), ("large", b"l" * 3_000_000), ("empty", b"")):
        s.s3.put_object(Bucket=bucket, Key=name, Body=body, Metadata={"a": "b"})
        before = s.s3.head_object(Bucket=bucket, Key=name)
        equal(rename(s, bucket, "a/" + name, name), (200, None))
        after = s.s3.get_object(Bucket=bucket, Key="a/" + name)
        equal((after["Body"].read(), after["Metadata"]), (body, {"a": "b"}))
        equal([after[k] for k in ("ETag", "LastModified")], [before[k] for k in ("ETag", "LastModified")])
        refused(404, "404", s.s3.head_object, Bucket=bucket, Key=name)
    equal(append(s, bucket, "a/small", 10, b"+"), (200, 11))
    # The object with the new name is replaced; a source may include its bucket, and is percent-encoded.
    s.put(bucket, "with space", body=b"new")
    equal(rename(s, bucket, "a/large", f"/{bucket}/with%20space"), (200, None))
    equal(s.body(bucket, "a/large"), b"new")
    equal(rename(s, bucket, "x", "missing"), (404, "NoSuchKey"))
    equal(rename(s, bucket, "a/large", "a/large"), (400, "InvalidRequest"))
    equal(rename(s, bucket, "x", ""), (400, "InvalidArgument"))
    etag = s.s3.head_object(Bucket=bucket, Key="a/large")["ETag"]
    for headers in ({"if-none-match": "*"}, {"if-match": '"no"'}, {"x-amz-rename-source-if-match": '"no"'},
                    {"x-amz-rename-source-if-none-match": "*"},
                    {"x-amz-rename-source-if-unmodified-since": "Thu, 01 Jan 2015 00:00:00 GMT"}):
        equal(rename(s, bucket, "a/large", "a/small", **headers), (412, "PreconditionFailed"))
    equal(rename(s, bucket, "a/large", "a/small", **{"if-match": etag}), (200, None))
    equal(s.body(bucket, "a/large"), b"s" * 10 + b"+")
    equal([k["Key"] for k in s.s3.list_objects_v2(Bucket=bucket)["Contents"]], ["a/empty", "a/large"])
    # The same request again, as after a lost answer.
    token = {"x-amz-client-token": "one"}
    equal([rename(s, bucket, "b", "a/empty", **token) for _ in range(2)], [(200, None)] * 2)
    equal(rename(s, bucket, "b", "a/empty", **{"x-amz-client-token": "two"}), (404, "NoSuchKey"))
    plain = s.bucket()
    s.put(plain, "key")
    equal(rename(s, plain, "x", "key"), (501, "NotImplemented"))
