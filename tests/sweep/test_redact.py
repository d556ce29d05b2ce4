"""Secrets do not reach reasons and logs."""

from urllib.parse import quote

import pytest

from lazymdp.sweep.redact import without_passwords, without_secrets


def test_values_of_secret_variables_and_passwords_in_addresses_are_taken_out():
    environment = {
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG", "HF_TOKEN": "hf_abcdef", "API_KEY": "hf_abcdef_and_more",
        "HOME": "/home/me", "SHORT_TOKEN": "1",
    }  # fmt: skip
    text = "signed with wJalrXUtnFEMI/K7MDENG and hf_abcdef_and_more or hf_abcdef in /home/me, step 1"
    assert without_secrets(text, environment) == "signed with *** and *** or *** in /home/me, step 1"


@pytest.mark.parametrize(
    "name",
    ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY", "AZURE_STORAGE_CONNECTION_STRING", "DB_PASS",
     "MYSQL_PWD", "GOOGLE_APPLICATION_CREDENTIALS", "SSH_PRIVATE_KEY", "GITHUB_PAT", "SENTRY_DSN", "openai_api_key",
     "GPG_PASSPHRASE", "PGPASSWORD", "KEYS", "APIKEY"],
)  # fmt: skip
def test_names_of_variables_for_secrets(name):
    assert without_secrets("it is hunter22!", {name: "hunter22"}) == "it is ***!"


@pytest.mark.parametrize("name", ["HOME", "PWD", "OLDPWD", "PATH", "KEYBOARD", "PASSES", "AUTHOR", "XLA_FLAGS"])
def test_other_variables_are_kept(name):
    assert without_secrets("in /home/me/study", {name: "/home/me/study"}) == "in /home/me/study"


def test_a_secret_is_found_in_every_form_in_which_it_is_written():
    secret = "a'b/c+d\\e f"
    for written in (secret, repr(secret)[1:-1], quote(secret, ""), quote(secret, "").replace("%20", "+")):
        assert without_secrets(f"<{written}>", {"A_TOKEN": secret}) == "<***>"
    pem = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\nabcdefgh\n-----END KEY-----\n"
    for text in (pem, repr(pem), " ".join(pem.split()), pem[25:]):  # the worker joins the lines of a message
        assert not {"MIIEowIBAAKCAQEA", "abcdefgh"} & set(without_secrets(text, {"SSH_KEY": pem}).split())
        assert "MIIEow" not in without_secrets(text, {"SSH_KEY": pem})


def test_passwords_in_addresses():
    assert without_passwords("cannot open sftp://me:hunter22@host/study.") == "cannot open sftp://host/study."
    for kept in ("s3://bucket/study", "https://host:8080/me@home", "at 10:30 mail me@host"):
        assert without_passwords(kept) == kept
