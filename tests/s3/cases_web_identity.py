"""OpenID Connect providers in IAM."""

from cases_access import denied
from suite import equal, refused


def test_providers(s):
    iam = s.one("iam")
    url, thumbprint = "https://id.example.com/realms/x", "AB" * 20
    arn = "arn:aws:iam::111111111111:oidc-provider/id.example.com/realms/x"
    tags = [{"Key": "Team", "Value": "red"}]
    try:
        made = iam.create_open_id_connect_provider(Url=url, ClientIDList=["one"], ThumbprintList=[thumbprint], Tags=tags)
        equal((made["OpenIDConnectProviderArn"], made["Tags"]), (arn, tags))
        refused(409, "EntityAlreadyExists", iam.create_open_id_connect_provider, Url=url + "/", ThumbprintList=[])
        told = iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn)
        equal((told["Url"], told["ClientIDList"], told["ThumbprintList"], told["Tags"]),
              ("id.example.com/realms/x", ["one"], [thumbprint], tags))
        equal(iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn.replace("111111111111", ""))["Url"], told["Url"])
        equal(iam.list_open_id_connect_providers()["OpenIDConnectProviderList"], [{"Arn": arn}])
        equal(s.two("iam").list_open_id_connect_providers()["OpenIDConnectProviderList"], [])
        equal(iam.get_account_summary()["SummaryMap"]["Providers"], 1)
        for client in ("two", "two", "one"):
            iam.add_client_id_to_open_id_connect_provider(OpenIDConnectProviderArn=arn, ClientID=client)
        for client in ("one", "none"):
            iam.remove_client_id_from_open_id_connect_provider(OpenIDConnectProviderArn=arn, ClientID=client)
        iam.update_open_id_connect_provider_thumbprint(OpenIDConnectProviderArn=arn, ThumbprintList=["cd" * 20, "ef" * 20])
        iam.tag_open_id_connect_provider(OpenIDConnectProviderArn=arn, Tags=[{"Key": "a", "Value": "b"}])
        iam.untag_open_id_connect_provider(OpenIDConnectProviderArn=arn, TagKeys=["team"])
        told = iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn)
        equal((told["ClientIDList"], told["ThumbprintList"]), (["two"], ["cd" * 20, "ef" * 20]))
        equal(iam.list_open_id_connect_provider_tags(OpenIDConnectProviderArn=arn)["Tags"], [{"Key": "a", "Value": "b"}])
        refused(409, "LimitExceeded", iam.update_open_id_connect_provider_thumbprint, OpenIDConnectProviderArn=arn,
                ThumbprintList=[f"{n:02x}" * 20 for n in range(6)])
        refused(400, "InvalidInput", iam.update_open_id_connect_provider_thumbprint, OpenIDConnectProviderArn=arn,
                ThumbprintList=["z" * 40])
        equal(iam.get_open_id_connect_provider(OpenIDConnectProviderArn=arn)["ThumbprintList"], ["cd" * 20, "ef" * 20])
        refused(409, "LimitExceeded", iam.create_open_id_connect_provider, Url="https://many.example.com", ThumbprintList=[],
                ClientIDList=[f"client-{n}" for n in range(101)])
        for bad in ("ftp://id.example.com", "https://", "https://id.example.com/?a=b", "https://user@id.example.com"):
            refused(400, "InvalidInput", iam.create_open_id_connect_provider, Url=bad, ThumbprintList=[])
        refused(404, "NoSuchEntity", s.two("iam").get_open_id_connect_provider, OpenIDConnectProviderArn=arn)
        refused(404, "NoSuchEntity", iam.get_open_id_connect_provider, OpenIDConnectProviderArn=arn + "/y")
        refused(400, "InvalidInput", iam.get_open_id_connect_provider, OpenIDConnectProviderArn="arn:aws:iam::1:user/one-of-many")
        denied(s.three("iam").create_open_id_connect_provider, Url=url, ThumbprintList=[])
    finally:
        iam.delete_open_id_connect_provider(OpenIDConnectProviderArn=arn)
    refused(404, "NoSuchEntity", iam.get_open_id_connect_provider, OpenIDConnectProviderArn=arn)
    refused(404, "NoSuchEntity", iam.delete_open_id_connect_provider, OpenIDConnectProviderArn=arn)
