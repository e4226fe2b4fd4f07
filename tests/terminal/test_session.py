from __future__ import annotations

import subprocess
import sys
import types

import pytest

from dorylax.terminal.session import is_interactive, notebook


def test_a_program_is_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook() is None
    assert not is_interactive()


def test_ipython_in_a_program_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries load it without running it."""
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert notebook() is None
    assert not is_interactive()


@pytest.mark.parametrize("kernel", [True, False])
def test_ipython_in_a_terminal_and_in_a_notebook(monkeypatch: pytest.MonkeyPatch, kernel: bool) -> None:
    shell = types.SimpleNamespace(**({"kernel": None} if kernel else {}))
    display = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    assert (notebook() is display) is kernel
    assert is_interactive()


def test_the_prompt_of_python() -> None:
    code = "from dorylax.terminal.session import is_interactive; print(is_interactive())\n"
    done = subprocess.run([sys.executable, "-i"], input=code, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "True\n"
