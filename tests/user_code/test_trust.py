"""Code that a folder names: found, named in a refusal, and not executed before it is trusted."""

from __future__ import annotations

import hashlib
import pickle
import sys
from pathlib import Path

import pytest

from dorylax.errors import InputError
from dorylax.user_code.trust import FolderCode

_MARKS = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\ndef make(**options): return options\n"


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file and a package of which each part would leave a mark."""
    (tmp_path / "mine.py").write_text(_MARKS)
    (tmp_path / "some_package_of_a_stranger").mkdir()
    for name in ("__init__", "inner"):
        (tmp_path / "some_package_of_a_stranger" / f"{name}.py").write_text(_MARKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def _code(reference: str, *, trusted: bool = False, **files: str) -> FolderCode:
    return FolderCode(
        "RUN/config.yaml",
        frozenset({reference}),
        trusted=trusted,
        files={f"{name}.py": at for name, at in files.items()},
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_is_refused_by_its_name_and_hash(there: Path) -> None:
    with pytest.raises(InputError) as caught:
        _code("mine.py:make").check()
    assert str(caught.value) == (
        f"RUN/config.yaml names the code 'mine.py:make', which would run '{there / 'mine.py'}' (SHA-256 "
        f"{_sha256(there / 'mine.py')}): read it first, then say that you trust it by --trust (in Python trust=True)"
    )
    assert _code("mine.py:make", trusted=True).located("mine.py:make") == f"{there / 'mine.py'}:make"
    assert not list(there.rglob("*.ran"))


def test_a_link_is_refused_by_what_it_leads_to(there: Path) -> None:
    (there / "link.py").symlink_to("mine.py")
    with pytest.raises(InputError, match=f"would run '{there / 'mine.py'}'"):
        _code("link.py:make").check()


def test_a_module_is_refused_without_importing_its_package(there: Path) -> None:
    name = "some_package_of_a_stranger.inner"
    file = there / "some_package_of_a_stranger" / "inner.py"
    with pytest.raises(InputError) as caught:
        _code(f"{name}:make").check()
    assert f"would import the module '{name}', '{file}' (SHA-256 {_sha256(file)})" in str(caught.value)
    assert not list(there.rglob("*.ran"))
    assert "some_package_of_a_stranger" not in sys.modules
    (there / "some_module.py").touch()
    (there / "below.py").touch()  # is not in the module, which is no package
    nothing = ("no_such_package_at_all.inner", "some_package_of_a_stranger.none", "some_module.below", "sys")
    for without in nothing:
        with pytest.raises(InputError, match=f"the module '{without}', of which no file is found"):
            _code(f"{without}:make").check()
    assert _code(f"{name}:make", trusted=True).located(f"{name}:make") == f"{name}:make"


def test_the_file_that_the_folder_ran_goes_before_one_of_its_name(there: Path, tmp_path_factory) -> None:
    ran = tmp_path_factory.mktemp("ran") / "mine.py"
    ran.write_text("def make(): pass\n")
    code = _code("mine.py:make", trusted=True, mine=str(ran))
    assert code.located("mine.py:make") == f"{ran}:make"
    ran.unlink()
    assert code.located("mine.py:make") == f"{there / 'mine.py'}:make"
    (there / "mine.py").unlink()
    with pytest.raises(InputError) as caught:
        code.check()
    assert str(caught.value) == (
        f"RUN/config.yaml names the code 'mine.py:make', and there is no file '{ran}' nor '{there / 'mine.py'}'"
    )


def test_what_is_no_file_of_python_is_not_run_for_one(there: Path) -> None:
    code = _code("mine.py:make", trusted=True, mine="/etc/hostname")
    assert code.located("mine.py:make") == f"{there / 'mine.py'}:make"


def test_what_the_folder_does_not_name_is_the_users(there: Path) -> None:
    assert _code("mine.py:make").located("mine.py:other") == "mine.py:other"
    with pytest.raises(InputError):
        FolderCode("RUN/sweep.json", None).located("mine.py:other")


def test_a_name_cannot_break_the_line(there: Path) -> None:
    (there / "a\n\x1b[31mb.py").write_text(_MARKS)
    with pytest.raises(InputError) as caught:
        _code("a\n\x1b[31mb.py:make").check()
    assert str(caught.value).isprintable()


def test_it_reaches_other_processes() -> None:
    code = _code("mine.py:make", trusted=True, mine="/there/mine.py")
    again = pickle.loads(pickle.dumps(code))
    assert (again, again.files, hash(again)) == (code, code.files, hash(code))
