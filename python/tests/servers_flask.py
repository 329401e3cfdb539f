"""Routes behind flask-limiter, for gunicorn: /fixed and /moving, as `LIMIT` says."""

from __future__ import annotations

import os

from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address


def app(strategy: str) -> Flask:
    """Make an application that counts so: `fixed-window` or `moving-window`."""
    made = Flask(__name__)
    limiter = Limiter(
        get_remote_address,
        app=made,
        default_limits=[os.environ["LIMIT"]],
        headers_enabled=True,
        storage_uri="memory://",
        strategy=strategy,
    )
    made.add_url_rule("/", "root", dict)
    assert limiter.enabled
    return made
