"""tests/e2e/s3/suite.py: the common base of the S3 suite's cases."""

import http.client
import itertools
import re
import ssl
import urllib.parse

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import ClientError

import nebula
import rdma_send


# The accounts of the test's own server. One and two are accounts; three and four are separate owners in one account,
# where four may do everything in IAM.
ACCOUNTS = """
accounts:
  - {account_id: "111111111111", id: one-canonical-id, display_name: One, email: one@example.com,
     access_key: ONEACCESSKEY, secret_key: one-secret-key-0123456789}
  - account_id: "222222222222"
    id: two-canonical-id
    display_name: Two
    email: Two@example.com
    keys:
      - {access_key: TWOACCESSKEY, secret_key: two-secret-key-0123456789}
      - {access_key: TWODISABLED, secret_key: two-secret-key-0123456789, active: false}
    groups:
      - {name: readers, policies: ["arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"]}
    users:
      - {name: reader, groups: [readers], access_key: TWOREADERKEY, secret_key: two-reader-secret-0123}
  - account_id: "333333333333"
    display_name: Three
    users:
      - {name: three, id: three-canonical-id, display_name: Three, access_key: THREEACCESSKEY,
         secret_key: three-secret-key-0123456}
      - {name: four, id: four-canonical-id, display_name: Four, access_key: FOURACCESSKEY,
         secret_key: four-secret-key-01234567, policies: ["arn:aws:iam::aws:policy/IAMFullAccess"]}
"""
# The callers with a session of their own over RDMA.
ACCOUNT_KEYS = set(re.findall(r"access_key: (\w+),\s+secret_key: ([\w-]+)}", ACCOUNTS)) - {
    ("TWODISABLED", "two-secret-key-0123456789")}


class Suite:
    """A client, names for buckets, and plain signed requests that boto3 would not send.

    by_rdma: boto3's requests use generic capsules of a session; tests of HTTP itself (signatures of requests, raw
    requests, presigned URLs) still use HTTP."""

    def __init__(self, endpoint, access_key, secret_key, *, authority=None, plain=None, rdma=None, by_rdma=False,
                 server=None):
        self.endpoint = endpoint
        self.server = server  # of our own, or None
        self.plain = plain or endpoint
        self.keys = (access_key, secret_key)
        self.authority = authority
        self.rdma = rdma
        self.by_rdma = by_rdma
        self.sessions = {}
        self.s3 = self.client()
        self.numbers = itertools.count(1)
        self.prefix = "run-s3-"

    def client(self, access_key=None, secret_key=None, unsigned=False, service="s3", token=None, **config):
        signature = botocore.UNSIGNED if unsigned else "s3v4" if service in ("s3", "s3control") else "v4"
        client = boto3.client(
            service, endpoint_url=self.endpoint, region_name="us-east-1", aws_session_token=token, verify=self.authority,
            aws_access_key_id=access_key or self.keys[0], aws_secret_access_key=secret_key or self.keys[1],
            config=Config(signature_version=signature, retries={"max_attempts": 1},
                          s3={"addressing_style": "path"}, **config))
        keys = access_key or self.keys[0], secret_key or self.keys[1]
        has_session = keys == self.keys or keys in ACCOUNT_KEYS
        if self.by_rdma and has_session and service == "s3" and not unsigned and not token:
            self.over_rdma(client, *keys)
        return client

    def over_rdma(self, client, *keys):
        if keys not in self.sessions:
            self.sessions[keys] = rdma_send.Session(self.rdma, *keys)
        return rdma_send.attach(client, self.sessions[keys])

    def connection(self, url):
        """For raw requests of HTTP's own."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self.authority)
            return http.client.HTTPSConnection(parts.netloc, timeout=180, context=context)
        return http.client.HTTPConnection(parts.netloc, timeout=180)

    def close(self):
        for session in self.sessions.values():
            session.close()

    def one(self, service="s3"):
        return self.client("ONEACCESSKEY", "one-secret-key-0123456789", service=service)

    def two(self, service="s3"):
        return self.client("TWOACCESSKEY", "two-secret-key-0123456789", service=service)

    def reader(self):
        return self.client("TWOREADERKEY", "two-reader-secret-0123")

    def three(self, service="s3"):
        return self.client("THREEACCESSKEY", "three-secret-key-0123456", service=service)

    def four(self, service="s3"):
        return self.client("FOURACCESSKEY", "four-secret-key-01234567", service=service)

    def raw(self, method, path, body=b"", query=None, headers=None, client=None):
        """A signed request, with the client's keys or the suite's, sent unchanged: (status, headers, body)."""
        keys = client and client._request_signer._credentials
        sender = nebula.Client(self.plain.split("//")[1], *((keys.access_key, keys.secret_key) if keys else self.keys))
        try:
            return sender.request(method, path, body, query, headers)
        finally:
            sender.close()

    def ask(self, method, path, body=b"", query=None, headers=None):
        """The same over this suite's transport: with RDMA as a generic capsule."""
        if not self.by_rdma:
            return self.raw(method, path, body, query, headers)
        target = urllib.parse.quote(path, safe="/-_.~") + ("?" + urllib.parse.urlencode(query) if query else "")
        return self.sessions[self.keys].perform(method, target, headers or {}, body)

    def operations(self):
        """The number of answers of each operation; empty for a server that is not the test's own."""
        counts = {}
        for name, value in (self.server.metrics() if self.server else {}).items():
            operation = re.match(r'nebulaio_s3_requests_total{operation="(\w+)"', name)
            if operation:
                counts[operation.group(1)] = counts.get(operation.group(1), 0) + value
        return counts

    def bucket(self, **options):
        name = f"{self.prefix}{next(self.numbers)}"
        self.s3.create_bucket(Bucket=name, **options)
        return name

    def open_bucket(self, **options):
        return opened(self.s3, f"{self.prefix}{next(self.numbers)}", **options)

    def put(self, bucket, *keys, body=b"x"):
        for key in keys:
            self.s3.put_object(Bucket=bucket, Key=key, Body=body)

    def body(self, bucket, key, **options):
        return self.s3.get_object(Bucket=bucket, Key=key, **options)["Body"].read()

    def objects_deleted(self, bucket):
        for key in self.s3.list_objects_v2(Bucket=bucket).get("Contents", []):
            self.s3.delete_object(Bucket=bucket, Key=key["Key"])

    def versions_deleted(self, bucket):
        for page in self.s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            keys = [{"Key": o["Key"], "VersionId": o["VersionId"]}
                    for o in page.get("Versions", []) + page.get("DeleteMarkers", [])]
            if keys:
                self.s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True},
                                       BypassGovernanceRetention=True)

    def bucket_deleted(self, bucket, empty):
        """Deletes a bucket that empty(bucket) empties. Between the two the server may write into it: logs, for one, come
        until a while after a bucket's logging has ended."""
        def deleted():
            empty(bucket)
            try:
                self.s3.delete_bucket(Bucket=bucket)
            except ClientError as error:
                if error.response["Error"]["Code"] != "BucketNotEmpty":
                    raise
                return False
            return True
        assert nebula.becomes(deleted), f"{bucket} is filled again and again"

    def clean(self):
        """Deletes everything that the case left, of any owner."""
        for client in (self.one, self.two, self.three, self.four):
            for bucket in [b["Name"] for b in client().list_buckets()["Buckets"]]:
                # The server's root is never denied.
                for upload in self.s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
                    self.s3.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
                self.bucket_deleted(bucket, self.objects_deleted)
        listed = self.raw("GET", "/", query={"x-id": "ListDirectoryBuckets"})[2].decode()
        for bucket in re.findall(f"<Name>({self.prefix}[^<]*--x-s3)</Name>", listed):
            self.bucket_deleted(bucket, self.objects_deleted)
        for bucket in [b["Name"] for b in self.s3.list_buckets()["Buckets"]]:
            if bucket.startswith(self.prefix):
                self.bucket_deleted(bucket, self.versions_deleted)


def opened(client, name, ACL="private", ObjectOwnership="ObjectWriter", **options):
    """A bucket with access control lists that may be public: new buckets need settings for that."""
    client.create_bucket(Bucket=name, ObjectOwnership=ObjectOwnership, **options)
    client.delete_public_access_block(Bucket=name)
    if ACL != "private":
        client.put_bucket_acl(Bucket=name, ACL=ACL)
    return name


def refused(status, code, call, *args, **kwargs):
    """Calls, and compares the refusal with status and code; returns the whole answer."""
    try:
        call(*args, **kwargs)
    except ClientError as error:
        got = error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]
        assert got == (status, code), f"answered {got}, not {(status, code)}: {error}"
        assert error.response["Error"].get("Message"), "an error without a message"
        return error.response
    raise AssertionError(f"not refused, but expected {status} {code}")


def code_of(body):
    match = re.search(rb"<Code>(.*?)</Code>", body)
    return match.group(1).decode() if match else None


def equal(got, want):
    assert got == want, f"got {got!r}, not {want!r}"
