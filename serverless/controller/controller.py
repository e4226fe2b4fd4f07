"""The controller: every tensor task is answered once, whatever happens to its calls.

`slot_limit` counts concurrent calls, `hedging` decides which are late and keeps the attempts of a task, and `throttle`
reacts to refusals. The backend knows where calls run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import final

from dorylax.clock import Clock
from dorylax.serverless.backends.base import Backend
from dorylax.serverless.controller.backoff import Backoff
from dorylax.serverless.controller.call import Call, Outcome
from dorylax.serverless.controller.hedging import Attempt, HedgedTask, Hedging
from dorylax.serverless.controller.slot_limit import SlotLimit
from dorylax.serverless.controller.throttle import Throttle
from dorylax.serverless.controller.watch import Watch
from dorylax.serverless.task import TaskFailedError, TaskKey, TensorResult, TensorTask

_log = logging.getLogger("dorylax.controller")

# At one moment of virtual time answers come first, then deadlines, then relaunches, then ends of pauses: their orders
# continue the attempt's.
_DEADLINE, _RELAUNCH, _RESUME = 1, 2, 3


@final
class Controller:
    """Runs the tensor tasks of a graph server.

    A task takes a slot when it comes, and each of its attempts holds one until it answers, fails, or its deadline passes.

    - The first answer is the task's. Other attempts continue in the background, hold their slots, and are billed; their
      answers are dropped.
    - An attempt that fails is repeated until `attempts` of them have failed.
    - An attempt whose deadline passes has failed, and gives its slot back. Its answer still counts if it comes before any
      other; the call has been reported by then.
    - An attempt that is throttled has not failed: the task queues again. Nothing begins for a while, then fewer attempts at
      a time, until none is refused any more. If all are refused for too long, the task fails.
    - A task whose newest attempt is late (`Hedging`) is called again beside it, with the same inputs and weights.

    Nothing waits for a slot while it holds one: a task whose attempts have all failed queues for its next; beside an
    attempt that still runs, another begins only in a spare slot, for which nobody queues.

    Nothing in the background keeps a run from ending: closing the clock ends it. `drain` waits for it instead.

    Args:
        backend: runs the attempts.
        clock: where time comes from.
        limit: how many attempts run at a time.
        hedging: Decides which attempts are late, fed by this controller alone; None: tasks are never relaunched.
        relaunches: how often a task is relaunched at most, besides repetitions of what has failed.
        attempts: of one task that may fail before the task does, ≥ 1.
        deadline: seconds that an attempt may take, > 0; None: no limit.
        on_call: called once for every attempt, when its slot is given back.
        throttle: decides what follows from throttled attempts; None: a `Throttle` with its defaults.

    Attributes:
        limit: as given; its slots may be changed at any time, its cap is this controller's.
        hedging: as given.
        relaunched: how many attempts have been begun because another was late; neither those that never got a slot nor those
            that were throttled.

    Raises:
        ValueError: a number out of range.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        *,
        limit: SlotLimit,
        hedging: Hedging | None,
        relaunches: int = 1,
        attempts: int,
        deadline: float | None,
        on_call: Callable[[Call], None],
        throttle: Throttle | None = None,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"a task needs at least 1 attempt, got {attempts}")
        if relaunches < 0:
            raise ValueError(f"relaunches of a task must be ≥ 0, got {relaunches}")
        if deadline is not None and not deadline > 0:
            raise ValueError(f"the deadline of an attempt must be > 0 seconds or None, got {deadline}")
        self._backend, self._clock, self.limit = backend, clock, limit
        self.hedging, self._relaunches = hedging, relaunches
        self._attempts, self._deadline = attempts, deadline
        self._on_call = on_call
        self._backoff = Backoff(Throttle() if throttle is None else throttle, limit, clock)
        self.relaunched = 0
        self._live: dict[Attempt, None] = {}
        self._held = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._late: dict[int, Watch[Attempt]] = {}  # by stage
        self._overdue: Watch[Attempt] | None = None
        if deadline is not None:
            self._overdue = Watch(
                clock, "deadlines of tensor tasks", seconds=lambda: deadline, due=self._deadline_passed
            )

    async def run(self, task: TensorTask) -> TensorResult:
        """Runs a task. Cancelling gives its slots back and cancels its attempts.

        Args:
            task: what to run; its inputs are kept until the last attempt has ended.

        Returns:
            The first answer.

        Raises:
            TaskFailedError: `attempts` of them have failed, or all were throttled for too long; the text holds the last
                failure.
            Exception: whatever else an attempt raises, at once.
        """
        if self.hedging is None and self._deadline is None:
            return await self._in_place(task)
        await self.limit.acquire()
        hedged = HedgedTask(task, asyncio.get_running_loop().create_future())
        self._begin(hedged)
        try:
            outcome = await hedged.outcome
        except asyncio.CancelledError:
            self._abandon(hedged)
            raise
        if isinstance(outcome, TensorResult):
            return outcome
        raise outcome

    async def drain(self) -> None:
        """Waits until no attempt holds a slot, and gives up those that have passed their deadline.

        Nothing of this controller is then on the clock: for checkpoints, and for complete bills. Call it when no task waits
        for its answer. A backend that may never answer needs a deadline.
        """
        await self._idle.wait()
        self._backoff.release()
        calls = [attempt.call for attempt in self._live]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _in_place(self, task: TensorTask) -> TensorResult:
        """As `run`, where no attempt can be overtaken: each is awaited here, and needs no task on the clock."""
        number = failures = 0
        while True:
            await self.limit.acquire()
            self._held += 1
            self._idle.clear()
            start = self._clock.now()
            ended: Outcome = "late"
            try:
                found = await self._call(task, number)
                starved = self._note(found, task.key, number, start, beside=self._held - 1)
                ended = _outcome(found)
            finally:
                self._release()
                self._on_call(Call(task.key, number, start, self._clock.now(), ended))
            if isinstance(found, TensorResult):
                return found
            if not isinstance(found, TaskFailedError):
                raise found
            number += 1
            if found.throttled:
                if starved is not None:
                    raise starved
                continue
            failures += 1
            _report(task.key, failures, self._attempts, found)
            if failures == self._attempts:
                raise _exhausted(task.key, failures, found) from found

    # Beginnings: the callers of these have a slot, or ask for one.

    def _begin(self, hedged: HedgedTask, *, relaunch: bool = False) -> None:
        """Begins an attempt, which takes over the slot that its task has been given."""
        number, key = hedged.begun, hedged.task.key
        name = f"{_named(key)}, attempt {number}"
        call = self._clock.spawn(self._call(hedged.task, number), name=name)
        attempt = Attempt(hedged, number, self._clock.now(), call, relaunch)
        hedged.begun += 1
        hedged.relaunches += relaunch
        self.relaunched += relaunch
        hedged.live[attempt] = None
        self._live[attempt] = None
        self._held += 1
        self._idle.clear()
        call.add_done_callback(partial(self._ended, attempt))
        if self._overdue is not None:
            self._overdue.add(attempt, (*key, number, _DEADLINE))
        if self.hedging is not None and hedged.relaunches < self._relaunches:
            self._watch(self.hedging, key.stage).add(attempt, (*key, number, _RELAUNCH))

    def _ask(self, hedged: HedgedTask, *, spare: bool, relaunch: bool = False) -> None:
        """Begins an attempt as soon as it gets a slot."""
        if hedged.asking is not None:
            if spare:
                return
            hedged.give_up_asking()  # nothing holds a slot any more: it may queue
        if self.limit.try_acquire():
            self._begin(hedged, relaunch=relaunch)
        else:
            name = f"{_named(hedged.task.key)}, waiting for attempt {hedged.begun}"
            hedged.asking = self._clock.spawn(self._wait(hedged, spare=spare, relaunch=relaunch), name=name)

    async def _wait(self, hedged: HedgedTask, *, spare: bool, relaunch: bool) -> None:
        await self.limit.acquire(spare=spare)
        hedged.asking = None
        self._begin(hedged, relaunch=relaunch)

    async def _call(self, task: TensorTask, number: int) -> TensorResult | Exception:
        """The result of an attempt, or its exception: raised on a clock, that would end the run."""
        try:
            return await self._backend.run(task, number)
        except asyncio.CancelledError as error:
            call = asyncio.current_task()
            if call is None or call.cancelling():
                raise
            # Nobody asked for that, and the task must not wait for ever.
            cancelled = RuntimeError(f"{_named(task.key)} was cancelled by its backend")
            cancelled.__cause__ = error
            return cancelled
        except Exception as error:
            return error

    # Ends.

    def _ended(self, attempt: Attempt, call: asyncio.Task[TensorResult | Exception]) -> None:
        """An attempt has ended, whether anybody still waits for it or not."""
        hedged = attempt.hedged
        del self._live[attempt], hedged.live[attempt]
        if call.cancelled():  # by whoever closes the clock, or gave the task up
            self._give_back(attempt, "late")
            hedged.outcome.cancel()
            return
        outcome = call.result()
        beside = self._held - attempt.holds_slot
        starved = self._note(outcome, hedged.task.key, attempt.number, attempt.start, beside=beside)
        if isinstance(outcome, TensorResult):
            self._observe(attempt)
            self._give_back(attempt, "late" if hedged.outcome.done() else "answered")
            hedged.settle(outcome)
        elif isinstance(outcome, TaskFailedError) and outcome.throttled:
            if self._give_back(attempt, "throttled"):
                self._throttled(attempt, starved)
        elif isinstance(outcome, TaskFailedError):
            if self._give_back(attempt, "failed"):  # else it failed before, by its deadline
                self._failed(hedged, outcome)
        else:
            self._give_back(attempt, "failed")
            hedged.settle(outcome)

    def _deadline_passed(self, attempt: Attempt) -> None:
        self._give_back(attempt, "deadline")
        self._failed(attempt.hedged, TaskFailedError(f"no answer within {self._deadline:g} seconds"))

    def _failed(self, hedged: HedgedTask, error: TaskFailedError) -> None:
        """Repeats what has failed, unless it has failed too often."""
        hedged.failures += 1
        if hedged.outcome.done():
            return
        _report(hedged.task.key, hedged.failures, self._attempts, error)
        if hedged.failures < self._attempts:
            self._ask(hedged, spare=hedged.holds_slots)
        elif not hedged.holds_slots:  # else one may still answer
            exhausted = _exhausted(hedged.task.key, hedged.failures, error)
            exhausted.__cause__ = error
            hedged.settle(exhausted)

    def _note(
        self, found: TensorResult | Exception, key: TaskKey, number: int, start: float, *, beside: int
    ) -> TaskFailedError | None:
        """Tells the backoff of an attempt, before its slot is given back; returns an error if the task should fail."""
        if not (isinstance(found, TaskFailedError) and found.throttled):
            self._backoff.taken(start)
            return None
        problem = self._backoff.refused(key, start, beside, (*key, number, _RESUME))
        if problem is None:
            return None
        starved = TaskFailedError(f"{_named(key)} was not begun: {problem}; the last refusal: {found}")
        starved.__cause__ = found
        return starved

    def _throttled(self, attempt: Attempt, starved: TaskFailedError | None) -> None:
        """Repeats an attempt that did not begin, unless the task should fail."""
        hedged = attempt.hedged
        hedged.relaunches -= attempt.relaunch
        self.relaunched -= attempt.relaunch
        if starved is not None:
            hedged.settle(starved)
        elif not hedged.outcome.done():
            beside = hedged.holds_slots
            self._ask(hedged, spare=beside, relaunch=attempt.relaunch and beside)

    def _abandon(self, hedged: HedgedTask) -> None:
        """Nobody waits for the task any more. Slots are back at once, not when the attempts have noticed."""
        hedged.give_up_asking()
        for attempt in hedged.live:
            self._give_back(attempt, "late")
            attempt.call.cancel()

    def _give_back(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Gives an attempt's slot back and reports the call; False if that was done before."""
        if not attempt.holds_slot:
            return False
        attempt.holds_slot = False
        key = attempt.hedged.task.key
        if self._overdue is not None:
            self._overdue.discard(attempt)
        if (watch := self._late.get(key.stage)) is not None:
            watch.discard(attempt)
        self._release()
        self._on_call(Call(key, attempt.number, attempt.start, self._clock.now(), outcome))
        return True

    def _release(self) -> None:
        self.limit.release()
        self._held -= 1
        if not self._held:
            self._idle.set()

    # Late calls.

    def _watch(self, hedging: Hedging, stage: int) -> Watch[Attempt]:
        watch = self._late.get(stage)
        if watch is None:
            watch = self._late[stage] = Watch(
                self._clock,
                f"late calls of stage {stage}",
                seconds=partial(hedging.threshold, stage),
                due=self._relaunch,
            )
        return watch

    def _observe(self, attempt: Attempt) -> None:
        if self.hedging is None:
            return
        stage = attempt.hedged.task.key.stage
        self.hedging.observe(stage, attempt.start, self._clock.now())
        self._watch(self.hedging, stage).rouse()

    def _relaunch(self, attempt: Attempt) -> None:
        hedged = attempt.hedged
        if hedged.outcome.done() or hedged.asking is not None or hedged.relaunches == self._relaunches:
            return
        if self.hedging is None or not self.hedging.spend(hedged.task.key.stage):
            return
        _log.info("%s takes long: it is to be called again beside attempt %d", _named(hedged.task.key), attempt.number)
        self._ask(hedged, spare=True, relaunch=True)


def _outcome(found: TensorResult | Exception) -> Outcome:
    if isinstance(found, TensorResult):
        return "answered"
    return "throttled" if isinstance(found, TaskFailedError) and found.throttled else "failed"


def _named(key: TaskKey) -> str:
    return f"tensor task of stage {key.stage}, interval {key.interval}, epoch {key.epoch}, chunk {key.chunk}"


def _report(key: TaskKey, failures: int, attempts: int, error: TaskFailedError) -> None:
    _log.warning("%s has failed, %d of at most %d times: %s", _named(key), failures, attempts, error)


def _exhausted(key: TaskKey, failures: int, last: TaskFailedError) -> TaskFailedError:
    times = "once" if failures == 1 else f"{failures} times"
    return TaskFailedError(f"{_named(key)} failed {times}; the last failure: {last}")
