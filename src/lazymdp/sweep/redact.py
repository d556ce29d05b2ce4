"""Secrets are taken out of what a failed run leaves in the folder of a sweep: reasons and logs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_NAMES = re.compile(r"SECRET|PASSWORD|PASSWD|TOKEN|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.IGNORECASE)
_SHORTEST = 6
"""Shorter values are too likely to occur in a text by chance."""


def without_passwords(text: str) -> str:
    """Returns a text without the user and password in addresses such as `sftp://user:password@host/folder`."""
    return re.sub(r"(?<=://)[^/@\s]*:[^/@\s]*@", "", text)


def without_secrets(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Returns a text without passwords in addresses and without the values of environment variables for secrets.

    These are the variables whose names contain a word such as SECRET, PASSWORD, TOKEN or ACCESS_KEY.
    """
    secrets = {value for name, value in environment.items() if _NAMES.search(name) and len(value) >= _SHORTEST}
    for value in sorted(secrets, key=len, reverse=True):  # a secret may contain another one
        text = text.replace(value, "***")
    return without_passwords(text)
