"""Uploads by a browser's form."""

import base64
import datetime
import hashlib
import hmac
import json
import random
import re

from suite import code_of, equal

BOUNDARY = "----WebKitFormBoundary7MA4YWxkTrZu0gW"


def form(fields, body=b"bar", filename="foo.txt", boundary=BOUNDARY, tail=b""):
    out = b""
    for name, value in fields:
        value = value if isinstance(value, bytes) else value.encode()
        out += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n\r\n'.encode() + value + b"\r\n"
    out += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\nContent-Type: text/plain\r\n\r\n'.encode()
    return out + body + f"\r\n--{boundary}--\r\n".encode() + tail


def post(s, bucket, text, boundary=BOUNDARY, **headers):
    connection = s.connection(s.endpoint)
    try:
        connection.request("POST", f"/{bucket}", text, {"Content-Type": f"multipart/form-data; boundary={boundary}", **headers})
        answer = connection.getresponse()
        answer.text = answer.read()
        return answer
    finally:
        connection.close()


def policy(bucket, *conditions, expires=6000, **changes):
    end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=expires)
    document = {"expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ"), "conditions": [{"bucket": bucket}, *conditions], **changes}
    return base64.b64encode(json.dumps({k: v for k, v in document.items() if v is not None}).encode()).decode()


BASIC = (["starts-with", "$key", "foo"], {"acl": "private"}, ["starts-with", "$Content-Type", "text/plain"],
         ["content-length-range", 0, 1024])


def fields(s, document, name="foo.txt", *more, **changes):
    """Signed as before Version 4."""
    signature = base64.b64encode(hmac.new(s.keys[1].encode(), document.encode(), hashlib.sha1).digest()).decode()
    plain = {"key": name, "AWSAccessKeyId": s.keys[0], "acl": "private", "signature": signature, "policy": document,
             "Content-Type": "text/plain", **changes}
    return [(name, value) for name, value in plain.items() if value is not None] + list(more)


def refused(answer, status, code):
    equal((answer.status, code_of(answer.text)), (status, code))
    assert re.search(rb"<Message>.+</Message>", answer.text)


def test_upload(s):
    bucket = s.open_bucket()
    answer = post(s, bucket, form(fields(s, policy(bucket, *BASIC))))
    equal((answer.status, answer.text), (204, b""))
    got = s.s3.get_object(Bucket=bucket, Key="foo.txt")
    equal((got["Body"].read(), got["ContentType"], got["ETag"]), (b"bar", "text/plain", answer.getheader("ETag")))
    names = {"kEy": "foo.txt", "aCl": "private", "pOLICy": None}
    document = policy(bucket, ["StArTs-WiTh", "$KeY", "foo"], {"AcL": "private"}, ["starts-with", "$CoNtEnT-TyPe", "text/plain"])
    mixed = [(next((n for n in names if n.lower() == name.lower()), name), value) for name, value in fields(s, document)]
    equal(post(s, bucket, form(mixed)).status, 204)


def test_of_boto3(s):
    """As boto3 signs them, by Version 4."""
    bucket = s.open_bucket()
    made = s.s3.generate_presigned_post(bucket, "dir/${filename}", {"x-amz-meta-one": "1"}, [{"x-amz-meta-one": "1"}, ["content-length-range", 1, 10]])
    answer = post(s, bucket, form(made["fields"].items(), b"0123456789", "C:\\\\x\\\\name.txt"))
    equal(answer.status, 204)
    got = s.s3.get_object(Bucket=bucket, Key="dir/name.txt")
    equal((got["Body"].read(), got["Metadata"]), (b"0123456789", {"one": "1"}))
    refused(post(s, bucket, form(made["fields"].items(), b"0123456789a")), 400, "EntityTooLarge")
    refused(post(s, bucket, form(made["fields"].items(), b"")), 400, "EntityTooSmall")
    made["fields"]["x-amz-signature"] = made["fields"]["x-amz-signature"][::-1]
    refused(post(s, bucket, form(made["fields"].items())), 403, "SignatureDoesNotMatch")
    made = s.s3.generate_presigned_post(bucket, "named", {"bucket": bucket}, [["eq", "$bucket", bucket]])
    equal(post(s, bucket, form(made["fields"].items())).status, 204)  # a field with the same value as the path


def test_bodies(s):
    """Sizes around those of pieces, and bytes that look like the boundary."""
    bucket = s.open_bucket()
    rng = random.Random(5)
    for size in (0, 1, 79, 80, 65536, (1 << 20) - 100, (1 << 20) + 3, (5 << 20) + 17):
        body = rng.randbytes(size)
        document = policy(bucket, ["starts-with", "$key", ""], {"acl": "private"}, ["starts-with", "$Content-Type", ""])
        equal(post(s, bucket, form(fields(s, document, "foo"), body)).status, 204)
        assert s.body(bucket, "foo") == body, size
    for body in (b"\r\n--" + BOUNDARY[:-1].encode() + b"x", b"\r\n" * 50, b"\r\n--" * 60, b"\r\n\r\n--" + b"-" * 30):
        equal(post(s, bucket, form(fields(s, document, "foo"), body, tail=b"and\r\nmore")).status, 204)
        assert s.body(bucket, "foo") == body, body


def test_success_actions(s):
    bucket = s.open_bucket()
    rules = [["starts-with", "$key", ""], {"acl": "private"}, ["starts-with", "$Content-Type", ""]]
    document = policy(bucket, *rules, ["starts-with", "$success_action_status", ""])
    answer = post(s, bucket, form(fields(s, document, "foo", ("success_action_status", "201"))))
    equal((answer.status, re.search(b"<Key>(.*)</Key>", answer.text).group(1)), (201, b"foo"))
    answer = post(s, bucket, form(fields(s, document, "foo", ("success_action_status", "404"))))
    equal((answer.status, answer.text), (204, b""))
    document = policy(bucket, *rules, ["eq", "$success_action_redirect", "http://example.com/there"])
    answer = post(s, bucket, form(fields(s, document, "a b", ("success_action_redirect", "http://example.com/there"))))
    etag = s.s3.head_object(Bucket=bucket, Key="a b")["ETag"].strip('"')
    equal((answer.status, answer.getheader("Location")),
          (303, f"http://example.com/there?bucket={bucket}&key=a%20b&etag=%22{etag}%22"))


def test_policies(s):
    bucket, other = s.open_bucket(), s.open_bucket()

    def ask(document, *more, **changes):
        return post(s, bucket, form(fields(s, document, "foo.txt", *more, **changes)))

    equal(ask(policy(bucket, *BASIC), ("x-ignore-foo", "bar")).status, 204)
    equal(ask(policy(bucket, *BASIC, ["starts-with", "$x-amz-meta-foo", "bar"]), ("x-amz-meta-foo", "barclamp")).status, 204)
    refused(ask(policy(bucket, *BASIC, ["eq", "$x-amz-meta-foo", ""]), ("x-amz-meta-foo", "barclamp")), 403, "AccessDenied")
    refused(ask(policy(bucket, *BASIC, ["starts-with", "$x-amz-meta-foo", "bar"])), 403, "AccessDenied")
    answer = ask(policy(bucket, *BASIC), ("x-amz-meta-foo", "x"))
    refused(answer, 403, "AccessDenied")
    assert b"Extra input fields: x-amz-meta-foo</Message>" in answer.text, answer.text
    answer = ask(policy(bucket, *BASIC, ["eq", "$x-amz-meta-foo", "y"]), ("x-amz-meta-foo", "x"))
    assert b'Policy Condition failed: ["eq", "$x-amz-meta-foo", "y"]</Message>' in answer.text.replace(b"&quot;", b'"'), answer.text
    refused(ask(policy(other, *BASIC)), 403, "AccessDenied")
    refused(ask(policy(bucket, *BASIC[1:], ["starts-with", "$key", "bar"])), 403, "AccessDenied")
    refused(ask(policy(bucket, *BASIC, expires=-10)), 403, "AccessDenied")
    refused(ask(policy(bucket, *BASIC, expiration="soon")), 400, "InvalidPolicyDocument")
    for changes in ({"expiration": None}, {"conditions": None}, {"expiration": None, "EXPIRATION": "2099-01-01T00:00:00Z"},
                    {"conditions": None, "CONDITIONS": []}, {"conditions": [{}]}, {"conditions": [["eq", "$key"]]},
                    {"conditions": [{"bucket": bucket}, ["content-length-range", 0]]},
                    {"conditions": [{"bucket": bucket}, ["content-length-range", -1, 0]]}, {"conditions": [{"a": 1}]}):
        refused(ask(policy(bucket, *BASIC, **changes)), 400, "InvalidPolicyDocument")
    for text in ("@@@", base64.b64encode(b"[" * 5000).decode(), base64.b64encode(b'{"a":1,"a":2}').decode()):
        refused(ask(text), 400, "InvalidPolicyDocument")
    refused(ask(policy(bucket, *BASIC[:3], ["content-length-range", 0, 0])), 400, "EntityTooLarge")
    refused(ask(policy(bucket, *BASIC[:3], ["content-length-range", 512, 1000])), 400, "EntityTooSmall")
    document = policy(bucket, *BASIC)
    refused(ask(document, AWSAccessKeyId="nobody"), 403, "InvalidAccessKeyId")
    refused(ask(document, signature="AAAA" * 7), 403, "SignatureDoesNotMatch")
    refused(ask(document, signature=None), 400, "InvalidArgument")
    refused(ask(document, key=None), 400, "InvalidArgument")
    refused(post(s, bucket, form([("key", "foo")])), 403, "AccessDenied")


def test_a_field_stands_once(s):
    """A condition applies to one field: a second field of its name would be unsigned."""
    bucket = s.open_bucket()
    document = policy(bucket, *BASIC, ["eq", "$x-amz-meta-who", "me"])
    me = ("x-amz-meta-who", "me")
    equal(post(s, bucket, form(fields(s, document, "foo", me))).status, 204)
    for second in (("x-amz-meta-who", "you"), ("X-Amz-Meta-Who", "you"), ("acl", "public-read"), ("key", "foo2")):
        answer = post(s, bucket, form(fields(s, document, "foo", me, second)))
        refused(answer, 403, "AccessDenied")
        assert b"Repeated input fields: " + second[0].encode() in answer.text, answer.text
    equal(s.s3.head_object(Bucket=bucket, Key="foo")["Metadata"], {"who": "me"})
    both = policy(bucket, *BASIC, ["starts-with", "$x-amz-acl", ""])
    refused(post(s, bucket, form(fields(s, both, "foo", ("x-amz-acl", "public-read")))), 400, "InvalidArgument")
    ignored = [("x-ignore-me", "1"), ("x-ignore-me", "2")]
    equal(post(s, bucket, form(fields(s, document, "foo", me, *ignored))).status, 204)
    # Nor in an unsigned form.
    s.s3.put_bucket_acl(Bucket=bucket, ACL="public-read-write")
    refused(post(s, bucket, form([("key", "foo"), ("acl", "private"), ("acl", "public-read")])), 400, "InvalidArgument")


def test_more_fields(s):
    bucket = s.open_bucket()
    tagging = "<Tagging><TagSet><Tag><Key>a b</Key><Value>1+2</Value></Tag></TagSet></Tagging>"
    document = policy(bucket, *BASIC, ["starts-with", "$tagging", ""])
    equal(post(s, bucket, form(fields(s, document, "foo", ("tagging", tagging)))).status, 204)
    equal(s.s3.get_object_tagging(Bucket=bucket, Key="foo")["TagSet"], [{"Key": "a b", "Value": "1+2"}])
    digest = base64.b64encode(hashlib.sha256(b"bar").digest()).decode()
    document = policy(bucket, *BASIC)
    equal(post(s, bucket, form(fields(s, document, "foo", ("x-amz-checksum-sha256", digest)))).status, 204)
    wrong = base64.b64encode(hashlib.sha256(b"baz").digest()).decode()
    refused(post(s, bucket, form(fields(s, document, "foo", ("x-amz-checksum-sha256", wrong)))), 400, "BadDigest")


def test_malformed(s):
    bucket = s.open_bucket()
    refused(post(s, bucket, b"--x\r\n"), 400, "MalformedPOSTRequest")
    refused(post(s, bucket, b"x" * 10000), 400, "MalformedPOSTRequest")
    refused(post(s, bucket, form([("a", "x" * 200000)])), 400, "MaxPostPreDataLengthExceededError")
    refused(post(s, bucket, form([("a", "1")] * 200)), 400, "MalformedPOSTRequest")
    refused(post(s, bucket, b"", **{"Content-Type": "text/plain"}), 412, "PreconditionFailed")
    cut = form(fields(s, policy(bucket, *BASIC)))[:-10]
    refused(post(s, bucket, cut), 400, "IncompleteBody")
    assert "Contents" not in s.s3.list_objects_v2(Bucket=bucket)


def test_refusals_name_what_is_wrong(s):
    bucket = s.bucket()
    made = s.s3.generate_presigned_post(bucket, "${filename}", Conditions=[["content-length-range", 2, 10]])
    fields = made["fields"].items()

    def told(text, status, part):
        answer = post(s, bucket, text)
        assert answer.status == status and part in answer.text.decode(), (answer.status, answer.text)
    for name, called in [("x-amz-signature", "X-Amz-Signature"), ("x-amz-algorithm", "X-Amz-Algorithm")]:
        told(form([field for field in fields if field[0] != name]), 400,
             f"<ArgumentName>{called}</ArgumentName><ArgumentValue></ArgumentValue>")
    told(form(fields, body=b"x"), 400, "<ProposedSize>1</ProposedSize><MinSizeAllowed>2</MinSizeAllowed>")
    # A file without a name.
    told(form(fields).replace(b'; filename="foo.txt"', b""), 204, "")
    equal([o["Key"] for o in s.s3.list_objects_v2(Bucket=bucket)["Contents"]], ["${filename}"])
