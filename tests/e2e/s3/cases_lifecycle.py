"""Lifecycle configurations: accepted and refused ones, and their answers. (tests/e2e/lifecycle tests their effects.)"""

import datetime

from suite import code_of, equal, refused


def rule(identity="r", prefix="", **more):
    made = {"ID": identity, "Status": "Enabled", "Filter": {"Prefix": prefix}, "Expiration": {"Days": 1}}
    made.update(more)
    return {key: value for key, value in made.items() if value is not None}


def put(s, bucket, *rules):
    s.s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": list(rules)})


def test_kept_and_told(s):
    bucket = s.bucket()
    rules = [rule("a", "x/"), rule("b", Filter={"Tag": {"Key": "k", "Value": "v"}}),
             rule("c", Filter={"And": {"Prefix": "p", "Tags": [{"Key": "k", "Value": "v"}, {"Key": "l", "Value": ""}],
                                       "ObjectSizeGreaterThan": 5, "ObjectSizeLessThan": 500}}),
             rule("d", Status="Disabled", Expiration={"ExpiredObjectDeleteMarker": True}),
             rule("e", Expiration={"Date": datetime.datetime(2030, 1, 1, tzinfo=datetime.timezone.utc)}),
             rule("f", Expiration=None, AbortIncompleteMultipartUpload={"DaysAfterInitiation": 3}),
             rule("g", Expiration=None, NoncurrentVersionExpiration={"NoncurrentDays": 2, "NewerNoncurrentVersions": 3}),
             rule("h", Expiration=None, Transitions=[{"Days": 30, "StorageClass": "STANDARD_IA"}],
                  NoncurrentVersionTransitions=[{"NoncurrentDays": 4, "StorageClass": "ONEZONE_IA"}])]
    put(s, bucket, *rules)
    equal(s.s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"], rules)
    s.s3.delete_bucket_lifecycle(Bucket=bucket)
    refused(404, "NoSuchLifecycleConfiguration", s.s3.get_bucket_lifecycle_configuration, Bucket=bucket)
    put(s, bucket, {"Status": "Enabled", "Prefix": "old", "Expiration": {"Days": 1}})
    assert s.s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"][0]["ID"]


def test_minimum_size_of_transitions(s):
    """A header of the configuration: a client puts it, and waits until a GET returns it."""
    bucket = s.bucket()
    name = "x-amz-transition-default-minimum-object-size"
    body = (b"<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status><Filter><Prefix></Prefix></Filter><Transition><Days>1</Days>"
            b"<StorageClass>DEEP_ARCHIVE</StorageClass></Transition></Rule></LifecycleConfiguration>")
    for value in "all_storage_classes_128K", "varies_by_storage_class", None:
        status, headers, _ = s.ask("PUT", f"/{bucket}", body, {"lifecycle": ""}, {name: value} if value else {})
        equal((status, headers.get(name)), (200, value))
        status, headers, document = s.ask("GET", f"/{bucket}", b"", {"lifecycle": ""})
        equal((status, headers.get(name)), (200, value))
        assert document.endswith(b"</LifecycleConfiguration>"), document
        equal(s.s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"][0]["ID"], "r")
    status, _, document = s.ask("PUT", f"/{bucket}", body, {"lifecycle": ""}, {name: "other"})
    equal((status, code_of(document)), (400, "InvalidRequest"))


def test_terms_beside_each_other(s):
    """All must match, as inside an And."""
    bucket = s.bucket()
    both = rule(Filter={"Prefix": "days/", "Tag": {"Key": "k", "Value": "v"},
                        "And": {"Prefix": "days", "Tags": [{"Key": "l", "Value": "w"}]}})
    put(s, bucket, both, rule("size", Filter={"Prefix": "", "ObjectSizeGreaterThan": 3}))
    equal(s.s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"][0], both)

    def told(key, **more):
        return "Expiration" in s.s3.put_object(Bucket=bucket, Key=key, Body=b"abc", **more)

    equal((told("days/x", Tagging="k=v&l=w"), told("days/x", Tagging="k=v"), told("days/x", Tagging="l=w"),
           told("daysx", Tagging="k=v&l=w")), (True, False, False, False))


def test_refusals(s):
    bucket = s.bucket()
    days = {"Days": 1}
    for code, made in [
            ("InvalidArgument", rule("x" * 256)), ("InvalidArgument", rule(Expiration={"Days": 0})),
            ("MalformedXML", rule(Status="enabled")), ("MalformedXML", rule(Status="on")),
            ("InvalidArgument", rule(Expiration={"Date": datetime.datetime(2030, 1, 1, 5)})),
            ("MalformedXML", rule(Expiration={"Days": 1, "ExpiredObjectDeleteMarker": True})),
            ("MalformedXML", rule(Expiration={})), ("InvalidRequest", rule(Expiration=None)),
            ("MalformedXML", rule(Filter={"Prefix": "a", "And": {"Prefix": "b", "ObjectSizeLessThan": 5}})),
            ("MalformedXML", rule(Filter=None)),
            ("MalformedXML", rule(Transitions=[{"Days": 1, "StorageClass": "NONE"}])),
            ("InvalidArgument", rule(Expiration=None, AbortIncompleteMultipartUpload={"DaysAfterInitiation": 0})),
            ("MalformedXML", rule(NoncurrentVersionExpiration={"NewerNoncurrentVersions": 3})),
            ("InvalidRequest", rule(Filter={"And": {"ObjectSizeGreaterThan": 9, "ObjectSizeLessThan": 9}}))]:
        refused(400, code, put, s, bucket, made)
    refused(400, "InvalidArgument", put, s, bucket, rule("same", Expiration=days), rule("same", "b", Expiration=days))
    refused(400, "MalformedXML", put, s, bucket)
    refused(404, "NoSuchLifecycleConfiguration", s.s3.get_bucket_lifecycle_configuration, Bucket=bucket)


def test_expiration_header(s):
    bucket = s.bucket()
    put(s, bucket, rule("long", "a", Expiration={"Days": 9}), rule("a rule", "ab", Expiration={"Days": 2}),
        rule("tagged", "c", Filter={"And": {"Prefix": "c", "Tags": [{"Key": "k", "Value": "v"}]}}))
    made = s.s3.put_object(Bucket=bucket, Key="abc", Body=b"x")
    head = s.s3.head_object(Bucket=bucket, Key="abc")
    assert made["Expiration"].endswith('rule-id="a%20rule"'), made["Expiration"]
    equal(head["Expiration"], made["Expiration"])
    date = datetime.datetime.strptime(head["Expiration"].split('"')[1], "%a, %d %b %Y %H:%M:%S %Z")
    left = date.replace(tzinfo=datetime.timezone.utc) - head["LastModified"]
    assert datetime.timedelta(days=2) <= left <= datetime.timedelta(days=3) and date.hour == 0, left
    assert "Expiration" not in s.s3.put_object(Bucket=bucket, Key="c", Body=b"x")
    assert "tagged" in s.s3.put_object(Bucket=bucket, Key="c", Body=b"x", Tagging="k=v")["Expiration"]
    assert "Expiration" not in s.s3.put_object(Bucket=bucket, Key="b", Body=b"x")
