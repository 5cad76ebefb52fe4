"""IAM and STS on the same endpoint: users, keys, groups, roles, policies, sessions."""

import base64
import datetime
import hashlib
import json
import types

import botocore.auth
import botocore.awsrequest

import cases_form
import nebula
from cases_access import TWO, deleted, denied, made, policy, raw
from suite import code_of, equal, refused


def allow(action, resource="*"):
    return policy({"Effect": "Allow", "Action": action, "Resource": resource})


def wipe(iam):
    """Deletes everything in the account whose name starts with t-."""
    for user in iam.list_users(PathPrefix="/t/")["Users"]:
        name = user["UserName"]
        for key in iam.list_access_keys(UserName=name)["AccessKeyMetadata"]:
            iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
        for one in iam.list_user_policies(UserName=name)["PolicyNames"]:
            iam.delete_user_policy(UserName=name, PolicyName=one)
        for one in iam.list_attached_user_policies(UserName=name)["AttachedPolicies"]:
            iam.detach_user_policy(UserName=name, PolicyArn=one["PolicyArn"])
        for one in iam.list_groups_for_user(UserName=name)["Groups"]:
            iam.remove_user_from_group(UserName=name, GroupName=one["GroupName"])
        iam.delete_user(UserName=name)


def user(s, iam, name, **more):
    """A new user, and a client with its key."""
    made_user = iam.create_user(UserName=name, Path="/t/", **more)["User"]
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return made_user, s.client(key["AccessKeyId"], key["SecretAccessKey"])


def test_users(s):
    iam = s.one("iam")
    try:
        made_user = iam.create_user(UserName="Alice", Path="/t/")["User"]
        equal(made_user["Arn"], "arn:aws:iam::111111111111:user/t/Alice")
        refused(409, "EntityAlreadyExists", iam.create_user, UserName="alice")
        equal(iam.get_user(UserName="ALICE")["User"], made_user)
        iam.create_user(UserName="bob", Path="/t/x/")
        equal([u["UserName"] for page in iam.get_paginator("list_users").paginate(
            PathPrefix="/t/", PaginationConfig={"PageSize": 1}) for u in page["Users"]], ["Alice", "bob"])
        iam.update_user(UserName="bob", NewUserName="carol", NewPath="/t/y/")
        refused(404, "NoSuchEntity", iam.get_user, UserName="bob")
        equal(iam.get_user(UserName="carol")["User"]["Path"], "/t/y/")
        equal(iam.get_user()["User"]["Arn"], "arn:aws:iam::111111111111:root")
        for name in ("a b", "x" * 129, "ü"):
            refused(400, "ValidationError", iam.create_user, UserName=name) if len(name) < 64 else None
        iam.delete_user(UserName="carol")
        refused(404, "NoSuchEntity", iam.delete_user, UserName="carol")
        # Another account does not see it.
        refused(404, "NoSuchEntity", s.two("iam").get_user, UserName="Alice")
        equal(iam.get_account_summary()["SummaryMap"]["Users"], 1)
    finally:
        wipe(iam)


def test_keys(s):
    iam = s.one("iam")
    try:
        _, client = user(s, iam, "alice")
        iam.put_user_policy(UserName="alice", PolicyName="all", PolicyDocument=allow("s3:*"))
        bucket = made(s, client)
        equal(client.list_buckets()["Owner"]["ID"], "one-canonical-id")
        first = iam.list_access_keys(UserName="alice")["AccessKeyMetadata"][0]["AccessKeyId"]
        second = iam.create_access_key(UserName="alice")["AccessKey"]
        iam.update_access_key(UserName="alice", AccessKeyId=first, Status="Inactive")
        refused(403, "InvalidAccessKeyId", client.list_buckets)
        rotated = s.client(second["AccessKeyId"], second["SecretAccessKey"])
        rotated.put_object(Bucket=bucket, Key="key", Body=b"x")
        iam.delete_access_key(UserName="alice", AccessKeyId=first)
        refused(404, "NoSuchEntity", iam.delete_access_key, UserName="alice", AccessKeyId=first)
        for _ in range(3):
            iam.create_access_key(UserName="alice")
        refused(409, "LimitExceeded", iam.create_access_key, UserName="alice")
        refused(409, "DeleteConflict", iam.delete_user, UserName="alice")
        # The account's own.
        key = iam.create_access_key()["AccessKey"]
        s.client(key["AccessKeyId"], key["SecretAccessKey"]).list_objects_v2(Bucket=bucket)
        iam.delete_access_key(AccessKeyId=key["AccessKeyId"])
    finally:
        wipe(iam)


def test_policies_of_users_and_groups(s):
    iam, one = s.one("iam"), s.one()
    bucket = made(s, one)
    one.put_object(Bucket=bucket, Key="key", Body=b"x")
    try:
        _, client = user(s, iam, "alice")
        denied(client.list_buckets)
        text = allow("s3:ListBucket", f"arn:aws:s3:::{bucket}")
        iam.put_user_policy(UserName="alice", PolicyName="List", PolicyDocument=text)
        equal(json.dumps(iam.get_user_policy(UserName="alice", PolicyName="List")["PolicyDocument"]), text)
        equal(iam.list_user_policies(UserName="alice")["PolicyNames"], ["List"])
        client.list_objects_v2(Bucket=bucket)
        denied(client.get_object, Bucket=bucket, Key="key")
        iam.create_group(GroupName="readers", Path="/t/")
        iam.put_group_policy(GroupName="readers", PolicyName="Get", PolicyDocument=allow("s3:GetObject"))
        iam.add_user_to_group(GroupName="readers", UserName="alice")
        client.get_object(Bucket=bucket, Key="key")
        iam.update_group(GroupName="readers", NewGroupName="lookers")
        client.get_object(Bucket=bucket, Key="key")
        equal([u["UserName"] for u in iam.get_group(GroupName="lookers")["Users"]], ["alice"])
        refused(409, "DeleteConflict", iam.delete_group, GroupName="lookers")
        arn = iam.create_policy(PolicyName="Deny", Path="/t/", PolicyDocument=policy(
            {"Effect": "Deny", "Action": "s3:GetObject", "Resource": "*"}))["Policy"]["Arn"]
        iam.attach_user_policy(UserName="alice", PolicyArn=arn)
        denied(client.get_object, Bucket=bucket, Key="key")
        refused(409, "DeleteConflict", iam.delete_policy, PolicyArn=arn)
        iam.detach_user_policy(UserName="alice", PolicyArn=arn)
        client.get_object(Bucket=bucket, Key="key")
        iam.delete_policy(PolicyArn=arn)
        builtin = "arn:aws:iam::aws:policy/AmazonS3FullAccess"
        iam.attach_user_policy(UserName="alice", PolicyArn=builtin)
        client.put_object(Bucket=bucket, Key="new", Body=b"x")
        equal([p["PolicyName"] for p in iam.list_attached_user_policies(UserName="alice")["AttachedPolicies"]],
              ["AmazonS3FullAccess"])
        refused(404, "NoSuchEntity", iam.attach_user_policy, UserName="alice", PolicyArn=builtin + "X")
        for text in ("{}", allow("GetObject"), allow("s3:GetObject", bucket)):
            refused(400, "MalformedPolicyDocument", iam.put_user_policy, UserName="alice", PolicyName="x", PolicyDocument=text)
            refused(400, "MalformedPolicyDocument", iam.create_policy, PolicyName="x", PolicyDocument=text)
    finally:
        wipe(iam)
        iam.delete_group_policy(GroupName="lookers", PolicyName="Get")
        iam.delete_group(GroupName="lookers")


def by_form(s, client, bucket, fields):
    """The status and code of a form that the client signed with these fields."""
    signed = client.generate_presigned_post(bucket, "key", fields, [{k: v} for k, v in fields.items()])
    answer = cases_form.post(s, bucket, cases_form.form(signed["fields"].items()))
    return answer.status, code_of(answer.text)


def wipe_versions(s, bucket):
    for one in s.s3.list_object_versions(Bucket=bucket).get("Versions", []):
        s.s3.delete_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"], BypassGovernanceRetention=True)


# The extras that a request may set with an object: their action, boto3's parameters, and a form.
TOMORROW = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
TAGGING = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"
BESIDE = [
    ("PutObjectAcl", {"ACL": "public-read"}, {"acl": "public-read"}),
    ("PutObjectAcl", {"GrantRead": f"id={TWO}"}, {"x-amz-grant-read": f"id={TWO}"}),
    ("PutObjectTagging", {"Tagging": "a=b"}, {"tagging": TAGGING}),
    ("PutObjectLegalHold", {"ObjectLockLegalHoldStatus": "OFF"}, {"x-amz-object-lock-legal-hold": "OFF"}),
    ("PutObjectRetention", {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": TOMORROW},
     {"x-amz-object-lock-mode": "GOVERNANCE", "x-amz-object-lock-retain-until-date": TOMORROW.strftime("%Y-%m-%dT%H:%M:%SZ")}),
]


def test_headers_of_an_object_have_actions_of_their_own(s):
    iam, one = s.one("iam"), s.one()
    bucket = made(s, one, ObjectLockEnabledForBucket=True)
    one.put_object(Bucket=bucket, Key="source", Body=b"x")
    place = {"Bucket": bucket, "Key": "key"}
    copy = {"CopySource": f"{bucket}/source", "TaggingDirective": "REPLACE", **place}
    try:
        _, alice = user(s, iam, "alice")
        for action, options, fields in BESIDE:
            for allowed in (False, True):
                iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=allow(
                    ["s3:GetObject", "s3:PutObject"] + [f"s3:{action}"] * allowed))
                call = (lambda made, **more: made(**more)) if allowed else denied
                call(alice.put_object, Body=b"x", **place, **options)
                call(alice.copy_object, **copy, **options)
                call(alice.create_multipart_upload, **place, **options)
                equal(by_form(s, alice, bucket, fields), (204, None) if allowed else (403, "AccessDenied"))
        iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=allow("s3:PutObject"))
        alice.put_object(Body=b"x", **place)
    finally:
        wipe(iam)
        wipe_versions(s, bucket)


def test_a_form_is_no_copy(s):
    """It stores its own file, also with a field that names another object."""
    iam, one = s.one("iam"), s.one()
    bucket = made(s, one)
    one.put_object(Bucket=bucket, Key="open", Body=b"x")
    try:
        _, alice = user(s, iam, "alice")
        iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=policy(
            {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
            {"Effect": "Deny", "Action": "s3:PutObject", "Resource": "*",
             "Condition": {"StringNotLike": {"s3:x-amz-copy-source": f"{bucket}/open*"}}}))
        equal(by_form(s, alice, bucket, {"x-amz-copy-source": f"{bucket}/open"}), (403, "AccessDenied"))
        alice.copy_object(Bucket=bucket, Key="key", CopySource=f"{bucket}/open")
    finally:
        wipe(iam)


def test_how_a_form_is_signed(s):
    iam, one = s.one("iam"), s.one()
    bucket = made(s, one)
    forbidden, good = (403, "AccessDenied"), (204, None)
    try:
        _, alice = user(s, iam, "alice")
        keys = alice._request_signer._credentials
        signer = types.SimpleNamespace(keys=(keys.access_key, keys.secret_key))
        for condition, new, old, put in (
                ({"StringEquals": {"s3:authType": "POST"}}, forbidden, forbidden, True),
                ({"StringEquals": {"s3:authType": "REST-HEADER"}}, good, good, False),
                ({"StringEquals": {"s3:signatureversion": "AWS"}}, good, forbidden, True),
                ({"NumericLessThan": {"s3:signatureAge": "900000"}}, forbidden, good, False)):
            iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=policy(
                {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
                {"Effect": "Deny", "Action": "s3:PutObject", "Resource": "*", "Condition": condition}))
            equal(by_form(s, alice, bucket, {}), new)
            document = cases_form.policy(bucket, *cases_form.BASIC)
            answer = cases_form.post(s, bucket, cases_form.form(cases_form.fields(signer, document)))
            equal((answer.status, code_of(answer.text)), old)
            (alice.put_object if put else lambda **more: denied(alice.put_object, **more))(Bucket=bucket, Key="put", Body=b"x")
        signed = alice.generate_presigned_post(bucket, "key")
        answer = cases_form.post(s, bucket, cases_form.form({**signed["fields"], "x-amz-date": "soon"}.items()))
        equal((answer.status, code_of(answer.text)), (400, "InvalidArgument"))
    finally:
        wipe(iam)


def test_a_copy_takes_tags_that_may_be_read_and_put(s):
    iam, one = s.one("iam"), s.one()
    bucket = made(s, one)
    one.put_object(Bucket=bucket, Key="tagged", Body=b"x", Tagging="a=b")
    one.put_object(Bucket=bucket, Key="plain", Body=b"x")
    copy = {"Bucket": bucket, "Key": "copy", "CopySource": f"{bucket}/tagged"}
    try:
        _, alice = user(s, iam, "alice")
        for more in ([], ["s3:GetObjectTagging"], ["s3:PutObjectTagging"]):
            iam.put_user_policy(UserName="alice", PolicyName="Is",
                                PolicyDocument=allow(["s3:GetObject", "s3:PutObject"] + more))
            denied(alice.copy_object, **copy)
            alice.copy_object(**{**copy, "CopySource": f"{bucket}/plain"})
            alice.copy_object(TaggingDirective="REPLACE", **copy)
        iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=allow(
            ["s3:GetObject", "s3:PutObject", "s3:GetObjectTagging", "s3:PutObjectTagging"]))
        alice.copy_object(**copy)
        equal(one.get_object_tagging(Bucket=bucket, Key="copy")["TagSet"], [{"Key": "a", "Value": "b"}])
    finally:
        wipe(iam)


def test_a_condition_that_compares_needs_the_right_to_read(s):
    """Else a caller who may only write or delete learns an object's tag, size and time by trying."""
    iam, one = s.one("iam"), s.one()
    bucket = made(s, one)
    path, source, date = f"/{bucket}/key", f"/{bucket}/source", "Sun, 06 Nov 1994 08:49:37 GMT"
    one.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    one.put_object(Bucket=bucket, Key="source", Body=b"x")
    kept = one.put_object(Bucket=bucket, Key="key", Body=b"x")
    upload = one.create_multipart_upload(Bucket=bucket, Key="key")["UploadId"]
    part = one.upload_part(Bucket=bucket, Key="key", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    document = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part></CompleteMultipartUpload>".encode()
    calls = [("PUT", path, b"y", None, {"If-Match": '"x"'}), ("PUT", path, b"y", None, {"If-None-Match": kept["ETag"]}),
             ("PUT", path, b"", None, {"If-Match": '"x"', "x-amz-copy-source": source}),
             ("POST", path, document, {"uploadId": upload}, {"If-Match": '"x"'}),
             ("DELETE", path, b"", None, {"If-Match": '"x"'}), ("DELETE", path, b"", {"versionId": kept["VersionId"]}, {"If-Match": '"x"'}),
             ("DELETE", path, b"", None, {"x-amz-if-match-size": "9"}), ("DELETE", path, b"", None, {"x-amz-if-match-last-modified-time": date})]
    many = [f"<Key>key</Key>{more}" for more in (
        "<ETag>x</ETag>", f"<VersionId>{kept['VersionId']}</VersionId><ETag>x</ETag>", "<Size>9</Size>", f"<LastModifiedTime>{date}</LastModifiedTime>")]
    try:
        _, alice = user(s, iam, "alice")
        writes = {"Effect": "Allow", "Action": ["s3:PutObject", "s3:DeleteObject", "s3:DeleteObjectVersion"], "Resource": "*"}
        copies = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/source"}
        reads = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:GetObjectVersion"], "Resource": "*"}
        for more, answer in ([copies], (403, "AccessDenied")), ([reads], (412, "PreconditionFailed")):
            iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=policy(writes, *more))
            equal([raw(s, alice, *call) for call in calls], [answer] * len(calls))
            equal(deleted(s, alice, bucket, *many), [answer[1]] * len(many))
        # Whether there is an object may be learned by writing and by deleting.
        iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=policy(writes))
        equal(raw(s, alice, "PUT", path, b"y", None, {"If-None-Match": "*"}), (412, "PreconditionFailed"))
        equal(raw(s, alice, "DELETE", path, b"", None, {"If-Match": "*"}), (204, None))
        equal(deleted(s, alice, bucket, "<Key>key</Key><ETag>*</ETag>"), [])
    finally:
        wipe(iam)
        s.versions_deleted(bucket)


def test_a_denial_by_tags_holds_for_a_key_that_is_missing(s):
    """A caller who may list hears that an object is missing, but neither creates nor deletes it."""
    iam, one = s.one("iam"), s.one()
    bucket = made(s, one)
    one.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    one.put_object(Bucket=bucket, Key="source", Body=b"x", Tagging="team=blue")
    place = {"Bucket": bucket, "Key": "key"}
    try:
        _, alice = user(s, iam, "alice")
        iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=policy(
            {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
            {"Effect": "Deny", "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"], "Resource": f"arn:aws:s3:::{bucket}/*",
             "Condition": {"StringNotEquals": {"s3:ExistingObjectTag/team": "blue"}}}))
        denied(alice.put_object, Body=b"x", **place)
        denied(alice.copy_object, CopySource=f"{bucket}/source", **place)
        denied(alice.create_multipart_upload, **place)
        denied(alice.delete_object, **place)
        equal(by_form(s, alice, bucket, {}), (403, "AccessDenied"))
        equal([e["Code"] for e in alice.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "key"}]})["Errors"]],
              ["AccessDenied"])
        refused(404, "NoSuchKey", alice.get_object, **place)
        refused(404, "NoSuchKey", alice.copy_object, Bucket=bucket, Key="source", CopySource=f"{bucket}/key")
        alice.put_object(Bucket=bucket, Key="source", Body=b"y", Tagging="team=blue")
        listed = one.list_object_versions(Bucket=bucket)
        equal(([v["Key"] for v in listed["Versions"]], listed.get("DeleteMarkers", [])), (["source"] * 2, []))
    finally:
        wipe(iam)
        s.versions_deleted(bucket)


def test_conditions_are_about_the_version_that_is_named(s):
    """Also where a document or a header names it: each version of DeleteObjects, the source of a copy."""
    iam, one = s.one("iam"), s.one()
    bucket = made(s, one)
    one.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    kept, named, plain, current = [one.put_object(Bucket=bucket, Key="key", Body=b"x", Tagging=tags)["VersionId"]
                                   for tags in ("keep=yes", "keep=no", "keep=no", "keep=no")]
    actions = ["s3:DeleteObjectVersion", "s3:GetObjectVersion"]
    source = {"Bucket": bucket, "Key": "key"}
    try:
        _, alice = user(s, iam, "alice")
        iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=policy(
            {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
            {"Effect": "Deny", "Action": actions, "Resource": "*", "Condition": {"StringEquals": {"s3:ExistingObjectTag/keep": "yes"}}},
            {"Effect": "Deny", "Action": actions, "Resource": "*", "Condition": {"StringEquals": {"s3:VersionId": named}}},
            {"Effect": "Deny", "Action": "s3:PutObjectVersionAcl", "Resource": "*", "Condition": {"StringNotEquals": {"s3:VersionId": named}}}))
        # This one is decided again once its body is there.
        one.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerPreferred"}]})
        alice.put_object_acl(ACL="private", VersionId=named, **source)
        denied(alice.put_object_acl, ACL="private", VersionId=kept, **source)
        upload = alice.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]
        part = {"Bucket": bucket, "Key": "parts", "UploadId": upload, "PartNumber": 1}
        for version in (kept, named):
            denied(alice.get_object, VersionId=version, **source)
            denied(alice.delete_object, VersionId=version, **source)
            denied(alice.copy_object, Bucket=bucket, Key="copy", TaggingDirective="REPLACE", CopySource={**source, "VersionId": version})
            denied(alice.upload_part_copy, CopySource={**source, "VersionId": version}, **part)
        alice.copy_object(Bucket=bucket, Key="copy", TaggingDirective="REPLACE", CopySource={**source, "VersionId": plain})
        alice.upload_part_copy(CopySource={**source, "VersionId": plain}, **part)
        done = alice.delete_objects(Bucket=bucket, Delete={"Objects": [
            {"Key": "key", "VersionId": version} for version in (kept, named, plain)]})
        equal([(e["VersionId"], e["Code"]) for e in done["Errors"]], [(kept, "AccessDenied"), (named, "AccessDenied")])
        equal([d["VersionId"] for d in done["Deleted"]], [plain])
        left = one.list_object_versions(Bucket=bucket, Prefix="key")["Versions"]
        equal([v["VersionId"] for v in left], [current, named, kept])
    finally:
        wipe(iam)
        s.versions_deleted(bucket)


def test_headers_of_a_bucket_have_actions_of_their_own(s):
    iam = s.one("iam")
    writer = {"ObjectOwnership": "ObjectWriter"}
    beside = [(["PutBucketOwnershipControls", "PutBucketAcl"], {"ACL": "log-delivery-write", **writer}),
              (["PutBucketOwnershipControls", "PutBucketAcl"], {"GrantWrite": f"id={TWO}", **writer}),
              (["PutBucketOwnershipControls"], {"ObjectOwnership": "BucketOwnerEnforced"}),
              (["PutBucketObjectLockConfiguration", "PutBucketVersioning"], {"ObjectLockEnabledForBucket": True})]

    def make(**options):
        alice.create_bucket(Bucket=f"{s.prefix}{next(s.numbers)}", **options)

    try:
        _, alice = user(s, iam, "alice")
        for actions, options in beside:
            for count in range(len(actions)):
                iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=allow(
                    ["s3:CreateBucket"] + [f"s3:{action}" for action in actions[:count]]))
                denied(make, **options)
            iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=allow(
                ["s3:CreateBucket"] + [f"s3:{action}" for action in actions]))
            make(**options)
        iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=allow("s3:CreateBucket"))
        make(ACL="private")
        # Today's boto3 has no tags there.
        keys = alice._request_signer._credentials
        client = nebula.Client(s.plain.split("//")[1], keys.access_key, keys.secret_key)
        body = (b"<CreateBucketConfiguration><Tags><Tag><Key>a</Key><Value>1</Value></Tag></Tags></CreateBucketConfiguration>")
        name = f"{s.prefix}{next(s.numbers)}"
        status, _, answer = client.request("PUT", f"/{name}", body)
        equal((status, code_of(answer)), (403, "AccessDenied"))
        refused(404, "NoSuchBucket", s.one().get_bucket_tagging, Bucket=name)
        iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=allow(["s3:CreateBucket", "s3:TagResource"]))
        equal(client.request("PUT", f"/{name}", body)[0], 200)
        client.close()
        equal(s.one().get_bucket_tagging(Bucket=name)["TagSet"], [{"Key": "a", "Value": "1"}])
    finally:
        wipe(iam)


def test_declined_operations_need_their_right(s):
    iam, one = s.one("iam"), s.one()
    bucket = made(s, one)
    one.put_object(Bucket=bucket, Key="key", Body=b"x")

    def inventory(client):
        client.get_bucket_inventory_configuration(Bucket=bucket, Id="one")

    def select(client):
        client.select_object_content(
            Bucket=bucket, Key="key", ExpressionType="SQL", Expression="SELECT 1", InputSerialization={"CSV": {}},
            OutputSerialization={"CSV": {}})

    def table(client):
        client.get_bucket_metadata_table_configuration(Bucket=bucket)

    calls = [call for call in (inventory, select, table) if call is not table or hasattr(one, "get_bucket_metadata_table_configuration")]
    answers = {inventory: (404, "NoSuchConfiguration")}
    try:
        _, alice = user(s, iam, "alice")
        for call in calls:
            for client in (s.s3, one):
                refused(*answers.get(call, (501, "NotImplemented")), call, client)
            for client in (s.two(), s.client(unsigned=True), alice):
                denied(call, client)
        for actions, may in [("s3:*", calls), ("s3:GetInventoryConfiguration", [inventory]), ("s3:Get*", [inventory, select]),
                             (["s3:GetObject", "s3:PutInventoryConfiguration"], [select])]:
            iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=allow(actions))
            for call in calls:
                answer = answers.get(call, (501, "NotImplemented")) if call in may else (403, "AccessDenied")
                refused(*answer, call, alice)
    finally:
        wipe(iam)
    # An unknown method, and a request without a bucket.
    for keys, method, path, answer in [
            (("ONEACCESSKEY", "one-secret-key-0123456789"), "POST", f"/{bucket}/key", (405, "MethodNotAllowed")),
            (("TWOACCESSKEY", "two-secret-key-0123456789"), "POST", f"/{bucket}/key", (403, "AccessDenied")),
            (("TWOACCESSKEY", "two-secret-key-0123456789"), "PUT", "/", (405, "MethodNotAllowed"))]:
        client = nebula.Client(s.plain.split("//")[1], *keys)
        try:
            status, _, body = client.request(method, path)
            equal((status, code_of(body)), answer)
        finally:
            client.close()


def test_attributes_are_told_to_who_may_read_the_object(s):
    iam, one = s.one("iam"), s.one()
    bucket = made(s, one)
    one.put_object(Bucket=bucket, Key="key", Body=b"x")
    version = one.head_object(Bucket=bucket, Key="key").get("VersionId", "null")
    ask = {"Bucket": bucket, "Key": "key", "ObjectAttributes": ["ObjectSize"]}
    try:
        _, alice = user(s, iam, "alice")
        for actions in ("s3:GetObjectAttributes", "s3:GetObject", ["s3:GetObjectVersion", "s3:GetObjectVersionAttributes"]):
            iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=allow(actions))
            denied(alice.get_object_attributes, **ask)
        alice.get_object_attributes(VersionId=version, **ask)
        iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=allow(["s3:GetObjectAttributes", "s3:GetObject"]))
        equal(alice.get_object_attributes(**ask)["ObjectSize"], 1)
        denied(alice.get_object_attributes, VersionId=version, **ask)
    finally:
        wipe(iam)


def test_rights_to_change_identities(s):
    iam = s.two("iam")
    reader = s.client("TWOREADERKEY", "two-reader-secret-0123", service="iam")
    denied(reader.create_user, UserName="mallory")
    denied(reader.list_users)
    # An owner in an account may not; a user with the policy may.
    denied(s.three("iam").create_user, UserName="mallory")
    four = s.four("iam")
    four.put_user_policy(UserName="three", PolicyName="NoList", PolicyDocument=policy(
        {"Effect": "Deny", "Action": "s3:ListAllMyBuckets", "Resource": "*"}))
    denied(s.three().list_buckets)
    four.delete_user_policy(UserName="three", PolicyName="NoList")
    s.three().list_buckets()
    # A name without an account means the caller's own.
    own = allow(["iam:GetUserPolicy", "iam:DeleteUserPolicy"], "arn:aws:iam:::user/three")
    four.put_user_policy(UserName="three", PolicyName="Own", PolicyDocument=own)
    denied(s.three("iam").delete_user_policy, UserName="four", PolicyName="Own")
    equal(json.dumps(s.three("iam").get_user_policy(UserName="three", PolicyName="Own")["PolicyDocument"]), own)
    s.three("iam").delete_user_policy(UserName="three", PolicyName="Own")
    denied(s.three("iam").get_user_policy, UserName="three", PolicyName="Own")
    refused(403, "InvalidClientTokenId", s.client("NOBODY", "x" * 20, service="iam").list_users)
    refused(403, "SignatureDoesNotMatch", s.client("TWOACCESSKEY", "x" * 20, service="iam").list_users)
    refused(400, "InvalidAction", iam.list_saml_providers)


def test_rights_to_ones_own_user(s):
    """A call that names no user is about the caller, as if it named it."""
    iam, calls = s.one("iam"), "iam:*AccessKey*"
    try:
        ci = iam.create_user(UserName="ci", Path="/t/")["User"]
        key = iam.create_access_key(UserName="ci")["AccessKey"]
        own = s.client(key["AccessKeyId"], key["SecretAccessKey"], service="iam")
        iam.put_user_policy(UserName="ci", PolicyName="self", PolicyDocument=allow(calls, "arn:aws:iam::*:user/t/${aws:username}"))
        made_key = own.create_access_key()["AccessKey"]
        equal((made_key["UserName"], len(own.list_access_keys()["AccessKeyMetadata"])), ("ci", 2))
        own.delete_access_key(AccessKeyId=made_key["AccessKeyId"])
        iam.put_user_policy(UserName="ci", PolicyName="self", PolicyDocument=policy(
            {"Effect": "Allow", "Action": calls, "Resource": "*"}, {"Effect": "Deny", "Action": calls, "Resource": ci["Arn"]}))
        denied(own.create_access_key)
        denied(own.list_access_keys)
    finally:
        wipe(iam)


def test_a_role_of_ones_own_account(s):
    """Its ARN needs no account number."""
    iam = s.one("iam")
    trust = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111111111111:root"}, "Action": "sts:AssumeRole"}
    iam.create_role(RoleName="own", Path="/p/", AssumeRolePolicyDocument=policy(trust))
    try:
        given = s.one("sts").assume_role(RoleArn="arn:aws:iam:::role/p/own", RoleSessionName="visit")
        equal(given["AssumedRoleUser"]["Arn"], "arn:aws:sts::111111111111:assumed-role/own/visit")
        for client, arn in [(s.two("sts"), "arn:aws:iam:::role/p/own"), (s.one("sts"), "arn:aws:iam:::role/own"),
                            (s.one("sts"), "arn:aws:iam:::role/p/none"), (s.one("sts"), "role/p/own-of-some-account")]:
            refused(403, "AccessDenied", client.assume_role, RoleArn=arn, RoleSessionName="visit")
    finally:
        iam.delete_role(RoleName="own")


def test_an_owner_inside_an_account_is_not_the_account(s):
    """A grant to an account applies to its root; a user, with or without an id, needs a policy that delegates it."""
    iam, one, three, four = s.one("iam"), s.one(), s.three(), s.four("iam")
    account = {"AWS": "arn:aws:iam::333333333333:root"}
    bucket, local = made(s, one), made(s, s.four())
    one.put_bucket_policy(Bucket=bucket, Policy=policy(
        {"Effect": "Allow", "Principal": account, "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{bucket}"}))
    s.four().put_bucket_policy(Bucket=local, Policy=policy(
        {"Effect": "Allow", "Principal": account, "Action": "s3:ListBucket", "Resource": f"arn:aws:s3:::{local}"}))
    trust = {"Effect": "Allow", "Principal": account, "Action": "sts:AssumeRole"}
    arn = iam.create_role(RoleName="open", AssumeRolePolicyDocument=policy(trust))["Role"]["Arn"]
    assume = {"RoleArn": arn, "RoleSessionName": "visit"}
    try:
        for name in (bucket, local):
            denied(three.list_objects_v2, Bucket=name)
        refused(403, "AccessDenied", s.three("sts").assume_role, **assume)
        four.put_user_policy(UserName="three", PolicyName="Is", PolicyDocument=allow(["s3:ListBucket", "sts:AssumeRole"]))
        for name in (bucket, local):
            three.list_objects_v2(Bucket=name)
        s.three("sts").assume_role(**assume)
    finally:
        iam.delete_role(RoleName="open")
        four.delete_user_policy(UserName="three", PolicyName="Is")


def test_a_user_of_another_account_needs_both_sides_to_assume_a_role(s):
    iam, own = s.one("iam"), s.two("iam")
    try:
        given, _ = user(s, own, "bob")
        key = own.create_access_key(UserName="bob")["AccessKey"]
        sts = s.client(key["AccessKeyId"], key["SecretAccessKey"], service="sts")
        arn = iam.create_role(RoleName="named", AssumeRolePolicyDocument=policy(
            {"Effect": "Allow", "Principal": {"AWS": given["Arn"]}, "Action": "sts:AssumeRole"}))["Role"]["Arn"]
        refused(403, "AccessDenied", sts.assume_role, RoleArn=arn, RoleSessionName="visit")
        own.put_user_policy(UserName="bob", PolicyName="Is", PolicyDocument=allow("sts:AssumeRole", arn))
        sts.assume_role(RoleArn=arn, RoleSessionName="visit")
    finally:
        wipe(own)
        iam.delete_role(RoleName="named")


def test_roles(s):
    iam, two = s.one("iam"), s.two("sts")
    bucket = made(s, s.one())
    trust = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::222222222222:root"}, "Action": "sts:AssumeRole"}
    try:
        arn = iam.create_role(RoleName="visitor", Path="/t/", AssumeRolePolicyDocument=policy(trust))["Role"]["Arn"]
        equal(iam.get_role(RoleName="visitor")["Role"]["AssumeRolePolicyDocument"]["Statement"], [trust])
        iam.put_role_policy(RoleName="visitor", PolicyName="List", PolicyDocument=allow(["s3:ListBucket", "s3:PutObject"]))

        def session(client, **more):
            given = client.assume_role(RoleArn=arn, RoleSessionName="visit", **more)["Credentials"]
            return given, s.client(given["AccessKeyId"], given["SecretAccessKey"], token=given["SessionToken"])

        given, client = session(two)
        client.list_objects_v2(Bucket=bucket)
        client.put_object(Bucket=bucket, Key="key", Body=b"x")
        denied(client.get_object, Bucket=bucket, Key="key")
        who = s.client(given["AccessKeyId"], given["SecretAccessKey"], service="sts",
                       token=given["SessionToken"]).get_caller_identity()
        equal(who["Arn"], "arn:aws:sts::111111111111:assumed-role/visitor/visit")
        _, narrow = session(two, Policy=allow("s3:ListBucket"))
        narrow.list_objects_v2(Bucket=bucket)
        denied(narrow.put_object, Bucket=bucket, Key="key", Body=b"x")
        # A forged token, another session's token, and none.
        access, secret, token = given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"]
        refused(400, "InvalidToken", s.client(access, secret, token=token[:-8] + "AAAAAAA=").list_buckets)
        refused(400, "InvalidToken", s.client("ONEACCESSKEY", "one-secret-key-0123456789", token=token).list_buckets)
        refused(403, "InvalidAccessKeyId", s.client(access, secret).list_buckets)
        refused(403, "SignatureDoesNotMatch", s.client(access, "x" * 40, token=token).list_buckets)
        url = client.generate_presigned_url("list_objects_v2", Params={"Bucket": bucket})
        assert "X-Amz-Security-Token" in url
        # Callers without trust; users of a trusted account need a policy of their own.
        refused(403, "AccessDenied", session, s.three("sts"))
        reader = s.client("TWOREADERKEY", "two-reader-secret-0123", service="sts")
        refused(403, "AccessDenied", session, reader)
        refused(400, "ValidationError", two.assume_role, RoleArn=arn, RoleSessionName="a b")
        # The role of a session may be deleted before the session ends.
        iam.delete_role_policy(RoleName="visitor", PolicyName="List")
        denied(client.list_objects_v2, Bucket=bucket)
        iam.delete_role(RoleName="visitor")
        refused(400, "InvalidToken", client.list_objects_v2, Bucket=bucket)
        # Another role of its name is not the session's.
        iam.create_role(RoleName="visitor", Path="/t/", AssumeRolePolicyDocument=policy(trust))
        iam.put_role_policy(RoleName="visitor", PolicyName="List", PolicyDocument=allow("s3:ListBucket"))
        refused(400, "InvalidToken", client.list_objects_v2, Bucket=bucket)
        session(two)[1].list_objects_v2(Bucket=bucket)
        iam.delete_role_policy(RoleName="visitor", PolicyName="List")
        iam.delete_role(RoleName="visitor")
    finally:
        wipe(iam)


def test_sessions_of_oneself(s):
    for make in (s.two, s.client):
        sts = make(service="sts")
        given = sts.get_session_token()["Credentials"]
        client = s.client(given["AccessKeyId"], given["SecretAccessKey"], token=given["SessionToken"])
        bucket = made(s, client)
        equal([b["Name"] for b in make().list_buckets()["Buckets"]], [bucket])
        make().delete_bucket(Bucket=bucket)
        # It does not make another one, which would never end.
        refused(403, "AccessDenied", s.client(given["AccessKeyId"], given["SecretAccessKey"], service="sts", token=given["SessionToken"]).get_session_token)
    equal(s.two("sts").get_caller_identity()["Account"], "222222222222")


def test_a_session_of_oneself_ends_with_its_key(s):
    iam = s.one("iam")
    try:
        user(s, iam, "alice")
        iam.put_user_policy(UserName="alice", PolicyName="all", PolicyDocument=allow("s3:*"))
        for whose in ({"UserName": "alice"}, {}):  # a user's, and the account's own
            key, other = (iam.create_access_key(**whose)["AccessKey"] for _ in range(2))
            sts = s.client(key["AccessKeyId"], key["SecretAccessKey"], service="sts")
            given = sts.get_session_token()["Credentials"]
            client = s.client(given["AccessKeyId"], given["SecretAccessKey"], token=given["SessionToken"])
            client.list_buckets()
            iam.update_access_key(AccessKeyId=key["AccessKeyId"], Status="Inactive", **whose)
            refused(400, "InvalidToken", client.list_buckets)
            iam.update_access_key(AccessKeyId=key["AccessKeyId"], Status="Active", **whose)
            client.list_buckets()
            iam.delete_access_key(AccessKeyId=other["AccessKeyId"], **whose)
            client.list_buckets()
            iam.delete_access_key(AccessKeyId=key["AccessKeyId"], **whose)
            refused(400, "InvalidToken", client.list_buckets)
    finally:
        wipe(iam)


def test_policies_that_want_sessions(s):
    four, three = s.four("iam"), s.three()
    four.put_user_policy(UserName="three", PolicyName="Session", PolicyDocument=policy(
        {"Effect": "Deny", "Action": "s3:*", "Resource": "*", "Condition": {"BoolIfExists": {"sts:authentication": "false"}}}))
    try:
        denied(three.list_buckets)
        given = s.three("sts").get_session_token()["Credentials"]
        s.client(given["AccessKeyId"], given["SecretAccessKey"], token=given["SessionToken"]).list_buckets()
    finally:
        four.delete_user_policy(UserName="three", PolicyName="Session")


def told(tags):
    return sorted((tag["Key"], tag["Value"]) for tag in tags)


def test_tags(s):
    """Tags of users, roles and policies; and policies with conditions on the caller's tags."""
    one, iam = s.one(), s.one("iam")
    try:
        first = [{"Key": "Team", "Value": "red"}, {"Key": "empty", "Value": ""}]
        made_user, key = user(s, iam, "tagged", Tags=first)
        name = made_user["UserName"]
        equal(told(iam.get_user(UserName=name)["User"]["Tags"]), told(first))
        iam.tag_user(UserName=name, Tags=[{"Key": "team", "Value": "blue"}])
        equal(told(iam.list_user_tags(UserName=name)["Tags"]), [("empty", ""), ("team", "blue")])
        page = iam.list_user_tags(UserName=name, MaxItems=1)
        equal((page["IsTruncated"], len(page["Tags"])), (True, 1))
        equal(iam.list_user_tags(UserName=name, Marker=page["Marker"])["Tags"], [{"Key": "team", "Value": "blue"}])
        assert "Tags" not in iam.list_users()["Users"][0]
        for key_text, value in (("aws:x", ""), ("a", "\x01"), ("a\x1f", ""), ("a", "b\x7f")):
            refused(400, "ValidationError", iam.tag_user, UserName=name, Tags=[{"Key": key_text, "Value": value}])
        refused(404, "NoSuchEntity", iam.tag_user, UserName="nobody", Tags=first)
        bucket = f"{s.prefix}{next(s.numbers)}"
        one.create_bucket(Bucket=bucket)
        for team in ("red", "blue"):
            one.put_object(Bucket=bucket, Key=f"{team}/key", Body=b"x")
        iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=allow(
            "s3:GetObject", f"arn:aws:s3:::{bucket}/${{aws:PrincipalTag/Team}}/*"))
        key.get_object(Bucket=bucket, Key="blue/key")
        refused(403, "AccessDenied", key.get_object, Bucket=bucket, Key="red/key")
        iam.untag_user(UserName=name, TagKeys=["TEAM"])
        refused(403, "AccessDenied", key.get_object, Bucket=bucket, Key="blue/key")
        equal(told(iam.list_user_tags(UserName=name)["Tags"]), [("empty", "")])
        trust = json.dumps({"Version": "2012-10-17", "Statement": [
            {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}]})
        role = iam.create_role(RoleName="short", AssumeRolePolicyDocument=trust, Tags=first, MaxSessionDuration=7200)["Role"]
        equal((told(role["Tags"]), role["MaxSessionDuration"]), (told(first), 7200))
        iam.untag_role(RoleName="short", TagKeys=["Team", "empty"])
        equal(iam.list_role_tags(RoleName="short")["Tags"], [])
        sts = s.one("sts")
        session = {"RoleArn": role["Arn"], "RoleSessionName": "session"}
        sts.assume_role(**session, DurationSeconds=7200)
        refused(400, "ValidationError", sts.assume_role, **session, Tags=[{"Key": "Team", "Value": "\x01"}])
        refused(400, "ValidationError", sts.assume_role, **session, DurationSeconds=7201)
        iam.update_role(RoleName="short", MaxSessionDuration=3600)
        refused(400, "ValidationError", sts.assume_role, **session, DurationSeconds=7200)
        refused(400, "ValidationError", sts.assume_role, **session, SerialNumber="arn:aws:iam::1:mfa/one", TokenCode="123456")
        iam.delete_role(RoleName="short")
        arn = iam.create_policy(PolicyName="tagged", PolicyDocument=allow("s3:*"), Tags=first)["Policy"]["Arn"]
        equal(told(iam.list_policy_tags(PolicyArn=arn)["Tags"]), told(first))
        iam.delete_policy(PolicyArn=arn)
    finally:
        wipe(iam)


def test_managed_policies_that_narrow_a_session(s):
    iam, sts = s.one("iam"), s.one("sts")
    bucket = made(s, s.one())
    s.one().put_object(Bucket=bucket, Key="key", Body=b"x")
    trust = policy({"Effect": "Allow", "Principal": {"AWS": "111111111111"}, "Action": "sts:AssumeRole"})
    role = iam.create_role(RoleName="narrow", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    own = iam.create_policy(PolicyName="put", PolicyDocument=allow("s3:PutObject"))["Policy"]["Arn"]
    builtin = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
    kept = [own]

    def session(*arns, **more):
        given = sts.assume_role(RoleArn=role, RoleSessionName="visit", PolicyArns=[{"arn": arn} for arn in arns], **more)["Credentials"]
        return s.client(given["AccessKeyId"], given["SecretAccessKey"], token=given["SessionToken"])

    try:
        iam.put_role_policy(RoleName="narrow", PolicyName="all", PolicyDocument=allow(["s3:GetObject", "s3:PutObject"]))
        reads, both, inline = session(builtin), session(builtin, own), session(own, Policy=allow("s3:GetObject"))
        for client in (reads, both, inline):
            client.get_object(Bucket=bucket, Key="key")
            # The role itself may not.
            denied(client.list_objects_v2, Bucket=bucket)
        denied(reads.put_object, Bucket=bucket, Key="key", Body=b"x")
        for client in (both, inline):
            client.put_object(Bucket=bucket, Key="key", Body=b"x")
        # A deleted policy gives no rights; a session with only that policy has none.
        only = session(own)
        only.put_object(Bucket=bucket, Key="key", Body=b"x")
        iam.delete_policy(PolicyArn=kept.pop())
        for client in (both, only):
            denied(client.put_object, Bucket=bucket, Key="key", Body=b"x")
        both.get_object(Bucket=bucket, Key="key")
        for arns in ([own], [builtin + "X"], [builtin] * 11):
            refused(400, "ValidationError", session, *arns)
    finally:
        iam.delete_role_policy(RoleName="narrow", PolicyName="all")
        iam.delete_role(RoleName="narrow")
        for arn in kept:
            iam.delete_policy(PolicyArn=arn)


def test_tags_of_sessions(s):
    iam = s.one("iam")
    bucket = made(s, s.one())
    account = {"AWS": "111111111111"}
    trust = [{"Effect": "Allow", "Principal": account, "Action": "sts:AssumeRole"},
             {"Effect": "Allow", "Principal": account, "Action": "sts:TagSession", "Condition": {
                 "StringEquals": {"aws:RequestTag/Team": ["red", "blue"]},
                 "ForAllValues:StringEquals": {"aws:TagKeys": ["Team", "Project"]}}}]
    roles = {"plain": trust[:1], "tagged": trust,
             "many": [trust[0], {**trust[0], "Action": "sts:TagSession"}],
             "outside": [{**trust[0], "Condition": {"StringEquals": {"sts:ExternalId": "42", "sts:RoleSessionName": "visit"}}}]}
    tag, untagged = {"Key": "Team", "Value": "red"}, {"Key": "Team", "Value": "green"}

    def enter(role, given=None, name="visit", **more):
        keys = (given["AccessKeyId"], given["SecretAccessKey"]) if given else ("ONEACCESSKEY", "one-secret-key-0123456789")
        sts = s.client(*keys, service="sts", token=given and given["SessionToken"])
        return sts.assume_role(RoleArn=f"arn:aws:iam::111111111111:role/{role}", RoleSessionName=name, **more)["Credentials"]

    def client(given):
        return s.client(given["AccessKeyId"], given["SecretAccessKey"], token=given["SessionToken"])

    try:
        for role, statements in roles.items():
            iam.create_role(RoleName=role, AssumeRolePolicyDocument=policy(*statements), Tags=[{"Key": "team", "Value": "own"}])
            iam.put_role_policy(RoleName=role, PolicyName="own", PolicyDocument=policy(
                {"Effect": "Allow", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{bucket}/${{aws:PrincipalTag/Team}}/*"},
                {"Effect": "Allow", "Action": "sts:*", "Resource": "*"}))
        # A session's own tags override the role's.
        for given, mine, other in [(enter("tagged"), "own", "red"), (enter("tagged", Tags=[tag]), "red", "own")]:
            client(given).put_object(Bucket=bucket, Key=f"{mine}/key", Body=b"x")
            denied(client(given).put_object, Bucket=bucket, Key=f"{other}/key", Body=b"x")
        refused(403, "AccessDenied", enter, "plain", Tags=[tag])
        refused(403, "AccessDenied", enter, "tagged", Tags=[untagged])
        refused(403, "AccessDenied", enter, "tagged", Tags=[tag, {"Key": "Else", "Value": ""}])
        refused(400, "ValidationError", enter, "tagged", Tags=[tag, {"Key": "TEAM", "Value": "red"}])
        refused(400, "ValidationError", enter, "tagged", Tags=[{"Key": "aws:x", "Value": "red"}])
        refused(400, "PackedPolicyTooLarge", enter, "many",
                Tags=[{"Key": f"{n}".rjust(120, "k"), "Value": "v" * 256} for n in range(50)])
        refused(400, "ValidationError", enter, "many", Tags=[{"Key": f"{n}", "Value": ""} for n in range(51)])
        enter("many", Tags=[{"Key": f"{n}", "Value": ""} for n in range(50)])
        # Transitive tags are passed on; others are not.
        for transitive, mine in [(["team"], "red"), ([], "own")]:
            first = enter("tagged", Tags=[tag], TransitiveTagKeys=transitive)
            second = client(enter("tagged", first))
            second.put_object(Bucket=bucket, Key=f"{mine}/key", Body=b"x")
            denied(second.put_object, Bucket=bucket, Key=f"{'own' if mine == 'red' else 'red'}/key", Body=b"x")
        first = enter("tagged", Tags=[tag], TransitiveTagKeys=["Team"])
        refused(400, "ValidationError", enter, "tagged", first, Tags=[{"Key": "Team", "Value": "blue"}])
        refused(403, "AccessDenied", enter, "plain", first)
        enter("outside", ExternalId="42")
        for more in ({}, {"ExternalId": "43"}, {"ExternalId": "42", "name": "else"}):
            refused(403, "AccessDenied", enter, "outside", **more)
    finally:
        for role in [r["RoleName"] for r in iam.list_roles()["Roles"] if r["RoleName"] in roles]:
            iam.delete_role_policy(RoleName=role, PolicyName="own")
            iam.delete_role(RoleName=role)


def versions(iam, arn):
    """"v3 v2* v1": the newest first, the default one with a star."""
    return " ".join(v["VersionId"] + "*" * v["IsDefaultVersion"] for v in iam.list_policy_versions(PolicyArn=arn)["Versions"])


def wipe_policy(iam, arn):
    for version in iam.list_policy_versions(PolicyArn=arn)["Versions"]:
        if not version["IsDefaultVersion"]:
            iam.delete_policy_version(PolicyArn=arn, VersionId=version["VersionId"])
    iam.delete_policy(PolicyArn=arn)


def test_versions_of_a_policy(s):
    """Up to five, of which the default one applies, at once."""
    iam, one = s.one("iam"), s.one()
    bucket = made(s, one)
    one.put_object(Bucket=bucket, Key="key", Body=b"x")
    texts = [allow("s3:ListBucket"), allow("s3:GetObject"), allow("s3:PutObject")]
    arn = iam.create_policy(PolicyName="versioned", Path="/p/", Description="what for", PolicyDocument=texts[0])["Policy"]["Arn"]
    try:
        told_policy = iam.get_policy(PolicyArn=arn)["Policy"]
        equal([told_policy[name] for name in ("Description", "DefaultVersionId", "AttachmentCount", "PermissionsBoundaryUsageCount")],
              ["what for", "v1", 0, 0])
        _, alice = user(s, iam, "alice")
        iam.attach_user_policy(UserName="alice", PolicyArn=arn)
        equal(iam.get_policy(PolicyArn=arn)["Policy"]["AttachmentCount"], 1)
        denied(alice.get_object, Bucket=bucket, Key="key")
        new = iam.create_policy_version(PolicyArn=arn, PolicyDocument=texts[1])["PolicyVersion"]
        equal((new["VersionId"], new["IsDefaultVersion"], "Document" in new), ("v2", False, False))
        denied(alice.get_object, Bucket=bucket, Key="key")
        iam.set_default_policy_version(PolicyArn=arn, VersionId="v2")
        alice.get_object(Bucket=bucket, Key="key")
        denied(alice.list_objects_v2, Bucket=bucket)
        equal(iam.create_policy_version(PolicyArn=arn, PolicyDocument=texts[2], SetAsDefault=True)["PolicyVersion"]["VersionId"], "v3")
        denied(alice.get_object, Bucket=bucket, Key="key")
        alice.put_object(Bucket=bucket, Key="new", Body=b"x")
        equal((versions(iam, arn), iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]), ("v3* v2 v1", "v3"))
        for number, text in enumerate(texts, 1):
            version = iam.get_policy_version(PolicyArn=arn, VersionId=f"v{number}")["PolicyVersion"]
            equal((version["Document"], version["IsDefaultVersion"]), (json.loads(text), number == 3))
        page = iam.list_policy_versions(PolicyArn=arn, MaxItems=2)
        equal(([v["VersionId"] for v in page["Versions"]], page["IsTruncated"]), (["v3", "v2"], True))
        equal([v["VersionId"] for v in iam.list_policy_versions(PolicyArn=arn, Marker=page["Marker"])["Versions"]], ["v1"])
        for _ in range(2):
            iam.create_policy_version(PolicyArn=arn, PolicyDocument=texts[0])
        refused(409, "LimitExceeded", iam.create_policy_version, PolicyArn=arn, PolicyDocument=texts[0], SetAsDefault=True)
        refused(409, "DeleteConflict", iam.delete_policy_version, PolicyArn=arn, VersionId="v3")
        iam.detach_user_policy(UserName="alice", PolicyArn=arn)
        refused(409, "DeleteConflict", iam.delete_policy, PolicyArn=arn)
        iam.delete_policy_version(PolicyArn=arn, VersionId="v5")
        equal(iam.create_policy_version(PolicyArn=arn, PolicyDocument=texts[0])["PolicyVersion"]["VersionId"], "v6")
        equal(versions(iam, arn), "v6 v4 v3* v2 v1")
    finally:
        wipe(iam)
        wipe_policy(iam, arn)


def test_versions_that_cannot_be(s):
    iam = s.one("iam")
    arn = iam.create_policy(PolicyName="versioned", PolicyDocument=allow("s3:GetObject"))["Policy"]["Arn"]
    none, builtin = arn + "-none", "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
    calls = [iam.get_policy_version, iam.set_default_policy_version, iam.delete_policy_version]
    try:
        for call in calls:
            refused(404, "NoSuchEntity", call, PolicyArn=none, VersionId="v1")
            for version in ("v9", "v99999999999", "v1.x", "v" + "9" * 19):
                refused(404, "NoSuchEntity", call, PolicyArn=arn, VersionId=version)
            for version in ("v0", "v01", "1", "v", "vx", "v-1"):
                refused(400, "ValidationError", call, PolicyArn=arn, VersionId=version)
        refused(404, "NoSuchEntity", iam.list_policy_versions, PolicyArn=none)
        refused(404, "NoSuchEntity", iam.create_policy_version, PolicyArn=none, PolicyDocument=allow("s3:GetObject"))
        refused(400, "MalformedPolicyDocument", iam.create_policy_version, PolicyArn=arn, PolicyDocument="{}")
        equal(versions(iam, arn), "v1*")
        # Policies that every account has can be read.
        equal(iam.get_policy(PolicyArn=builtin)["Policy"]["Arn"], builtin)
        equal(iam.get_policy_version(PolicyArn=builtin, VersionId="v1")["PolicyVersion"]["Document"]["Statement"][0]["Effect"], "Allow")
        equal(versions(iam, builtin), "v1*")
        denied(iam.create_policy_version, PolicyArn=builtin, PolicyDocument=allow("*"), SetAsDefault=True)
        denied(iam.delete_policy, PolicyArn=builtin)
        denied(iam.tag_policy, PolicyArn=builtin, Tags=[{"Key": "a", "Value": "b"}])
        # Another account's cannot.
        two = s.two("iam")
        refused(404, "NoSuchEntity", two.get_policy_version, PolicyArn=arn, VersionId="v1")
        refused(404, "NoSuchEntity", two.create_policy_version, PolicyArn=arn, PolicyDocument=allow("*"), SetAsDefault=True)
    finally:
        wipe_policy(iam, arn)


def test_who_may_version_a_policy(s):
    """Each call needs its own action on that policy; a user cannot gain rights by a policy that he may only use."""
    iam = s.one("iam")
    arns = {name: iam.create_policy(PolicyName=name, PolicyDocument=allow("iam:GetPolicy*"))["Policy"]["Arn"] for name in ("mine", "other")}
    text = {"PolicyDocument": allow("*")}
    calls = {"ListPolicyVersions": {}, "GetPolicyVersion": {"VersionId": "v1"}, "ListEntitiesForPolicy": {},
             "CreatePolicyVersion": {**text, "SetAsDefault": True}, "SetDefaultPolicyVersion": {"VersionId": "v1"},
             "DeletePolicyVersion": {"VersionId": "v2"}}
    names = {name: "".join("_" * (i > 0 and c.isupper()) + c.lower() for i, c in enumerate(name)) for name in calls}
    try:
        _, alice = user(s, iam, "alice")
        keys = alice._request_signer._credentials
        as_alice = s.client(keys.access_key, keys.secret_key, service="iam")
        for number, (allowed, options) in enumerate(calls.items()):
            iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=allow(f"iam:{allowed}", arns["mine"]))
            for name, more in calls.items():
                if name != allowed:
                    denied(getattr(as_alice, names[name]), PolicyArn=arns["mine"], **more)
                denied(getattr(as_alice, names[name]), PolicyArn=arns["other"], **more)
                denied(getattr(as_alice, names[name]), PolicyArn=arns["mine"].upper(), **more)
            getattr(as_alice, names[allowed])(PolicyArn=arns["mine"], **options)
            equal(versions(iam, arns["other"]), "v1*")
        equal(versions(iam, arns["mine"]), "v1*")
        # Attached is not owned.
        iam.delete_user_policy(UserName="alice", PolicyName="Is")
        iam.attach_user_policy(UserName="alice", PolicyArn=arns["mine"])
        as_alice.get_policy_version(PolicyArn=arns["mine"], VersionId="v1")
        denied(as_alice.create_policy_version, PolicyArn=arns["mine"], SetAsDefault=True, **text)
        denied(as_alice.set_default_policy_version, PolicyArn=arns["mine"], VersionId="v1")
        equal(versions(iam, arns["mine"]), "v1*")
    finally:
        wipe(iam)
        for arn in arns.values():
            wipe_policy(iam, arn)


def test_lists_of_policies(s):
    """Lists of the account's own policies and of those that every account has; and of policies by the entities that
    they are attached to."""
    iam = s.one("iam")
    trust = policy({"Effect": "Allow", "Principal": {"AWS": "111111111111"}, "Action": "sts:AssumeRole"})
    builtin = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
    arn = iam.create_policy(PolicyName="listed", Path="/p/", PolicyDocument=allow("s3:GetObject"))["Policy"]["Arn"]
    iam.create_role(RoleName="listed", AssumeRolePolicyDocument=trust)
    iam.create_group(GroupName="listed")

    def arns(**options):
        return {one["Arn"] for page in iam.get_paginator("list_policies").paginate(PaginationConfig={"PageSize": 2}, **options)
                for one in page["Policies"]}

    def holders(**options):
        answer = iam.list_entities_for_policy(PolicyArn=arn, **options)
        return [[one[f"{kind}Name"] for one in answer[f"Policy{kind}s"]] for kind in ("User", "Group", "Role")]

    try:
        user(s, iam, "alice")
        equal((arns(Scope="Local"), arns(OnlyAttached=True), holders()), ({arn}, set(), [[], [], []]))
        assert builtin in arns(Scope="AWS") and arn not in arns(Scope="AWS")
        equal((arns(), arns(PathPrefix="/p/")), (arns(Scope="AWS") | {arn}, {arn}))
        iam.attach_user_policy(UserName="alice", PolicyArn=arn)
        iam.attach_group_policy(GroupName="listed", PolicyArn=arn)
        iam.attach_role_policy(RoleName="listed", PolicyArn=arn)
        iam.attach_role_policy(RoleName="listed", PolicyArn=builtin)
        equal((arns(OnlyAttached=True), arns(OnlyAttached=True, Scope="AWS")), ({arn, builtin}, {builtin}))
        equal((holders(), holders(EntityFilter="Role"), holders(PathPrefix="/t/")),
              ([["alice"], ["listed"], ["listed"]], [[], [], ["listed"]], [["alice"], [], []]))
        equal(iam.get_policy(PolicyArn=arn)["Policy"]["AttachmentCount"], 3)
        refused(400, "ValidationError", iam.list_policies, Scope="None")
        refused(404, "NoSuchEntity", iam.list_entities_for_policy, PolicyArn=arn + "x")
        refused(409, "DeleteConflict", iam.delete_policy, PolicyArn=arn)
    finally:
        iam.detach_group_policy(GroupName="listed", PolicyArn=arn)
        for one in (arn, builtin):
            iam.detach_role_policy(RoleName="listed", PolicyArn=one)
        iam.delete_group(GroupName="listed")
        iam.delete_role(RoleName="listed")
        wipe(iam)
        iam.delete_policy(PolicyArn=arn)


def test_a_permissions_boundary_is_refused(s):
    """A boundary that was accepted and ignored would give a user more rights than intended."""
    iam = s.one("iam")
    boundary = {"PermissionsBoundary": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"}
    trust = policy({"Effect": "Allow", "Principal": {"AWS": "111111111111"}, "Action": "sts:AssumeRole"})
    refused(400, "ValidationError", iam.create_user, UserName="bounded", **boundary)
    refused(400, "ValidationError", iam.create_role, RoleName="bounded", AssumeRolePolicyDocument=trust, **boundary)
    refused(404, "NoSuchEntity", iam.get_user, UserName="bounded")
    refused(404, "NoSuchEntity", iam.get_role, RoleName="bounded")


def test_the_description_of_a_role(s):
    """It stays when something else is updated."""
    iam = s.one("iam")
    trust = policy({"Effect": "Allow", "Principal": {"AWS": "111111111111"}, "Action": "sts:AssumeRole"})
    role = {"RoleName": "described"}

    def told():
        now = iam.get_role(**role)["Role"]
        return now.get("Description"), now["MaxSessionDuration"]

    iam.create_role(Description="one", AssumeRolePolicyDocument=trust, **role)
    try:
        iam.update_role(MaxSessionDuration=7200, **role)
        equal(told(), ("one", 7200))
        equal(iam.update_role_description(Description="two", **role)["Role"]["Description"], "two")
        iam.update_role(**role)
        equal(told(), ("two", 7200))
        iam.update_role(Description="three", **role)
        equal(told(), ("three", 7200))
        refused(400, "ValidationError", iam.update_role_description, Description="x" * 1001, **role)
        equal(told(), ("three", 7200))
        iam.update_role_description(Description="", **role)
        equal(told(), (None, 7200))
        refused(404, "NoSuchEntity", iam.update_role_description, RoleName="none", Description="x")
    finally:
        iam.delete_role(**role)


def test_what_is_asked_before_a_deletion(s):
    """Kinds of entities that this server does not have are empty lists, for existing users and roles."""
    iam = s.one("iam")
    trust = policy({"Effect": "Allow", "Principal": {"AWS": "111111111111"}, "Action": "sts:AssumeRole"})
    iam.create_role(RoleName="asked", AssumeRolePolicyDocument=trust)
    try:
        made_user, _ = user(s, iam, "alice")
        equal(iam.list_instance_profiles_for_role(RoleName="asked")["InstanceProfiles"], [])
        refused(404, "NoSuchEntity", iam.list_instance_profiles_for_role, RoleName="none")
        for call, name in ((iam.list_mfa_devices, "MFADevices"), (iam.list_ssh_public_keys, "SSHPublicKeys"),
                           (iam.list_signing_certificates, "Certificates"),
                           (iam.list_service_specific_credentials, "ServiceSpecificCredentials")):
            equal(call(UserName="alice")[name], [])
            refused(404, "NoSuchEntity", call, UserName="none")
        equal(iam.list_virtual_mfa_devices()["VirtualMFADevices"], [])
        for call in (iam.get_login_profile, iam.delete_login_profile):
            refused(404, "NoSuchEntity", call, UserName="alice")
        key = iam.list_access_keys(UserName="alice")["AccessKeyMetadata"][0]["AccessKeyId"]
        used = iam.get_access_key_last_used(AccessKeyId=key)
        equal((used["UserName"], used["AccessKeyLastUsed"]), ("alice", {"ServiceName": "N/A", "Region": "N/A"}))
        refused(404, "NoSuchEntity", s.two("iam").get_access_key_last_used, AccessKeyId=key)
        reader = s.client("TWOREADERKEY", "two-reader-secret-0123", service="iam")
        denied(reader.get_access_key_last_used, AccessKeyId="TWOREADERKEY0000")
        for call, options in ((reader.list_mfa_devices, {"UserName": "reader"}), (reader.list_virtual_mfa_devices, {}),
                              (reader.get_login_profile, {"UserName": "reader"}),
                              (reader.list_instance_profiles_for_role, {"RoleName": "asked"}),
                              (reader.update_role_description, {"RoleName": "asked", "Description": "x"})):
            denied(call, **options)
    finally:
        wipe(iam)
        iam.delete_role(RoleName="asked")


def test_which_policies_somebody_may_attach(s):
    """iam:PolicyARN in allowing and denying statements: a user who manages users cannot make himself an
    administrator."""
    iam = s.one("iam")
    admin, reads = ["arn:aws:iam::aws:policy/" + name for name in ("AdministratorAccess", "AmazonS3ReadOnlyAccess")]
    every = ["iam:AttachUserPolicy", "iam:DetachUserPolicy"]
    rules = [[{"Effect": "Allow", "Action": every, "Resource": "*", "Condition": {"ArnEquals": {"iam:PolicyARN": reads}}}],
             [{"Effect": "Allow", "Action": "iam:*", "Resource": "*"},
              {"Effect": "Deny", "Action": every, "Resource": "*", "Condition": {"ArnEquals": {"iam:PolicyARN": admin}}}]]
    try:
        _, alice = user(s, iam, "alice")
        keys = alice._request_signer._credentials
        as_alice = s.client(keys.access_key, keys.secret_key, service="iam")
        iam.create_user(UserName="bob", Path="/t/")
        for rule in rules:
            iam.put_user_policy(UserName="alice", PolicyName="Is", PolicyDocument=policy(*rule))
            for name in ("alice", "bob"):
                denied(as_alice.attach_user_policy, UserName=name, PolicyArn=admin)
                as_alice.attach_user_policy(UserName=name, PolicyArn=reads)
                equal([p["PolicyArn"] for p in iam.list_attached_user_policies(UserName=name)["AttachedPolicies"]], [reads])
                as_alice.detach_user_policy(UserName=name, PolicyArn=reads)
            iam.attach_user_policy(UserName="bob", PolicyArn=admin)
            denied(as_alice.detach_user_policy, UserName="bob", PolicyArn=admin)
            iam.detach_user_policy(UserName="bob", PolicyArn=admin)
    finally:
        wipe(iam)


class Held:
    """A request whose body is held back: the server has decided on the request's rights and awaits the body, as its
    100 Continue says."""

    def __init__(self, s, client, method, path, body, **headers):
        headers |= {"Content-MD5": base64.b64encode(hashlib.md5(body).digest()).decode(),
                    "x-amz-content-sha256": hashlib.sha256(body).hexdigest(), "Content-Length": str(len(body))}
        request = botocore.awsrequest.AWSRequest(method=method, url=s.plain + path, headers=headers, data=body)
        signed = botocore.auth.S3SigV4Auth(client._request_signer._credentials, "s3", "us-east-1")
        signed.add_auth(request)
        self.connection = s.connection(s.plain)
        self.connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in request.headers.items():
            if name.lower() != "host":
                self.connection.putheader(name, value)
        self.connection.putheader("Expect", "100-continue")
        self.connection.endheaders()
        told = b""
        while not told.endswith(b"\r\n\r\n"):
            told += self.connection.sock.recv(1)
        equal(told.split()[1], b"100")
        self.body = body

    def finish(self):
        self.connection.send(self.body)
        answer = self.connection.getresponse()
        body = answer.read()
        self.connection.close()
        return answer.status, body


DELETION = b"<Delete><Object><Key>key</Key></Object></Delete>"
TAGS = b"<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>"


def test_a_bucket_that_takes_the_name_while_a_body_is_awaited(s):
    """The former owner's requests do nothing to it."""
    one, two, name = s.one(), s.two(), s.prefix + "held"
    lock = {"ObjectLockMode": "GOVERNANCE", "ObjectLockRetainUntilDate": datetime.datetime(2099, 1, 1),
            "ChecksumAlgorithm": "CRC32"}
    one.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    mine = policy({"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{name}/*"})
    held = [Held(s, one, method, f"/{name}{path}", body, **headers) for method, path, body, headers in (
        ("POST", "?delete=", DELETION, {}),
        ("PUT", "?policy=", mine.encode(), {}),
        ("PUT", "?tagging=", TAGS, {}),
        ("PUT", "?versioning=", b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>", {}),
        ("PUT", "/key?tagging=", TAGS, {}),
        ("PUT", "/key?retention=", b"<Retention></Retention>", {"x-amz-bypass-governance-retention": "true"}))]
    one.delete_bucket(Bucket=name)
    two.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    theirs = policy({"Effect": "Deny", "Principal": "*", "Action": "s3:PutBucketCORS", "Resource": f"arn:aws:s3:::{name}"})
    two.put_bucket_policy(Bucket=name, Policy=theirs)
    version = two.put_object(Bucket=name, Key="key", Body=b"x", **lock)["VersionId"]
    for one_of in held:
        status, body = one_of.finish()
        # A gateway may say 100 Continue before its store has decided.
        assert (status, code_of(body)) in ((404, "NoSuchBucket"), (403, "AccessDenied")), (status, body)
    equal(two.get_bucket_policy(Bucket=name)["Policy"], theirs)
    refused(404, "NoSuchTagSet", two.get_bucket_tagging, Bucket=name)
    equal(two.get_object_tagging(Bucket=name, Key="key")["TagSet"], [])
    equal(two.get_object_retention(Bucket=name, Key="key")["Retention"]["Mode"], "GOVERNANCE")
    two.delete_object(Bucket=name, Key="key", VersionId=version, BypassGovernanceRetention=True)
    two.delete_bucket(Bucket=name)


def test_rights_that_end_while_a_body_is_awaited(s):
    """DeleteObjects decides on each key when it has the keys."""
    one, two, name = s.one(), s.two(), s.prefix + "rights"
    one.create_bucket(Bucket=name)
    one.put_object(Bucket=name, Key="key", Body=b"x")
    account = {"Principal": {"AWS": "arn:aws:iam::222222222222:root"}, "Action": "s3:DeleteObject",
               "Resource": f"arn:aws:s3:::{name}/*"}
    one.put_bucket_policy(Bucket=name, Policy=policy({"Effect": "Allow", **account}))
    held = Held(s, two, "POST", f"/{name}?delete=", DELETION)
    one.put_bucket_policy(Bucket=name, Policy=policy({"Effect": "Deny", **account}))
    status, body = held.finish()
    equal((status, b"<Code>AccessDenied</Code>" in body), (200, True))
    equal(one.get_object(Bucket=name, Key="key")["Body"].read(), b"x")
