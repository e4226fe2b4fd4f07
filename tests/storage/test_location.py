"""Places as users write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dorylax.store.base import Location
from dorylax.store.base import parse_place as parse
from dorylax.store.places import open_storage


@pytest.mark.parametrize(
    ("text", "expected", "shown"),
    [
        ("s3://bucket", ("bucket", ""), "s3://bucket"),
        ("s3://bucket/", ("bucket", ""), "s3://bucket"),
        ("s3://a.b-c/x/y/", ("a.b-c", "x/y"), "s3://a.b-c/x/y"),
    ],
)
def test_prefixes_of_s3(text: str, expected: tuple[str, str], shown: str) -> None:
    found = Location.of(text)
    assert found == parse(text) == expected
    assert str(found) == shown
    assert found.key("ab") == "/".join(part for part in (expected[1], "ab") if part)


@pytest.mark.parametrize("text", ["", "bucket/x", "https://bucket/x", "s3://", "s3://B/x", "s3://a/x y", "s3://ab"])
def test_what_is_no_prefix_of_s3(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be s3://bucket/prefix, got"):
        Location.of(text)


@pytest.mark.parametrize("text", ["", " ", "gs://bucket/x", "file:///tmp", "S3://bucket", "s3:/bucket", "a\0b"])
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match=r"^must be a path or s3://bucket/prefix, got"):
        parse(text)


def test_paths_stay_where_they_were_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = {text: parse(text) for text in ("here", "./with space", "../up", "~/mine", "~", "/a/../b", "a:b")}
    assert found == {
        "here": tmp_path / "here",
        "./with space": tmp_path / "with space",
        "../up": tmp_path.parent / "up",
        "~/mine": tmp_path / "home" / "mine",
        "~": tmp_path / "home",
        "/a/../b": Path("/b"),
        "a:b": tmp_path / "a:b",
    }
    storage = open_storage("with space/x")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    storage.put("one", b"1")
    assert (tmp_path / "with space" / "x" / "one").read_bytes() == b"1"


def test_the_home_of_nobody() -> None:
    with pytest.raises(ValueError, match=r"^begins with the home of a user who is not there: '~no-such-user/x'"):
        parse("~no-such-user/x")
