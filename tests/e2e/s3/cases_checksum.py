"""The checksums of S3, given in headers and in trailers."""

import base64
import hashlib
import re
import zlib

from suite import code_of, equal

BODY = b"123456789"
SUMS = {"crc32": "y/Q5Jg==", "crc32c": "4waSgw==", "crc64nvme": "rosUhgp5mIg=",
        "sha1": base64.b64encode(hashlib.sha1(BODY).digest()).decode(),
        **{name: base64.b64encode(hashlib.new(name, BODY).digest()).decode() for name in ("sha256", "sha512", "md5")},
        "xxhash64": "jLhB20DmroM=", "xxhash3": "ctyxi2ehff8=", "xxhash128": "MxGUd+3l3NXpcWQnaB1YYA=="}
JOINED = ("crc32", "crc32c", "crc64nvme")  # the object's can be computed from its parts'


def test_headers(s):
    bucket = s.bucket()
    path = f"/{bucket}/key"
    for kind, value in SUMS.items():
        name = f"x-amz-checksum-{kind}"
        status, headers, body = s.raw("PUT", path, BODY, headers={name: value})
        equal((status, headers.get(name), headers.get("x-amz-checksum-type")), (200, value, "FULL_OBJECT"))
        _, headers, _ = s.raw("GET", path, headers={"x-amz-checksum-mode": "ENABLED"})
        equal(headers.get(name), value)
        _, headers, _ = s.raw("GET", path)
        equal(headers.get(name), None)
        status, _, body = s.raw("PUT", path, BODY + b"0", headers={name: value})
        equal((status, code_of(body)), (400, "BadDigest"))
        status, _, body = s.raw("PUT", path, BODY, headers={name: value[1:]})
        equal((status, code_of(body)), (400, "InvalidRequest"))
    status, _, body = s.raw("PUT", path, BODY, headers={"x-amz-checksum-crc32": SUMS["crc32"],
                                                       "x-amz-checksum-sha1": SUMS["sha1"]})
    equal((status, code_of(body)), (400, "InvalidRequest"))


def trailer(body, name, value):
    return b"%x\r\n%s\r\n0\r\n%s:%s\r\n\r\n" % (len(body), body, name.encode(), value.encode())


def put_trailer(s, path, kind, value):
    name = f"x-amz-checksum-{kind}"
    return s.raw("PUT", path, trailer(BODY, name, value), headers={
        "x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER", "content-encoding": "aws-chunked",
        "x-amz-decoded-content-length": str(len(BODY)), "x-amz-trailer": name})


def test_trailers(s):
    bucket = s.bucket()
    for kind, value in SUMS.items():
        status, headers, body = put_trailer(s, f"/{bucket}/{kind}", kind, value)
        equal((status, headers.get(f"x-amz-checksum-{kind}")), (200, value))
        equal(s.body(bucket, kind), BODY)
        equal(s.s3.head_object(Bucket=bucket, Key=kind).get("ContentEncoding"), None)
    bad = base64.b64encode(zlib.crc32(b"other").to_bytes(4, "big")).decode()
    status, _, body = put_trailer(s, f"/{bucket}/bad", "crc32", bad)
    equal((status, code_of(body)), (400, "BadDigest"))
    equal(s.raw("GET", f"/{bucket}/bad")[0], 404)


def test_client_default(s):
    bucket = s.bucket()
    s.s3.put_object(Bucket=bucket, Key="key", Body=BODY)
    got = s.s3.get_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")
    equal(got["Body"].read(), BODY)
    answer = s.s3.put_object(Bucket=bucket, Key="key", Body=BODY, ChecksumAlgorithm="SHA256")
    equal(answer["ChecksumSHA256"], SUMS["sha256"])
    got = s.s3.head_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")
    equal(got["ChecksumSHA256"], SUMS["sha256"])


def test_every_kind(s):
    """Copied, listed, and as a composite checksum."""
    bucket = s.bucket()
    s.put(bucket, "source", body=BODY)
    for kind, value in SUMS.items():
        element, path = f"<Checksum{kind.upper()}>{value}", f"/{bucket}/{kind}"
        status, _, body = s.raw("PUT", path, headers={"x-amz-copy-source": f"/{bucket}/source", "x-amz-checksum-algorithm": kind.upper()})
        assert status == 200 and element.encode() in body, body
        _, _, body = s.raw("GET", path, query={"attributes": ""}, headers={"x-amz-object-attributes": "Checksum"})
        assert element.encode() in body, body
        _, _, body = s.raw("GET", f"/{bucket}", query={"list-type": "2", "prefix": kind})
        assert f"<ChecksumAlgorithm>{kind.upper()}<".encode() in body, body
        if kind in JOINED:
            continue
        asked = {"x-amz-checksum-algorithm": kind.upper()}
        status, _, body = s.raw("POST", path, query={"uploads": ""}, headers={**asked, "x-amz-checksum-type": "FULL_OBJECT"})
        equal((status, code_of(body)), (400, "InvalidRequest"))
        status, headers, body = s.raw("POST", path, query={"uploads": ""}, headers=asked)
        equal((status, headers["x-amz-checksum-type"]), (200, "COMPOSITE"))
        upload = re.search(b"<UploadId>(.*?)<", body)[1].decode()
        status, headers, body = s.raw("PUT", path, BODY, query={"partNumber": "1", "uploadId": upload},
                                      headers={f"x-amz-checksum-{kind}": value})
        equal((status, headers.get(f"x-amz-checksum-{kind}")), (200, value))
        _, _, body = s.raw("GET", path, query={"uploadId": upload})
        assert element.encode() in body, body
        part = f"<Part><PartNumber>1</PartNumber><ETag>{headers['etag']}</ETag>{element}</Checksum{kind.upper()}></Part>"
        status, _, body = s.raw("POST", path, f"<CompleteMultipartUpload>{part}</CompleteMultipartUpload>".encode(), query={"uploadId": upload})
        whole = re.search(f"<Checksum{kind.upper()}>(.*?)<".encode(), body)
        assert status == 200 and whole and whole[1].endswith(b"=-1") and whole[1] != f"{value}-1".encode(), body
    for method, query, headers in (("POST", {"uploads": ""}, {}), ("PUT", {}, {"x-amz-copy-source": f"/{bucket}/source"})):
        status, _, body = s.raw(method, f"/{bucket}/none", query=query, headers={**headers, "x-amz-checksum-algorithm": "SHA3"})
        equal((status, code_of(body)), (400, "InvalidRequest"))
        assert b"XXHASH128]" in body, body


def test_attributes_of_parts(s):
    """Page by page, with the parts' own checksums if the object's is composite."""
    bucket = s.bucket()
    upload = s.s3.create_multipart_upload(Bucket=bucket, Key="key", ChecksumAlgorithm="SHA256")["UploadId"]
    parts = []
    for number, body in enumerate([b"a" * (5 << 20), b"b" * (5 << 20), b"c"], 1):
        got = s.s3.upload_part(Bucket=bucket, Key="key", UploadId=upload, PartNumber=number, Body=body, ChecksumAlgorithm="SHA256")
        parts.append({"PartNumber": number, "ETag": got["ETag"], "ChecksumSHA256": got["ChecksumSHA256"]})
    whole = base64.b64encode(hashlib.sha256(b"".join(base64.b64decode(p["ChecksumSHA256"]) for p in parts)).digest()).decode()
    for text in (parts[0]["ChecksumSHA256"], f"{whole}-2"):
        try:
            s.s3.complete_multipart_upload(Bucket=bucket, Key="key", UploadId=upload, MultipartUpload={"Parts": parts},
                                           ChecksumSHA256=text)
            raise AssertionError(f"completed with {text}")
        except s.s3.exceptions.ClientError as error:
            equal(error.response["Error"]["Code"], "BadDigest")
    # With or without the number of parts at the end, depending on the library; a repetition is harmless.
    for text in (whole, f"{whole}-3"):
        got = s.s3.complete_multipart_upload(Bucket=bucket, Key="key", UploadId=upload, MultipartUpload={"Parts": parts},
                                             ChecksumSHA256=text)
        equal(got["ChecksumSHA256"], f"{whole}-3")

    def ask(**options):
        return s.s3.get_object_attributes(Bucket=bucket, Key="key", ObjectAttributes=["ObjectParts"], **options)["ObjectParts"]

    want = [{"PartNumber": p["PartNumber"], "Size": size, "ChecksumSHA256": p["ChecksumSHA256"]}
            for p, size in zip(parts, [5 << 20, 5 << 20, 1])]
    got = ask()
    equal((got["TotalPartsCount"], got["IsTruncated"], got["Parts"]), (3, False, want))
    got = ask(MaxParts=2)
    equal((got["NextPartNumberMarker"], got["IsTruncated"], got["MaxParts"], got["Parts"]), (2, True, 2, want[:2]))
    got = ask(MaxParts=2, PartNumberMarker=2)
    equal((got["PartNumberMarker"], got["IsTruncated"], got["Parts"]), (2, False, want[2:]))
    equal(ask(PartNumberMarker=9).get("Parts"), None)


def upload_of_parts(s, bucket, bodies, kind, mode=None):
    """(upload's id, the parts for the completion, with their checksums in base64)"""
    asked = {"x-amz-checksum-algorithm": kind.upper(), **({"x-amz-checksum-type": mode} if mode else {})}
    _, _, body = s.ask("POST", f"/{bucket}/key", b"", {"uploads": ""}, asked)
    upload = re.search(b"<UploadId>(.*?)<", body)[1].decode()
    parts = []
    for number, body in enumerate(bodies, 1):
        sum_of = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode() if kind == "crc32" else \
            base64.b64encode(hashlib.new(kind, body).digest()).decode()
        _, headers, _ = s.ask("PUT", f"/{bucket}/key", body, {"partNumber": str(number), "uploadId": upload},
                              {f"x-amz-checksum-{kind}": sum_of})
        parts.append((number, headers["etag"], sum_of))
    return upload, parts


def complete(s, bucket, upload, parts, element, headers=None):
    body = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag>" +
                   (f"<{element}>{sum_of}</{element}>" if element else "") + "</Part>" for number, tag, sum_of in parts)
    status, _, body = s.ask("POST", f"/{bucket}/key", f"<CompleteMultipartUpload>{body}</CompleteMultipartUpload>".encode(),
                            {"uploadId": upload}, headers)
    return status, code_of(body)


def test_completing_with_other_checksums(s):
    bucket = s.bucket()
    upload, parts = upload_of_parts(s, bucket, [b"x"], "sha256")
    whole = base64.b64encode(hashlib.sha256(base64.b64decode(parts[0][2])).digest()).decode()
    for element, headers, wanted in [
            (None, {}, "InvalidRequest"), ("ChecksumSHA1", {}, "BadDigest"),
            ("ChecksumSHA256", {"x-amz-checksum-type": "FULL_OBJECT"}, "InvalidRequest"),
            ("ChecksumSHA256", {"x-amz-checksum-crc32": "AAAAAA=="}, "BadDigest"),
            ("ChecksumSHA256", {"x-amz-mp-object-size": "2"}, "InvalidRequest")]:
        equal(complete(s, bucket, upload, parts, element, headers), (400, wanted))
    equal(complete(s, bucket, upload, parts, "ChecksumSHA256", {
        "x-amz-checksum-type": "COMPOSITE", "x-amz-checksum-sha256": whole + "-1"}), (200, None))
    upload, parts = upload_of_parts(s, bucket, [b"x"], "crc32", "FULL_OBJECT")
    equal(complete(s, bucket, upload, parts, "ChecksumSHA256"), (400, "InvalidPart"))
    equal(complete(s, bucket, upload, parts, None, {"x-amz-checksum-type": "COMPOSITE"}), (400, "InvalidRequest"))
    equal(complete(s, bucket, upload, parts, None), (200, None))


def test_of_parts_that_are_read(s):
    """A part's own checksum, and that of a range over the whole object."""
    bucket = s.bucket()
    path, asked = f"/{bucket}/key", {"x-amz-checksum-mode": "ENABLED"}
    upload, parts = upload_of_parts(s, bucket, [b"a" * (5 << 20), b"b"], "sha256")
    equal(complete(s, bucket, upload, parts, "ChecksumSHA256"), (200, None))
    for method in "GET", "HEAD":
        for number, _, sum_of in parts:
            status, headers, _ = s.ask(method, path, b"", {"partNumber": str(number)}, asked)
            equal((status, headers.get("x-amz-checksum-sha256"), headers.get("x-amz-checksum-type")), (206, sum_of, "COMPOSITE"))
    _, headers, _ = s.ask("HEAD", path, b"", {}, asked)
    whole = headers["x-amz-checksum-sha256"]
    assert whole.endswith("-2"), headers
    _, _, body = s.ask("GET", path, b"", {"attributes": ""}, {"x-amz-object-attributes": "Checksum"})
    assert f"<ChecksumSHA256>{whole[:-2]}</ChecksumSHA256>".encode() in body, body
    # A single part is the whole object; for two parts with one common checksum, no part's is stored.
    upload, parts = upload_of_parts(s, bucket, [b"a"], "crc32", "FULL_OBJECT")
    complete(s, bucket, upload, parts, None)
    equal(s.ask("GET", path, b"", {"partNumber": "1"}, asked)[1].get("x-amz-checksum-crc32"), parts[0][2])
    upload, parts = upload_of_parts(s, bucket, [b"a" * (5 << 20), b"b"], "crc32", "FULL_OBJECT")
    complete(s, bucket, upload, parts, None)
    equal(s.ask("GET", path, b"", {"partNumber": "1"}, asked)[1].get("x-amz-checksum-crc32"), None)
    s.ask("PUT", path, BODY, {}, {"x-amz-checksum-crc32": SUMS["crc32"]})
    for query, asked_for, told in [({"partNumber": "1"}, {}, True), ({}, {"range": "bytes=0-"}, True),
                                   ({}, {"range": "bytes=0-8"}, True), ({}, {"range": "bytes=1-"}, False)]:
        status, headers, _ = s.ask("GET", path, b"", query, {**asked, **asked_for})
        equal((status, headers.get("x-amz-checksum-crc32")), (206, SUMS["crc32"] if told else None))


def test_an_upload_that_asked_for_no_checksum_is_told_none(s):
    """Not until it is an object, whose CRC64NVME is stored and returned; a part's checksum is returned to its
    uploader."""
    bucket = s.bucket()
    status, headers, body = s.ask("POST", f"/{bucket}/key", b"", {"uploads": ""})
    assert status == 200 and "x-amz-checksum-algorithm" not in headers and "x-amz-checksum-type" not in headers, headers
    upload = re.search(b"<UploadId>(.*)</UploadId>", body)[1].decode()
    status, headers, _ = s.ask("PUT", f"/{bucket}/key", b"abc", {"uploadId": upload, "partNumber": "1"})
    assert status == 200 and not [name for name in headers if "checksum" in name], headers
    for path, query in (f"/{bucket}/key", {"uploadId": upload}), (f"/{bucket}", {"uploads": ""}):
        status, _, body = s.ask("GET", path, b"", query)
        assert status == 200 and b"Checksum" not in body, body
    status, headers, _ = s.ask("PUT", f"/{bucket}/key", b"abc", {"uploadId": upload, "partNumber": "1"},
                               {"x-amz-checksum-crc32": "NSRBwg=="})
    equal((status, headers.get("x-amz-checksum-crc32")), (200, "NSRBwg=="))
    assert b"<ChecksumCRC32>NSRBwg==</ChecksumCRC32>" in s.ask("GET", f"/{bucket}/key", b"", {"uploadId": upload})[2]
    s.put(bucket, "source", body=b"abc")
    status, _, body = s.ask("PUT", f"/{bucket}/key", b"", {"uploadId": upload, "partNumber": "1"},
                            {"x-amz-copy-source": f"{bucket}/source"})
    assert status == 200 and b"Checksum" not in body, body
    tag = re.search(b"<ETag>(.*)</ETag>", body)[1].decode()
    parts = f"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part></CompleteMultipartUpload>".encode()
    status, _, body = s.ask("POST", f"/{bucket}/key", parts, {"uploadId": upload})
    assert status == 200 and b"<ChecksumCRC64NVME>BeXKuz/B+us=</ChecksumCRC64NVME>" in body, body
    head = s.s3.head_object(Bucket=bucket, Key="key", ChecksumMode="ENABLED")["ResponseMetadata"]["HTTPHeaders"]
    equal(head["x-amz-checksum-crc64nvme"], "BeXKuz/B+us=")
