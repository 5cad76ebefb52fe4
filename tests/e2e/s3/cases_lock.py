"""Object lock, which prevents the deletion of versions."""

import datetime
import json

from suite import equal, opened, refused


def soon(days=1):
    return datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(days=days)


def locked(s):
    return s.bucket(ObjectLockEnabledForBucket=True)


def rule(mode="GOVERNANCE", **period):
    return {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": mode, **period}}}


def free(s, bucket, key, version):
    s.s3.put_object_legal_hold(Bucket=bucket, Key=key, VersionId=version, LegalHold={"Status": "OFF"})
    s.s3.delete_object(Bucket=bucket, Key=key, VersionId=version, BypassGovernanceRetention=True)


def test_configuration(s):
    bucket = locked(s)
    equal(s.s3.get_bucket_versioning(Bucket=bucket)["Status"], "Enabled")
    equal(s.s3.get_object_lock_configuration(Bucket=bucket)["ObjectLockConfiguration"], {"ObjectLockEnabled": "Enabled"})
    put = s.s3.put_object_lock_configuration
    for want in (rule(Days=1), rule("COMPLIANCE", Years=1)):
        put(Bucket=bucket, ObjectLockConfiguration=want)
        equal(s.s3.get_object_lock_configuration(Bucket=bucket)["ObjectLockConfiguration"], want)
    refused(400, "MalformedXML", put, Bucket=bucket, ObjectLockConfiguration=rule(Days=1, Years=1))
    refused(400, "MalformedXML", put, Bucket=bucket, ObjectLockConfiguration=rule("abc", Days=1))
    refused(400, "MalformedXML", put, Bucket=bucket, ObjectLockConfiguration=rule("governance", Days=1))
    refused(400, "MalformedXML", put, Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Disabled"})
    refused(400, "InvalidRetentionPeriod", put, Bucket=bucket, ObjectLockConfiguration=rule(Days=0))
    refused(400, "InvalidRetentionPeriod", put, Bucket=bucket, ObjectLockConfiguration=rule(Years=-1))
    refused(409, "InvalidBucketState", s.s3.put_bucket_versioning, Bucket=bucket,
            VersioningConfiguration={"Status": "Suspended"})
    put(Bucket=bucket, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled"})


def test_buckets_without_lock(s):
    bucket = s.bucket()
    put = s.s3.put_object_lock_configuration
    refused(404, "ObjectLockConfigurationNotFoundError", s.s3.get_object_lock_configuration, Bucket=bucket)
    refused(409, "InvalidBucketState", put, Bucket=bucket, ObjectLockConfiguration=rule(Days=1))
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    refused(409, "InvalidBucketState", put, Bucket=bucket, ObjectLockConfiguration=rule(Days=1))
    s.put(bucket, "a")
    retention = {"Mode": "GOVERNANCE", "RetainUntilDate": soon()}
    refused(400, "InvalidRequest", s.s3.put_object_retention, Bucket=bucket, Key="a", Retention=retention)
    refused(400, "InvalidRequest", s.s3.get_object_retention, Bucket=bucket, Key="a")
    refused(400, "InvalidRequest", s.s3.put_object_legal_hold, Bucket=bucket, Key="a", LegalHold={"Status": "ON"})
    refused(400, "InvalidRequest", s.s3.get_object_legal_hold, Bucket=bucket, Key="a")
    refused(400, "InvalidRequest", s.s3.put_object, Bucket=bucket, Key="b", ObjectLockMode="GOVERNANCE",
            ObjectLockRetainUntilDate=soon())
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    put(Bucket=bucket, ObjectLockConfiguration=rule(Days=1))


def test_governance(s):
    bucket = locked(s)
    version = s.s3.put_object(Bucket=bucket, Key="a", Body=b"x")["VersionId"]
    put = s.s3.put_object_retention
    want = {"Mode": "GOVERNANCE", "RetainUntilDate": soon(2)}
    refused(404, "NoSuchObjectLockConfiguration", s.s3.get_object_retention, Bucket=bucket, Key="a")
    put(Bucket=bucket, Key="a", Retention=want)
    equal(s.s3.get_object_retention(Bucket=bucket, Key="a", VersionId=version)["Retention"], want)
    head = s.s3.head_object(Bucket=bucket, Key="a")
    equal((head["ObjectLockMode"], head["ObjectLockRetainUntilDate"]), ("GOVERNANCE", want["RetainUntilDate"]))
    refused(403, "AccessDenied", s.s3.delete_object, Bucket=bucket, Key="a", VersionId=version)
    answer = s.s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "a", "VersionId": version}]})
    equal([e["Code"] for e in answer["Errors"]], ["AccessDenied"])
    put(Bucket=bucket, Key="a", Retention={"Mode": "GOVERNANCE", "RetainUntilDate": soon(3)})
    shorter = {"Mode": "GOVERNANCE", "RetainUntilDate": soon(1)}
    refused(403, "AccessDenied", put, Bucket=bucket, Key="a", Retention=shorter)
    refused(403, "AccessDenied", put, Bucket=bucket, Key="a",
            Retention={"Mode": "COMPLIANCE", "RetainUntilDate": soon(3)})
    put(Bucket=bucket, Key="a", Retention=shorter, BypassGovernanceRetention=True)
    equal(s.s3.delete_object(Bucket=bucket, Key="a")["DeleteMarker"], True)
    s.s3.delete_object(Bucket=bucket, Key="a", VersionId=version, BypassGovernanceRetention=True)
    refused(400, "MalformedXML", put, Bucket=bucket, Key="a",
            Retention={"Mode": "abc", "RetainUntilDate": soon()})
    refused(400, "InvalidArgument", put, Bucket=bucket, Key="a",
            Retention={"Mode": "GOVERNANCE", "RetainUntilDate": soon(-1)})


def test_compliance_and_its_end(s):
    bucket = locked(s)
    # A busy machine may need longer for the requests than the object is locked.
    for seconds in 6, 12, 24, 48:
        version = s.s3.put_object(Bucket=bucket, Key="a", Body=b"x")["VersionId"]
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        try:
            s.s3.put_object_retention(Bucket=bucket, Key="a", Retention={"Mode": "COMPLIANCE", "RetainUntilDate": until})
            refused(403, "AccessDenied", s.s3.delete_object, Bucket=bucket, Key="a", VersionId=version,
                    BypassGovernanceRetention=True)
            refused(403, "AccessDenied", s.s3.put_object_retention, Bucket=bucket, Key="a",
                    Retention={"Mode": "GOVERNANCE", "RetainUntilDate": soon()}, BypassGovernanceRetention=True)
            break
        except (AssertionError, s.s3.exceptions.ClientError):
            if datetime.datetime.now(datetime.timezone.utc) < until:
                raise
    else:
        raise AssertionError("the requests took longer each time")
    deadline = until + datetime.timedelta(seconds=180)
    while datetime.datetime.now(datetime.timezone.utc) < deadline:
        try:
            s.s3.delete_object(Bucket=bucket, Key="a", VersionId=version)
            break
        except s.s3.exceptions.ClientError as error:
            equal(error.response["Error"]["Code"], "AccessDenied")
    refused(404, "NoSuchVersion", s.s3.get_object, Bucket=bucket, Key="a", VersionId=version)


def test_legal_hold(s):
    bucket = locked(s)
    version = s.s3.put_object(Bucket=bucket, Key="a", Body=b"x", ObjectLockLegalHoldStatus="ON")["VersionId"]
    equal(s.s3.get_object_legal_hold(Bucket=bucket, Key="a")["LegalHold"], {"Status": "ON"})
    equal(s.s3.head_object(Bucket=bucket, Key="a")["ObjectLockLegalHoldStatus"], "ON")
    refused(403, "AccessDenied", s.s3.delete_object, Bucket=bucket, Key="a", VersionId=version,
            BypassGovernanceRetention=True)
    refused(400, "MalformedXML", s.s3.put_object_legal_hold, Bucket=bucket, Key="a", LegalHold={"Status": "abc"})
    s.s3.put_object_legal_hold(Bucket=bucket, Key="a", LegalHold={"Status": "OFF"})
    equal(s.s3.get_object_legal_hold(Bucket=bucket, Key="a")["LegalHold"], {"Status": "OFF"})
    s.s3.delete_object(Bucket=bucket, Key="a", VersionId=version)


def test_locks_are_told_to_callers_with_the_right_to_them(s):
    one, two = s.one(), s.two()
    bucket = opened(one, f"{s.prefix}{next(s.numbers)}", ObjectLockEnabledForBucket=True)
    version = one.put_object(Bucket=bucket, Key="a", Body=b"x", ObjectLockLegalHoldStatus="ON", ObjectLockMode="GOVERNANCE",
                             ObjectLockRetainUntilDate=soon(2))["VersionId"]
    retention = {"ObjectLockMode", "ObjectLockRetainUntilDate"}
    for more, told in [([], set()), (["s3:GetObjectRetention"], retention),
                       (["s3:GetObjectLegalHold"], {"ObjectLockLegalHoldStatus"})]:
        one.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": "222222222222"}, "Resource": f"arn:aws:s3:::{bucket}/*",
             "Action": ["s3:GetObject", *more]}]}))
        for call in (two.get_object, two.head_object):
            equal({name for name in call(Bucket=bucket, Key="a") if name.startswith("ObjectLock")}, told)
    equal({name for name in one.head_object(Bucket=bucket, Key="a") if name.startswith("ObjectLock")},
          retention | {"ObjectLockLegalHoldStatus"})
    free(s, bucket, "a", version)


def test_new_objects(s):
    bucket = locked(s)
    put = s.s3.put_object
    refused(400, "InvalidArgument", put, Bucket=bucket, Key="a", ObjectLockMode="GOVERNANCE")
    refused(400, "InvalidArgument", put, Bucket=bucket, Key="a", ObjectLockMode="abc", ObjectLockRetainUntilDate=soon())
    refused(400, "InvalidArgument", put, Bucket=bucket, Key="a", ObjectLockMode="GOVERNANCE",
            ObjectLockRetainUntilDate=soon(-1))
    s.s3.put_object_lock_configuration(Bucket=bucket, ObjectLockConfiguration=rule(Days=2))
    made = [put(Bucket=bucket, Key="a", Body=b"x")["VersionId"]]
    upload = s.s3.create_multipart_upload(Bucket=bucket, Key="a")["UploadId"]
    part = s.s3.upload_part(Bucket=bucket, Key="a", UploadId=upload, PartNumber=1, Body=b"y")
    made.append(s.s3.complete_multipart_upload(
        Bucket=bucket, Key="a", UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})["VersionId"])
    made.append(s.s3.copy_object(Bucket=bucket, Key="a", ObjectLockLegalHoldStatus="ON",
                                 CopySource={"Bucket": bucket, "Key": "a", "VersionId": made[0]})["VersionId"])
    for version in made:
        head = s.s3.head_object(Bucket=bucket, Key="a", VersionId=version)
        equal(head["ObjectLockMode"], "GOVERNANCE")
        assert datetime.timedelta(days=1) < head["ObjectLockRetainUntilDate"] - soon(0) <= datetime.timedelta(days=2, seconds=2)
        refused(403, "AccessDenied", s.s3.delete_object, Bucket=bucket, Key="a", VersionId=version)
        free(s, bucket, "a", version)
