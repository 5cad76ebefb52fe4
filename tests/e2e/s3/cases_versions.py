"""Versions of objects: PUT, GET, DELETE and lists in a bucket with versioning."""

import base64
import datetime
import email.utils
import hashlib

from suite import code_of, equal, refused


def versioned(s, status="Enabled"):
    bucket = s.bucket()
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
    return bucket


def listed(s, bucket, **options):
    """(key, version, latest, is a marker) of each entry, in the order of one document."""
    page = s.s3.list_object_versions(Bucket=bucket, **options)
    versions = [(v["Key"], v["VersionId"], v["IsLatest"], False) for v in page.get("Versions", [])]
    markers = [(m["Key"], m["VersionId"], m["IsLatest"], True) for m in page.get("DeleteMarkers", [])]
    return page, versions, markers


def test_states_of_a_bucket(s):
    bucket = s.bucket()
    assert "Status" not in s.s3.get_bucket_versioning(Bucket=bucket)
    assert "VersionId" not in s.s3.put_object(Bucket=bucket, Key="a", Body=b"0")
    assert "VersionId" not in s.s3.head_object(Bucket=bucket, Key="a")
    for status in ["Enabled", "Suspended", "Enabled"]:
        s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})
        equal(s.s3.get_bucket_versioning(Bucket=bucket)["Status"], status)
    equal(s.s3.head_object(Bucket=bucket, Key="a")["VersionId"], "null")
    status, _, body = s.raw("PUT", f"/{bucket}", b"<VersioningConfiguration/>", {"versioning": ""})
    assert status == 400 and b"IllegalVersioningConfigurationException" in body, body
    refused(400, "MalformedXML", s.s3.put_bucket_versioning, Bucket=bucket,
            VersioningConfiguration={"Status": "On"})
    refused(501, "NotImplemented", s.s3.put_bucket_versioning, Bucket=bucket,
            VersioningConfiguration={"Status": "Enabled", "MFADelete": "Enabled"})
    refused(404, "NoSuchBucket", s.s3.get_bucket_versioning, Bucket="no-such-bucket")


def test_put_get_and_delete(s):
    bucket = versioned(s)
    ids = [s.s3.put_object(Bucket=bucket, Key="a", Body=str(n).encode())["VersionId"] for n in range(5)]
    equal(len(set(ids)), 5)
    for n, version in enumerate(ids):
        got = s.s3.get_object(Bucket=bucket, Key="a", VersionId=version)
        equal((got["Body"].read(), got["VersionId"]), (str(n).encode(), version))
        equal(s.s3.head_object(Bucket=bucket, Key="a", VersionId=version)["ContentLength"], 1)
    equal(s.s3.get_object(Bucket=bucket, Key="a")["VersionId"], ids[4])
    gone = s.s3.delete_object(Bucket=bucket, Key="a", VersionId=ids[4])
    equal((gone["VersionId"], gone.get("DeleteMarker", False)), (ids[4], False))
    equal(s.s3.get_object(Bucket=bucket, Key="a")["VersionId"], ids[3])
    s.s3.delete_object(Bucket=bucket, Key="a", VersionId=ids[0])
    refused(404, "NoSuchVersion", s.s3.get_object, Bucket=bucket, Key="a", VersionId=ids[0])
    s.s3.delete_object(Bucket=bucket, Key="a", VersionId=ids[0])
    refused(409, "BucketNotEmpty", s.s3.delete_bucket, Bucket=bucket)


def test_delete_markers(s):
    bucket = versioned(s)
    first = s.s3.put_object(Bucket=bucket, Key="a", Body=b"1")["VersionId"]
    marker = s.s3.delete_object(Bucket=bucket, Key="a")
    equal(marker["DeleteMarker"], True)
    answer = refused(404, "NoSuchKey", s.s3.get_object, Bucket=bucket, Key="a")
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    equal((headers["x-amz-delete-marker"], headers["x-amz-version-id"]), ("true", marker["VersionId"]))
    answer = refused(405, "MethodNotAllowed", s.s3.get_object, Bucket=bucket, Key="a",
                     VersionId=marker["VersionId"])
    headers = answer["ResponseMetadata"]["HTTPHeaders"]
    equal((headers["x-amz-delete-marker"], headers["allow"]), ("true", "DELETE"))
    assert "last-modified" in headers
    refused(405, "MethodNotAllowed", s.s3.put_object_tagging, Bucket=bucket, Key="a",
            VersionId=marker["VersionId"], Tagging={"TagSet": []})
    refused(400, "InvalidRequest", s.s3.copy_object, Bucket=bucket, Key="b",
            CopySource={"Bucket": bucket, "Key": "a", "VersionId": marker["VersionId"]})
    equal(s.s3.list_objects_v2(Bucket=bucket)["KeyCount"], 0)
    again = s.s3.delete_object(Bucket=bucket, Key="a")
    equal([len(part) for part in listed(s, bucket)[1:]], [1, 2])
    for version in (again["VersionId"], marker["VersionId"]):
        equal(s.s3.delete_object(Bucket=bucket, Key="a", VersionId=version)["DeleteMarker"], True)
    equal(s.s3.get_object(Bucket=bucket, Key="a")["VersionId"], first)
    equal(s.s3.delete_object(Bucket=bucket, Key="never")["DeleteMarker"], True)


def test_suspended(s):
    bucket = versioned(s)
    kept = s.s3.put_object(Bucket=bucket, Key="a", Body=b"1")["VersionId"]
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    assert "VersionId" not in s.s3.put_object(Bucket=bucket, Key="a", Body=b"2")
    s.s3.put_object(Bucket=bucket, Key="a", Body=b"3")
    equal([v[1] for v in listed(s, bucket)[1]], ["null", kept])
    equal(s.body(bucket, "a"), b"3")
    marker = s.s3.delete_object(Bucket=bucket, Key="a")
    equal((marker["VersionId"], marker["DeleteMarker"]), ("null", True))
    equal([v[1] for v in listed(s, bucket)[1]], [kept])
    s.s3.delete_object(Bucket=bucket, Key="a", VersionId="null")
    equal(s.body(bucket, "a"), b"1")


def test_null_versions_are_told(s):
    """In answers about tags, and of writes to a bucket that had versions, but not of a PutObject."""
    bucket = s.bucket()
    name = "x-amz-version-id"
    equal(s.ask("PUT", f"/{bucket}/key", b"x")[1].get(name), None)
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    version = s.ask("PUT", f"/{bucket}/key", b"x")[1][name]
    equal(s.ask("GET", f"/{bucket}/key", b"", {"tagging": "", "versionId": version})[1].get(name), version)
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    equal(s.ask("PUT", f"/{bucket}/key", b"x")[1].get(name), None)
    equal(s.ask("GET", f"/{bucket}/key")[1].get(name), "null")
    equal(s.ask("PUT", f"/{bucket}/copy", b"", {}, {"x-amz-copy-source": f"{bucket}/key"})[1].get(name), "null")
    equal(s.ask("GET", f"/{bucket}/key", b"", {"tagging": ""})[1].get(name), "null")
    upload = s.s3.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]
    tag = s.s3.upload_part(Bucket=bucket, Key="parts", UploadId=upload, PartNumber=1, Body=b"x")["ETag"]
    body = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part></CompleteMultipartUpload>"
    status, headers, _ = s.ask("POST", f"/{bucket}/parts", body.encode(), {"uploadId": upload})
    equal((status, headers.get(name)), (200, "null"))


def test_lists(s):
    bucket = versioned(s)
    want = []
    for key in ["a", "b/1", "b/2", "c ü", "d"]:
        ids = [s.s3.put_object(Bucket=bucket, Key=key, Body=b"x")["VersionId"] for _ in range(3)]
        want += [(key, version, version == ids[-1], False) for version in reversed(ids)]
    _, versions, markers = listed(s, bucket)
    equal((versions, markers), (want, []))
    for size in (1, 2, 4, 7):
        got, options = [], {}
        while True:
            page, versions, _ = listed(s, bucket, MaxKeys=size, **options)
            got += versions
            if not page["IsTruncated"]:
                break
            options = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}
            equal(len(versions), size)
        equal([(g[1], g[2]) for g in got], [(w[1], w[2]) for w in want])
    page, versions, _ = listed(s, bucket, Delimiter="/")
    equal(([p["Prefix"] for p in page["CommonPrefixes"]], len(versions)), (["b/"], 9))
    equal(len(listed(s, bucket, Prefix="b/")[1]), 6)
    equal([v[0] for v in listed(s, bucket, KeyMarker="b/2")[1]], ["c ü"] * 3 + ["d"] * 3)
    page = s.s3.list_object_versions(Bucket=bucket, MaxKeys=1, Delimiter="/", KeyMarker="a")
    equal((page["NextKeyMarker"], "NextVersionIdMarker" in page), ("b/", False))
    refused(400, "InvalidArgument", s.s3.list_object_versions, Bucket=bucket, VersionIdMarker="null")


def test_lists_go_on_behind_what_is_gone(s):
    """A client that deletes page by page: the version after the last one of a page is then the current one."""
    bucket = s.bucket()
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    ids = [s.s3.put_object(Bucket=bucket, Key="key", Body=b"x")["VersionId"] for _ in range(4)][::-1]
    page = s.s3.list_object_versions(Bucket=bucket, MaxKeys=2)
    for version in page["Versions"]:
        s.s3.delete_object(Bucket=bucket, Key="key", VersionId=version["VersionId"])
    page = s.s3.list_object_versions(Bucket=bucket, KeyMarker=page["NextKeyMarker"],
                                     VersionIdMarker=page["NextVersionIdMarker"])
    equal([(v["VersionId"], v["IsLatest"]) for v in page["Versions"]], [(ids[2], True), (ids[3], False)])


def test_delete_many(s):
    bucket = versioned(s)
    ids = {key: [s.s3.put_object(Bucket=bucket, Key=key, Body=b"x")["VersionId"] for _ in range(4)] for key in "ab"}
    answer = s.s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "a"}, {"Key": "b", "VersionId": ids["b"][1]}]})
    by_key = {d["Key"]: d for d in answer["Deleted"]}
    equal((by_key["a"]["DeleteMarker"], by_key["b"]["VersionId"]), (True, ids["b"][1]))
    assert "VersionId" not in by_key["a"] and by_key["a"]["DeleteMarkerVersionId"]
    everything = [{"Key": v[0], "VersionId": v[1]} for part in listed(s, bucket)[1:] for v in part]
    equal(len(everything), 8)
    answer = s.s3.delete_objects(Bucket=bucket, Delete={"Objects": everything})
    equal((len(answer["Deleted"]), answer.get("Errors", [])), (8, []))
    equal([d["Key"] for d in answer["Deleted"] if d.get("DeleteMarker")], ["a"])
    equal(listed(s, bucket)[1:], ([], []))
    s.s3.delete_bucket(Bucket=bucket)


def test_copies_and_parts(s):
    bucket = versioned(s)
    old = s.s3.put_object(Bucket=bucket, Key="a", Body=b"old")["VersionId"]
    s.put(bucket, "a", body=b"new")
    source = {"Bucket": bucket, "Key": "a", "VersionId": old}
    answer = s.s3.copy_object(Bucket=bucket, Key="b", CopySource=source)
    equal((answer["CopySourceVersionId"], s.body(bucket, "b")), (old, b"old"))
    assert answer["VersionId"] != old
    s.s3.copy_object(Bucket=bucket, Key="a", CopySource=source)
    equal(s.body(bucket, "a"), b"old")
    upload = s.s3.create_multipart_upload(Bucket=bucket, Key="a")["UploadId"]
    part = s.s3.upload_part_copy(Bucket=bucket, Key="a", UploadId=upload, PartNumber=1, CopySource=source)
    done = s.s3.complete_multipart_upload(
        Bucket=bucket, Key="a", UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["CopyPartResult"]["ETag"]}]})
    equal(s.body(bucket, "a", VersionId=done["VersionId"]), b"old")
    equal(len(listed(s, bucket, Prefix="a")[1]), 4)
    got = s.s3.get_object_attributes(Bucket=bucket, Key="a", VersionId=old, ObjectAttributes=["ObjectSize"])
    equal((got["VersionId"], got["ObjectSize"]), (old, 3))


def test_tags_of_versions(s):
    bucket = versioned(s)
    ids = [s.s3.put_object(Bucket=bucket, Key="a", Body=b"x")["VersionId"] for _ in range(3)]
    for n, version in enumerate(ids):
        s.s3.put_object_tagging(Bucket=bucket, Key="a", VersionId=version,
                                Tagging={"TagSet": [{"Key": "n", "Value": str(n)}]})
    for n, version in enumerate(ids):
        equal(s.s3.get_object_tagging(Bucket=bucket, Key="a", VersionId=version)["TagSet"],
              [{"Key": "n", "Value": str(n)}])
    s.s3.delete_object_tagging(Bucket=bucket, Key="a", VersionId=ids[0])
    equal(s.s3.get_object_tagging(Bucket=bucket, Key="a", VersionId=ids[0])["TagSet"], [])
    equal(s.s3.head_object(Bucket=bucket, Key="a", VersionId=ids[1])["ResponseMetadata"]["HTTPHeaders"][
        "x-amz-tagging-count"], "1")


def test_conditional_deletes(s):
    bucket = versioned(s)
    old = s.s3.put_object(Bucket=bucket, Key="a", Body=b"12")["VersionId"]
    head = s.raw("HEAD", f"/{bucket}/a")[1]
    etag, date = head["etag"], head["last-modified"]
    other = email.utils.format_datetime(email.utils.parsedate_to_datetime(date) - datetime.timedelta(days=1),
                                        usegmt=True)
    time_of, size = "x-amz-if-match-last-modified-time", "x-amz-if-match-size"
    for bad in [{"If-Match": '"x"'}, {size: "3"}, {time_of: other}]:
        for query in [{}, {"versionId": old}]:
            status, _, body = s.raw("DELETE", f"/{bucket}/a", query=query, headers=bad)
            equal((status, code_of(body)), (412, "PreconditionFailed"))
    equal(s.raw("DELETE", f"/{bucket}/a", headers={size: "two"})[0], 400)
    entry = "<Object><Key>a</Key>%s</Object>"
    body = "<Delete>%s</Delete>" % "".join(
        [entry % "<ETag>x</ETag>", entry % f"<Size>9</Size><VersionId>{old}</VersionId>",
         entry % f"<LastModifiedTime>{other}</LastModifiedTime>"])
    digest = base64.b64encode(hashlib.md5(body.encode()).digest()).decode()
    answer = s.raw("POST", f"/{bucket}", body.encode(), {"delete": ""}, {"Content-MD5": digest})[2]
    equal(answer.count(b"<Code>PreconditionFailed</Code>"), 3)
    equal([s.raw("DELETE", f"/{s.bucket()}/none", headers=h)[0]
           for h in ({size: "3"}, {time_of: date}, {"If-Match": "*"}, {"If-Match": etag})], [204] * 4)
    s.put(bucket, "gone")
    s.s3.delete_object(Bucket=bucket, Key="gone")
    for condition, status in [({"If-Match": etag}, 412), ({size: "3"}, 412), ({time_of: other}, 412), ({"If-Match": "*"}, 204)]:
        equal((condition, s.raw("DELETE", f"/{bucket}/gone", headers=condition)[0]), (condition, status))
    for version in s.s3.list_object_versions(Bucket=bucket, Prefix="gone")["DeleteMarkers"] + \
            s.s3.list_object_versions(Bucket=bucket, Prefix="gone")["Versions"]:
        s.s3.delete_object(Bucket=bucket, Key="gone", VersionId=version["VersionId"])
    status, headers, _ = s.raw("DELETE", f"/{bucket}/a", query={"versionId": old},
                               headers={"If-Match": etag, time_of: date, size: "2"})
    equal((status, headers["x-amz-version-id"]), (204, old))
    equal(listed(s, bucket)[1:], ([], []))
