"""CORS: the pages of other origins that may send requests."""


from suite import equal, refused


def rule(methods, origins, **more):
    return {"AllowedMethods": methods, "AllowedOrigins": origins, **more}


def ask(s, method, path, **headers):
    """An unsigned request: status, and the two headers that matter most."""
    connection = s.connection(s.endpoint)
    try:
        connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        answer.read()
        return answer
    finally:
        connection.close()


def told(answer):
    return answer.status, answer.getheader("Access-Control-Allow-Origin"), answer.getheader("Access-Control-Allow-Methods")


def test_configuration(s):
    bucket = s.bucket()
    rules = [rule(["GET", "PUT"], ["*.get", "*.put"], ID="one", AllowedHeaders=["x-*"], ExposeHeaders=["ETag"], MaxAgeSeconds=3000),
             rule(["DELETE"], ["http://a&b"])]
    s.s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": rules})
    equal(s.s3.get_bucket_cors(Bucket=bucket)["CORSRules"], rules)
    equal(s.s3.delete_bucket_cors(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"], 204)
    refused(404, "NoSuchCORSConfiguration", s.s3.get_bucket_cors, Bucket=bucket)

    def put(*rules):
        s.s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": list(rules)})

    refused(400, "InvalidRequest", put, rule(["PATCH"], ["*"]))
    refused(400, "InvalidRequest", put, rule(["GET"], ["*a*"]))
    refused(400, "InvalidRequest", put, rule(["GET"], ["a"], ExposeHeaders=["x*"]))
    refused(400, "MalformedXML", put, *[rule(["GET"], ["a"])] * 101)
    refused(400, "MalformedXML", put)
    refused(404, "NoSuchBucket", s.s3.put_bucket_cors, Bucket="no-such-bucket",
            CORSConfiguration={"CORSRules": [rule(["GET"], ["a"])]})


def test_preflight(s):
    bucket = s.bucket()
    url = f"/{bucket}/some/key"
    equal(told(ask(s, "OPTIONS", url, Origin="a", Access_Control_Request_Method="GET"))[0], 403)
    s.s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [
        rule(["GET"], ["*suffix"]), rule(["GET", "HEAD"], ["start*end"]), rule(["GET"], ["prefix*"]),
        rule(["PUT"], ["*.put"], AllowedHeaders=["x-amz-meta-*", "content-type"], MaxAgeSeconds=10, ExposeHeaders=["ETag", "x-a"])]})
    equal(ask(s, "OPTIONS", url).status, 400)
    equal(ask(s, "OPTIONS", url, Origin="foo.suffix").status, 400)
    for origin, methods in [("foo.suffix", "GET"), ("foo.bar", None), ("foo.suffix.get", None), ("startend", "GET, HEAD"),
                            ("start1end", "GET, HEAD"), ("start1", None), ("0start1end", None), ("prefix", "GET"),
                            ("prefix.suffix", "GET"), ("bla.prefix", None), ("foo.put", None)]:
        want = (200, origin, methods) if methods else (403, None, None)
        equal(told(ask(s, "OPTIONS", url, Origin=origin, Access_Control_Request_Method="GET")), want)
    answer = ask(s, "OPTIONS", url, Origin="foo.put", Access_Control_Request_Method="PUT",
                 Access_Control_Request_Headers="X-Amz-Meta-One, content-type")
    equal(told(answer), (200, "foo.put", "PUT"))
    equal([answer.getheader(f"Access-Control-{name}") for name in ("Max-Age", "Expose-Headers", "Allow-Credentials", "Allow-Headers")],
          ["10", "ETag, x-a", "true", "x-amz-meta-one, content-type"])
    equal(ask(s, "OPTIONS", url, Origin="foo.put", Access_Control_Request_Method="PUT",
              Access_Control_Request_Headers="x-other").status, 403)
    equal(ask(s, "OPTIONS", "/no-such-bucket/key", Origin="a", Access_Control_Request_Method="GET").status, 403)


def test_answers(s):
    bucket = s.bucket()
    s.put(bucket, "key")
    s.s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule(["GET"], ["*suffix"]), rule(["PUT"], ["*"])]})
    url = f"/{bucket}/key"

    def signed(method, **headers):
        status, got, _ = s.raw(method, url, b"", None, {k.replace("_", "-"): v for k, v in headers.items()})
        got = {name.lower(): value for name, value in (got.items() if hasattr(got, "items") else got)}
        return status, got.get("access-control-allow-origin"), got.get("access-control-allow-methods"), got.get("vary")

    equal(signed("GET", Origin="foo.suffix")[:3], (200, "foo.suffix", "GET"))
    equal("Origin" in signed("GET", Origin="foo.suffix")[3], True)
    equal(signed("GET", Origin="foo.bar")[:3], (200, None, None))
    equal(signed("GET"), (200, None, None, None))
    equal(signed("PUT", Origin="any")[:3], (200, "*", "PUT"))
    equal(told(ask(s, "GET", url, Origin="foo.suffix")), (403, "foo.suffix", "GET"))
    equal(told(ask(s, "PUT", url, Origin="foo.suffix", Access_Control_Request_Method="GET")), (403, "foo.suffix", "GET"))
    equal(told(ask(s, "DELETE", url, Origin="foo.suffix")), (403, None, None))
    got = s.raw("GET", f"/{bucket}/key", b"", {"attributes": ""}, {"x-amz-object-attributes": "ETag", "Origin": "a.suffix"})[1]
    equal({k.lower(): v for k, v in dict(got).items()}.get("access-control-allow-origin"), "a.suffix")
