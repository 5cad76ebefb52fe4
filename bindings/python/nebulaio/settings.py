"""Endpoints and keys: the program's, and the environment's.

    NEBULAIO_ACCESS_KEY, NEBULAIO_SECRET_KEY   keys, if the program names none; else
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
    NEBULAIO_ENDPOINT                          endpoints, if the program names none
    NEBULAIO_RDMA_DEVICE_NAME                  wins over the device that the program names
    NEBULAIO_CONNECT_TO                        "HOST:PORT=HOST:PORT", several with commas: a connection to the
                                               first goes to the second
"""

from __future__ import annotations

import os
from collections.abc import Iterable

PORTS = {"rdma": 9100, "http": 9000, "https": 9443}


# How bytes go by RDMA although requests go by HTTP: by tokens, or straight to the owners in a cluster.
WAYS = ("?rdma", "?rdma=hipobj", "?rdma=owner")
# An RDMA endpoint whose further addresses, which the server tells, are not used.
GIVEN = "?paths=given"


def _split(endpoint: str) -> tuple[str, str, int, str]:
    """Scheme, host, port and way; without a scheme it is RDMA."""
    text, mark, way = endpoint.strip().partition("?")
    scheme, found, address = text.rstrip("/").partition("://")
    if not found:
        scheme, address = "rdma", scheme
    if mark and (mark + way != GIVEN if scheme == "rdma" else mark + way not in WAYS):
        raise ValueError(f"endpoint {endpoint!r}: {mark + way} is none of {', '.join(WAYS)} of an HTTP endpoint, nor {GIVEN} of an RDMA one")
    if scheme not in PORTS:
        raise ValueError(f"endpoint {endpoint!r}: {scheme} is not rdma, http or https")
    host, found, port = address.rpartition(":")
    if not found or (address.startswith("[") and address.endswith("]")):
        host, port = address, str(PORTS[scheme])
    if host.count(":") > 0 and not host.startswith("["):
        raise ValueError(f"endpoint {endpoint!r}: an IPv6 address stands in brackets")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"endpoint {endpoint!r} is not HOST:PORT")
    return scheme, host, int(port), mark + way


def endpoints_text(endpoints: Iterable[str], fallback_http: bool) -> str:
    """The endpoints in the library's form. fallback_http adds HTTP on the standard port of each RDMA endpoint's host,
    unless an HTTP endpoint is named."""
    parts = [_split(endpoint) for endpoint in endpoints]
    if fallback_http and all(scheme == "rdma" for scheme, *_ in parts):
        parts += [("http", host, PORTS["http"], "") for _, host, *_ in parts]
    return ",".join(f"{scheme}://{host}:{port}{way}" for scheme, host, port, way in parts)


def endpoints_default() -> list[str]:
    return [text for text in os.environ.get("NEBULAIO_ENDPOINT", "").replace(",", " ").split() if text]


def keys(access_key: str | None, secret_key: str | None) -> tuple[str, str]:
    environ = os.environ
    access_key = access_key or environ.get("NEBULAIO_ACCESS_KEY") or environ.get("AWS_ACCESS_KEY_ID")
    secret_key = secret_key or environ.get("NEBULAIO_SECRET_KEY") or environ.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key:
        raise ValueError("no keys: give access_key and secret_key, or set NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY")
    return access_key, secret_key


def device_name(named: str | None) -> str | None:
    return os.environ.get("NEBULAIO_RDMA_DEVICE_NAME") or named
