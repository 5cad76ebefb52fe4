"""Answers with the exact words of Amazon's S3: fields, headers, codes, messages and details of errors."""

import datetime

from suite import equal, refused


def versioned(s):
    bucket = s.bucket()
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return bucket


def told(s, response, message=None, **details):
    """Checks an error's message, and the details of its document, which the library for RDMA does not return."""
    error = response["Error"]
    if message is not None:
        equal(error["Message"], message)
    for name, value in () if s.by_rdma else details.items():
        equal((name, error.get(name)), (name, value))


def test_delete_markers_have_nothing_to_read_or_change(s):
    bucket = versioned(s)
    entry = {"Bucket": bucket, "Key": "gone"}
    s.put(bucket, "gone")
    marker = s.s3.delete_object(**entry)["VersionId"]
    tags = {"Tagging": {"TagSet": [{"Key": "a", "Value": "b"}]}}
    for version in {}, {"VersionId": marker}:
        for method, call, options in [("GET", s.s3.get_object_tagging, {}), ("PUT", s.s3.put_object_tagging, tags),
                                      ("DELETE", s.s3.delete_object_tagging, {}),
                                      ("PUT", s.s3.put_object_acl, {"ACL": "private"})]:
            told(s, refused(405, "MethodNotAllowed", call, **entry, **version, **options),
                 "The specified method is not allowed against this resource.",
                 Method=method, ResourceType="DeleteMarker")
    for call in s.s3.get_object, s.s3.get_object_acl:
        refused(404, "NoSuchKey", call, **entry)
        told(s, refused(405, "MethodNotAllowed", call, **entry, VersionId=marker),
             Method="GET", ResourceType="DeleteMarker")


def test_tags_tell_their_version(s):
    bucket = versioned(s)
    version = s.s3.put_object(Bucket=bucket, Key="key", Body=b"x")["VersionId"]
    entry = {"Bucket": bucket, "Key": "key"}
    equal(s.s3.put_object_tagging(**entry, Tagging={"TagSet": []})["VersionId"], version)
    equal(s.s3.delete_object_tagging(**entry, VersionId=version)["VersionId"], version)


MALFORMED_XML = "The XML you provided was not well-formed or did not validate against our published schema"


def test_buckets_that_are_not_empty(s):
    bucket = s.bucket()
    s.put(bucket, "key")
    told(s, refused(409, "BucketNotEmpty", s.s3.delete_bucket, Bucket=bucket),
         "The bucket you tried to delete is not empty", BucketName=bucket)
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    told(s, refused(409, "BucketNotEmpty", s.s3.delete_bucket, Bucket=bucket),
         "The bucket you tried to delete is not empty. You must delete all versions in the bucket.")


def test_buckets_as_they_are_made_and_found(s):
    bucket = s.bucket()
    headers = s.s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
    equal(headers["x-amz-access-point-alias"], "false")
    for value in "Anybody", "":
        told(s, refused(400, "InvalidArgument", s.s3.create_bucket, Bucket=f"{bucket}-x", ObjectOwnership=value),
             f"Invalid x-amz-object-ownership header: {value}", ArgumentName="x-amz-object-ownership")
    region = {"LocationConstraint": "eu-central-1"}
    away = s.bucket(CreateBucketConfiguration=region)
    told(s, refused(409, "BucketAlreadyOwnedByYou", s.s3.create_bucket, Bucket=away, CreateBucketConfiguration=region),
         "Your previous request to create the named bucket succeeded and you already own it.")


def test_configurations_of_buckets(s):
    bucket = s.bucket()
    s.s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": "a", "Value": "b"}]})
    s.s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": []})
    refused(404, "NoSuchTagSet", s.s3.get_bucket_tagging, Bucket=bucket)
    preset = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    s.s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [preset]})
    equal(s.s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"],
          [{**preset, "BucketKeyEnabled": False}])
    no_json = "Policies must be valid JSON and the first byte must be '{'"
    for text, message in [("", no_json), ("words", no_json), ("{,}", "This policy contains invalid Json"),
                          ("{}", "Missing required field Statement")]:
        told(s, refused(400, "MalformedPolicy", s.s3.put_bucket_policy, Bucket=bucket, Policy=text), message)
    website = {"IndexDocument": {"Suffix": "index.html"}}
    for rules, code, message in [
            ([{"Condition": {}, "Redirect": {"ReplaceKeyWith": "a"}}], "InvalidRequest", "Condition cannot be empty. "
             "To redirect all requests without a condition, the condition element shouldn't be present."),
            ([], "MalformedXML", MALFORMED_XML)]:
        told(s, refused(400, code, s.s3.put_bucket_website, Bucket=bucket,
                        WebsiteConfiguration={**website, "RoutingRules": rules}), message)


def test_preflights_that_are_refused(s):
    bucket = s.bucket()

    def ask(path, status, code, **details):
        connection = s.connection(s.endpoint)
        connection.request("OPTIONS", path, headers={"Origin": "https://page.example", **headers})
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        equal((response.status, code in body), (status, True))
        for name, value in details.items():
            equal((name, f"<{name}>{value}</{name}>" in body), (name, True))
    headers = {}
    ask(f"/{bucket}-x/key", 403, "AccessForbidden", Message="CORSResponse: Bucket not found", Method="OPTIONS",
        ResourceType="BUCKET")
    ask(f"/{bucket}/key", 403, "AccessForbidden", Message="CORSResponse: CORS is not enabled for this bucket.",
        Method="OPTIONS", ResourceType="BUCKET")
    rule = {"AllowedOrigins": ["https://other.example"], "AllowedMethods": ["GET"]}
    s.s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
    ask(f"/{bucket}/key", 400, "BadRequest", Message="Invalid Access-Control-Request-Method: null")
    headers = {"Access-Control-Request-Method": "PUT"}
    ask(f"/{bucket}/key", 403, "CORSResponse: This CORS request is not allowed.", Method="PUT", ResourceType="OBJECT")


def test_lists(s):
    bucket = s.bucket()
    for call in s.s3.list_objects, s.s3.list_objects_v2, s.s3.list_object_versions, s.s3.list_multipart_uploads:
        for value in "", "base64":
            told(s, refused(400, "InvalidArgument", call, Bucket=bucket, EncodingType=value),
                 "Invalid Encoding Method specified in Request", ArgumentName="encoding-type")


def test_uploads_of_one_key_are_listed_as_they_began(s):
    bucket = s.bucket()
    ids = [s.s3.create_multipart_upload(Bucket=bucket, Key="key")["UploadId"] for _ in range(5)]
    other = s.s3.create_multipart_upload(Bucket=bucket, Key="other")["UploadId"]
    page = s.s3.list_multipart_uploads(Bucket=bucket)
    equal([upload["UploadId"] for upload in page["Uploads"]], ids + [other])
    assert "Prefix" not in page
    s.s3.abort_multipart_upload(Bucket=bucket, Key="key", UploadId=ids[2])
    page = s.s3.list_multipart_uploads(Bucket=bucket, KeyMarker="key", UploadIdMarker=ids[2])
    equal([upload["UploadId"] for upload in page["Uploads"]], [ids[3], ids[4], other])
    told(s, refused(400, "InvalidArgument", s.s3.list_multipart_uploads, Bucket=bucket, KeyMarker="key",
                    UploadIdMarker=other),
         "Invalid uploadId marker", ArgumentName="upload-id-marker", ArgumentValue=other)
    for key, upload in [("key", i) for i in ids if i != ids[2]] + [("other", other)]:
        s.s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)


def test_tags_that_are_refused(s):
    bucket = s.bucket()
    s.put(bucket, "key")
    header = ("The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag "
              "name duplicates.")
    for value in "a=1&a=2", "a=1,b=2":
        told(s, refused(400, "InvalidArgument", s.s3.put_object, Bucket=bucket, Key="key", Tagging=value), header,
             ArgumentName="x-amz-tagging", ArgumentValue=value)

    def both(key, value, of_bucket, of_object, **details):
        tags = {"Tagging": {"TagSet": [{"Key": key, "Value": value}]}}
        told(s, refused(400, "InvalidTag", s.s3.put_bucket_tagging, Bucket=bucket, **tags), of_bucket, **details)
        told(s, refused(400, "InvalidTag", s.s3.put_object_tagging, Bucket=bucket, Key="key", **tags), of_object,
             **details)
    text = "The TagKey you have provided is invalid"
    both("a,b", "1", text, text, TagKey="a,b", TagValue=None)
    text = "The TagValue you have provided is invalid"
    both("a", "1,2", text, text, TagKey="a", TagValue="1,2")
    both("aws:a", "1", "System tags cannot be added/updated by requester", "Your TagKey cannot be prefixed with aws:",
         TagKey="aws:a", TagValue=None)


def test_parts_that_are_refused(s):
    bucket = s.bucket()
    s.put(bucket, "source", body=b"0123456789")
    entry = {"Bucket": bucket, "Key": "key"}
    upload = {**entry, "UploadId": s.s3.create_multipart_upload(**entry)["UploadId"]}

    def copy(text, code, message, **details):
        told(s, refused(400, code, s.s3.upload_part_copy, **upload, PartNumber=1, CopySource=f"{bucket}/source",
                        CopySourceRange=text), message, **details)
    for text in "0-8", "bytes=1-0", "bytes=1-", "bytes=-2":
        copy(text, "InvalidArgument", "The x-amz-copy-source-range value must be of the form bytes=first-last where "
             "first and last are the zero-based offsets of the first and last bytes to copy",
             ArgumentName="x-amz-copy-source-range", ArgumentValue=text)
    copy("bytes=0-10", "InvalidArgument", "Range specified is not valid for source object of size: 10",
         ArgumentName="x-amz-copy-source-range", ArgumentValue="bytes=0-10")
    copy("bytes=10-11", "InvalidRequest", "The specified copy range is invalid for the source object size")
    tags = [s.s3.upload_part(**upload, PartNumber=i, Body=b"data")["ETag"].strip('"') for i in (1, 2)]

    def complete(code, message, *parts, **details):
        told(s, refused(400, code, s.s3.complete_multipart_upload, **upload, MultipartUpload={
            "Parts": [{"PartNumber": number, "ETag": tag} for number, tag in parts]}), message, **details)
    whose = {"UploadId": upload["UploadId"]}
    complete("InvalidPartOrder", "The list of parts was not in ascending order. Parts must be ordered by part number.",
             (2, tags[1]), (1, tags[0]), **whose)
    complete("InvalidPart", "One or more of the specified parts could not be found.  The part may not have been "
             "uploaded, or the specified entity tag may not match the part's entity tag.", (1, f'"{tags[0][::-1]}"'),
             ETag=tags[0][::-1], PartNumber="1", **whose)
    complete("EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size", *enumerate(tags, 1),
             ETag=tags[0], PartNumber="1", MinSizeAllowed="5242880", ProposedSize="4")
    complete("MalformedXML", MALFORMED_XML)
    told(s, refused(400, "InvalidRequest", s.s3.complete_multipart_upload, **upload),
         "You must specify at least one part")


def test_pages_of_parts_past_the_last(s):
    bucket = s.bucket()
    entry = {"Bucket": bucket, "Key": "key"}
    upload = {**entry, "UploadId": s.s3.create_multipart_upload(**entry)["UploadId"]}
    tag = s.s3.upload_part(**upload, PartNumber=1, Body=b"x")["ETag"]
    equal(s.s3.list_parts(**upload, PartNumberMarker=9)["NextPartNumberMarker"], 0)
    s.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]})
    parts = s.s3.get_object_attributes(**entry, ObjectAttributes=["ObjectParts"], PartNumberMarker=9)["ObjectParts"]
    equal((parts["NextPartNumberMarker"], parts["IsTruncated"], parts.get("Parts", [])), (0, False, []))


def test_conditions(s):
    bucket = s.bucket()
    entry = {"Bucket": bucket, "Key": "key"}
    s.put(bucket, "key")
    future = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=1)
    s.s3.get_object(**entry, IfModifiedSince=future)
    s.s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/key", CopySourceIfModifiedSince=future)
    status, _, body = s.raw("PUT", f"/{bucket}/key", b"x", headers={"If-Match": "x", "If-None-Match": "*"})
    equal((status, b"<Header>If-Match,If-None-Match</Header>" in body), (501, True))


def test_configurations_that_are_never_there(s):
    bucket = s.bucket()
    for kind in "analytics", "intelligent_tiering", "inventory", "metrics":
        name = f"bucket_{kind}_configuration"
        listed = getattr(s.s3, f"list_{name}s")(Bucket=bucket)
        equal((listed["IsTruncated"], [key for key in listed if key.endswith("ConfigurationList")]), (False, []))
        for call in getattr(s.s3, f"get_{name}"), getattr(s.s3, f"delete_{name}"):
            told(s, refused(404, "NoSuchConfiguration", call, Bucket=bucket, Id="one"),
                 "The specified configuration does not exist.")
            refused(404, "NoSuchBucket", call, Bucket=f"{bucket}-x", Id="one")
            refused(403, "AccessDenied", getattr(s.two(), call.__name__), Bucket=bucket, Id="one")
    refused(501, "NotImplemented", s.s3.put_bucket_metrics_configuration, Bucket=bucket, Id="one",
            MetricsConfiguration={"Id": "one"})


def test_sources_that_are_not_there(s):
    bucket = s.bucket()
    target = {"Bucket": bucket, "Key": "to"}
    told(s, refused(404, "NoSuchKey", s.s3.copy_object, **target, CopySource=f"{bucket}/none"),
         BucketName=bucket, Key="none")
    told(s, refused(404, "NoSuchBucket", s.s3.copy_object, **target, CopySource=f"{bucket}-x/key"),
         BucketName=f"{bucket}-x", Key="key")
    told(s, refused(400, "InvalidArgument", s.s3.copy_object, **target, CopySource="word"),
         "Invalid copy source object key", ArgumentName="x-amz-copy-source", ArgumentValue="x-amz-copy-source")


def test_lists_that_are_not_said(s):
    bucket = s.bucket(ObjectOwnership="ObjectWriter")
    told(s, refused(400, "MissingSecurityHeader", s.s3.put_bucket_acl, Bucket=bucket),
         "Your request was missing a required header", MissingHeaderName="x-amz-acl")
