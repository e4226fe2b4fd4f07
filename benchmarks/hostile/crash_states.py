"""States of a disk after a power failure: those that a file system can leave, given the operations of a process.

Rules are those of POSIX, and of the freedom that ext4, XFS and Btrfs take:

- `fsync` of a file puts its content on disk; `fsync` of a folder the names in it. Neither covers the
  other: a new file that was synced may lack its name in the folder.
- Of unsynced writes any part may be there, in pieces of 512 bytes, in any order across files; a file may have grown without
  its content (zeros, or nothing).
- Names change one by one and in any order, except that those in a synced folder are all there. A rename is one change, in
  the two folders: the file always has exactly one name. So is an exchange of two names.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, final

from hostile.disk_shim import Kind, Operation

_SECTOR = 512

Policy: TypeAlias = Literal["nothing", "everything", "names alone", "contents alone", "some"]
"""The rest of unsynced changes."""

State: TypeAlias = Mapping[str, bytes | None]
"""A folder's files and, as None, its folders, by path in it."""


@dataclasses.dataclass(eq=False)
class _File:
    """A file: its content that is certainly on disk, and the writes since."""

    synced: bytes = b""
    content: bytes = b""
    pending: list[tuple[int, bytes | None]] = dataclasses.field(default_factory=list)  # None: truncated to that length

    def change(self, offset: int, data: bytes | None) -> None:
        self.content = _changed(self.content, offset, data)
        self.pending.append((offset, data))

    def sync(self) -> None:
        self.synced = self.content
        self.pending.clear()

    def left(self, policy: Policy, rng: random.Random) -> bytes:
        if policy in ("nothing", "names alone"):
            return self.synced
        if policy in ("everything", "contents alone"):
            return self.content
        found = self.synced
        for offset, data in self.pending:
            if data is None:
                if rng.random() < 0.5:
                    found = _changed(found, offset, None)
                continue
            for begin in range(0, len(data), _SECTOR):
                fate = rng.random()
                piece = data[begin : begin + _SECTOR]
                if fate < 0.4:
                    found = _changed(found, offset + begin, piece)
                elif fate < 0.6:
                    found = _changed(found, offset + begin, bytes(len(piece)))
        return found


def _changed(content: bytes, offset: int, data: bytes | None) -> bytes:
    if data is None:
        return content[:offset].ljust(offset, b"\0")
    return content[:offset].ljust(offset, b"\0") + data + content[offset + len(data) :]


@dataclasses.dataclass(eq=False)
class _Folder:
    """A folder: the names that are certainly on disk, and those that there are."""

    synced: dict[str, _Node] = dataclasses.field(default_factory=dict)
    names: dict[str, _Node] = dataclasses.field(default_factory=dict)


_Node: TypeAlias = "_File | _Folder"


_Change: TypeAlias = "list[tuple[_Folder, str, _Node | None]]"
"""A change of names that may not be on disk yet: of each name in its folder, the named node now; None for none."""


def _applied(change: _Change, names_of: Callable[[_Folder], dict[str, _Node]]) -> None:
    for folder, name, node in change:
        if node is None:
            names_of(folder).pop(name, None)
        else:
            names_of(folder)[name] = node


@final
class Disk:
    """A disk under a folder.

    Args:
        root: the folder, absolute.
        state: Its content before the first operation, all of it on disk (default: empty).
    """

    def __init__(self, root: Path, state: State | None = None) -> None:
        self._root, self._top = str(root), _Folder()
        self._pending: list[_Change] = []
        for path, content in (state or {}).items():
            folder, name = self._place(os.path.join(self._root, path))
            node = _Folder() if content is None else _File(content, content)
            folder.names[name] = folder.synced[name] = node

    def apply(self, one: Operation) -> None:
        """Does an operation; those that failed change nothing."""
        if one.error:
            return
        match one.kind:
            case Kind.CREATE:
                self._rename([(*self._place(one.path), _File())])
            case Kind.MKDIR:
                self._rename([(*self._place(one.path), _Folder())])
            case Kind.UNLINK | Kind.RMDIR:
                self._rename([(*self._place(one.path), None)])
            case Kind.RENAME:
                node = self._node(one.path)
                self._rename([(*self._place(one.target), node), (*self._place(one.path), None)])
            case Kind.EXCHANGE:
                node, other = self._node(one.path), self._node(one.target)
                self._rename([(*self._place(one.target), node), (*self._place(one.path), other)])
            case Kind.WRITE | Kind.TRUNCATE:
                file = self._node(one.path)
                if isinstance(file, _File):  # else its name is gone
                    file.change(one.offset, one.data if one.kind is Kind.WRITE else None)
            case Kind.SYNC:
                self._sync(self._node(one.path))

    def _sync(self, node: _Node | None) -> None:
        if isinstance(node, _File):
            node.sync()
        elif isinstance(node, _Folder):
            left: list[_Change] = []
            for change in self._pending:
                if not any(folder is node for folder, _, _ in change):
                    left.append(change)
                    continue
                _applied(change, lambda folder: folder.synced)
                # Under a rename's other name, earlier changes are on disk, too.
                gone = [other[:2] for other in change]
                left = [[one for one in earlier if one[:2] not in gone] for earlier in left]
            self._pending = left

    def _rename(self, change: _Change) -> None:
        _applied(change, lambda folder: folder.names)
        self._pending.append(change)

    def _parts(self, path: str) -> list[str]:
        return [part for part in os.path.normpath(path)[len(self._root) :].split(os.sep) if part]

    def _node(self, path: str) -> _Node | None:
        node: _Node | None = self._top
        for part in self._parts(path):
            node = node.names.get(part) if isinstance(node, _Folder) else None
        return node

    def _place(self, path: str) -> tuple[_Folder, str]:
        *above, name = self._parts(path)
        folder = self._node(os.path.join(self._root, *above))
        assert isinstance(folder, _Folder), path
        return folder, name

    def after(self, policy: Policy, seed: int = 0) -> State:
        """The state if the power fails now: `policy` on unsynced changes, of "some" the one with this seed."""
        rng = random.Random(seed)
        names: dict[_Folder, dict[str, _Node]] = {}

        def names_of(folder: _Folder) -> dict[str, _Node]:
            return names.setdefault(folder, dict(folder.synced))

        for change in self._pending:
            if policy in ("everything", "names alone") or (policy == "some" and rng.random() < 0.5):
                _applied(change, names_of)
        found: dict[str, bytes | None] = {}

        def walk(folder: _Folder, where: str) -> None:
            for name, node in sorted(names_of(folder).items()):
                path = f"{where}{name}"
                if isinstance(node, _File):
                    found[path] = node.left(policy, rng)
                else:
                    found[path] = None
                    walk(node, f"{path}/")

        walk(self._top, "")
        return found


def restored(state: State, folder: Path) -> None:
    """Puts a state into an empty folder."""
    for path, content in state.items():
        if content is None:
            (folder / path).mkdir()
        else:
            (folder / path).write_bytes(content)


def read(folder: Path) -> State:
    """The state of a folder."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}
