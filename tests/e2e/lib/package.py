"""tests/e2e/lib/package.py: common parts of the tests of the Python package nebulaio, in an environment with it: groups
of checks. A group is skipped with a message if a module that it needs could not be installed."""

import hashlib
import importlib.util
import json
import os
import traceback
import urllib.parse

from nebula import Client, Tap
from nebulaio import RDMAClient

RDMA = os.environ["NEBULAIO_TEST_RDMA"]
KEYS = ("minioadmin", "minioadmin")
MIB = 1 << 20

tap = Tap()
groups = []


def needs(*modules):
    """Marks a function as a group of checks, which needs these modules besides the package."""
    def mark(function):
        groups.append((function, modules))
        return function
    return mark


def opened(**options):
    return RDMAClient(RDMA, *KEYS, **options)


def tenant_keys():
    """The keys of a new user of the server, who has rights on the bucket "tenant" alone."""
    http = Client(os.environ["NEBULAIO_TEST_HTTP"], *KEYS, service="iam")

    def call(**fields):
        body = urllib.parse.urlencode({"Version": "2010-05-08", **fields}).encode()
        status, _, answer = http.request("POST", "/", body, headers={
            "content-type": "application/x-www-form-urlencoded", "x-amz-content-sha256": hashlib.sha256(body).hexdigest()})
        assert status == 200, answer
        return answer.decode()

    call(Action="CreateUser", UserName="tenant")
    call(Action="PutUserPolicy", UserName="tenant", PolicyName="own", PolicyDocument=json.dumps({
        "Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": ["arn:aws:s3:::tenant", "arn:aws:s3:::tenant/*"]}]}))
    text = call(Action="CreateAccessKey", UserName="tenant")
    http.close()
    return tuple(text.split(f"<{name}>")[1].split("<")[0] for name in ("AccessKeyId", "SecretAccessKey"))


def run():
    """All groups, in order; the exit status."""
    for function, modules in groups:
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        if missing:
            tap.skip(function.__name__, f"{', '.join(missing)} could not be installed")
            continue
        try:
            function()
        except Exception:
            tap.check(False, f"{function.__name__} runs to its end", traceback.format_exc())
    return tap.done()
