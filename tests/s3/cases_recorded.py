"""Answers as Amazon's S3 gives them, to the word: fields, headers, codes, messages and details of errors."""

from suite import equal, refused


def versioned(s):
    bucket = s.bucket()
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return bucket


def told(s, response, message=None, **details):
    """Holds an error's message, and what its document says beside: the library for RDMA does not hand that on."""
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
        told(s, refused(405, "MethodNotAllowed", call, **entry, VersionId=marker), Method="GET", ResourceType="DeleteMarker")


def test_tags_tell_their_version(s):
    bucket = versioned(s)
    version = s.s3.put_object(Bucket=bucket, Key="key", Body=b"x")["VersionId"]
    entry = {"Bucket": bucket, "Key": "key"}
    equal(s.s3.put_object_tagging(**entry, Tagging={"TagSet": []})["VersionId"], version)
    equal(s.s3.delete_object_tagging(**entry, VersionId=version)["VersionId"], version)
