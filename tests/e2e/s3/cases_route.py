"""Routing: all operations of S3 that botocore knows, and unknown ones."""

import re

from suite import code_of, equal, refused

# Operations that the server counts under another name than S3's.
CONFIGURATIONS = {"accelerate", "cors", "encryption", "lifecycle", "logging", "notification", "object-lock",
                  "ownershipControls", "policy", "publicAccessBlock", "replication", "requestPayment", "tagging",
                  "versioning", "website"}
OWN = {"GetBucketVersioning", "GetObjectLockConfiguration", "GetBucketLocation", "GetBucketPolicyStatus"}
# Operations of S3 that are not served, by the parameter that asks for them: of the newest SDKs, which the installed
# botocore may not know.
NOT_SERVED = [
    ("GET", "{Bucket}", "abac"), ("PUT", "{Bucket}", "abac"),
    ("GET", "{Bucket}", "metadataTable"), ("POST", "{Bucket}", "metadataTable"), ("DELETE", "{Bucket}", "metadataTable"),
    ("GET", "{Bucket}", "metadataConfiguration"), ("POST", "{Bucket}", "metadataConfiguration"),
    ("PUT", "{Bucket}", "metadataInventoryTable"), ("PUT", "{Bucket}", "metadataJournalTable"),
    ("PUT", "{Bucket}", "metadataAnnotationTable"), ("PUT", "{Bucket}", "inventory"), ("DELETE", "{Bucket}", "acl"),
    ("GET", "{Bucket}/{Key+}", "annotation"), ("PUT", "{Bucket}/{Key+}", "annotation"),
    ("DELETE", "{Bucket}/{Key+}", "annotation"), ("PUT", "{Bucket}/{Key+}", "encryption"),
    ("POST", "{Bucket}/{Key+}", "select"), ("DELETE", "{Bucket}/{Key+}", "acl"),
    # Unknown ones; S3's, but with another method or another resource.
    ("PUT", "{Bucket}/{Key+}", "next-year"),
    ("DELETE", "{Bucket}/{Key+}", "next-year"), ("DELETE", "{Bucket}", "next-year"), ("PUT", "{Bucket}", "next-year"),
    ("PUT", "{Bucket}/{Key+}", "versionId"), ("PUT", "{Bucket}/{Key+}", "partNumber"), ("DELETE", "{Bucket}", "prefix"),
    ("GET", "{Bucket}/{Key+}", "policy"), ("GET", "", "policy"), ("PUT", "{Bucket}/{Key+}", "policy"), ("PUT", "{Bucket}/{Key+}", "response-expires"),
    ("PUT", "{Bucket}/{Key+}", "If-None-Match"), ("PUT", "{Bucket}/{Key+}", "Signature"),
]

NAMED = {"analytics", "intelligent-tiering", "inventory", "metrics"}  # configurations that a bucket can have many of


def sample(name, shape):
    values = {"versionId": "null", "encoding-type": "url", "delimiter": "/", "partNumber": "1"}
    return values.get(name, {"integer": "1", "boolean": "true", "timestamp": "Thu, 01 Jan 2026 00:00:00 GMT"}.get(
        shape.type_name, "a"))


def target_of(operation):
    """Path and query; botocore's newer versions keep the bucket out of the first."""
    uri, _, fixed = operation.http["requestUri"].partition("?")
    return operation.http.get("authPath", uri), fixed


def requests_of(operation, bucket):
    """The request with its required parameters, and with all that it may have."""
    path, fixed = target_of(operation)
    path = path.replace("{Bucket}", bucket).replace("{Key+}", "key")
    query = {name: value for name, _, value in (pair.partition("=") for pair in fixed.split("&") if pair)}
    headers, optional = {}, {}
    members = operation.input_shape.members if operation.input_shape else {}
    for member, shape in members.items():
        where, name = shape.serialization.get("location"), shape.serialization.get("name", member)
        if where == "querystring":
            (query if member in operation.input_shape.required_members else optional)[name] = sample(name, shape)
        elif where == "header" and member in operation.input_shape.required_members:
            headers[name] = "STANDARD" if name == "x-amz-object-attributes" else "a"
    if operation.name == "ListDirectoryBuckets":  # unlike ListBuckets: by its service, otherwise by this
        query["x-id"] = operation.name
    yield path, query, headers
    yield path, {**query, **optional, "x-id": operation.name}, headers


def served_as(operation):
    """The operation that the server counts."""
    path, fixed = target_of(operation)
    if fixed in NAMED:
        return operation.http["method"].capitalize() + "NamedConfiguration"
    if fixed in CONFIGURATIONS and "{Key+}" not in path and operation.name not in OWN:
        return operation.http["method"].capitalize() + "Configuration"
    return operation.name


def test_every_operation_is_served_as_itself_or_declined(s):
    bucket = s.bucket()
    s.put(bucket, "key")
    tag = s.s3.head_object(Bucket=bucket, Key="key")["ETag"]
    served = set()
    for name in s.s3.meta.service_model.operation_names:
        operation = s.s3.meta.service_model.operation_model(name)
        for path, query, headers in requests_of(operation, bucket):
            before = s.operations()
            status, _, body = s.ask(operation.http["method"], path, b"", query, headers)
            counted = {key for key, count in s.operations().items() if count != before.get(key)}
            what = name, query, status, counted
            if counted == {"Declined"} or status == 501:
                assert status >= 400, what
                assert operation.http["method"] == "HEAD" or status != 501 or code_of(body) == "NotImplemented", what
                equal(s.s3.head_object(Bucket=bucket, Key="key")["ETag"], tag)
                continue
            assert counted <= {served_as(operation)}, what
            served.add(name)
            if name in ("PutObject", "DeleteObject"):
                s.put(bucket, "key")
    missing = {"GetObject", "HeadObject", "ListObjectsV2", "ListBuckets", "CopyObject", "UploadPartCopy", "PutBucketPolicy",
               "DeleteObjectTagging", "GetObjectAttributes", "ListParts", "ListMultipartUploads", "CreateBucket"} - served
    equal(missing, set())


def test_parameters_that_no_operation_takes_are_declined(s):
    bucket = s.bucket()
    s.put(bucket, "key", "other")
    for method, path, name in NOT_SERVED:
        where = "/" + path.replace("{Bucket}", bucket).replace("{Key+}", "key")
        for query in ({name: ""}, {name: "a", "annotationName": "a", "versionId": "null", "x-id": "PutObject"}):
            status, _, body = s.ask(method, where, b"lost", query)
            assert (status, code_of(body)) == (501, "NotImplemented"), (method, path, query, status, body)
            assert b"".join((name.encode(), b" ")) in body or len(query) > 1, body
    status, _, body = s.ask("HEAD", f"/{bucket}/key", b"", {"annotation": ""})
    equal((status, body), (501, b""))
    # With a token the bytes would move by RDMA: the token is ignored.
    status, _, body = s.raw("PUT", f"/{bucket}/key", b"", {"annotation": ""}, {"x-amz-rdma-token": "1:2:3"})
    assert status == 501 and b"annotation" in body, body
    equal([s.body(bucket, key) for key in ("key", "other")], [b"x", b"x"])
    s.s3.head_bucket(Bucket=bucket)


def test_parameters_of_one_operation_are_not_another_s(s):
    bucket = s.bucket()
    s.put(bucket, "key")
    for query in {"tagging": "", "policy": ""}, {"list-type": "2", "uploads": ""}, {"uploads": "", "acl": ""}:
        equal(code_of(s.ask("GET", f"/{bucket}", b"", query)[2]), "NotImplemented")
    refused(404, "NoSuchBucketPolicy", s.s3.get_bucket_policy, Bucket=bucket)
    # Parameters of SDKs and of other servers' clients.
    equal(s.ask("GET", f"/{bucket}", b"", {"list-type": "2", "metadata": "true", "x-id": "ListObjectsV2"})[0], 200)
    assert re.search(b"<Key>key</Key>", s.ask("GET", f"/{bucket}", b"", {"x-amz-anything": "1"})[2])


def test_reads_pass_over_what_chooses_no_operation(s):
    """As at AWS; writes accept notes for access logs, too."""
    bucket = s.bucket()
    s.put(bucket, "style.css", body=b"p {}")
    for query in {"v": "3"}, {"v": ""}, {"next-year": ""}, {"prefix": "a", "utm_source": "x"}, {"x-who": "me", "v": "1"}:
        equal(s.ask("GET", f"/{bucket}/style.css", b"", query)[::2], (200, b"p {}"))
        equal(s.ask("HEAD", f"/{bucket}/style.css", b"", query)[0], 200)
    for query in {"v": "3"}, {"list-type": "2", "marker": "zzz"}, {"max-uploads": "1"}:
        status, _, body = s.ask("GET", f"/{bucket}", b"", query)
        assert status == 200 and b"<Key>style.css</Key>" in body, (query, body)
    assert b"<ListAllMyBucketsResult" in s.ask("GET", "/", b"", {"v": "3"})[2]
    equal(s.ask("PUT", f"/{bucket}/noted", b"x", {"x-who": "me"})[0], 200)
    equal(s.body(bucket, "noted"), b"x")
    equal(code_of(s.ask("PUT", f"/{bucket}/noted", b"lost", {"v": "3"})[2]), "NotImplemented")
    equal(s.body(bucket, "noted"), b"x")
