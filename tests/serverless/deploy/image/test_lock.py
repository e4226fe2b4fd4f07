"""Locks: what they hold, what pip is asked, and that pip installs nothing else than what is locked."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dorylax.errors import InputError, RunError
from dorylax.serverless.deploy.image.contents import (
    DISTRIBUTIONS,
    LAPACK,
    PACKAGED,
    lock_text,
    locked,
    make_lock,
    read_lock,
    wheel_options,
)
from dorylax.settings.errors import ConfigError

ROOT = Path(__file__).resolve().parents[4]


def hashed(number: int) -> str:
    return f"{number:064x}"


def test_the_lock_that_comes_with_dorylax_has_the_versions_of_the_constraints_and_no_addresses() -> None:
    lock = read_lock(PACKAGED)
    names = {pin.partition("==")[0] for pin in lock}
    assert names == {*DISTRIBUTIONS, LAPACK}
    assert set(lock) <= set((ROOT / "constraints.txt").read_text().splitlines())
    text = PACKAGED.read_text()
    assert "/" not in text
    assert lock_text(lock) == text  # as the command writes it
    # Two architectures; several versions of Python where wheels are for one.
    assert all(
        len(lock[f"{name}=={version}"]) >= 2
        for name, version in (pin.split("==") for pin in lock)
        if name in ("jaxlib", "numpy", "scipy")
    )


def test_a_lock_written_and_read(tmp_path: Path) -> None:
    lock = {"b-x==1": frozenset({hashed(2), hashed(1)}), "a==2.0.post1": frozenset({hashed(3)})}
    file = tmp_path / "lock"
    file.write_text(f"# mine\n\n{lock_text(lock)}")
    assert read_lock(file) == lock
    file.write_text(f"b-x==1 --hash=sha256:{hashed(2)}  # x86_64\n{lock_text({**lock, 'b-x==1': {hashed(1)}})}")
    assert read_lock(file) == lock
    assert locked(["a==2.0.post1"], lock) == {"a==2.0.post1": lock["a==2.0.post1"]}
    assert lock_text(lock).splitlines()[1] == f"b-x==1 --hash=sha256:{hashed(1)} --hash=sha256:{hashed(2)}"
    with pytest.raises(InputError, match=r"^the lock has no hashes of a==3, c==1: run `dorylax aws lock FILE`"):
        locked(["a==3", "b-x==1", "c==1"], lock)


@pytest.mark.parametrize(
    "line",
    [
        "a==1",
        f"a>=1 --hash=sha256:{hashed(1)}",
        f"a==1 --hash=md5:{hashed(1)}",
        "a==1 --hash=sha256:12",
        f"a==1 --hash=sha256:{hashed(1)} --index-url elsewhere",
        "-r other.txt",
        "--extra-index-url elsewhere",
        f"a @ file:///a.whl --hash=sha256:{hashed(1)}",
    ],
)
def test_a_line_that_is_none_of_a_lock(tmp_path: Path, line: str) -> None:
    file = tmp_path / "lock"
    file.write_text(f"ok==1 --hash=sha256:{hashed(1)}\n{line}\n")
    with pytest.raises(InputError, match=rf"^{re.escape(str(file))}:2: must be NAME==VERSION --hash=sha256:…, got "):
        read_lock(file)


def test_a_file_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"\xff")
    for file, message in (
        (Path("/dev/zero"), "more than 16,777,216 characters"),
        (tmp_path / "lock", "not a text file"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_lock(file)


def test_pip_is_asked_for_each_architecture_and_version_of_python() -> None:
    asked: list[str] = []

    def ask(options: list[str]) -> bytes:
        asked.append(" ".join(options))
        archives = [{"hashes": {"sha256": hashed(len(asked))}}, {"hashes": {"sha256": hashed(9)}}]
        found = [
            {"metadata": {"name": name, "version": "1"}, "download_info": {"url": "x", "archive_info": archive}}
            for name, archive in zip(("A_b", "c"), archives, strict=True)
        ]
        return json.dumps({"install": found}).encode()

    lock = make_lock(["a-b==1", "c==1"], [(3, 11), (3, 12)], ask)
    assert lock == {"a-b==1": frozenset(map(hashed, range(1, 5))), "c==1": frozenset({hashed(9)})}
    assert ["x86_64" in words for words in asked] == [True, False] * 2
    assert ["--python-version=3.11" in words and "--abi=cp311" in words for words in asked] == [
        True,
        True,
        False,
        False,
    ]
    assert all("--only-binary=:all:" in words and words.endswith("a-b==1 c==1") for words in asked)


@pytest.mark.parametrize("info", [{}, {"archive_info": {}}, {"archive_info": {"hashes": {"md5": "1"}}}])
def test_an_index_without_hashes(info: dict) -> None:
    report = json.dumps({"install": [{"metadata": {"name": "a", "version": "1"}, "download_info": info}]}).encode()
    with pytest.raises(RunError, match=r"^pip's index gives no SHA-256 of the wheel of a==1 for x86_64$"):
        make_lock(["a==1"], [(3, 11)], lambda _: report)


def wheel(folder: Path, content: str) -> Path:
    """A distribution of one module."""
    path = folder / "lockedthing-1.0-py3-none-any.whl"
    info = "lockedthing-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lockedthing.py", content)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: lockedthing\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", f"lockedthing.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def test_pip_installs_what_is_locked_and_nothing_else(tmp_path: Path) -> None:
    """With the options of the image, from an index that somebody has changed meanwhile."""
    pytest.importorskip("pip", reason="needs pip")
    (tmp_path / "index").mkdir()
    path = wheel(tmp_path / "index", "x = 1\n")
    lines = locked(
        ["lockedthing==1.0"], {"lockedthing==1.0": frozenset({hashlib.sha256(path.read_bytes()).hexdigest()})}
    )
    (tmp_path / "requirements.txt").write_text(lock_text(lines))

    def install(target: str) -> subprocess.CompletedProcess:
        words = ["--isolated", "--no-index", f"--find-links={tmp_path / 'index'}", "--no-compile", "--require-hashes"]
        words += [f"--target={tmp_path / target}", *wheel_options("arm64", (3, 11))]
        command = [sys.executable, "-m", "pip", "install", *words, "-r", str(tmp_path / "requirements.txt")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    good = install("good")
    assert good.returncode == 0, good.stderr
    assert (tmp_path / "good" / "lockedthing.py").read_text() == "x = 1\n"
    wheel(tmp_path / "index", "x = 2\n")
    bad = install("bad")
    assert bad.returncode != 0
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in bad.stderr
    assert not (tmp_path / "bad").exists()


def test_what_pip_says_when_it_finds_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pip", reason="needs pip")
    for name, value in {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": ""}.items():
        monkeypatch.setenv(name, value)
    told = r"^pip cannot look up the image's wheels: ERROR: No matching distribution found for no-such-thing==1$"
    with pytest.raises(RunError, match=told):
        make_lock(["no-such-thing==1"], [(3, 11)])
