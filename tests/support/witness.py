"""What holds of every run, checked from what its servers do, as `support.watching` tells it event by event.

A `Witness` recomputes everything from what is published, read, sent and computed: rows are known by their contents, not by
their stamps, and `min_epoch` is counted here once more.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np

from dorylax.pipeline.config import PipelineConfig

Pair = tuple[int, int]  # interval, epoch


def fingerprint(array: Any) -> bytes:
    """The same for arrays of the same bits alone."""
    found = np.ascontiguousarray(array)
    return hashlib.blake2b(repr((found.dtype, found.shape)).encode() + found.tobytes(), digest_size=16).digest()


@final
class Witness:
    """Watches a run, and fails it when something happens that must not. Each public method is an event.

    Args:
        config: of the pipeline.
        epochs: that are trained.
        barriers: epochs before which there is one.

    Attributes:
        synchronous_from: this epoch and later ones are synchronous; to be set before any of them begins.
        stale: reads of rows of earlier epochs.
        predicted: pulls of weights that were predicted.
        quorums: waits that a share of fresh rows ended.
        late: gradients that came after the step of their epoch.
        closed: pulls that found the stability gate closed.
    """

    def __init__(self, config: PipelineConfig, epochs: int, barriers: Iterable[int] = ()) -> None:
        self._config, self._epochs, self._barriers = config, epochs, frozenset(barriers)
        self._intervals = config.servers * config.intervals
        self.synchronous_from = 0 if config.synchronous else 1000
        self.stale = self.predicted = self.quorums = self.late = self.closed = 0
        self._servers: dict[int, Mapping[str, Any]] = {}
        self._rows: dict[tuple[int, int], dict[int, np.ndarray]] = {}  # (publication, interval) -> epoch -> rows
        self._sums: dict[tuple[int, int], dict[int, np.ndarray]] = {}  # (step, interval) -> epoch -> partial sums
        self._parts: dict[tuple[int, int], dict[int, list[np.ndarray]]] = {}  # (step, interval) -> epoch -> its parts
        # (server, publication, interval): the same as the server has smoothed them; how often, and their mean from zero
        self._received: dict[tuple[int, int, int], dict[int, np.ndarray]] = {}
        self._sent: dict[tuple[int, int, int], tuple[int, Any]] = {}
        self._owners: dict[tuple[int, str], tuple[np.ndarray, np.ndarray]] = {}
        self._next = [0] * self._intervals
        self._completed: set[Pair] = set()
        self._unanswered: dict[Pair, set[Any]] = {}
        self._applied = Counter[Pair]()
        self._pulled: dict[Pair, tuple[int, int, list[np.ndarray]]] = {}  # version, ahead, parameters and state
        self._fingerprints: dict[Pair, list[bytes]] = {}
        self._versions: dict[int, list[np.ndarray]] = {}  # parameters, state, the optimizer's state
        self._predictions: dict[tuple[int, int], list[np.ndarray]] = {}  # (version, ahead) -> parameters
        self._holders = Counter[int]()
        self._open: dict[int, bool] = {}  # by version, whether intervals may run ahead of it
        self._exact: set[Pair] = set()  # must read rows of their own epoch
        self._run_ahead: dict[tuple[int, int], set[int]] = {}
        self._stages: dict[Pair, set[int]] = {}
        self._stashed: dict[Any, int] = {}

    # How far intervals may go.

    def ahead(self, epoch: int) -> int:
        """How many epochs an interval in this one may be ahead of the slowest."""
        return 0 if epoch >= self.synchronous_from else self._config.staleness or 0

    def allowed(self, interval: int, epoch: int) -> range:
        """Epochs of rows that an interval may read in an epoch."""
        ahead = 0 if epoch == 0 else self.ahead(epoch)
        exact = self._synchronous(epoch) or (interval, epoch) in self._exact
        return range(epoch if exact else max(0, epoch - ahead - 1), epoch + ahead + 1)

    def updates_before(self, epoch: int) -> int:
        """How many updates the epochs before this one are."""
        if self._config.update == "per_epoch":
            return epoch
        alone = min(epoch, self.synchronous_from)
        return alone * self._intervals + epoch - alone

    def min_epoch(self) -> int:
        """The first epoch that some interval has not finished: not all of its gradient applied, or of its rows delivered."""
        epoch = 0
        while all(
            self._applied[pair] and pair in self._completed and not self._unanswered.get(pair)
            for pair in ((interval, epoch) for interval in range(self._intervals))
        ):
            epoch += 1
        return epoch

    def _synchronous(self, epoch: int) -> bool:
        return epoch == 0 or epoch >= self.synchronous_from

    def starts(self, interval: int, epoch: int) -> None:
        """An interval has entered an epoch."""
        assert epoch == self._next[interval], "epochs are skipped or repeated"
        self._next[interval] += 1
        slowest = self.min_epoch()
        assert epoch <= slowest + self.ahead(epoch), "started too early"
        assert not [barrier for barrier in self._barriers if slowest < barrier <= epoch], "started before a barrier"

    def walks(self, interval: int, epoch: int) -> None:
        """An interval has taken all steps of an epoch."""
        self._completed.add((interval, epoch))

    def sends(self, interval: int, epoch: int, message: Any) -> None:
        """An interval sends something, which has to be answered before it has finished."""
        self._unanswered.setdefault((interval, epoch), set()).add(message)

    def is_answered(self, interval: int, epoch: int, message: Any) -> None:
        """It was answered."""
        self._unanswered[interval, epoch].discard(message)

    # Weights.

    def pulls(
        self,
        interval: int,
        epoch: int,
        *,
        version: int,
        ahead: int,
        exact: bool,
        params: list[np.ndarray],
        state: list[np.ndarray],
    ) -> None:
        """An interval has got the weights, and the model's other state, that it computes an epoch with."""
        config = self._config
        assert exact == (not self._open[version]), "the interval was told another state of the gate"
        if exact:
            self._exact.add((interval, epoch))
            self.closed += 1
        self._pulled[interval, epoch] = version, ahead, params + state
        finished = max(0, epoch - self.ahead(epoch))
        assert version >= self.updates_before(finished), "weights lack finished epochs"
        if version < epoch and config.update == "per_epoch":
            server = interval % config.parameter_servers
            found = self._run_ahead.setdefault((server, epoch), set())
            found.add(interval)
            bound = range(server, self._intervals, config.parameter_servers)
            assert len(found) <= config.ahead_share * len(bound), "too many are ahead"
            assert not exact, "an interval runs ahead of a version whose gate is closed"
        predicts = config.predict_weights not in (None, "none")
        # Of others, a share may have made the epoch's own step already.
        behind = max(0, epoch - version) if predicts and version else 0
        assert ahead == behind, f"weights of version {version} for epoch {epoch} are {ahead} ahead"
        if not ahead:
            self._same(version, params + state)
        else:
            self.predicted += 1
            self._predicted(version, ahead, params)

    def _predicted(self, version: int, ahead: int, params: list[np.ndarray]) -> None:
        """Weights for an interval that runs ahead: the same on all servers, and on a line where they are to be."""
        known = self._predictions.setdefault((version, ahead), params)
        assert all(map(np.array_equal, known, params)), "servers predict differently"
        if self._config.predict_weights == "linear":
            for now, before, found in zip(self._versions[version], self._versions[version - 1], params, strict=False):
                np.testing.assert_allclose(found, now + ahead * (now - before), rtol=1e-5, atol=1e-7)

    def stashes(self, place: Any, count: int) -> None:
        """So many intervals hold weights, on the parameter servers of this place."""
        self._stashed[place] = count
        assert sum(self._stashed.values()) <= self._intervals, "more stashes than intervals"

    def computes(self, interval: int, epoch: int, stage: int, place: int, operand: bytes) -> None:
        """A stage reads a parameter, or the model's state, of this `fingerprint`."""
        pair = (interval, epoch)
        if pair not in self._fingerprints:
            self._fingerprints[pair] = [fingerprint(leaf) for leaf in self._pulled[pair][2]]
        assert self._fingerprints[pair][place] == operand, "a stage has weights or state of another version"
        self._stages.setdefault(pair, set()).add(stage)

    def finishes(self, interval: int, epoch: int, version: int, ahead: int, leaves: list[np.ndarray]) -> None:
        """A parameter server makes the complete gradient of an interval with these parameters and this state."""
        *found, held = self._pulled[interval, epoch]
        same = found == [version, ahead] and all(map(np.array_equal, held, leaves))
        assert same, "the gradient is finished with other weights"

    def comes_late(self, count: int) -> None:
        """Gradients have come after the step of their epoch."""
        self.late += count

    def applies(self, pairs: Sequence[Pair]) -> None:
        """Gradients of these are in the weights, or came too late for that."""
        self._applied.update(pairs)
        assert max(self._applied[pair] for pair in pairs) == 1, "a gradient is applied twice"

    def begins_with(self, leaves: list[np.ndarray], is_open: bool) -> None:
        """Parameters, state and optimizer's state of a parameter server at first, and whether its gate is open."""
        self._same(0, leaves)
        assert is_open == (not self._config.gated), "training must begin synchronously"
        self._open[0] = is_open

    def holds(self, version: int, leaves: list[np.ndarray], calls: int, is_open: bool) -> None:
        """A parameter server has come to a version, in which a model that counts its calls has counted so many."""
        assert self._open.setdefault(version, is_open) == is_open, "gates of one version differ"
        self._holders[version] += 1
        self._same(version, leaves)
        assert calls == version, "state has not advanced once per version"

    def _same(self, version: int, leaves: list[np.ndarray]) -> None:
        known = self._versions.setdefault(version, leaves)
        if len(leaves) > len(known):
            self._versions[version] = leaves
        assert all(one.tobytes() == other.tobytes() for one, other in zip(known, leaves, strict=False)), "they differ"

    # Rows.

    def serves(self, server: int, facts: Mapping[str, Any]) -> None:
        """A graph server is there.

        Args:
            server: its number.
            facts: "rows", its first and last; "ghosts" by direction; "first_interval"; "bounds" of its intervals' rows;
                "merge_starts" of the entries of its intervals in sums, and of what it receives.
        """
        self._servers[server] = facts

    def publishes(self, publication: int, interval: int, epoch: int, rows: np.ndarray) -> None:
        """An interval publishes rows."""
        self._rows.setdefault((publication, interval), {})[epoch] = rows

    def contributes(self, step: int, interval: int, epoch: int, rows: np.ndarray) -> None:
        """An interval has summed its in-edges per source."""
        self._sums.setdefault((step, interval), {})[epoch] = rows

    def gives(self, step: int, interval: int, epoch: int, parts: list[np.ndarray]) -> None:
        """An interval gives its parts of sums over all rows."""
        self._parts.setdefault((step, interval), {})[epoch] = parts

    def reads(
        self, server: int, pair: Pair, publication: int, *, direction: str, places: np.ndarray, rows: np.ndarray
    ) -> None:
        """An interval in this epoch reads these places of a publication's buffer, or of its copy, and finds these rows."""
        (owners, local), epoch = self._where(server, direction), pair[1]
        for owner in np.unique(owners[places]).tolist():
            mine = owners[places] == owner
            published = self._as_held(server, publication, owner)
            epochs = [e for e, found in published.items() if np.array_equal(found[local[places[mine]]], rows[mine])]
            assert set(epochs) & set(self.allowed(*pair)), f"epoch {epoch} has read rows of {epochs}"
            self.stale += epoch not in epochs

    def _as_held(self, server: int, publication: int, owner: int) -> dict[int, np.ndarray]:
        """What an interval has published, epoch by epoch, as it lies on a server."""
        if owner in self._of(server) or not self._config.smoothing:
            return self._rows[publication, owner]
        return self._received.get((server, publication, owner), {})

    def receives(
        self,
        server: int,
        publication: int,
        *,
        direction: str,
        interval: int,
        epoch: int,
        exact: bool,
        rows: Any,
        held: Any,
    ) -> None:
        """Rows have come from a peer, perhaps once more: held is their corrected mean since they had to be exact."""
        decay = self._config.smoothing
        if not decay or epoch < 0:
            return
        owners, local = self._where(server, direction)
        places = np.flatnonzero(owners == interval)
        key = (server, publication, interval)
        known = self._received.setdefault(key, {})
        if epoch in known:
            return
        times, mean = self._sent.get(key, (0, 0.0))
        if exact or self._synchronous(epoch):
            times, mean = 0, 0.0
        times, mean = times + 1, decay * mean + (1 - decay) * rows.astype(np.float64)
        np.testing.assert_allclose(held[places], mean / (1 - decay**times), rtol=1e-4, atol=1e-6)
        self._sent[key] = times, mean
        known[epoch] = np.zeros_like(self._rows[publication, interval][epoch])
        known[epoch][local[places]] = held[places]

    def reads_sums(
        self, server: int, interval: int, epoch: int, *, step: int, places: np.ndarray, rows: np.ndarray, epochs: Any
    ) -> None:
        """An interval adds up these entries of a server's sums, and finds these; those received are of these epochs."""
        facts, fresh, allowed = self._servers[server], list[bool](), set(self.allowed(interval, epoch))
        starts = facts["merge_starts"]
        for number, (first, last) in enumerate(itertools.pairwise(starts), facts["first_interval"]):
            mine = (places >= first) & (places < last)
            if mine.any():
                published = self._sums[step, number]
                found = [e for e, sums in published.items() if np.array_equal(sums[places[mine] - first], rows[mine])]
                assert set(found) & allowed, f"epoch {epoch} has read sums of {found}"
                if number != interval:
                    fresh.append(max(found) >= epoch)
        received = set(epochs.tolist())
        assert received <= allowed, f"epoch {epoch} has read peers' sums of {received}"
        self.stale += len(received - {epoch})
        newest = epochs if self._counts_peers((interval, epoch)) else np.empty(0)
        self._fresh_enough((interval, epoch), fresh + (newest >= epoch).tolist())

    def adds_up(self, server: int, interval: int, epoch: int, step: int, held: list[np.ndarray]) -> None:
        """An interval takes sums over all rows: of each sum the parts of all intervals, as they are held."""
        fresh = []
        for other in range(self._intervals):
            mine = [rows[other] for rows in held]
            epochs = {e for e, parts in self._parts[step, other].items() if all(map(np.array_equal, parts, mine))}
            allowed = {epoch} if other == interval else set(self.allowed(interval, epoch))
            assert epochs & allowed, f"epoch {epoch} has read parts of {epochs}"
            self.stale += epoch not in epochs
            if other in self._counted(server, (interval, epoch), {*range(self._intervals)} - {interval}):
                fresh.append(max(epochs) >= epoch)
        if epoch > 0:
            self._fresh_enough((interval, epoch), fresh)

    def may_read(
        self, server: int, pair: Pair, publication: int, *, direction: str, places: np.ndarray, held: np.ndarray
    ) -> None:
        """An interval may read a publication now: so many of those that it reads have published this epoch's rows."""
        interval, epoch = pair
        owners, local = self._where(server, direction)
        fresh = []
        for owner in self._counted(server, pair, set(owners[places].tolist()) - {interval}):
            mine = owners[places] == owner
            published = self._as_held(server, publication, owner)
            fresh.append(
                any(
                    e >= epoch and np.array_equal(rows[local[places[mine]]], held[mine])
                    for e, rows in published.items()
                )
            )
        self._fresh_enough(pair, fresh)

    def _of(self, server: int) -> range:
        facts = self._servers[server]
        return range(facts["first_interval"], facts["first_interval"] + len(facts["bounds"]) - 1)

    def _counts_peers(self, pair: Pair) -> bool:
        """Whether rows of other servers have to be fresh."""
        return self._config.freshness_of == "all" or pair in self._exact

    def _counted(self, server: int, pair: Pair, intervals: set[int]) -> set[int]:
        """Those whose rows have to be fresh."""
        return intervals if self._counts_peers(pair) else intervals & set(self._of(server))

    def _fresh_enough(self, pair: Pair, fresh: list[bool]) -> None:
        epoch, exact = pair[1], self._synchronous(pair[1]) or pair in self._exact
        share = 1.0 if exact else self._config.freshness or 0.0
        enough = f"{sum(fresh)} of {len(fresh)} blocks are of epoch {epoch}, a share of {share} has to be"
        assert sum(fresh) >= share * len(fresh) - 1e-9, enough
        self.quorums += not all(fresh) and share > 0

    def _where(self, server: int, direction: str) -> tuple[np.ndarray, np.ndarray]:
        """Of each row of a buffer: the interval that publishes it, and which of its rows that is."""
        key = (server, direction)
        if key not in self._owners:
            firsts = np.asarray(
                [
                    facts["rows"][0] + first
                    for _, facts in sorted(self._servers.items())
                    for first in facts["bounds"][:-1]
                ]
            )
            facts = self._servers[server]
            rows = np.concatenate([np.arange(*facts["rows"]), facts["ghosts"][direction]])
            owners = np.searchsorted(firsts, rows, side="right") - 1
            self._owners[key] = owners, rows - firsts[owners]
        return self._owners[key]

    # The end.

    def ends(self, version: int, *, settled: bool) -> None:
        """All epochs are finished; the newest version, and whether nothing is on its way on any parameter server."""
        every = {(interval, epoch) for interval in range(self._intervals) for epoch in range(self._epochs)}
        assert self._applied == Counter(every), "not every gradient is applied"
        newest = self.updates_before(self._epochs)
        assert version == newest
        assert self._holders == dict.fromkeys(range(1, newest + 1), self._config.parameter_servers)
        assert not any(self._stashed.values())
        assert settled
        assert self._stages.keys() == every
        assert all(len(stages) > 1 for stages in self._stages.values()), "who read weights in the backward pass?"
