"""Listing: order, prefixes, delimiters, pages, encodings."""

import html
import re
import urllib.parse

from suite import code_of, equal, refused


def keys_of(answer):
    return [o["Key"] for o in answer.get("Contents", [])]


def prefixes_of(answer):
    return [p["Prefix"] for p in answer.get("CommonPrefixes", [])]


def test_delimiter_and_prefix(s):
    bucket = s.bucket()
    s.put(bucket, "asdf", "boo/bar", "boo/baz/xyzzy", "cquux/thud", "cquux/bla")
    for call in (s.s3.list_objects, s.s3.list_objects_v2):
        got = call(Bucket=bucket, Delimiter="/")
        equal((keys_of(got), prefixes_of(got)), (["asdf"], ["boo/", "cquux/"]))
        got = call(Bucket=bucket, Delimiter="/", Prefix="boo/")
        equal((keys_of(got), prefixes_of(got)), (["boo/bar"], ["boo/baz/"]))
        got = call(Bucket=bucket, Delimiter="a")
        equal((keys_of(got), prefixes_of(got)), (["cquux/thud"], ["a", "boo/ba", "cquux/bla"]))
        got = call(Bucket=bucket, Delimiter="/ba")
        equal(prefixes_of(got), ["boo/ba"])
        got = call(Bucket=bucket, Prefix="none")
        equal((keys_of(got), got["IsTruncated"]), ([], False))
        got = call(Bucket=bucket, Prefix="", Delimiter="")
        equal((len(keys_of(got)), "Delimiter" in got), (5, False))


def test_pages_of_version_1(s):
    bucket = s.bucket()
    s.put(bucket, "a", "b/1", "b/2", "c", "d/1")
    got = s.s3.list_objects(Bucket=bucket, MaxKeys=2)
    equal((keys_of(got), got["IsTruncated"], "NextMarker" in got), (["a", "b/1"], True, False))
    got = s.s3.list_objects(Bucket=bucket, Marker="b/1")
    equal((keys_of(got), got["IsTruncated"]), (["b/2", "c", "d/1"], False))
    got = s.s3.list_objects(Bucket=bucket, Delimiter="/", MaxKeys=2)
    equal((keys_of(got), prefixes_of(got), got["NextMarker"]), (["a"], ["b/"], "b/"))
    got = s.s3.list_objects(Bucket=bucket, Delimiter="/", MaxKeys=2, Marker=got["NextMarker"])
    equal((keys_of(got), prefixes_of(got), got["IsTruncated"]), (["c"], ["d/"], False))
    got = s.s3.list_objects(Bucket=bucket, MaxKeys=0)
    equal((keys_of(got), got["IsTruncated"]), ([], False))
    equal(s.s3.list_objects(Bucket=bucket)["Contents"][0]["Owner"]["DisplayName"], "root")
    refused(400, "InvalidArgument", s.s3.list_objects, Bucket=bucket, MaxKeys=-1)


def test_pages_of_version_2(s):
    bucket = s.bucket()
    s.put(bucket, "a", "b/1", "b/2", "c", "d/1")
    got = s.s3.list_objects_v2(Bucket=bucket, MaxKeys=2)
    equal((keys_of(got), got["KeyCount"], got["IsTruncated"]), (["a", "b/1"], 2, True))
    got = s.s3.list_objects_v2(Bucket=bucket, MaxKeys=2, ContinuationToken=got["NextContinuationToken"])
    equal(keys_of(got), ["b/2", "c"])
    got = s.s3.list_objects_v2(Bucket=bucket, StartAfter="b/2")
    equal((keys_of(got), got["StartAfter"]), (["c", "d/1"], "b/2"))
    got = s.s3.list_objects_v2(Bucket=bucket, Delimiter="/", MaxKeys=2)
    equal((keys_of(got), prefixes_of(got), got["KeyCount"]), (["a"], ["b/"], 2))
    got = s.s3.list_objects_v2(Bucket=bucket, Delimiter="/", ContinuationToken=got["NextContinuationToken"])
    equal((keys_of(got), prefixes_of(got)), (["c"], ["d/"]))
    got = s.s3.list_objects_v2(Bucket=bucket, MaxKeys=0)
    equal((got["KeyCount"], got["IsTruncated"]), (0, False))
    equal("Owner" in s.s3.list_objects_v2(Bucket=bucket)["Contents"][0], False)
    equal("Owner" in s.s3.list_objects_v2(Bucket=bucket, FetchOwner=True)["Contents"][0], True)
    refused(400, "InvalidArgument", s.s3.list_objects_v2, Bucket=bucket, ContinuationToken="!")


def test_markers_inside_a_common_prefix(s):
    """The prefix has been listed: it is not listed again. A start-after is not a marker."""
    bucket = s.bucket()
    s.put(bucket, "a", "b/1", "b/2", "c/1", "d")
    got = s.s3.list_objects(Bucket=bucket, Delimiter="/", Marker="b/1")
    equal((keys_of(got), prefixes_of(got), got["Marker"]), (["d"], ["c/"], "b/1"))
    got = s.s3.list_objects(Bucket=bucket, Delimiter="/", Prefix="b/", Marker="b/1")
    equal((keys_of(got), prefixes_of(got)), (["b/2"], []))
    for more in {}, {"VersionIdMarker": "null"}:
        got = s.s3.list_object_versions(Bucket=bucket, Delimiter="/", KeyMarker="b/1", **more)
        equal(([v["Key"] for v in got["Versions"]], prefixes_of(got), got["KeyMarker"]), (["d"], ["c/"], "b/1"))
    got = s.s3.list_objects_v2(Bucket=bucket, Delimiter="/", StartAfter="b/1")
    equal((keys_of(got), prefixes_of(got)), (["d"], ["b/", "c/"]))
    for key in "b/1", "b/2", "c/1", "d":
        s.s3.create_multipart_upload(Bucket=bucket, Key=key)
    got = s.s3.list_multipart_uploads(Bucket=bucket, Delimiter="/", KeyMarker="b/1")
    equal(([u["Key"] for u in got["Uploads"]], prefixes_of(got)), (["d"], ["c/"]))


def test_times_and_ends(s):
    """Times are whole seconds, in lists, too; lists of uploads and parts have their end, complete ones, too."""
    bucket = s.bucket()
    s.put(bucket, "key")
    for query in {}, {"list-type": "2"}, {"versions": ""}:
        assert re.search(rb"<LastModified>[\d:T-]{19}\.000Z<", s.ask("GET", f"/{bucket}", b"", query)[2])
    upload = s.s3.create_multipart_upload(Bucket=bucket, Key="key")["UploadId"]
    body = s.ask("GET", f"/{bucket}/key", b"", {"uploadId": upload})[2]
    assert b"<NextPartNumberMarker>0<" in body and b"<IsTruncated>false<" in body, body
    s.s3.upload_part(Bucket=bucket, Key="key", UploadId=upload, PartNumber=7, Body=b"x")
    assert b"<NextPartNumberMarker>7<" in s.ask("GET", f"/{bucket}/key", b"", {"uploadId": upload})[2]
    body = s.ask("GET", f"/{bucket}", b"", {"uploads": ""})[2]
    assert f"<NextKeyMarker>key</NextKeyMarker><NextUploadIdMarker>{upload}<".encode() in body, body
    for number in 8, 9:
        tag = s.s3.upload_part(Bucket=bucket, Key="key", UploadId=upload, PartNumber=number, Body=b"x")["ETag"]
    parts = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>" for number in (8, 9))
    body = s.raw("POST", f"/{bucket}/key", f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode(), {"uploadId": upload})[2]
    assert code_of(body) == "EntityTooSmall" and b"<PartNumber>8</PartNumber><MinSizeAllowed>5242880</MinSizeAllowed><ProposedSize>1<" in body, body


def test_two_thousand_keys(s):
    import concurrent.futures
    bucket = s.bucket()
    keys = sorted(f"{i % 20:02d}/{i:04d}" for i in range(2000))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: s.s3.put_object(Bucket=bucket, Key=key, Body=b"x"), keys))
    pages = list(s.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket))
    equal([len(p["Contents"]) for p in pages], [1000, 1000])
    equal([k for p in pages for k in keys_of(p)], keys)
    got = s.s3.list_objects_v2(Bucket=bucket, Delimiter="/")
    equal(prefixes_of(got), [f"{i:02d}/" for i in range(20)])
    for size in (7, 333):
        pages = s.s3.get_paginator("list_objects").paginate(Bucket=bucket, PaginationConfig={"PageSize": size})
        equal([k for p in pages for k in keys_of(p)], keys)
    pages = s.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Delimiter="/",
                                                          PaginationConfig={"PageSize": 3})
    equal([x for p in pages for x in prefixes_of(p)], [f"{i:02d}/" for i in range(20)])


def test_url_encoding(s):
    bucket = s.bucket()
    s.put(bucket, "foo+1/bar", "foo/bar/xyz", "quux ab/thud", "asdf+b")
    status, _, body = s.raw("GET", f"/{bucket}", query={"delimiter": "/", "encoding-type": "url"})
    equal(status, 200)
    for text in ["<Key>asdf%2Bb</Key>", "<Prefix>foo%2B1/</Prefix>", "<Prefix>foo/</Prefix>",
                 "<Prefix>quux%20ab/</Prefix>", "<EncodingType>url</EncodingType>"]:
        assert text.encode() in body, text
    refused(400, "InvalidArgument", s.s3.list_objects_v2, Bucket=bucket, EncodingType="other")


def test_entries(s):
    bucket = s.bucket()
    answer = s.s3.put_object(Bucket=bucket, Key="key", Body=b"12345")
    entry = s.s3.list_objects_v2(Bucket=bucket)["Contents"][0]
    head = s.s3.head_object(Bucket=bucket, Key="key")
    equal((entry["ETag"], entry["Size"], entry["StorageClass"]), (answer["ETag"], 5, "STANDARD"))
    equal(entry["LastModified"].replace(microsecond=0), head["LastModified"])


def test_prefix_and_orders(s):
    bucket = s.bucket()
    s.put(bucket, "a/b", "c")
    for prefix in ["\n", "a b", "100%", "a+b"]:
        query = {"prefix": prefix, "encoding-type": "url"}
        told = re.search(rb"<Prefix>(.*?)</Prefix>", s.raw("GET", f"/{bucket}", query=query)[2], re.S).group(1)
        equal(urllib.parse.unquote(html.unescape(told.decode())), prefix)
    # boto3 does not decode this one.
    equal(s.s3.list_objects(Bucket=bucket, Prefix="\n")["Prefix"], "\n")
    equal(s.raw("GET", f"/{bucket}", query={"allow-unordered": "true"})[0], 200)
    status, _, body = s.raw("GET", f"/{bucket}", query={"allow-unordered": "true", "delimiter": "/"})
    equal((status, code_of(body)), (400, "InvalidArgument"))
