"""Directory buckets (S3 Express One Zone): names, sessions, listings, appends. Requests of sessions are signed here: an
older boto3 knows nothing of them."""

import re
import urllib.parse

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
    """What CreateSession gave, or a key of one's own."""

    def __init__(self, s, bucket, mode=None, key=None):
        self.s, self.token = s, None
        self.key, self.secret = key or s.keys
        headers = {"x-amz-create-session-mode": mode} if mode else {}
        status, _, body = self.send("GET", f"/{bucket}?session", headers=headers)
        equal((status, code_of(body)), (200, None))
        self.key, self.secret, self.token = (element(body, name) for name in ("AccessKeyId", "SecretAccessKey", "SessionToken"))

    def send(self, method, target, body=b"", headers=None, header="x-amz-s3session-token", service="s3express"):
        """Signed by this key, over HTTP or HTTPS: (status, headers, body)."""
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
        # A token of one kind is none of the other.
        equal(code_of(key.send("GET", f"/{bucket}/key", header="x-amz-security-token")[2]), "InvalidToken")
        equal(code_of(key.send("GET", f"/{bucket}/key", header="x-amz-security-token", service="s3")[2]), "InvalidToken")
    for method, target in (("PUT", "/other"), ("DELETE", "/key"), ("POST", "/up?uploads")):
        status, _, body = reader.send(method, f"/{bucket}{target}")
        equal((target, status, code_of(body)), (target, 403, "AccessDenied"))
    equal(writer.send("DELETE", f"/{bucket}/key")[0], 204)
    equal(code_of(send(s, "GET", f"/{bucket}?session", headers={"x-amz-create-session-mode": "WriteOnly"})[2]), "InvalidArgument")
    equal(send(s, "GET", f"/{plain}?session")[0], 405)
    writer.token = writer.token[:-8] + "AAAAAAA="
    equal(code_of(writer.send("GET", f"/{bucket}/key")[2]), "InvalidToken")
    reader.secret += "x"
    equal(code_of(reader.send("GET", f"/{bucket}/key")[2]), "SignatureDoesNotMatch")


def test_session_of_others(s):
    """Whose bucket it is not gets no session; whose policy says so gets one, and it says what it may."""
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
    two.close()


def test_token_beside_a_native_session(s):
    """Over RDMA the session says who asks: a token can only narrow that."""
    if not s.by_rdma:
        return
    bucket, other = directory(s), directory(s)
    reader = {"x-amz-s3session-token": Key(s, bucket, "ReadOnly").token}
    equal(send(s, "PUT", f"/{bucket}/key", b"x")[0], 200)
    equal(send(s, "GET", f"/{bucket}/key", headers=reader)[0], 200)
    equal(send(s, "DELETE", f"/{bucket}/key", headers=reader)[0], 403)
    equal(send(s, "GET", f"/{other}?list-type=2", headers=reader)[0], 403)
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


def test_what_there_is_not(s):
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
