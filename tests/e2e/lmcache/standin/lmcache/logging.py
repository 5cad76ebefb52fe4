"""As lmcache/logging.py: a logger for each module."""

import logging


def init_logger(name):
    return logging.getLogger(name)
