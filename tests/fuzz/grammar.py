"""tests/fuzz/grammar.py: requests of S3 that are falsified first and signed afterwards, so that their signatures are
valid.

A number and a seed determine a case, which is plain data (JSON). It refers to earlier answers of the server by name,
{upload} and {version}. Strings contain bytes as Latin-1."""
import base64
import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUCKETS = ("fz-plain", "fz-versioned", "fz-locked", "fz-dir--here--x-s3")
KEYS = ("a", "dir/b", "large", "folder/", "%C3%BC", "a b", "multi", "x" * 900)
CONTENTS = (0, 1, 100, 4096, 70_000, 300_000)
NS = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
XML = {
    "accelerate": "<AccelerateConfiguration><Status>Suspended</Status></AccelerateConfiguration>",
    "acl": "<AccessControlPolicy><Owner><ID>o</ID></Owner><AccessControlList><Grant><Grantee "
           'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group"><URI>'
           "http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee><Permission>READ</Permission></Grant>"
           "</AccessControlList></AccessControlPolicy>",
    "cors": "<CORSConfiguration><CORSRule><ID>r</ID><AllowedMethod>GET</AllowedMethod><AllowedOrigin>http://*.example"
            "</AllowedOrigin><AllowedHeader>*</AllowedHeader><MaxAgeSeconds>30</MaxAgeSeconds></CORSRule>"
            "</CORSConfiguration>",
    "encryption": "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>AES256"
                  "</SSEAlgorithm></ApplyServerSideEncryptionByDefault><BucketKeyEnabled>true</BucketKeyEnabled></Rule>"
                  "</ServerSideEncryptionConfiguration>",
    "lifecycle": "<LifecycleConfiguration><Rule><ID>r</ID><Filter><And><Prefix>p/</Prefix><Tag><Key>k</Key><Value>v"
                 "</Value></Tag><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan></And></Filter><Status>Enabled</Status>"
                 "<Expiration><Days>300</Days></Expiration><NoncurrentVersionExpiration><NoncurrentDays>300"
                 "</NoncurrentDays><NewerNoncurrentVersions>2</NewerNoncurrentVersions></NoncurrentVersionExpiration>"
                 "</Rule></LifecycleConfiguration>",
    "logging": "<BucketLoggingStatus><LoggingEnabled><TargetBucket>fz-plain</TargetBucket><TargetPrefix>log/"
               "</TargetPrefix></LoggingEnabled></BucketLoggingStatus>",
    "notification": "<NotificationConfiguration><TopicConfiguration><Id>n</Id><Topic>arn:aws:sns:default::t</Topic><Event>"
                    "s3:ObjectCreated:*</Event><Filter><S3Key><FilterRule><Name>prefix</Name><Value>p</Value></FilterRule>"
                    "</S3Key></Filter></TopicConfiguration></NotificationConfiguration>",
    "object-lock": "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>"
                   "GOVERNANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>",
    "ownershipControls": "<OwnershipControls><Rule><ObjectOwnership>ObjectWriter</ObjectOwnership></Rule></OwnershipControls>",
    "publicAccessBlock": "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>false"
                         "</IgnorePublicAcls></PublicAccessBlockConfiguration>",
    "replication": "<ReplicationConfiguration><Role>r</Role><Rule><Status>Enabled</Status><Prefix></Prefix><Destination>"
                   "<Bucket>arn:aws:s3:::d</Bucket></Destination></Rule></ReplicationConfiguration>",
    "requestPayment": "<RequestPaymentConfiguration><Payer>Requester</Payer></RequestPaymentConfiguration>",
    "tagging": "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag><Tag><Key>k2</Key><Value></Value></Tag></TagSet>"
               "</Tagging>",
    "versioning": "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
    "website": "<WebsiteConfiguration><IndexDocument><Suffix>i</Suffix></IndexDocument><ErrorDocument><Key>e</Key>"
               "</ErrorDocument><RoutingRules><RoutingRule><Condition><KeyPrefixEquals>d/</KeyPrefixEquals></Condition>"
               "<Redirect><ReplaceKeyPrefixWith>e/</ReplaceKeyPrefixWith></Redirect></RoutingRule></RoutingRules>"
               "</WebsiteConfiguration>",
    "legal-hold": "<LegalHold><Status>ON</Status></LegalHold>",
    "retention": "<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2031-01-01T00:00:00Z</RetainUntilDate></Retention>",
    "restore": "<RestoreRequest><Days>1</Days></RestoreRequest>",
    "delete": "<Delete><Object><Key>a</Key></Object><Object><Key>dir/b</Key><VersionId>null</VersionId></Object><Quiet>"
              "false</Quiet></Delete>",
    "uploadId": "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part>"
                "</CompleteMultipartUpload>",
    "": "<CreateBucketConfiguration><LocationConstraint>us-east-1</LocationConstraint></CreateBucketConfiguration>",
}
POLICY = {"Version": "2012-10-17", "Statement": [{"Sid": "s", "Effect": "Allow", "Principal": {"AWS": "*"},
          "Action": ["s3:Get*", "s3:PutObject"], "Resource": ["arn:aws:s3:::fz-plain/*"],
          "Condition": {"StringLike": {"aws:UserAgent": "${aws:username}*"}, "IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}}]}
PARAMS = {"versionId": ("null", "{version}"), "partNumber": ("1", "2", "10000"), "uploadId": ("{upload}",), "list-type": ("2",),
          "max-keys": ("0", "1", "1000"), "max-parts": ("1",), "max-uploads": ("2",), "delimiter": ("%2F", "b"),
          "prefix": ("dir/", ""), "encoding-type": ("url",), "renameObject": ("",), "max-buckets": ("2",),
          "response-expires": ("Wed, 21 Oct 2026 07:28:00 GMT",), "continuation-token": ("dG9rZW4",),
          "start-after": ("a",), "marker": ("a",), "key-marker": ("a",), "version-id-marker": ("{version}",),
          "part-number-marker": ("1",), "fetch-owner": ("true",), "allow-unordered": ("false",)}
HEADERS = {"range": ("bytes=0-9", "bytes=5-", "bytes=-7", "bytes=0-9,20-29"), "if-match": ('"{etag}"', "*"),
           "if-none-match": ('"{etag}"', "*"), "if-modified-since": ("Wed, 21 Oct 2015 07:28:00 GMT",),
           "if-unmodified-since": ("Wed, 21 Oct 2037 07:28:00 GMT",), "content-type": ("text/plain", "application/xml"),
           "cache-control": ("no-cache",), "content-disposition": ("inline",), "content-encoding": ("gzip", "aws-chunked"),
           "x-amz-acl": ("private", "public-read"), "x-amz-meta-a": ("1", "=?UTF-8?Q?=C3=BC?="),
           "x-amz-tagging": ("k=v&k2=v2",), "x-amz-copy-source": ("/fz-plain/a", "fz-versioned/a?versionId={version}"),
           "x-amz-copy-source-range": ("bytes=0-9",), "x-amz-copy-source-if-match": ("{etag}",),
           "x-amz-metadata-directive": ("REPLACE", "COPY"), "x-amz-tagging-directive": ("REPLACE",),
           "x-amz-storage-class": ("STANDARD", "GLACIER"), "x-amz-object-lock-mode": ("GOVERNANCE",),
           "x-amz-object-lock-retain-until-date": ("2031-01-01T00:00:00Z",), "x-amz-object-lock-legal-hold": ("ON",),
           "x-amz-bypass-governance-retention": ("true",), "x-amz-server-side-encryption": ("AES256", "aws:kms"),
           "x-amz-server-side-encryption-aws-kms-key-id": ("k",), "x-amz-write-offset-bytes": ("0", "100"),
           "x-amz-server-side-encryption-customer-algorithm": ("AES256",),
           "x-amz-server-side-encryption-customer-key": (base64.b64encode(b"k" * 32).decode(),),
           "x-amz-server-side-encryption-customer-key-md5": ("k7iFrf4NoInN9jSQT9WfcQ==",),
           "x-amz-checksum-algorithm": ("CRC32", "CRC64NVME", "SHA256"), "x-amz-checksum-mode": ("ENABLED",),
           "x-amz-checksum-type": ("FULL_OBJECT", "COMPOSITE"), "x-amz-checksum-crc32": ("AAAAAA==",),
           "x-amz-sdk-checksum-algorithm": ("CRC32C",), "content-md5": ("1B2M2Y8AsgTpgAmY7PhCfg==",),
           "x-amz-grant-read": ('uri="http://acs.amazonaws.com/groups/global/AllUsers"', 'id="x"'),
           "x-amz-expected-bucket-owner": ("000000000000",), "x-amz-object-attributes": ("ETag,Checksum,ObjectParts",),
           "x-amz-max-parts": ("5",), "x-amz-part-number-marker": ("1",), "x-amz-rename-source": ("/fz-dir--here--x-s3/a",),
           "x-amz-mp-object-size": ("100",), "x-amz-bucket-object-lock-enabled": ("true",), "expect": ("100-continue",),
           "x-amz-object-ownership": ("ObjectWriter",), "x-amz-website-redirect-location": ("/x",),
           "origin": ("http://a.example",), "referer": ("http://r",), "user-agent": ("fuzz",), "accept-encoding": ("gzip",),
           "x-amz-create-session-mode": ("ReadOnly",), "x-amz-rdma-token": ("1", "0" * 16 + ":00000064:00000001:0000:000001:1:" + "fd4e5349" + "0" * 24)}
NUMBERS = ("0", "1", "-1", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808",
           "18446744073709551615", "18446744073709551616", "1e9", "0x10", "00", "10001", " 1", "+1")
WORDS = NUMBERS + ("", "null", "*", "/", "//", "../", "..%2F", "%00", "%", "%zz", "%25", "%F0%9F%92%A9", "\xff\xfe", "\xc3", "\t",
                   "&amp;", "&#0;", "&x;", "<![CDATA[x]]>", "<!-- -->", "]]>", '"', "'", ";", ",", "=", "&", "+", "A" * 300,
                   "A" * 1100, "A" * 9000, "bytes=0-0", "bytes=1-0", "bytes=18446744073709551615-", "Thu, 01 Jan 1970 00:00:00 GMT",
                   "9999-12-31T23:59:59Z", "2026-02-30T00:00:00Z", "arn:aws:s3:::", "{upload}", "{version}", "{etag}", "true",
                   "http://acs.amazonaws.com/groups/s3/LogDelivery", "${aws:username}", "\x7f", "a\x00b")
IAM = ("Action=ListUsers&Version=2010-05-08", "Action=CreateUser&UserName=fz&Version=2010-05-08&Path=%2Fp%2F",
       "Action=GetUser&UserName=fz&Version=2010-05-08", "Action=CreateAccessKey&UserName=fz&Version=2010-05-08",
       "Action=PutUserPolicy&UserName=fz&PolicyName=p&PolicyDocument={policy}&Version=2010-05-08",
       "Action=CreateRole&RoleName=fr&AssumeRolePolicyDocument={policy}&Version=2010-05-08",
       "Action=AssumeRole&RoleArn=arn:aws:iam::000000000000:role/fr&RoleSessionName=s&Version=2011-06-15",
       "Action=CreateTopic&Name=t&Version=2010-03-31", "Action=ListTopics&Version=2010-03-31",
       "Action=SetTopicAttributes&TopicArn=arn:aws:sns:default::t&AttributeName=Policy&AttributeValue=x&Version=2010-03-31",
       "Action=DeleteUser&UserName=fz&Version=2010-05-08", "Action=ListAccessKeys&UserName=fz&Version=2010-05-08",
       "Action=TagUser&UserName=fz&Tags.member.1.Key=k&Tags.member.1.Value=v&Version=2010-05-08",
       "Action=CreateOpenIDConnectProvider&Url=https://o.invalid&ClientIDList.member.1=c&Version=2010-05-08",
       "Action=AssumeRoleWithWebIdentity&RoleArn=arn:aws:iam::000000000000:role/fr&RoleSessionName=s&WebIdentityToken="
       "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.AAAA&Version=2011-06-15")
PAYLOADS = ("hash", "UNSIGNED-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER")


def routes():
    """(method, level, parameter, header, other parameters, body) of each request in the server's own tables."""
    table = subprocess.run([ROOT / "scripts/s3-table", "--json"], check=True, capture_output=True, text=True).stdout
    return [(row["method"], row["level"], row["param"], row["header"], row["takes"], row["body"]) for row in json.loads(table)]


ROUTES = routes()


def bend(chance, text):
    """One small change of a text."""
    at = chance.randrange(len(text) + 1)
    end = min(len(text), at + chance.choice((1, 1, 2, 8, 40)))
    how = chance.randrange(7)
    if how == 0:
        return text[:at] + chance.choice(WORDS) + text[at:]
    if how == 1:
        return text[:at] + text[end:]
    if how == 2:
        return text[:at] + text[at:end] * chance.choice((2, 3, 200)) + text[end:]
    if how == 3:
        return text[:at] + chr(chance.randrange(256)) + text[at + 1:]
    if how == 4:
        return chance.choice(WORDS)
    numbers = list(re.finditer(r"\d+", text))
    if how == 5 and numbers:
        number = chance.choice(numbers)
        return text[:number.start()] + chance.choice(NUMBERS) + text[number.end():]
    return text[:at] + text[at:end][::-1] + text[end:]


def bend_xml(chance, text):
    """One change of a document's structure: an element removed, doubled, nested in itself, or with another text."""
    elements = list(re.finditer(r"<(\w+)[^>]*>(?:[^<]*)</\1>", text)) or list(re.finditer(r"<\w+", text))
    if not elements or chance.random() < 0.3:
        return bend(chance, text)
    element = chance.choice(elements)
    part = element.group()
    inner = re.sub(r">[^<]*<", lambda _: ">" + chance.choice(WORDS) + "<", part, count=1)
    part = chance.choice((part * 2, part * 1200, "", inner, inner, f"<x>{part}</x>", "<a>" * 300, f"<?p?>{part}",
                          part.replace("<", "<s:", 1)))
    text = text[:element.start()] + part + text[element.end():]
    return chance.choice(("", "", "", '<?xml version="1.0" encoding="UTF-16"?>', "<!DOCTYPE a [<!ENTITY x 'y'>]>", "\ufeff")) + text


def document(chance, parameter):
    if parameter == "policy":
        text = json.dumps(POLICY)
        return text if chance.random() < 0.3 else bend(chance, text)
    text = XML.get(parameter, XML[""])
    if chance.random() < 0.5:
        text = re.sub(r"^<(\w+)", rf"<\1{NS}", text)
    return text if chance.random() < 0.3 else bend_xml(chance, text)


def form(chance):
    """(content type, body) of a POST of a form; {policy-...} is signed when the case is sent."""
    boundary = "fz" if chance.random() < 0.8 else bend(chance, "fz-boundary")
    policy = json.dumps({"expiration": "2037-12-01T12:00:00.000Z", "conditions": [
        {"bucket": "fz-plain"}, ["starts-with", "$key", ""], ["starts-with", "$Content-Type", ""],
        ["content-length-range", 0, 1000000], ["starts-with", "$x-amz-meta-a", ""], {"success_action_status": "201"},
        ["starts-with", "$tagging", ""], ["starts-with", "$acl", ""], ["starts-with", "$x-ignore-b", ""]]})
    if chance.random() < 0.3:
        policy = bend(chance, policy)
    fields = [["key", chance.choice(("form/${filename}", "form/k"))], ["success_action_status", "201"],
              ["Content-Type", "text/plain"], ["x-amz-meta-a", "v"], ["acl", "private"],
              ["tagging", "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>"], ["x-ignore-b", "i"]]
    fields = [f for f in fields if chance.random() < 0.8]
    fields.insert(chance.randrange(len(fields) + 1), ["{form}", base64.b64encode(policy.encode("utf-8")).decode()])
    fields.append(["file", "f" * chance.choice(CONTENTS[:5])])
    if chance.random() < 0.4:
        field = chance.choice(fields)
        which = chance.randrange(2)
        if not field[0].startswith("{"):
            field[which] = bend(chance, field[which])
    if chance.random() < 0.1:
        chance.shuffle(fields)
    return f"multipart/form-data; boundary={boundary}", boundary, fields


def headers_of(chance, wanted):
    names = [wanted] if wanted else []
    names += chance.sample(sorted(HEADERS), chance.choice((0, 0, 1, 1, 2, 4)))
    found = [[name, chance.choice(HEADERS.get(name, ("1",)))] for name in dict.fromkeys(names)]
    for header in found:
        if chance.random() < 0.25:
            header[1] = re.sub(r"[\r\n]", " ", bend(chance, header[1]))
    if found and chance.random() < 0.03:
        found.append(list(chance.choice(found)))
    if chance.random() < 0.02:
        found += [[f"x-amz-meta-{i}", "v" * chance.choice((0, 30, 300))] for i in range(chance.choice((20, 70, 130)))]
    if found and chance.random() < 0.02:
        chance.choice(found)[0] += chance.choice((" ", "\x00", "\xff", ":", "-" * 300))
    return found


def target_of(chance, level, parameter, beside):
    path = "/v20180820/configuration/publicAccessBlock" if level == "ACCOUNT" else "/"
    if level in ("BUCKET", "OBJECT"):
        path += chance.choice(BUCKETS) if chance.random() < 0.95 else "fz-other"
    if level == "OBJECT":
        path += "/" + chance.choice(KEYS)
    query = [[parameter, chance.choice(PARAMS.get(parameter, ("",)))]] if parameter else []
    for name in chance.sample(beside, min(len(beside), chance.choice((0, 0, 1, 2)))):
        query.append([name, chance.choice(PARAMS.get(name, ("x",)))])
    if chance.random() < 0.15:
        path = re.sub(r"[\r\n ]", "/", bend(chance, path)) or "/"
    if query and chance.random() < 0.25:
        item = chance.choice(query)
        item[chance.random() < 0.8] = bend(chance, item[1])
    if chance.random() < 0.03:
        query.append(list(chance.choice(query)) if query else ["x-id", "y"])
    return path, query


def token(chance, size):
    """The token of one of a few queue pairs without a peer."""
    fields = [f"{chance.choice((4096, 0, (1 << 64) - 1)):016x}", f"{size:08x}", f"{chance.randrange(4):08x}", "0000",
              f"{chance.randrange(1, 4):06x}", "1", f"fd4e53494d00{0:04x}{chance.randrange(2):016x}"]
    if chance.random() < 0.2:
        field = chance.randrange(len(fields))
        fields[field] = chance.choice(("f", "0")) * len(fields[field])
    found = ":".join(fields) + (chance.choice(("", f":{4096:016x}:{size:016x}", f":{1:016x}:{'f' * 16}")) if chance.random() < 0.2 else "")
    return re.sub(r"[\r\n]", " ", bend(chance, found)) if chance.random() < 0.2 else found


def by_token(chance):
    """A body by RDMA, or a queue pair that is connected or disconnected."""
    case = {"payload": chance.choice(("UNSIGNED-PAYLOAD", "UNSIGNED-PAYLOAD", "hash")), "presigned": chance.random() < 0.1, "body": "",
            "chunked": None, "transfer": False, "length": None, "service": "s3"}
    if chance.random() < 0.5:
        case.update(method=chance.choice(("POST",) * 6 + ("DELETE", "DELETE", "GET")), path=chance.choice(("/",) * 9 + ("/fz-plain",)),
                    query=[["rdma-connect", ""]])
        headers = [["x-amz-rdma-token", token(chance, 0)], ["x-nebulaio-rdma-psn", str(chance.randrange(1 << 24))],
                   ["x-nebulaio-rdma-mtu", chance.choice(("256", "1024", "4096", "4095"))]]
        for header in headers[1:]:
            if chance.random() < 0.15:
                header[1] = chance.choice(NUMBERS + ("A" * 300, "", "1,2"))
        if chance.random() < 0.1:
            headers.pop(chance.randrange(3))
    else:
        case.update(method=chance.choice(("GET", "PUT", "HEAD")), path=f"/{chance.choice(BUCKETS)}/{chance.choice(KEYS)}", query=[])
        headers = [["x-amz-rdma-token", token(chance, chance.choice((0, 1, 100, 600_000, 0xffffffff)))]]
        if case["method"] == "GET" and chance.random() < 0.3:
            headers.append(["range", chance.choice(HEADERS["range"])])
        if case["method"] == "PUT" and chance.random() < 0.3:
            case.update(query=[["partNumber", "1"], ["uploadId", "{upload}"]], path=f"/{BUCKETS[0]}/multi")
        if chance.random() < 0.1:
            case["body"] = "b" * 100
    if chance.random() < 0.05:
        headers.append(list(chance.choice(headers or [["x-amz-rdma-token", "1"]])))
    return {**case, "headers": headers}


def make(chance):
    """A case."""
    if chance.random() < 0.08:
        return by_token(chance)
    method, level, parameter, header, beside, rule = chance.choice(ROUTES)
    path, query = target_of(chance, level, parameter, beside)
    headers, body, chunked = headers_of(chance, header), "", None
    case = {"method": method, "payload": "hash", "presigned": chance.random() < 0.05}
    if level == "ACCOUNT":
        account = "000000000000" if chance.random() < 0.9 else bend(chance, "000000000000")
        headers.append(["x-amz-account-id", re.sub(r"[\r\n]", " ", account)])
    if rule == "FORM" and level == "SERVICE":
        body = chance.choice(IAM).replace("{policy}", "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%5D%7D")
        body = body if chance.random() < 0.4 else bend(chance, body)
        headers.append(["content-type", "application/x-www-form-urlencoded"])
    elif rule == "FORM":
        kind, case["boundary"], case["fields"] = form(chance)
        headers.append(["content-type", kind])
        case["bent_form"] = chance.random() < 0.15
    elif rule == "DOCUMENT":
        kind = "publicAccessBlock" if level == "ACCOUNT" else parameter
        body = document(chance, kind) if kind or chance.random() < 0.5 else ""
    elif method == "PUT":
        body = "b" * chance.choice(CONTENTS)
        case["payload"] = chance.choice(PAYLOADS)
        chunked = {"sizes": [chance.choice((1, 100, 8192, 65536)) for _ in range(3)], "trailer": chance.random() < 0.6,
                   "seed": chance.randrange(1 << 30) if chance.random() < 0.4 else None}
    case.update(path=path, query=query, headers=headers, body=body, chunked=chunked)
    case["length"] = chance.choice(("", "0", *NUMBERS)) if chance.random() < 0.02 else None
    case["transfer"] = method in ("PUT", "POST") and chance.random() < 0.05
    case["service"] = "s3"
    return case
