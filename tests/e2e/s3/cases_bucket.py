"""Buckets: their life, names, and clients' requests for their configurations."""

import json

from suite import code_of, equal, refused


def test_life(s):
    name = s.bucket()
    s.s3.head_bucket(Bucket=name)
    assert name in [b["Name"] for b in s.s3.list_buckets()["Buckets"]]
    s.s3.delete_bucket(Bucket=name)
    refused(404, "404", s.s3.head_bucket, Bucket=name)
    refused(404, "NoSuchBucket", s.s3.delete_bucket, Bucket=name)
    refused(404, "NoSuchBucket", s.s3.list_objects_v2, Bucket=name)


def test_created_again_by_its_owner(s):
    name = s.bucket()
    s.put(name, "key")
    s.s3.create_bucket(Bucket=name)
    equal(s.body(name, "key"), b"x")
    shared = {"ObjectOwnership": "ObjectWriter", "ACL": "log-delivery-write"}
    refused(409, "BucketAlreadyExists", s.s3.create_bucket, Bucket=name, **shared)
    name = s.bucket(**shared)
    s.s3.create_bucket(Bucket=name, **shared)
    refused(409, "BucketAlreadyExists", s.s3.create_bucket, Bucket=name)


def test_new_ones_are_closed(s):
    """As at AWS since 2023: lists off, public access blocked; the owner can remove each permanently."""
    one, name = s.one(), f"{s.prefix}{next(s.numbers)}"
    one.create_bucket(Bucket=name)
    rules = one.get_bucket_ownership_controls(Bucket=name)["OwnershipControls"]["Rules"]
    equal(rules, [{"ObjectOwnership": "BucketOwnerEnforced"}])
    block = one.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]
    equal((len(block), set(block.values())), (4, {True}))
    everybody = json.dumps({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{name}/*"}]})
    refused(403, "AccessDenied", one.put_bucket_policy, Bucket=name, Policy=everybody)
    refused(400, "AccessControlListNotSupported", one.put_bucket_acl, Bucket=name, ACL="log-delivery-write")
    refused(400, "InvalidBucketAclWithObjectOwnership", one.create_bucket, Bucket=name + "-x", ACL="public-read")
    refused(400, "InvalidBucketAclWithBlockPublicAccessError", one.create_bucket, Bucket=name + "-x", ACL="public-read",
            ObjectOwnership="ObjectWriter")
    refused(404, "NoSuchBucket", s.s3.list_objects_v2, Bucket=name + "-x")
    one.create_bucket(Bucket=name, ACL="private")
    for _ in range(2):
        one.delete_public_access_block(Bucket=name)
        refused(404, "NoSuchPublicAccessBlockConfiguration", one.get_public_access_block, Bucket=name)
        one.delete_bucket_ownership_controls(Bucket=name)
        refused(404, "OwnershipControlsNotFoundError", one.get_bucket_ownership_controls, Bucket=name)
    one.put_bucket_policy(Bucket=name, Policy=everybody)
    one.put_bucket_acl(Bucket=name, ACL="public-read")
    one.put_object(Bucket=name, Key="key", Body=b"x")
    equal(s.client(unsigned=True).get_object(Bucket=name, Key="key")["Body"].read(), b"x")
    one.put_public_access_block(Bucket=name, PublicAccessBlockConfiguration={"RestrictPublicBuckets": True})
    equal(one.get_public_access_block(Bucket=name)["PublicAccessBlockConfiguration"]["BlockPublicAcls"], False)


def test_location(s):
    name = s.bucket(CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    equal(s.s3.get_bucket_location(Bucket=name)["LocationConstraint"], "eu-west-1")
    refused(409, "BucketAlreadyOwnedByYou", s.s3.create_bucket, Bucket=name)
    equal(s.s3.get_bucket_location(Bucket=s.bucket())["LocationConstraint"], None)


def test_not_empty(s):
    name = s.bucket()
    s.put(name, "key")
    refused(409, "BucketNotEmpty", s.s3.delete_bucket, Bucket=name)


def test_names(s):
    for name in ["Abc", "a_b", "ab", "192.168.1.1", "a..b", "-abc", "abc-", "xn--abc", "abc-s3alias", "a" * 64]:
        status, _, body = s.raw("PUT", "/" + name)
        equal((status, b"InvalidBucketName" in body), (400, True))


def test_list_in_pages(s):
    names = sorted(s.bucket() for _ in range(3))
    status, _, body = s.raw("GET", "/", query={"prefix": s.prefix, "max-buckets": "2"})
    equal((status, body.count(b"<Bucket>")), (200, 2))
    token = body.split(b"<ContinuationToken>")[1].split(b"<")[0].decode()
    status, _, body = s.raw("GET", "/", query={"prefix": s.prefix, "continuation-token": token})
    equal((status, body.count(b"<Bucket>"), names[2].encode() in body), (200, 1, True))
    equal(s.raw("GET", "/", query={"max-buckets": "0"})[0], 400)


def test_made_with_tags(s):
    name = s.prefix + "tagged"
    body = (b"<CreateBucketConfiguration><Tags><Tag><Key>b</Key><Value>2</Value></Tag><Tag><Key>a</Key><Value>1</Value></Tag></Tags>"
            b"</CreateBucketConfiguration>")
    equal(s.ask("PUT", "/" + name, body)[0], 200)
    equal(s.s3.get_bucket_tagging(Bucket=name)["TagSet"], [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}])
    s.s3.delete_bucket(Bucket=name)
    twice = body.replace(b"<Key>b<", b"<Key>a<")
    status, _, answer = s.ask("PUT", "/" + name, twice)
    equal((status, code_of(answer)), (400, "InvalidTag"))
    refused(404, "404", s.s3.head_bucket, Bucket=name)


def test_arn(s):
    name = s.bucket()
    wanted = f"arn:aws:s3:::{name}"
    equal(s.ask("HEAD", "/" + name)[1].get("x-amz-bucket-arn"), wanted)
    equal(s.ask("PUT", "/" + name)[1].get("x-amz-bucket-arn"), wanted)
    assert f"<BucketArn>{wanted}</BucketArn>".encode() in s.ask("GET", "/")[2]


def test_configurations_that_are_not_there(s):
    name = s.bucket()
    equal(s.s3.get_bucket_versioning(Bucket=name).get("Status"), None)
    equal(s.s3.get_bucket_acl(Bucket=name)["Grants"][0]["Permission"], "FULL_CONTROL")
    equal(s.s3.get_bucket_request_payment(Bucket=name)["Payer"], "BucketOwner")
    s.s3.get_bucket_logging(Bucket=name)
    s.s3.get_bucket_notification_configuration(Bucket=name)
    refused(404, "NoSuchBucketPolicy", s.s3.get_bucket_policy, Bucket=name)
    refused(404, "NoSuchLifecycleConfiguration", s.s3.get_bucket_lifecycle_configuration, Bucket=name)
    refused(404, "NoSuchTagSet", s.s3.get_bucket_tagging, Bucket=name)
    refused(404, "NoSuchCORSConfiguration", s.s3.get_bucket_cors, Bucket=name)
    refused(404, "NoSuchWebsiteConfiguration", s.s3.get_bucket_website, Bucket=name)
    refused(404, "ServerSideEncryptionConfigurationNotFoundError", s.s3.get_bucket_encryption, Bucket=name)


def test_unserved_operations_are_declined(s):
    name = s.bucket()
    s.put(name, "key")
    for path, headers in [("?inventory", {}), ("/key", {"x-amz-write-offset-bytes": "0"})]:
        where, _, query = path.partition("?")
        status, _, body = s.raw("PUT", f"/{name}{where}", b"y", {query: ""} if query else None, headers)
        equal((status, code_of(body)), (501, "NotImplemented"))
    equal(s.body(name, "key"), b"x")


def test_methods(s):
    name = s.bucket()
    status, _, body = s.raw("PATCH", "/" + name)
    equal(status in (405, 501), True)
    status, _, body = s.raw("POST", "/")
    equal((status, code_of(body)), (400, "InvalidAction"))
