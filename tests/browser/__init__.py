"""Tests in a real browser; a package, so that its conftest is not taken for that of the tests above it."""
