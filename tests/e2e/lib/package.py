"""tests/e2e/lib/package.py: common parts of the tests of the Python package nebulaio, in an environment with it: groups
of checks. A group is skipped with a message if a module that it needs could not be installed."""

import importlib.util
import os
import traceback

from nebula import Tap, tenant_of
from nebulaio import RDMAClient

RDMA = os.environ["NEBULAIO_TEST_RDMA"]
KEYS = ("minioadmin", "minioadmin")
MIB = 1 << 20

tap = Tap()
groups = []


def needs(*modules):
    """Marks a function as a group of checks, which needs these modules besides the package."""
    def mark(function):
        groups.append((function, modules))
        return function
    return mark


def opened(**options):
    return RDMAClient(RDMA, *KEYS, **options)


def tenant_keys():
    """The keys of a new user of the server, who has rights on the bucket "tenant" alone."""
    return tenant_of(os.environ["NEBULAIO_TEST_HTTP"], KEYS)


def run():
    """All groups, in order; the exit status."""
    for function, modules in groups:
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        if missing:
            tap.skip(function.__name__, f"{', '.join(missing)} could not be installed")
            continue
        try:
            function()
        except Exception:
            tap.check(False, f"{function.__name__} runs to its end", traceback.format_exc())
    return tap.done()
