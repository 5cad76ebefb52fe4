"""Access: accounts and owners, access control lists, policies, public access, sessions."""

import base64
import datetime
import hashlib
import json
import re
import urllib.parse

import nebula
from suite import code_of, equal, opened, refused

ONE, TWO, THREE = "one-canonical-id", "two-canonical-id", "three-canonical-id"
ALL = "http://acs.amazonaws.com/groups/global/AllUsers"


def policy(*statements):
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(principal, action, resource, **more):
    return {"Effect": "Allow", "Principal": principal, "Action": action, "Resource": resource, **more}


def grants(answer):
    return sorted((g["Grantee"].get("ID") or g["Grantee"].get("URI"), g["Permission"]) for g in answer["Grants"])


def denied(call, *args, **kwargs):
    refused(403, "AccessDenied", call, *args, **kwargs)


def raw(s, client, *request):
    """The status and code of a request of the client's, sent unchanged."""
    status, _, body = s.raw(*request, client=client)
    return status, code_of(body)


def deleted(s, client, bucket, *objects, **headers):
    """The codes of those objects that DeleteObjects, which takes their elements, does not delete."""
    body = f"<Delete>{''.join(f'<Object>{one}</Object>' for one in objects)}</Delete>".encode()
    headers["Content-MD5"] = base64.b64encode(hashlib.md5(body).digest()).decode()
    status, _, answer = s.raw("POST", f"/{bucket}", body, {"delete": ""}, headers, client)
    equal(status, 200)
    return re.findall("<Code>(.*?)</Code>", answer.decode())


def made(s, client, **options):
    return opened(client, f"{s.prefix}{next(s.numbers)}", **options)


def test_accounts_have_buckets_of_their_own(s):
    one, two = s.one(), s.two()
    bucket = made(s, one)
    equal([b["Name"] for b in one.list_buckets()["Buckets"]], [bucket])
    equal(two.list_buckets()["Buckets"], [])
    equal(one.list_buckets()["Owner"]["ID"], ONE)
    refused(409, "BucketAlreadyExists", two.create_bucket, Bucket=bucket)
    one.create_bucket(Bucket=bucket)
    one.put_object(Bucket=bucket, Key="key", Body=b"x")
    for call in (two.get_object, two.delete_object, two.get_object_acl, two.get_object_tagging):
        denied(call, Bucket=bucket, Key="key")
    for call in (two.list_objects, two.list_objects_v2, two.list_object_versions, two.get_bucket_acl, two.delete_bucket,
                 two.get_bucket_location, two.get_bucket_policy, two.get_bucket_cors, two.list_multipart_uploads):
        denied(call, Bucket=bucket)
    denied(two.put_object, Bucket=bucket, Key="other", Body=b"x")
    denied(two.put_bucket_acl, Bucket=bucket, ACL="public-read")
    refused(404, "NoSuchBucket", two.list_objects, Bucket=bucket + "-none")
    errors = two.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "key"}]})["Errors"]
    equal([e["Code"] for e in errors], ["AccessDenied"])
    equal(one.get_object(Bucket=bucket, Key="key")["Body"].read(), b"x")
    target = made(s, two)
    denied(two.copy_object, Bucket=target, Key="copy", CopySource=f"{bucket}/key")
    refused(403, "InvalidAccessKeyId", s.client("TWODISABLED", "two-secret-key-0123456789").list_buckets)


def test_expected_owner(s):
    one = s.one()
    bucket = made(s, one)
    one.put_object(Bucket=bucket, Key="key", Body=b"x", ExpectedBucketOwner="111111111111")
    one.list_objects_v2(Bucket=bucket, ExpectedBucketOwner="111111111111")
    denied(one.list_objects_v2, Bucket=bucket, ExpectedBucketOwner="222222222222")
    denied(one.list_objects_v2, Bucket=bucket, ExpectedBucketOwner="999999999999")
    copy = {"Bucket": bucket, "Key": "copy", "CopySource": f"{bucket}/key"}
    denied(one.copy_object, **copy, ExpectedSourceBucketOwner="222222222222")
    # Only the account number counts, no other id of an owner.
    for wrong in ONE, "11111111111", "11111111111x", "arn:aws:iam::111111111111:root":
        refused(400, "InvalidBucketOwnerAWSAccountID", one.list_objects_v2, Bucket=bucket, ExpectedBucketOwner=wrong)
        refused(400, "InvalidBucketOwnerAWSAccountID", one.copy_object, **copy, ExpectedSourceBucketOwner=wrong)


def test_canned_lists(s):
    one, two, nobody = s.one(), s.two(), s.client(unsigned=True)
    bucket = made(s, one, ACL="public-read")
    equal(grants(one.get_bucket_acl(Bucket=bucket)), [(ALL, "READ"), (ONE, "FULL_CONTROL")])
    # Groups come first, because clients expect that order.
    equal([g["Permission"] for g in one.get_bucket_acl(Bucket=bucket)["Grants"]], ["READ", "FULL_CONTROL"])
    one.put_object(Bucket=bucket, Key="private", Body=b"p")
    one.put_object(Bucket=bucket, Key="public", Body=b"q", ACL="public-read")
    one.put_object(Bucket=bucket, Key="keys", Body=b"r", ACL="authenticated-read")
    equal(len(nobody.list_objects_v2(Bucket=bucket)["Contents"]), 3)
    equal(nobody.get_object(Bucket=bucket, Key="public")["Body"].read(), b"q")
    denied(nobody.get_object, Bucket=bucket, Key="private")
    denied(nobody.get_object, Bucket=bucket, Key="keys")
    equal(two.get_object(Bucket=bucket, Key="keys")["Body"].read(), b"r")
    denied(two.put_object, Bucket=bucket, Key="new", Body=b"x")
    refused(404, "NoSuchKey", nobody.get_object, Bucket=bucket, Key="none")
    one.put_bucket_acl(Bucket=bucket, ACL="private")
    denied(nobody.list_objects_v2, Bucket=bucket)
    denied(nobody.get_object, Bucket=bucket, Key="none")
    one.put_object_acl(Bucket=bucket, Key="public", ACL="private")
    denied(nobody.get_object, Bucket=bucket, Key="public")
    equal(grants(one.get_object_acl(Bucket=bucket, Key="public")), [(ONE, "FULL_CONTROL")])
    refused(400, "InvalidArgument", one.put_bucket_acl, Bucket=bucket, ACL="no-such-list")


def test_objects_of_others_are_theirs(s):
    one, two = s.one(), s.two()
    bucket = made(s, one, ACL="public-read-write")
    two.put_object(Bucket=bucket, Key="key", Body=b"x")
    answer = two.get_object_acl(Bucket=bucket, Key="key")
    equal((answer["Owner"]["ID"], answer["Owner"]["DisplayName"], grants(answer)), (TWO, "Two", [(TWO, "FULL_CONTROL")]))
    two.put_object(Bucket=bucket, Key="key", Body=b"x", ACL="bucket-owner-read")
    equal(grants(two.get_object_acl(Bucket=bucket, Key="key")), [(ONE, "READ"), (TWO, "FULL_CONTROL")])
    one.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerPreferred"}]})
    two.put_object(Bucket=bucket, Key="given", Body=b"x", ACL="bucket-owner-full-control")
    equal(one.get_object_acl(Bucket=bucket, Key="given")["Owner"]["ID"], ONE)
    # A copy belongs to the caller, whatever the source's list was.
    one.put_object(Bucket=bucket, Key="open", Body=b"x", ACL="public-read")
    one.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/open")
    equal(grants(one.get_object_acl(Bucket=bucket, Key="copy")), [(ONE, "FULL_CONTROL")])
    # So do multipart uploads.
    upload = two.create_multipart_upload(Bucket=bucket, Key="parts", ACL="public-read")["UploadId"]
    shown = two.list_multipart_uploads(Bucket=bucket)["Uploads"][0]
    equal((shown["Owner"]["ID"], shown["Initiator"]["DisplayName"]), (TWO, "Two"))
    part = two.upload_part(Bucket=bucket, Key="parts", UploadId=upload, PartNumber=1, Body=b"x")
    two.complete_multipart_upload(Bucket=bucket, Key="parts", UploadId=upload,
                                  MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    equal(grants(two.get_object_acl(Bucket=bucket, Key="parts")), [(ALL, "READ"), (TWO, "FULL_CONTROL")])


def test_listings_name_the_owner_of_each_object(s):
    one, two = s.one(), s.two()
    bucket = made(s, one, ACL="public-read-write")
    one.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for client, key in [(one, "a"), (two, "b"), (one, "c"), (two, "c")]:
        client.put_object(Bucket=bucket, Key=key, Body=b"x")
    two.copy_object(Bucket=bucket, Key="d", CopySource={"Bucket": bucket, "Key": "b"})
    upload = two.create_multipart_upload(Bucket=bucket, Key="e")["UploadId"]
    part = two.upload_part(Bucket=bucket, Key="e", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    two.complete_multipart_upload(Bucket=bucket, Key="e", UploadId=upload,
                                  MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part}]})
    owners = {"a": "one", "b": "two", "c": "two", "d": "two", "e": "two"}
    for answer in (one.list_objects(Bucket=bucket), one.list_objects_v2(Bucket=bucket, FetchOwner=True)):
        equal({o["Key"]: o["Owner"]["ID"] for o in answer["Contents"]},
              {key: f"{owner}-canonical-id" for key, owner in owners.items()})
    versions = one.list_object_versions(Bucket=bucket, Prefix="c")["Versions"]
    equal([v["Owner"]["DisplayName"] for v in versions], ["Two", "One"])
    for version in one.list_object_versions(Bucket=bucket)["Versions"]:
        one.delete_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])


def test_the_bucket_is_mine_the_object_is_not(s):
    """A bucket's owner may delete others' objects; the objects' lists decide whether it may read them."""
    one, two = s.one(), s.two()
    bucket, own = made(s, one, ACL="public-read-write"), made(s, one)
    two.put_object(Bucket=bucket, Key="key", Body=b"x")
    here = {"Bucket": bucket, "Key": "key"}
    for call, more in [(one.get_object, {}), (one.get_object_acl, {}), (one.put_object_acl, {"ACL": "private"}),
                       (one.get_object_attributes, {"ObjectAttributes": ["ETag"]})]:
        denied(call, **here, **more)
    denied(one.copy_object, Bucket=own, Key="copy", CopySource=here)
    # Nor can the owner's policy open them to others.
    one.put_object(Bucket=bucket, Key="own", Body=b"o")
    one.put_bucket_policy(Bucket=bucket, Policy=policy(
        allow("*", ["s3:GetObject", "s3:GetObjectAcl", "s3:PutObjectAcl"], f"arn:aws:s3:::{bucket}/*")))
    for client in s.client(unsigned=True), s.three():
        equal(client.get_object(Bucket=bucket, Key="own")["Body"].read(), b"o")
        denied(client.get_object, **here)
        denied(client.get_object_acl, **here)
        denied(client.put_object_acl, **here, ACL="public-read")
    denied(s.three().copy_object, Bucket=bucket, Key="copy", CopySource=here)
    s.reader().get_object(**here)
    two.put_object_acl(**here, ACL="public-read")
    for client in s.client(unsigned=True), s.three(), one:
        equal(client.get_object(**here)["Body"].read(), b"x")
    one.delete_bucket_policy(Bucket=bucket)
    two.put_object_acl(**here, ACL="bucket-owner-read")
    equal(one.get_object(**here)["Body"].read(), b"x")
    one.copy_object(Bucket=own, Key="copy", CopySource=here)
    denied(one.get_object_acl, **here)
    two.put_object_acl(**here, ACL="bucket-owner-full-control")
    one.get_object_acl(**here)
    one.put_bucket_acl(Bucket=bucket, ACL="private")
    one.put_bucket_ownership_controls(Bucket=bucket, OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]})
    equal(one.list_objects(Bucket=bucket)["Contents"][0]["Owner"]["ID"], "one-canonical-id")
    one.delete_object(**here)


def test_an_owner_without_rights_can_take_them_back(s):
    one = s.one()
    bucket = made(s, one)
    one.put_object(Bucket=bucket, Key="key", Body=b"x")
    for get, put, name in [(one.get_bucket_acl, one.put_bucket_acl, {"Bucket": bucket}),
                           (one.get_object_acl, one.put_object_acl, {"Bucket": bucket, "Key": "key"})]:
        before = get(**name)
        put(**name, AccessControlPolicy={"Owner": before["Owner"], "Grants": []})
        equal(get(**name)["Grants"], [])
        put(**name, AccessControlPolicy={"Owner": before["Owner"], "Grants": before["Grants"]})
        equal(grants(get(**name)), grants(before))


def test_a_list_is_of_the_object_whose_rights_were_asked(s):
    """While the list comes, another writer's object takes the key."""
    one, two = s.one(), s.two()
    bucket = made(s, one, ACL="public-read-write")
    client = nebula.Client(urllib.parse.urlsplit(s.plain).netloc, "TWOACCESSKEY", "two-secret-key-0123456789")
    grant = ('<Grant><Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser">'
             f"<ID>{TWO}</ID></Grantee><Permission>READ</Permission></Grant>")
    document = (f"<AccessControlPolicy><Owner><ID>{TWO}</ID></Owner><AccessControlList>{grant}</AccessControlList>"
                "</AccessControlPolicy>").encode()
    for writer, status in (one, 403), (two, 200):
        two.put_object(Bucket=bucket, Key="key", Body=b"of two")
        end = client.begin("PUT", f"/{bucket}/key", document, {"acl": ""})
        writer.put_object(Bucket=bucket, Key="key", Body=b"secret")
        equal(end()[0], status)
        equal(grants(writer.get_object_acl(Bucket=bucket, Key="key")),
              [(ONE, "FULL_CONTROL")] if writer is one else [(TWO, "READ")])
    client.close()


def test_grants(s):
    one, two = s.one(), s.two()
    bucket = made(s, one, GrantRead=f"id={TWO}", GrantReadACP='emailAddress="two@example.com"')
    two.list_objects(Bucket=bucket)
    equal(grants(two.get_bucket_acl(Bucket=bucket)), [(TWO, "READ"), (TWO, "READ_ACP")])
    denied(two.put_bucket_acl, Bucket=bucket, ACL="private")
    owner = {"ID": ONE, "DisplayName": "One"}
    one.put_bucket_acl(Bucket=bucket, AccessControlPolicy={"Owner": owner, "Grants": [
        {"Grantee": {"Type": "AmazonCustomerByEmail", "EmailAddress": "TWO@EXAMPLE.COM"}, "Permission": "WRITE_ACP"},
        {"Grantee": {"Type": "Group", "URI": ALL}, "Permission": "READ"}]})
    two.put_bucket_acl(Bucket=bucket, GrantFullControl="id=222222222222")
    equal(grants(two.get_bucket_acl(Bucket=bucket)), [(TWO, "FULL_CONTROL")])
    # Its owner has only the rights to read and to write the list.
    one.put_bucket_acl(Bucket=bucket, AccessControlPolicy={"Owner": owner, "Grants": []})
    equal(one.get_bucket_acl(Bucket=bucket)["Grants"], [])
    for bad, status, code in (({"Type": "CanonicalUser", "ID": "nobody"}, 400, "InvalidArgument"),
                              ({"Type": "AmazonCustomerByEmail", "EmailAddress": "no@example.com"}, 400,
                               "UnresolvableGrantByEmailAddress"),
                              ({"Type": "Group", "URI": "http://example.com/all"}, 400, "InvalidArgument")):
        refused(status, code, one.put_bucket_acl, Bucket=bucket,
                AccessControlPolicy={"Owner": owner, "Grants": [{"Grantee": bad, "Permission": "READ"}]})
    refused(400, "InvalidRequest", one.put_bucket_acl, Bucket=bucket, ACL="private", GrantRead=f"id={TWO}")
    denied(one.put_bucket_acl, Bucket=bucket, AccessControlPolicy={"Owner": {"ID": TWO}, "Grants": []})


def test_ownership_without_lists(s):
    one, two = s.one(), s.two()
    bucket = made(s, one, ObjectOwnership="BucketOwnerEnforced")
    rules = one.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"]["Rules"]
    equal(rules, [{"ObjectOwnership": "BucketOwnerEnforced"}])
    refused(400, "AccessControlListNotSupported", one.put_bucket_acl, Bucket=bucket, ACL="public-read")
    refused(400, "AccessControlListNotSupported", one.put_object, Bucket=bucket, Key="k", Body=b"x", ACL="public-read")
    one.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="bucket-owner-full-control")
    one.put_object(Bucket=bucket, Key="k", Body=b"x", GrantFullControl=f"id={ONE}")
    for other in "private", "bucket-owner-read":
        refused(400, "AccessControlListNotSupported", one.put_object, Bucket=bucket, Key="k", Body=b"x", ACL=other)
    one.delete_bucket_ownership_controls(Bucket=bucket)
    refused(404, "OwnershipControlsNotFoundError", one.get_bucket_ownership_controls, Bucket=bucket)
    one.put_bucket_acl(Bucket=bucket, ACL="public-read")
    refused(400, "InvalidBucketAclWithObjectOwnership", one.put_bucket_ownership_controls, Bucket=bucket,
            OwnershipControls={"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]})
    refused(400, "InvalidBucketAclWithObjectOwnership", two.create_bucket, Bucket=bucket + "-x",
            ObjectOwnership="BucketOwnerEnforced", ACL="public-read")
    refused(400, "InvalidArgument", two.create_bucket, Bucket=bucket + "-x", ObjectOwnership="Nobody")


def test_bucket_policy(s):
    one, two, nobody = s.one(), s.two(), s.client(unsigned=True)
    bucket = made(s, one)
    resource = f"arn:aws:s3:::{bucket}"
    one.put_object(Bucket=bucket, Key="public/a", Body=b"a")
    one.put_object(Bucket=bucket, Key="other/b", Body=b"b")
    refused(404, "NoSuchBucketPolicy", one.get_bucket_policy, Bucket=bucket)
    text = policy(allow("*", "s3:GetObject", resource + "/public/*"),
                  allow({"AWS": "arn:aws:iam::222222222222:root"}, ["s3:ListBucket", "s3:PutObject"],
                        [resource, resource + "/*"]))
    one.put_bucket_policy(Bucket=bucket, Policy=text)
    equal(one.get_bucket_policy(Bucket=bucket)["Policy"], text)
    equal(one.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"], True)
    equal(nobody.get_object(Bucket=bucket, Key="public/a")["Body"].read(), b"a")
    denied(nobody.get_object, Bucket=bucket, Key="other/b")
    denied(nobody.list_objects_v2, Bucket=bucket)
    two.list_objects_v2(Bucket=bucket)
    two.put_object(Bucket=bucket, Key="two", Body=b"x")
    denied(two.get_object, Bucket=bucket, Key="other/b")
    denied(two.delete_object, Bucket=bucket, Key="two")
    # A user in an account needs a policy of its own, too.
    s.reader().list_objects_v2(Bucket=bucket)
    denied(s.reader().put_object, Bucket=bucket, Key="reader", Body=b"x")
    one.delete_bucket_policy(Bucket=bucket)
    denied(nobody.get_object, Bucket=bucket, Key="public/a")
    # A denial applies to the owner, too, except for policy calls.
    one.put_bucket_policy(Bucket=bucket, Policy=policy(
        {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": [resource, resource + "/*"]}))
    denied(one.get_object, Bucket=bucket, Key="public/a")
    denied(one.list_objects_v2, Bucket=bucket)
    one.delete_bucket_policy(Bucket=bucket)
    one.list_objects_v2(Bucket=bucket)


def test_policies_that_are_none(s):
    one = s.one()
    bucket = made(s, one)
    resource = f"arn:aws:s3:::{bucket}/*"
    for text in ("{", "[]", "{}", policy({"Effect": "Allow", "Action": "s3:*", "Resource": resource}),
                 policy(allow("*", "s3:*", "arn:aws:s3:::some-other-bucket/*")),
                 policy(allow("*", "s3:*", resource, Condition={"Nonsense": {"a": "b"}})),
                 policy(allow("*", "s3:GetObjekt", resource)), policy(allow("*", "s3:ListBucket", resource)),
                 policy(allow("*", "s3:*", resource.replace("s3", "sqs"))),
                 policy(allow("*", "s3:*", resource, Condition={"StringEquals": {"s3:prefiks": "b"}})),
                 policy({"Effect": "Allow", "NotPrincipal": {"AWS": "*"}, "Action": "s3:*", "Resource": resource}),
                 policy(allow("*", "s3:*", resource + "x" * 21000))):
        refused(400, "MalformedPolicy", one.put_bucket_policy, Bucket=bucket, Policy=text)


def test_a_policy_that_binds_its_owner(s):
    """Without the header an owner can always delete a policy; with it, the policy can lock the owner out."""
    one = s.one()
    bucket = made(s, one)
    actions = ["s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"]
    shut = policy({"Sid": "same", "Effect": "Deny", "Principal": "*", "Action": actions, "Resource": f"arn:aws:s3:::{bucket}"},
                  {"Sid": "same", "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
                   "Resource": f"arn:aws:s3:::{bucket}/*"})
    one.put_bucket_policy(Bucket=bucket, Policy=shut, ConfirmRemoveSelfBucketAccess=False)
    equal(one.get_bucket_policy(Bucket=bucket)["Policy"], shut)
    one.put_bucket_policy(Bucket=bucket, Policy=shut, ConfirmRemoveSelfBucketAccess=True)
    denied(one.get_bucket_policy, Bucket=bucket)
    denied(one.put_bucket_policy, Bucket=bucket, Policy=shut)
    denied(one.delete_bucket_policy, Bucket=bucket)
    one.put_object(Bucket=bucket, Key="key", Body=b"x")
    s.client(unsigned=True).get_object(Bucket=bucket, Key="key")
    equal(s.s3.get_bucket_policy(Bucket=bucket)["Policy"], shut)
    s.s3.delete_bucket_policy(Bucket=bucket)
    one.put_bucket_policy(Bucket=bucket, Policy=shut)
    one.delete_bucket_policy(Bucket=bucket)


def test_conditions(s):
    one, two = s.one(), s.two()
    bucket = made(s, one)
    resource = f"arn:aws:s3:::{bucket}"
    principal = {"AWS": "222222222222"}
    one.put_object(Bucket=bucket, Key="open", Body=b"x", Tagging="security=public")
    one.put_object(Bucket=bucket, Key="closed", Body=b"x", Tagging="security=private")
    one.put_bucket_policy(Bucket=bucket, Policy=policy(
        allow(principal, "s3:GetObject", resource + "/*",
              Condition={"StringEquals": {"s3:ExistingObjectTag/security": "public"}}),
        allow(principal, "s3:ListBucket", resource,
              Condition={"StringLike": {"s3:prefix": "home/${aws:PrincipalAccount}/*"},
                         "IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}),
        allow(principal, ["s3:PutObject", "s3:PutObjectTagging"], resource + "/*",
              Condition={"StringEquals": {"s3:x-amz-acl": "private", "s3:RequestObjectTag/who": "two"}}),
        {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": resource + "/deep/*",
         "Condition": {"StringLike": {"s3:x-amz-copy-source": [f"{bucket}/closed*", f"{bucket}/not open"]}}}))
    two.get_object(Bucket=bucket, Key="open")
    denied(two.get_object, Bucket=bucket, Key="closed")
    two.list_objects_v2(Bucket=bucket, Prefix="home/222222222222/a")
    denied(two.list_objects_v2, Bucket=bucket, Prefix="home/111111111111/a")
    denied(two.list_objects_v2, Bucket=bucket)
    two.put_object(Bucket=bucket, Key="k", Body=b"x", ACL="private", Tagging="who=two")
    denied(two.put_object, Bucket=bucket, Key="k", Body=b"x", ACL="private")
    denied(two.put_object, Bucket=bucket, Key="k", Body=b"x", ACL="public-read", Tagging="who=two")
    one.copy_object(Bucket=bucket, Key="deep/a", CopySource=f"{bucket}/open")
    denied(one.copy_object, Bucket=bucket, Key="deep/b", CopySource=f"{bucket}/closed")
    one.put_object(Bucket=bucket, Key="not open", Body=b"x")
    for source in f"http://x/{bucket}/closed", f"{bucket}/not+open", f"/{bucket}/not%20open", f"{bucket}/not%20open?versionId=null":
        equal(raw(s, one, "PUT", f"/{bucket}/deep/b", b"", None, {"x-amz-copy-source": source}), (403, "AccessDenied"))
    equal(one.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"]["IsPublic"], False)


def test_conditions_on_the_request_itself(s):
    """Each of these denials would have no effect if its condition key were unknown."""
    one = s.one()
    bucket = made(s, one, ObjectLockEnabledForBucket=True)
    resource = f"arn:aws:s3:::{bucket}/"

    def deny(prefix, condition):
        return {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject*", "Resource": f"{resource}{prefix}/*",
                "Condition": condition}

    statements = (
        deny("once", {"Null": {"s3:if-none-match": "true"}, "Bool": {"s3:ObjectCreationOperation": "true"}}),
        deny("short", {"NumericGreaterThan": {"s3:object-lock-remaining-retention-days": "10"}}),
        deny("short", {"StringEquals": {"s3:object-lock-legal-hold": "ON"}}),
        deny("short", {"StringEquals": {"s3:RequestObjectTag/who": "me"}}),
        deny("old", {"NumericLessThan": {"s3:signatureAge": "900000"}}))
    one.put_bucket_policy(Bucket=bucket, Policy=policy(*statements))
    denied(one.put_object, Bucket=bucket, Key="once/key", Body=b"x")
    once = f"/{bucket}/once/other"
    for tags, answer in ('"zzz"', (403, "AccessDenied")), ("*", (200, None)), ('"zzz"', (403, "AccessDenied")), ("*", (412, "PreconditionFailed")):
        equal(raw(s, one, "PUT", once, b"x", None, {"If-None-Match": tags}), answer)
    etag = one.put_object(Bucket=bucket, Key="same/key", Body=b"x")["ETag"]
    one.put_bucket_policy(Bucket=bucket, Policy=policy(*statements, deny("same", {"Null": {"s3:if-match": "true"}})))
    for tags, answer in ("*", (403, "AccessDenied")), (f"{etag}, *", (403, "AccessDenied")), (etag, (200, None)):
        equal(raw(s, one, "PUT", f"/{bucket}/same/key", b"x", None, {"If-Match": tags}), answer)
    upload = one.create_multipart_upload(Bucket=bucket, Key="once/key")["UploadId"]
    part = one.upload_part(Bucket=bucket, Key="once/key", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    denied(one.complete_multipart_upload, Bucket=bucket, Key="once/key", UploadId=upload,
           MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part}]})
    now = datetime.datetime.now(datetime.timezone.utc)
    for days, call in ((9, one.put_object), (12, lambda **put: denied(one.put_object, **put))):
        call(Bucket=bucket, Key="short/key", Body=b"x", ObjectLockMode="GOVERNANCE",
             ObjectLockRetainUntilDate=now + datetime.timedelta(days=days))
    # Values in a document count like values in headers.
    place = {"Bucket": bucket, "Key": "short/key"}
    for days, call in ((10, one.put_object_retention), (12, lambda **put: denied(one.put_object_retention, **put))):
        call(Retention={"Mode": "GOVERNANCE", "RetainUntilDate": now + datetime.timedelta(days=days)}, **place)
    denied(one.put_object_legal_hold, LegalHold={"Status": "ON"}, **place)
    one.put_object_legal_hold(LegalHold={"Status": "OFF"}, **place)
    denied(one.put_object_tagging, Tagging={"TagSet": [{"Key": "who", "Value": "me"}]}, **place)
    one.put_object_tagging(Tagging={"TagSet": [{"Key": "who", "Value": "you"}]}, **place)
    if not s.by_rdma:  # a session signs no request
        denied(one.put_object, Bucket=bucket, Key="old/key", Body=b"x")
    # So does the right to bypass a lock: the header is not what the document asks for.
    one.put_bucket_policy(Bucket=bucket, Policy=policy(
        {"Effect": "Deny", "Principal": "*", "Action": "s3:BypassGovernanceRetention", "Resource": f"{resource}short/*",
         "Condition": {"NumericLessThan": {"s3:object-lock-remaining-retention-days": "5"}}}))
    for days, call in ((8, one.put_object_retention), (2, lambda **put: denied(one.put_object_retention, **put))):
        call(Retention={"Mode": "GOVERNANCE", "RetainUntilDate": now + datetime.timedelta(days=days)}, BypassGovernanceRetention=True, **place)
    one.delete_bucket_policy(Bucket=bucket)
    for version in one.list_object_versions(Bucket=bucket)["Versions"]:
        s.s3.delete_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"], BypassGovernanceRetention=True)


def test_a_copy_has_the_tags_that_it_gets(s):
    """Those of its source; a header that is not used gives it none."""
    one = s.one()
    bucket = made(s, one)
    one.put_object(Bucket=bucket, Key="yes", Body=b"x", Tagging="secret=yes")
    one.put_object(Bucket=bucket, Key="no", Body=b"x", Tagging="secret=no")

    def deny(action, prefix, operator, value):
        return {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": f"arn:aws:s3:::{bucket}/{prefix}/*",
                "Condition": {operator: {"s3:RequestObjectTag/secret": value}}}

    one.put_bucket_policy(Bucket=bucket, Policy=policy(
        deny("s3:PutObject", "object", "StringEquals", "yes"), deny("s3:PutObjectTagging", "tags", "StringEquals", "yes"),
        deny("s3:PutObject", "must", "StringNotEquals", "no")))
    for prefix in "object", "tags":
        to = {"Bucket": bucket, "Key": f"{prefix}/key"}
        denied(one.copy_object, CopySource=f"{bucket}/yes", **to)
        denied(one.copy_object, CopySource=f"{bucket}/no", TaggingDirective="REPLACE", Tagging="secret=yes", **to)
        one.copy_object(CopySource=f"{bucket}/no", **to)
        one.copy_object(CopySource=f"{bucket}/yes", TaggingDirective="REPLACE", Tagging="secret=no", **to)
    to = {"Bucket": bucket, "Key": "must/key", "CopySource": f"{bucket}/yes", "Tagging": "secret=no"}
    denied(one.copy_object, **to)
    one.copy_object(TaggingDirective="REPLACE", **to)


def test_a_condition_that_deletions_must_have(s):
    """DeleteObjects has it beside each key; a header of the whole request is no condition."""
    one = s.one()
    bucket = made(s, one)
    etag = one.put_object(Bucket=bucket, Key="key", Body=b"x")["ETag"].strip('"')
    one.put_bucket_policy(Bucket=bucket, Policy=policy(
        {"Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": f"arn:aws:s3:::{bucket}/*",
         "Condition": {"Null": {"s3:if-match": "true"}}}))
    equal(raw(s, one, "DELETE", f"/{bucket}/key"), (403, "AccessDenied"))
    equal(deleted(s, one, bucket, "<Key>key</Key>"), ["AccessDenied"])
    equal(deleted(s, one, bucket, "<Key>key</Key>", **{"If-Match": "*"}), ["AccessDenied"])
    equal(deleted(s, one, bucket, f"<Key>key</Key><ETag>{etag}</ETag>"), [])
    refused(404, "404", one.head_object, Bucket=bucket, Key="key")
    equal(deleted(s, one, bucket, "<Key>key</Key><ETag>*</ETag>"), [])
    equal(raw(s, one, "DELETE", f"/{bucket}/key", b"", None, {"If-Match": "*"}), (204, None))


def test_a_policy_is_its_buckets_accounts(s):
    one, two = s.one(), s.two()
    bucket = made(s, one)
    text = policy(allow({"AWS": "222222222222"}, ["s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"],
                        f"arn:aws:s3:::{bucket}"))
    one.put_bucket_policy(Bucket=bucket, Policy=text)
    refused(405, "MethodNotAllowed", two.get_bucket_policy, Bucket=bucket)
    refused(405, "MethodNotAllowed", two.put_bucket_policy, Bucket=bucket, Policy=text)
    refused(405, "MethodNotAllowed", two.delete_bucket_policy, Bucket=bucket)
    denied(s.three().get_bucket_policy, Bucket=bucket)
    one.delete_bucket_policy(Bucket=bucket)


def test_public_access_block(s):
    one, two, nobody = s.one(), s.two(), s.client(unsigned=True)
    bucket = made(s, one, ACL="public-read")
    resource = f"arn:aws:s3:::{bucket}"
    switches = ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"]

    def block(*names):
        one.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration={n: n in names for n in switches})
        kept = one.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
        equal(sorted(n for n in kept if kept[n]), sorted(names))

    refused(404, "NoSuchPublicAccessBlockConfiguration", one.get_public_access_block, Bucket=bucket)
    nobody.list_objects_v2(Bucket=bucket)
    block("IgnorePublicAcls")
    denied(nobody.list_objects_v2, Bucket=bucket)
    block("BlockPublicAcls")
    nobody.list_objects_v2(Bucket=bucket)
    denied(one.put_bucket_acl, Bucket=bucket, ACL="public-read")
    denied(one.put_object, Bucket=bucket, Key="key", Body=b"x", ACL="public-read")
    one.put_object(Bucket=bucket, Key="key", Body=b"x")
    denied(one.put_object_acl, Bucket=bucket, Key="key", ACL="authenticated-read")
    block("BlockPublicPolicy")
    public = policy(allow("*", "s3:GetObject", resource + "/*"))
    denied(one.put_bucket_policy, Bucket=bucket, Policy=public)
    one.put_bucket_policy(Bucket=bucket, Policy=policy(allow({"AWS": "222222222222"}, "s3:GetObject", resource + "/*")))
    block()
    one.put_bucket_policy(Bucket=bucket, Policy=public)
    nobody.get_object(Bucket=bucket, Key="key")
    block("RestrictPublicBuckets")
    denied(nobody.get_object, Bucket=bucket, Key="key")
    denied(two.get_object, Bucket=bucket, Key="key")
    one.get_object(Bucket=bucket, Key="key")
    one.delete_public_access_block(Bucket=bucket)
    nobody.get_object(Bucket=bucket, Key="key")


def control(s, client):
    """S3 Control puts the account's number before the endpoint's name, which is impossible with an address."""
    def to_endpoint(request, **_):
        request.url = s.endpoint + "/v20180820/" + request.url.partition("/v20180820/")[2]

    client.meta.events.register("before-sign.s3-control.*", to_endpoint)
    return client


def test_public_access_block_of_an_account(s):
    one, two, nobody = s.one(), s.two(), s.client(unsigned=True)
    account, other = control(s, s.one("s3control")), control(s, s.two("s3control"))
    mine, bucket = {"AccountId": "111111111111"}, made(s, one, ACL="public-read")
    switches = ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"]
    public = policy(allow("*", "s3:GetObject", f"arn:aws:s3:::{bucket}/*"))

    def block(*names):
        account.put_public_access_block(**mine, PublicAccessBlockConfiguration={n: n in names for n in switches})
        kept = account.get_public_access_block(**mine)["PublicAccessBlockConfiguration"]
        equal(sorted(n for n in kept if kept[n]), sorted(names))

    refused(404, "NoSuchPublicAccessBlockConfiguration", account.get_public_access_block, **mine)
    nobody.list_objects_v2(Bucket=bucket)
    try:
        block("IgnorePublicAcls")
        denied(nobody.list_objects_v2, Bucket=bucket)
        block("BlockPublicAcls")
        nobody.list_objects_v2(Bucket=bucket)
        denied(one.put_bucket_acl, Bucket=bucket, ACL="public-read")
        denied(made, s, one, ACL="public-read")
        made(s, two, ACL="public-read")
        # Both blocks apply together.
        one.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration={"BlockPublicPolicy": True})
        denied(one.put_bucket_acl, Bucket=bucket, ACL="public-read")
        denied(one.put_bucket_policy, Bucket=bucket, Policy=public)
        one.delete_public_access_block(Bucket=bucket)
        one.put_bucket_policy(Bucket=bucket, Policy=public)
        one.put_object(Bucket=bucket, Key="key", Body=b"x")
        nobody.get_object(Bucket=bucket, Key="key")
        block("RestrictPublicBuckets")
        denied(nobody.get_object, Bucket=bucket, Key="key")
        block("BlockPublicPolicy")
        denied(one.put_bucket_policy, Bucket=bucket, Policy=public)
        for call in (other.get_public_access_block, other.delete_public_access_block):
            denied(call, **mine)
        denied(control(s, s.three("s3control")).delete_public_access_block, AccountId="333333333333")
    finally:
        for _ in range(2):
            account.delete_public_access_block(**mine)
    refused(404, "NoSuchPublicAccessBlockConfiguration", account.get_public_access_block, **mine)
    nobody.get_object(Bucket=bucket, Key="key")


def test_users_inside_an_account(s):
    two, reader = s.two(), s.reader()
    bucket = made(s, two)
    two.put_object(Bucket=bucket, Key="key", Body=b"x")
    equal([b["Name"] for b in reader.list_buckets()["Buckets"]], [bucket])
    equal(reader.get_object(Bucket=bucket, Key="key")["Body"].read(), b"x")
    denied(reader.put_object, Bucket=bucket, Key="key", Body=b"y")
    denied(reader.delete_bucket, Bucket=bucket)
    denied(reader.create_bucket, Bucket=bucket + "-x")
    # Separate owners in one account see nothing of each other.
    three, four = s.three(), s.four()
    own = made(s, three)
    equal(three.list_buckets()["Owner"]["ID"], THREE)
    equal(four.list_buckets()["Buckets"], [])
    denied(four.list_objects_v2, Bucket=own)


def test_missing_objects_are_told_to_callers_that_may_list(s):
    """A condition on s3:prefix applies to the requested key."""
    one, two = s.one(), s.two()
    bucket = made(s, one)
    resource = f"arn:aws:s3:::{bucket}"
    who = {"AWS": "arn:aws:iam::222222222222:root"}
    one.put_object(Bucket=bucket, Key="in/key", Body=b"x")
    one.put_bucket_policy(Bucket=bucket, Policy=policy(
        allow(who, "s3:GetObject", resource + "/*"),
        allow(who, "s3:ListBucket", resource, Condition={"StringLike": {"s3:prefix": "in/*"}})))
    two.get_object(Bucket=bucket, Key="in/key")
    refused(404, "NoSuchKey", two.get_object, Bucket=bucket, Key="in/none")
    refused(404, "404", two.head_object, Bucket=bucket, Key="in/none")
    denied(two.get_object, Bucket=bucket, Key="out/none")
    refused(403, "403", two.head_object, Bucket=bucket, Key="out/none")
    refused(404, "NoSuchKey", one.get_object, Bucket=bucket, Key="out/none")
