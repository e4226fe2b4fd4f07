"""Files that the user names."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dorylax.settings.errors import ConfigError
from dorylax.settings.strict_yaml import read_text


def test_what_is_named_wrongly_is_the_users(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"a\.yaml is not a text file in UTF-8"):
        read_text(file)
    for path, reason in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (file / "b", "Not a directory"),
        (tmp_path / ("a" * 300), "File name too long"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_text(path)
        assert str(caught.value) == f"cannot read {path}: {reason}"


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(ConfigError, match="/dev/zero has more than 16,777,216 characters: give a file of settings"):
        read_text(Path("/dev/zero"))


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENFILE])
def test_what_the_disk_or_the_system_does_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def fail(*_: object, **__: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        read_text(tmp_path / "a.yaml")
    assert caught.value.filename == str(tmp_path / "a.yaml")
