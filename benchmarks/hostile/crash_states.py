"""What a disk may hold after the power has failed: the states that a file system can leave, from what a process had done.

Facts are taken from POSIX and from how ext4, XFS and Btrfs use its freedom:

- `fsync` of a file puts its content on disk; `fsync` of a folder the names in it. Nothing else is promised: not even that
  a new file that was synced has its name in the folder.
- Of what was written and not synced, any part may be there, in pieces of 512 bytes, in any order across files; a file may
  have grown without its content (zeros, or nothing).
- Names change one by one and in any order, except that those in a synced folder are all there. A rename is one change, in
  the two folders: the file never has no name, nor both. So is an exchange of two names.
"""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, final

from hostile.disk_shim import Kind, Operation

_SECTOR = 512

Policy: TypeAlias = Literal["nothing", "everything", "names alone", "contents alone", "some"]
"""What is left of that which was not synced."""

State: TypeAlias = Mapping[str, bytes | None]
"""A folder's files and, as None, its folders, by path in it."""


@dataclasses.dataclass(eq=False)
class _File:
    """A file: what is certainly on disk, and what was written since."""

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


@dataclasses.dataclass(eq=False)
class _Change:
    """A change of names that may not be on disk yet: of each name in its folder, what it names now; None for nothing."""

    names: list[tuple[_Folder, str, _Node | None]]

    def apply(self, names: Mapping[_Folder, dict[str, _Node]]) -> None:
        for folder, name, node in self.names:
            if node is None:
                names[folder].pop(name, None)
            else:
                names[folder][name] = node


@final
class Disk:
    """A disk under a folder.

    Args:
        root: the folder, absolute.
        state: what was in it, all on disk, before the first operation; by default nothing.
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
                if isinstance(file, _File):  # else it has no name any more
                    file.change(one.offset, one.data if one.kind is Kind.WRITE else None)
            case Kind.SYNC:
                self._sync(self._node(one.path))

    def _sync(self, node: _Node | None) -> None:
        if isinstance(node, _File):
            node.sync()
        elif isinstance(node, _Folder):
            left: list[_Change] = []
            for change in self._pending:
                if not any(folder is node for folder, _, _ in change.names):
                    left.append(change)
                    continue
                change.apply(_Synced())
                # Under a rename's other name, whatever came before has been, too.
                for earlier in left:
                    earlier.names = [
                        one for one in earlier.names if one[:2] not in [other[:2] for other in change.names]
                    ]
            self._pending = left

    def _rename(self, names: list[tuple[_Folder, str, _Node | None]]) -> None:
        change = _Change(names)
        change.apply(_Names())
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
        """What is on disk if the power fails now.

        Args:
            policy: what is left of what was not synced.
            seed: which, of "some".
        """
        rng = random.Random(seed)
        names = _Copies()
        for change in self._pending:
            if policy in ("everything", "names alone") or (policy == "some" and rng.random() < 0.5):
                change.apply(names)
        found: dict[str, bytes | None] = {}

        def walk(folder: _Folder, where: str) -> None:
            for name, node in sorted(names[folder].items()):
                path = f"{where}{name}"
                if isinstance(node, _File):
                    found[path] = node.left(policy, rng)
                else:
                    found[path] = None
                    walk(node, f"{path}/")

        walk(self._top, "")
        return found


class _Names(dict[_Folder, dict[str, _Node]]):
    def __missing__(self, folder: _Folder) -> dict[str, _Node]:
        return folder.names


class _Synced(dict[_Folder, dict[str, _Node]]):
    def __missing__(self, folder: _Folder) -> dict[str, _Node]:
        return folder.synced


class _Copies(dict[_Folder, dict[str, _Node]]):
    def __missing__(self, folder: _Folder) -> dict[str, _Node]:
        self[folder] = dict(folder.synced)
        return self[folder]


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
