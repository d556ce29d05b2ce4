"""Secrets are taken out of what a failed run leaves in the folder of a sweep: reasons and logs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote, quote_plus

_NAMES = re.compile(
    r"SECRET|PASSWORD|PASSWD|PASSPHRASE|TOKEN|CREDENTIAL|APIKEY|ACCESSKEY|CONNECTION_STRING|DATABASE_URL"
    r"|(^|_)(KEY|PASS|PWD|AUTH|DSN|PAT|COOKIE|WEBHOOK)S?(_|$)",
    re.IGNORECASE,
)
_PLAIN = {"PWD", "OLDPWD"}
"""The current folder and the one before it."""
_SHORTEST = 6
"""Shorter values are too likely to occur in a text by chance."""


def without_passwords(text: str) -> str:
    """Returns a text without the user and password in addresses such as `sftp://user:password@host/folder`."""
    return re.sub(r"(?<=://)[^/@\s]*:[^/@\s]*@", "", text)


def without_secrets(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Returns a text without passwords in addresses and without the values of environment variables for secrets.

    These are the variables whose names contain a word such as SECRET, PASSWORD, TOKEN or KEY. Each line of a value of
    several lines counts, and so does a value as Python or an address writes it.
    """
    values = {value for name, value in environment.items() if _NAMES.search(name) and name not in _PLAIN}
    lines = {line.strip() for value in values for line in value.splitlines()} | values
    written = {form for line in lines for form in (line, repr(line)[1:-1], quote(line, ""), quote_plus(line))}
    secrets = (form for form in written if len(form) >= _SHORTEST)
    for secret in sorted(secrets, key=len, reverse=True):  # a secret may contain another one
        text = text.replace(secret, "***")
    return without_passwords(text)
