"""Secrets do not reach reasons and logs."""

from lazymdp.sweep.redact import without_passwords, without_secrets


def test_values_of_secret_variables_and_passwords_in_addresses_are_taken_out():
    environment = {
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG", "HF_TOKEN": "hf_abcdef", "API_KEY": "hf_abcdef_and_more",
        "HOME": "/home/me", "SHORT_TOKEN": "1",
    }  # fmt: skip
    text = "signed with wJalrXUtnFEMI/K7MDENG and hf_abcdef_and_more or hf_abcdef in /home/me, step 1"
    assert without_secrets(text, environment) == "signed with *** and *** or *** in /home/me, step 1"


def test_passwords_in_addresses():
    assert without_passwords("cannot open sftp://me:hunter22@host/study.") == "cannot open sftp://host/study."
    for kept in ("s3://bucket/study", "https://host:8080/me@home", "at 10:30 mail me@host"):
        assert without_passwords(kept) == kept
