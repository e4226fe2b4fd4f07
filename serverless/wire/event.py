"""Control plane: an `Event` requests one tensor task from a worker, and an `Answer` reports its outcome.

Both are small JSON objects that fit a line to a process, an HTTP body, or an invocation of Lambda (whose limit is
`MAX_EVENT_BYTES`). Tensors travel separately (`dorylax.net`) under the names of
`dorylax.serverless.wire.names`.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, final

from dorylax.net.errors import WireError
from dorylax.program.artefact.stage_file import StageReference
from dorylax.program.tasks.stage_calls import OperandSource, ResultTarget
from dorylax.serverless.task import TaskKey
from dorylax.serverless.wire.fields import Fields, hints, read_object, write_object

VERSION = 3
MAX_EVENT_BYTES = 256 * 1024

_LEAST = {"size": 1, "version": -1}
"""Lower bounds of integers other than 0."""

_TASK = "dorylax task"
_ANSWER = "dorylax answer"
_RUN = re.compile(r"[0-9a-f]{1,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_URL = re.compile(r"https?://[!-~]+\Z")
_UNREAD = "0"  # reserved: never the id of a run
_MAX_ADDRESS = 1024  # characters
_MAX_URL = 8 * 1024  # characters; a presigned URL includes a session token of up to a few thousand
_MAX_ERROR = 16 * 1024  # characters; the end of an error is the most specific part


@final
@dataclasses.dataclass(frozen=True)
class Event:
    """A task for a worker.

    Attributes:
        run: Id of the run, lower-case hexadecimal digits.
        key: Key of the task.
        attempt: Number of the attempt, from 0.
        reference: Reference from the stage to its artefact.
        size: Rows per call of the stage.
        parts: Real rows of each part of the operands, each ≤ `size`; one part unless operands are streamed.
        operands: Source of each operand.
        results: Target of each result.
        version: Version of the weights; -1 without weights.
        ahead: Number of versions beyond `version` for predicted weights.
        graph: Data address of the graph server.
        parameters: Data address of the parameter server.
        artefact: URL (http or https) of the artefact, or None if the graph server offers it. Never log the URL, which may
            be signed.

    Raises:
        WireError: If a field is invalid.
    """

    run: str
    key: TaskKey
    attempt: int
    reference: StageReference
    size: int
    parts: tuple[int, ...]
    operands: tuple[OperandSource, ...]
    results: tuple[ResultTarget, ...]
    version: int
    graph: str
    parameters: str
    artefact: str | None = None
    ahead: int = 0

    def __post_init__(self) -> None:
        _check_run(self.run, "event")
        if not _SHA256.fullmatch(self.reference.sha256):
            raise WireError(f"event: 'sha256' must be 64 hexadecimal digits, got {self.reference.sha256[:80]!r}")
        if not self.parts:
            raise WireError("event: 'parts' must name at least one part, got []")
        if max(self.parts) > self.size:
            raise WireError(f"event: 'parts' must be at most 'size' = {self.size}, got {max(self.parts)}")
        for name, address in (("graph", self.graph), ("parameters", self.parameters)):
            if not address.isprintable() or not 0 < len(address) <= _MAX_ADDRESS:
                raise WireError(
                    f"event: {name!r} must be an address of 1 to {_MAX_ADDRESS} printable characters, "
                    f"got {address[:80]!r}"
                )
        if self.artefact is not None and not (_URL.match(self.artefact) and len(self.artefact) <= _MAX_URL):
            # Omit the URL, which may contain a signature.
            raise WireError(f"event: 'artefact' must be null or a URL of http or https, at most {_MAX_URL} characters")

    def encode(self) -> bytes:
        """Encode the event as one line of ASCII JSON.

        Raises:
            WireError: If the event exceeds `MAX_EVENT_BYTES` bytes or a field has the wrong type.
        """
        reference = self.reference
        document = {
            "format": _TASK,
            "version": VERSION,
            "run": self.run,
            "key": list(self.key),
            "attempt": self.attempt,
            "stage": {
                "sha256": reference.sha256,
                "reads": list(reference.reads),
                "literals": [float(value).hex() for value in reference.literals],
                "counted": reference.counted,
                "writes": list(reference.writes),
            },
            "size": self.size,
            "parts": list(self.parts),
            "operands": [operand._asdict() for operand in self.operands],
            "results": [result._asdict() for result in self.results],
            "weights": self.version,
            "ahead": self.ahead,
            "graph": self.graph,
            "parameters": self.parameters,
            "artefact": self.artefact,
        }
        return _sized(document, "event")

    @classmethod
    def decode(cls, content: bytes) -> Event:
        """Decode an event.

        Raises:
            WireError: If the bytes are not an event of this version.
        """
        event: Event = _decode(cls, content, "event", _TASK, {"reference": "stage", "version": "weights"})
        return event


@final
@dataclasses.dataclass(frozen=True)
class Answer:
    """Outcome of a call. The worker sends the results separately, to the servers.

    Attributes:
        run: Id of the run, from the event; "0" for an unreadable event (`unread`, `refused`).
        key: Key of the task, from the event; zeros for an unreadable event.
        attempt: Number of the attempt, from the event; 0 for an unreadable event.
        error: Reason of a failure, truncated to its last 16 Ki characters; None after success.
        retry: Whether the caller may retry after the error.
        cold: Whether this is the first call of the sandbox.
        pull_seconds: Time to fetch the operands in seconds.
        compute_seconds: Time of the computation in seconds.
        push_seconds: Time to deliver the results in seconds.
        bytes_in: Bytes of fetched tensors.
        bytes_out: Bytes of delivered tensors.

    Raises:
        WireError: If `run` is not a valid id.
    """

    run: str
    key: TaskKey
    attempt: int
    error: str | None
    retry: bool
    cold: bool
    pull_seconds: float
    compute_seconds: float
    push_seconds: float
    bytes_in: int
    bytes_out: int

    def __post_init__(self) -> None:
        _check_run(self.run, "answer")

    @classmethod
    def unread(cls, error: str) -> Answer:
        """Create the reply to an unreadable event."""
        return cls(_UNREAD, TaskKey(0, 0, 0, 0), 0, error, False, False, 0.0, 0.0, 0.0, 0, 0)

    @property
    def refused(self) -> bool:
        """Whether the event was unreadable."""
        return self.run == _UNREAD and self.error is not None

    def encode(self) -> bytes:
        """Encode the object as one line of ASCII JSON.

        Raises:
            WireError: If a field has the wrong type or a number is not finite.
        """
        document = {"format": _ANSWER, "version": VERSION, **dataclasses.asdict(self), "key": list(self.key)}
        if self.error is not None:
            document["error"] = self.error[-_MAX_ERROR:]
        return _sized(document, "answer")

    @classmethod
    def decode(cls, content: bytes) -> Answer:
        """Decode an `Answer`.

        Raises:
            WireError: If the bytes are not an `Answer` of this version.
        """
        answer: Answer = _decode(cls, content, "answer", _ANSWER, {})
        return answer


def _sized(document: dict[str, Any], what: str) -> bytes:
    content = write_object(document, what)
    if len(content) > MAX_EVENT_BYTES:
        raise WireError(f"{what} must have at most {MAX_EVENT_BYTES} bytes, got {len(content)}")
    return content


def _decode(kind: Any, content: bytes, what: str, name: str, keys: dict[str, str]) -> Any:
    """Read an event or answer by its annotations. `keys` maps fields to keys of other names."""
    fields = read_object(content, what, MAX_EVENT_BYTES)
    fields.format(name, VERSION)
    values = {
        field: _read_key(fields, what)
        if hint is TaskKey
        else fields.read(keys.get(field, field), hint, least=_LEAST.get(field, 0))
        for field, hint in hints(kind).items()
    }
    fields.end()
    return kind(**values)


def _check_run(run: str, what: str) -> None:
    if not _RUN.fullmatch(run):
        raise WireError(f"{what}: 'run' must be 1 to 64 hexadecimal digits, got {run[:80]!r}")


def _read_key(fields: Fields, what: str) -> TaskKey:
    numbers = fields.read("key", tuple[int, ...], least=-1)
    if len(numbers) != len(TaskKey._fields):
        raise WireError(f"{what}: 'key' must be [{', '.join(TaskKey._fields)}], got {len(numbers)} numbers")
    key = TaskKey(*numbers)
    if min(key[1:]) < 0:  # only an epoch may be -1: the setup before training
        raise WireError(f"{what}: 'key' must be ≥ 0 but for its epoch, got {list(key)}")
    return key
