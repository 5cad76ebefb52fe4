"""tests/s3/suite.py: what every case of the S3 suite works with."""

import itertools
import re

import boto3
import botocore
from botocore.config import Config
from botocore.exceptions import ClientError

import nebula


class Suite:
    """A client, names for buckets, and plain signed requests for what boto3 would not send."""

    def __init__(self, endpoint, access_key, secret_key):
        self.endpoint = endpoint
        self.keys = (access_key, secret_key)
        self.s3 = self.client()
        self.numbers = itertools.count(1)
        self.prefix = "run-s3-"

    def client(self, access_key=None, secret_key=None, unsigned=False, **config):
        signature = botocore.UNSIGNED if unsigned else "s3v4"
        return boto3.client(
            "s3", endpoint_url=self.endpoint, region_name="us-east-1",
            aws_access_key_id=access_key or self.keys[0], aws_secret_access_key=secret_key or self.keys[1],
            config=Config(signature_version=signature, retries={"max_attempts": 1},
                          s3={"addressing_style": "path"}, **config))

    def raw(self, method, path, body=b"", query=None, headers=None):
        """A signed request as it stands: (status, headers, body)."""
        client = nebula.Client(self.endpoint.split("//")[1], *self.keys)
        try:
            return client.request(method, path, body, query, headers)
        finally:
            client.close()

    def bucket(self, **options):
        name = f"{self.prefix}{next(self.numbers)}"
        self.s3.create_bucket(Bucket=name, **options)
        return name

    def put(self, bucket, *keys, body=b"x"):
        for key in keys:
            self.s3.put_object(Bucket=bucket, Key=key, Body=body)

    def body(self, bucket, key, **options):
        return self.s3.get_object(Bucket=bucket, Key=key, **options)["Body"].read()

    def clean(self):
        """Deletes what the case left."""
        for bucket in [b["Name"] for b in self.s3.list_buckets()["Buckets"]]:
            if not bucket.startswith(self.prefix):
                continue
            for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
                keys = [{"Key": o["Key"]} for o in page.get("Contents", [])]
                if keys:
                    self.s3.delete_objects(Bucket=bucket, Delete={"Objects": keys, "Quiet": True})
            self.s3.delete_bucket(Bucket=bucket)


def refused(status, code, call, *args, **kwargs):
    """Calls, and holds the refusal against status and code; returns the whole answer."""
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
