"""Stores 64 MiB, or fetches them, again and again until it is killed: again.py put|get."""

import sys

from nebulaio import RDMAClient

client = RDMAClient(pool_bytes=128 << 20)
buffer = client.allocate_buffer(64 << 20)
while True:
    if sys.argv[1] == "put":
        client.put_from("killed", "object", buffer)
    else:
        client.get_into("killed", "object", buffer)
