"""Notification: the configuration, and the events in the server's log file. Webhooks: tests/e2e/notification."""

import http.server
import json
import os
import queue
import threading
import time
import urllib.parse

from botocore.exceptions import ClientError

from suite import equal, refused

ARN = "arn:aws:sns:us-east-1:000000000000:log"


def rule(*events, arn=ARN, id="one", **rules):
    return {"Id": id, "TopicArn": arn, "Events": list(events),
            **({"Filter": {"Key": {"FilterRules": [{"Name": k, "Value": v} for k, v in rules.items()]}}} if rules else {})}


def configure(s, bucket, *rules, kind="Topic"):
    s.s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={f"{kind}Configurations": list(rules)})


def told(s, bucket):
    answer = s.s3.get_bucket_notification_configuration(Bucket=bucket)
    return {k: v for k, v in answer.items() if k != "ResponseMetadata"}


def fresh():
    """An Id that no earlier case used: the log also has their lines, of buckets with the same name."""
    return f"id-{time.time_ns()}"


def events(id, wanted):
    """The records of a rule, after so many have arrived."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        with open(os.environ["NOTIFICATION_LOG"]) as log:
            lines = [json.loads(line) for line in log if line.endswith("\n")]
        found = [r for line in lines for r in line.get("Records", []) if r["s3"]["configurationId"] == id]
        if len(found) >= wanted:
            return found
    raise AssertionError(f"{len(found)} events, not {wanted}, after 180 s: {found}")


def test_configuration(s):
    bucket = s.bucket()
    equal(told(s, bucket), {})
    one = rule("s3:ObjectCreated:*", Prefix="a/", Suffix=".jpg")
    two = rule("s3:ObjectRemoved:Delete", "s3:ObjectTagging:*", id="two")
    configure(s, bucket, one, two)
    equal(told(s, bucket), {"TopicConfigurations": [one, two]})
    three = {"Id": "q", "QueueArn": "arn:aws:sqs:us-east-1:000000000000:log", "Events": ["s3:ObjectCreated:Put"]}
    configure(s, bucket, three, kind="Queue")
    equal(told(s, bucket), {"QueueConfigurations": [three]})
    four = {"LambdaFunctionArn": "arn:aws:lambda:us-east-1:000000000000:function:log", "Events": ["s3:ObjectAcl:Put"]}
    configure(s, bucket, four, kind="LambdaFunction")
    kept = told(s, bucket)["LambdaFunctionConfigurations"][0]
    assert kept.pop("Id")
    equal(kept, four)
    s.s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
    equal(told(s, bucket), {})


def test_refusals(s):
    bucket = s.bucket()
    for bad in (rule("s3:ObjectCreated:Other"), rule("s3:ObjectCreated:Put", infix="x"), rule("s3:ObjectCreated:Put", arn="arn:other"),
                rule("s3:ObjectCreated:Put", arn=ARN[:-3] + "no-such-target")):
        refused(400, "InvalidArgument", configure, s, bucket, bad)
    refused(400, "InvalidArgument", configure, s, bucket, rule("s3:ObjectCreated:Put"), rule("s3:ObjectCreated:*", id="two"))
    for field, value, found in [
            ("QueueConfigurations", {"QueueArn": "invalid"}, {"ArgumentName": "Queue", "ArgumentValue": "invalid"}),
            ("QueueConfigurations", {"QueueArn": ARN.replace(":sns:", ":sqs:") + "-none"},
             {"ArgumentName1": ARN.replace(":sns:", ":sqs:") + "-none", "ArgumentValue1": "The destination does not exist"}),
            ("TopicConfigurations", {"TopicArn": ARN, "Filter": {"Key": {"FilterRules": [{"Name": "infix", "Value": "x"}]}}},
             {"ArgumentName": "FilterRule.Name", "ArgumentValue": "infix"})]:
        error = refused(400, "InvalidArgument", s.s3.put_bucket_notification_configuration, Bucket=bucket,
                        NotificationConfiguration={field: [{"Events": ["s3:ObjectCreated:Put"], **value}]})
        if not s.by_rdma:  # its library does not return the details
            equal({name: error["Error"][name] for name in found}, found)
    refused(404, "NoSuchBucket", configure, s, bucket + "-none", rule("s3:ObjectCreated:Put"))
    status, _, body = s.raw("PUT", f"/{bucket}", b"<NotificationConfiguration><Other/></NotificationConfiguration>", {"notification": ""})
    assert status == 400 and b"MalformedXML" in body
    equal(told(s, bucket), {})
    configure(s, bucket, rule("s3:ObjectCreated:Put", prefix="x"))
    kept = s.s3.get_bucket_notification_configuration(Bucket=bucket)["TopicConfigurations"][0]
    equal(kept["Filter"]["Key"]["FilterRules"], [{"Name": "Prefix", "Value": "x"}])


def test_events(s):
    bucket, id = s.open_bucket(), fresh()
    configure(s, bucket, rule("s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:ObjectTagging:*", "s3:ObjectAcl:Put", id=id, prefix="in/"))
    s.put(bucket, "out/1", "in/a b+ü", body=b"12345")
    s.s3.copy_object(Bucket=bucket, Key="in/2", CopySource=f"{bucket}/out/1")
    upload = s.s3.create_multipart_upload(Bucket=bucket, Key="in/3")["UploadId"]
    part = s.s3.upload_part(Bucket=bucket, Key="in/3", UploadId=upload, PartNumber=1, Body=b"123")
    done = s.s3.complete_multipart_upload(Bucket=bucket, Key="in/3", UploadId=upload,
                                          MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    s.s3.put_object_tagging(Bucket=bucket, Key="in/3", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
    s.s3.delete_object_tagging(Bucket=bucket, Key="in/3")
    s.s3.put_object_acl(Bucket=bucket, Key="in/3", ACL="private")
    s.s3.delete_object(Bucket=bucket, Key="in/2")
    s.s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "in/3"}, {"Key": "out/1"}]})
    found = events(id, 8)
    equal([(r["eventName"], r["s3"]["object"]["key"]) for r in found], [
        ("ObjectCreated:Put", "in/a+b%2B" + urllib.parse.quote("ü")), ("ObjectCreated:Copy", "in/2"),
        ("ObjectCreated:CompleteMultipartUpload", "in/3"), ("ObjectTagging:Put", "in/3"), ("ObjectTagging:Delete", "in/3"),
        ("ObjectAcl:Put", "in/3"), ("ObjectRemoved:Delete", "in/2"), ("ObjectRemoved:Delete", "in/3")])
    first, third = found[0], found[2]
    equal((first["eventVersion"], first["eventSource"], first["awsRegion"]), ("2.1", "aws:s3", "us-east-1"))
    tagged = found[3]
    equal((tagged["eventVersion"], "size" in tagged["s3"]["object"]), ("2.3", False))
    equal((first["s3"]["configurationId"], first["s3"]["bucket"]["arn"]), (id, f"arn:aws:s3:::{bucket}"))
    equal((first["s3"]["object"]["size"], third["s3"]["object"]["size"]), (5, 3))
    equal(third["s3"]["object"]["eTag"], done["ETag"].strip('"'))
    # The simulated RDMA device has no addresses; its peers are processes.
    address = first["requestParameters"]["sourceIPAddress"]
    equal(address, "127.0.0.1")
    assert first["userIdentity"]["principalId"] and first["responseElements"]["x-amz-request-id"]
    sequence = [r["s3"]["object"]["sequencer"] for r in found]
    equal(sequence, sorted(set(sequence)))


def test_versions(s):
    bucket, id = s.bucket(), fresh()
    s.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    configure(s, bucket, rule("s3:ObjectCreated:Put", "s3:ObjectRemoved:*", id=id))
    version = s.s3.put_object(Bucket=bucket, Key="k", Body=b"1")["VersionId"]
    marker = s.s3.delete_object(Bucket=bucket, Key="k")["VersionId"]
    s.s3.delete_object(Bucket=bucket, Key="k", VersionId=version)
    equal([(r["eventName"], r["s3"]["object"]["versionId"]) for r in events(id, 3)],
          [("ObjectCreated:Put", version), ("ObjectRemoved:DeleteMarkerCreated", marker), ("ObjectRemoved:Delete", version)])


# ---- Topics of clients. ----


class Hook:
    """A receiver of a topic's messages. The server waits 10 s for an answer, which a busy machine may keep from it for longer, and
    sends the event again: of one that a receiver has the same text is left out."""

    lock, accepted = threading.Lock(), set()

    def __enter__(self):
        messages = self.messages = queue.Queue()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                text = self.rfile.read(int(self.headers["Content-Length"]))
                with Hook.lock:
                    if text not in Hook.accepted:
                        messages.put(json.loads(text))
                    Hook.accepted.add(text)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/in"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def next(self):
        return self.messages.get(timeout=180)


def topics(sns):
    return [t["TopicArn"] for page in sns.get_paginator("list_topics").paginate() for t in page["Topics"]]


def test_topic_calls(s):
    sns, other = s.one("sns"), s.two("sns")
    arn = sns.create_topic(Name="calls", Attributes={"OpaqueData": "a&b", "persistent": "false"})["TopicArn"]
    equal(arn, "arn:aws:sns:us-east-1:111111111111:calls")
    equal(sns.create_topic(Name="calls")["TopicArn"], arn)
    equal(topics(sns), [arn])
    equal(topics(other), [])
    sns.set_topic_attributes(TopicArn=arn, AttributeName="push-endpoint", AttributeValue="https://example.com/x")
    told = sns.get_topic_attributes(TopicArn=arn)["Attributes"]
    equal({k: told[k] for k in ("TopicArn", "Owner", "OpaqueData", "push-endpoint", "persistent")},
          {"TopicArn": arn, "Owner": "111111111111", "OpaqueData": "a&b", "push-endpoint": "https://example.com/x", "persistent": "false"})
    sns.set_topic_attributes(TopicArn=arn, AttributeName="Policy", AttributeValue="")
    equal(sns.list_tags_for_resource(ResourceArn=arn)["Tags"], [])
    refused(403, "AuthorizationError", other.list_tags_for_resource, ResourceArn=arn)
    refused(404, "NotFound", sns.list_tags_for_resource, ResourceArn=arn + "-none")
    for call, options in [(other.get_topic_attributes, {}), (other.delete_topic, {}),
                          (other.set_topic_attributes, {"AttributeName": "OpaqueData", "AttributeValue": "x"})]:
        refused(403, "AuthorizationError", call, TopicArn=arn, **options)
    for name, value in [("push-endpoint", "amqp://localhost"), ("push-endpoint", "http://"), ("push-endpoint", "http://a:b@c/"),
                        ("push-endpoint", "http://a/ b"), ("Policy", "{"), ("verify-ssl", "maybe"), ("kafka-ack-level", "broker"),
                        ("OpaqueData", "x" * 5000)]:
        refused(400, "InvalidParameter", sns.set_topic_attributes, TopicArn=arn, AttributeName=name, AttributeValue=value)
    refused(400, "InvalidParameter", sns.create_topic, Name="a b")
    refused(400, "InvalidParameter", sns.get_topic_attributes, TopicArn="arn:aws:sqs:us-east-1:111111111111:calls")
    for i in range(105):
        sns.create_topic(Name=f"many-{i:03}")
    equal(len(topics(sns)), 106)
    for each in topics(sns):
        sns.delete_topic(TopicArn=each)
    equal(topics(sns), [])
    refused(404, "NotFound", sns.get_topic_attributes, TopicArn=arn)
    sns.delete_topic(TopicArn=arn)


def test_a_topic_as_ceph_tells_it(s):
    sns = s.client(service="sns")
    arn = sns.create_topic(Name="ceph", Attributes={"OpaqueData": "a&b"})["TopicArn"]
    for name, status, told in ((arn, 200, b"<OpaqueData>a&amp;b</OpaqueData></Topic></GetTopicResult>"),
                               (arn + "-none", 404, b"<Code>NotFound</Code>")):
        form = urllib.parse.urlencode({"Action": "GetTopic", "TopicArn": name}).encode()
        answer = s.ask("POST", "/", form)
        assert answer[0] == status and told in answer[2], answer
    sns.delete_topic(TopicArn=arn)


def test_topic_events(s):
    sns, s3 = s.one("sns"), s.one()
    bucket = f"{s.prefix}{next(s.numbers)}"
    s3.create_bucket(Bucket=bucket)
    with Hook() as hook, Hook() as second:
        arn = sns.create_topic(Name="events", Attributes={"push-endpoint": hook.url, "OpaqueData": "mine"})["TopicArn"]
        s3.put_bucket_notification_configuration(
            Bucket=bucket, NotificationConfiguration={"TopicConfigurations": [rule("s3:ObjectCreated:*", arn=arn, id="t")]})
        equal(hook.next()["Event"], "s3:TestEvent")
        s3.put_object(Bucket=bucket, Key="a", Body=b"123")
        record = hook.next()["Records"][0]
        equal((record["eventName"], record["s3"]["object"]["key"], record["opaqueData"]), ("ObjectCreated:Put", "a", "mine"))
        # A new endpoint applies from the next event on; a topic without one has no receiver.
        sns.set_topic_attributes(TopicArn=arn, AttributeName="push-endpoint", AttributeValue=second.url)
        s3.put_object(Bucket=bucket, Key="b", Body=b"123")
        equal(second.next()["Records"][0]["s3"]["object"]["key"], "b")
        sns.set_topic_attributes(TopicArn=arn, AttributeName="push-endpoint", AttributeValue="")
        s3.put_object(Bucket=bucket, Key="c", Body=b"123")
        sns.set_topic_attributes(TopicArn=arn, AttributeName="push-endpoint", AttributeValue=second.url)
        s3.put_object(Bucket=bucket, Key="d", Body=b"123")
        equal(second.next()["Records"][0]["s3"]["object"]["key"], "d")
        assert hook.messages.empty()
        sns.delete_topic(TopicArn=arn)
        s3.put_object(Bucket=bucket, Key="e", Body=b"123")
    refused(400, "InvalidArgument", s3.put_bucket_notification_configuration, Bucket=bucket,
            NotificationConfiguration={"TopicConfigurations": [rule("s3:ObjectCreated:*", arn=arn, id="t")]})


def test_topics_of_others(s):
    sns, s3 = s.one("sns"), s.two()
    bucket = f"{s.prefix}{next(s.numbers)}"
    s3.create_bucket(Bucket=bucket)
    arn = sns.create_topic(Name="shared")["TopicArn"]
    wanted = {"TopicConfigurations": [rule("s3:ObjectCreated:*", arn=arn, id="t")]}
    refused(403, "AccessDenied", s3.put_bucket_notification_configuration, Bucket=bucket, NotificationConfiguration=wanted)
    sns.set_topic_attributes(TopicArn=arn, AttributeName="Policy", AttributeValue=json.dumps({
        "Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "222222222222"},
                                                "Action": "sns:Publish", "Resource": arn}]}))
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=wanted)
    sns.delete_topic(TopicArn=arn)
    # A user without rights in SNS is refused.
    try:
        s.client("TWOREADERKEY", "two-reader-secret-0123", service="sns").create_topic(Name="x")
        raise AssertionError("not refused")
    except ClientError as error:
        equal(error.response["ResponseMetadata"]["HTTPStatusCode"], 403)
