"""Server access logging: lines of one bucket's requests, as objects of another."""

import email.utils
import itertools
import json
import re
import shlex
import time

import nebula
from nebula import becomes
from suite import equal, opened, refused


def logs(s, bucket, prefix, wanted):
    """The lines so far, after one of them has the wanted text."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        keys = [o["Key"] for o in s.s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])]
        lines = [line for key in keys for line in s.body(bucket, key).decode().splitlines()]
        if any(wanted in line for line in lines):
            return keys, lines
    raise AssertionError(f"no line with {wanted} after 120 s")


def enable(s, bucket, target, prefix, **more):
    s.s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={
        "LoggingEnabled": {"TargetBucket": target, "TargetPrefix": prefix, **more}})


def disable(s, bucket, target, prefix):
    """The last request has the last line: no line follows it."""
    s.s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={})
    logs(s, target, prefix, "REST.PUT.LOGGING")


def dropped(s):
    return s.server.metric("nebulaio_s3_access_log_dropped_total")


def changed(s, bucket):
    """The time of the configuration, from its answer."""
    return email.utils.parsedate_to_datetime(s.raw("GET", f"/{bucket}", b"", {"logging": ""})[1]["last-modified"])


def test_lines(s):
    bucket, target = s.bucket(), s.bucket()
    enable(s, bucket, target, "logs/")
    told = s.s3.get_bucket_logging(Bucket=bucket)["LoggingEnabled"]
    equal(told, {"TargetBucket": target, "TargetPrefix": "logs/"})  # and no key format, because none was sent
    first = changed(s, bucket)
    s.s3.put_object(Bucket=bucket, Key="a b/c", Body=b"12345")
    equal(s.body(bucket, "a b/c"), b"12345")
    refused(404, "NoSuchKey", s.s3.get_object, Bucket=bucket, Key="none")
    keys, lines = logs(s, target, "logs/", "NoSuchKey")
    assert all(re.fullmatch(r"logs/\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d-[0-9a-f]{16}", key) for key in keys), keys
    line = next(line for line in lines if "REST.GET.OBJECT" in line and " 200 " in line)
    fields = shlex.split(line.replace("[", '"').replace("]", '"'))
    equal((fields[1], fields[6], fields[7], fields[9], fields[10], fields[11]),
          (bucket, "REST.GET.OBJECT", "a%20b/c", "200", "-", "5"))
    equal(fields[4], s.keys[0])
    # More than a second has passed since the first put. The same document again changes nothing.
    enable(s, bucket, target, "logs/")
    equal(changed(s, bucket), first)
    s.s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={})
    enable(s, bucket, target, "logs/")
    assert changed(s, bucket) > first
    disable(s, bucket, target, "logs/")
    assert "LoggingEnabled" not in s.s3.get_bucket_logging(Bucket=bucket)


def test_a_requester_is_proven(s):
    """The line of a request whose authentication failed names nobody."""
    bucket, target = s.bucket(), s.bucket()
    s.s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={  # for its headers the bucket is looked up first
        "CORSRules": [{"AllowedOrigins": ["*"], "AllowedMethods": ["GET"]}]})
    enable(s, bucket, target, "logs/")
    client = nebula.Client(s.plain.split("//")[1], *s.keys)
    for keys in 2 * (("TWOACCESSKEY", "two-secret-key-0123456789"), (s.keys[0], "wrong"), ("TWOACCESSKEY", "wrong"), ("NOBODY", "wrong")):
        client.keys = keys
        equal(client.request("GET", f"/{bucket}/key", headers={"origin": "http://x"})[0], 403)
    client.close()
    s.s3.get_bucket_cors(Bucket=bucket)
    lines = logs(s, target, "logs/", "REST.GET.CORS")[1]
    told = [shlex.split(line.replace("[", '"').replace("]", '"')) for line in lines]
    equal([(f[4], f[10]) for f in told if f[6] == "REST.GET.OBJECT"],
          2 * ([("TWOACCESSKEY", "AccessDenied")] + 2 * [("-", "SignatureDoesNotMatch")] + [("-", "InvalidAccessKeyId")]))
    disable(s, bucket, target, "logs/")


def test_names_of_operations(s):
    """As in S3; a request that deletes many keys has a line of its own, and one for each key."""
    bucket, target = s.bucket(), s.bucket()
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    enable(s, bucket, target, "logs/")
    key = {"Bucket": bucket, "Key": "k/ey"}
    version = s.s3.put_object(**key, Body=b"x")["VersionId"]
    s.s3.get_object(**key, VersionId=version)
    s.s3.copy_object(Bucket=bucket, Key="copy", CopySource=key)
    upload = {**key, "UploadId": s.s3.create_multipart_upload(**key)["UploadId"]}
    tag = s.s3.upload_part(**upload, PartNumber=1, Body=b"x")["ETag"]
    s.s3.upload_part_copy(**upload, PartNumber=2, CopySource=key)
    s.s3.list_parts(**upload)
    s.s3.list_multipart_uploads(Bucket=bucket)
    s.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]})
    s.s3.list_object_versions(Bucket=bucket)
    s.s3.get_object_tagging(**key)
    refused(404, "NoSuchBucketPolicy", s.s3.get_bucket_policy, Bucket=bucket)
    equal(s.ask("PUT", f"/{bucket}/key", b"", {"annotation": ""})[0], 501)
    s.s3.delete_objects(Bucket=bucket, Delete={"Objects": [
        {"Key": "k/ey", "VersionId": version}, {"Key": "copy", "VersionId": "never"}, {"Key": "c d"}]})
    lines = logs(s, target, "logs/", "BATCH.DELETE.OBJECT c%20d")[1]
    told = [shlex.split(line.replace("[", '"').replace("]", '"')) for line in lines]
    names = {(fields[6], fields[7]) for fields in told}
    wanted = {"PUT.OBJECT k/ey", "GET.OBJECT k/ey", "COPY.OBJECT copy", "POST.UPLOADS k/ey", "PUT.PART k/ey",
              "COPY.PART k/ey", "GET.UPLOAD k/ey", "GET.UPLOADS -", "POST.UPLOAD k/ey", "GET.BUCKETVERSIONS -",
              "GET.OBJECT_TAGGING k/ey", "GET.BUCKETPOLICY -", "PUT.UNKNOWN key"}
    equal({tuple(("REST." + name).split()) for name in wanted} - names, set())
    equal({(f[7], f[9], f[10], f[17]) for f in told if f[6] == "BATCH.DELETE.OBJECT"},
          {("k/ey", "204", "-", version), ("copy", "404", "NoSuchVersion", "-"), ("c%20d", "204", "-", "-")})
    assert [f[17] for f in told if f[6] == "REST.GET.OBJECT"] == [version], told
    s.s3.delete_bucket_policy(Bucket=bucket)  # the line of a deletion of many keys follows those of its keys
    lines = logs(s, target, "logs/", "REST.DELETE.BUCKETPOLICY")[1]
    assert any("REST.POST.MULTI_OBJECT_DELETE - " in line and " 200 " in line for line in lines), lines
    disable(s, bucket, target, "logs/")


def enable_partitioned(s, bucket, target, prefix, source):
    """Without boto3: older ones do not support key formats."""
    status, _, body = s.raw("PUT", f"/{bucket}", (
        f"<BucketLoggingStatus><LoggingEnabled><TargetBucket>{target}</TargetBucket><TargetPrefix>{prefix}</TargetPrefix>"
        f"<TargetObjectKeyFormat><PartitionedPrefix>{source}</PartitionedPrefix></TargetObjectKeyFormat>"
        "</LoggingEnabled></BucketLoggingStatus>").encode(), {"logging": ""})
    equal((status, body), (200, b""))


def test_a_key_format_is_told_as_it_was_sent(s):
    """None, too: Terraform compares the answer with its configuration."""
    bucket, target = s.bucket(), s.bucket()
    for sent in ("", "<TargetObjectKeyFormat><SimplePrefix></SimplePrefix></TargetObjectKeyFormat>"):
        body = (f"<BucketLoggingStatus><LoggingEnabled><TargetBucket>{target}</TargetBucket><TargetPrefix>a/</TargetPrefix>{sent}"
                "</LoggingEnabled></BucketLoggingStatus>")
        equal(s.raw("PUT", f"/{bucket}", body.encode(), {"logging": ""})[0], 200)
        told = s.raw("GET", f"/{bucket}", b"", {"logging": ""})[2].decode()
        equal(("<TargetObjectKeyFormat>" in told, "<SimplePrefix" in told), (bool(sent), bool(sent)))
    s.s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={})


def test_partitioned(s):
    """By the day of delivery; or by the day of the events, and then without a time."""
    bucket, target = s.bucket(), s.bucket()
    times = {"": r"\d\d-\d\d-\d\d", "<PartitionDateSource>DeliveryTime</PartitionDateSource>": r"\d\d-\d\d-\d\d",
             "<PartitionDateSource>EventTime</PartitionDateSource>": "00-00-00"}
    for number, source in enumerate(times):
        enable_partitioned(s, bucket, target, f"p{number}/", source)
        s.put(bucket, "key")
    s.s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={})
    for number, time_of_day in enumerate(times.values()):
        prefix = f"p{number}/"
        keys, _ = logs(s, target, prefix, "REST.PUT.LOGGING" if number == 2 else "REST.PUT.OBJECT")
        found = re.fullmatch(rf"{prefix}[^/]+/us-east-1/{bucket}/(\d{{4}})/(\d\d)/(\d\d)/([0-9-]{{10}})-{time_of_day}-[0-9a-f]{{16}}",
                             keys[0])
        assert found, keys
        equal("-".join(found.groups()[:3]), found[4])


def test_grants_of_logs(s):
    """Others than the bucket's owner may have grants; the owner's own rights are not listed."""
    one, two = s.one(), s.two()
    bucket, target = [f"{s.prefix}{next(s.numbers)}" for _ in range(2)]
    opened(one, bucket)
    opened(one, target, ACL="log-delivery-write")
    to_one = {"Grantee": {"Type": "CanonicalUser", "ID": "one-canonical-id"}, "Permission": "FULL_CONTROL"}
    to_two = {"Grantee": {"Type": "CanonicalUser", "ID": "two-canonical-id"}, "Permission": "READ"}
    to_all = {"Grantee": {"Type": "Group", "URI": "http://acs.amazonaws.com/groups/global/AuthenticatedUsers"},
              "Permission": "READ"}
    as_root, s.s3 = s.s3, one
    try:
        enable(s, bucket, target, "own/", TargetGrants=[to_one])
        assert "TargetGrants" not in one.get_bucket_logging(Bucket=bucket)["LoggingEnabled"]
        tries = [([], False), ([to_one, to_two], True), ([to_all], True)]
        for number, (given, _) in enumerate(tries):
            enable(s, bucket, target, f"g{number}/", TargetGrants=given)
            told = one.get_bucket_logging(Bucket=bucket)["LoggingEnabled"].get("TargetGrants", [])
            equal([(t["Grantee"]["Type"], t["Permission"]) for t in told],
                  [(g["Grantee"]["Type"], g["Permission"]) for g in given if g != to_one])
            one.put_object(Bucket=bucket, Key="key", Body=b"x")
        one.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={})
        for number, (_, reads) in enumerate(tries):
            keys, _ = logs(s, target, f"g{number}/", "REST.PUT.LOGGING" if number == 2 else "REST.PUT.OBJECT")
            if reads:
                two.get_object(Bucket=target, Key=keys[0])["Body"].read()
            else:
                refused(403, "AccessDenied", two.get_object, Bucket=target, Key=keys[0])
            equal(one.get_object_acl(Bucket=target, Key=keys[0])["Owner"]["ID"], "one-canonical-id")
        one.put_public_access_block(Bucket=target, PublicAccessBlockConfiguration={"BlockPublicAcls": True})
        refused(403, "AccessDenied", enable, s, bucket, target, "x/", TargetGrants=[to_all])
        one.delete_public_access_block(Bucket=target)
        refused(400, "MalformedXML", enable, s, bucket, target, "x/", TargetGrants=[{**to_two, "Permission": "READ_ACP"}])
        refused(400, "InvalidArgument", enable, s, bucket, target, "x/",
                TargetGrants=[{**to_two, "Grantee": {"Type": "CanonicalUser", "ID": "nobody"}}])
    finally:
        s.s3 = as_root


def test_refusals(s):
    bucket = s.bucket()
    far = s.bucket(CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    refused(403, "CrossLocationLoggingProhibitted", enable, s, bucket, far, "x")
    refused(400, "InvalidTargetBucketForLogging", enable, s, bucket, "no-such-bucket", "x")
    status, _, body = s.raw("PUT", f"/{bucket}", b"<BucketLoggingStatus><LoggingEnabled/></BucketLoggingStatus>", {"logging": ""})
    assert status == 400 and b"MalformedXML" in body


def test_targets_allow_logs(s):
    one, two = s.one(), s.two()
    names = [f"{s.prefix}{next(s.numbers)}" for _ in range(3)]
    bucket, target, other = names
    for client, name in [(one, bucket), (one, target), (two, other)]:
        opened(client, name)
    as_root, s.s3 = s.s3, one
    try:
        right = {"Effect": "Allow", "Principal": {"Service": "logging.s3.amazonaws.com"}, "Action": "s3:PutObject",
                 "Resource": f"arn:aws:s3:::{target}/log/*",
                 "Condition": {"ArnLike": {"aws:SourceArn": f"arn:aws:s3:::{bucket}"},
                               "StringEquals": {"aws:SourceAccount": "111111111111"}}}
        wrong = [{"Principal": "*"}, {"Principal": {"Service": "elasticloadbalancing.amazonaws.com"}},
                 {"Action": "s3:GetObject"}, {"Resource": f"arn:aws:s3:::{target}/other/*"},
                 {"Condition": {"ArnLike": {"aws:SourceArn": "arn:aws:s3:::another"}}},
                 {"Condition": {"StringEquals": {"aws:SourceAccount": "222222222222"}}}]
        for change in wrong + [{}]:
            one.put_bucket_policy(Bucket=target, Policy=json.dumps({"Version": "2012-10-17",
                                                                    "Statement": [{**right, **change}]}))
            # Accepted as at AWS, because the caller's own bucket may allow logs later; until then none are written.
            enable(s, bucket, target, "log/")
            before = dropped(s)
            one.put_object(Bucket=bucket, Key="without" if change else "with", Body=b"x")
            assert not change or becomes(lambda: dropped(s) > before), change
        _, lines = logs(s, target, "log/", " with ")
        assert not [line for line in lines if " without " in line], lines
        s.s3 = two
        refused(403, "AccessDenied", enable, s, other, target, "log/")
        s.s3 = one
        one.put_bucket_acl(Bucket=target, ACL="log-delivery-write")
        refused(400, "InvalidArgument", enable, s, target, target, "log/")
        one.put_bucket_acl(Bucket=bucket, ACL="log-delivery-write")
        refused(400, "InvalidArgument", enable, s, target, bucket, "log/")
        one.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={})
        enable(s, target, bucket, "log/")
        one.put_bucket_logging(Bucket=target, BucketLoggingStatus={})
        one.put_bucket_request_payment(Bucket=bucket, RequestPaymentConfiguration={"Payer": "Requester"})
        refused(400, "InvalidArgument", enable, s, target, bucket, "log/")
    finally:
        s.s3 = as_root
    s.s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={})


def test_one_place_one_object(s):
    """Buckets that log to the same place share its objects."""
    target, buckets = s.bucket(), [s.bucket() for _ in range(3)]
    for bucket in buckets:
        enable(s, bucket, target, "all/")
    rounds = itertools.count()

    def shared():
        """A batch gathers the lines of a second, in which a busy machine may not answer two requests."""
        name = f"key-{next(rounds)}"
        for bucket in buckets:
            s.put(bucket, name)
        keys, _ = logs(s, target, "all/", f" {name} ")
        return [key for key in keys if len({line.split()[1] for line in s.body(target, key).decode().splitlines()}) > 1]

    assert becomes(shared)
    for bucket in buckets:
        s.s3.put_bucket_logging(Bucket=bucket, BucketLoggingStatus={})
    deadline = time.monotonic() + 120
    lines = []
    while not all(any(f" {bucket} " in line for line in lines) for bucket in buckets):
        assert time.monotonic() < deadline, lines
        lines = [line for line in logs(s, target, "all/", "REST.PUT.LOGGING")[1] if "REST.PUT.LOGGING" in line]
