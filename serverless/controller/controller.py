"""Controller of tensor tasks: retries failed calls, hedges late ones, and returns one result per task.

`slot_limit` limits the concurrent calls. `hedging` detects late calls and tracks the attempts of a task. `throttle` reacts
to refusals. The backend chooses the machines.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import final

from dorylax.clock import Clock
from dorylax.net.errors import TaskFailedError
from dorylax.serverless.backends.base import Backend
from dorylax.serverless.controller.backoff import Backoff
from dorylax.serverless.controller.call import Call, Outcome
from dorylax.serverless.controller.hedging import Attempt, HedgedTask, Hedging
from dorylax.serverless.controller.slot_limit import SlotLimit
from dorylax.serverless.controller.throttle import Throttle
from dorylax.serverless.controller.watch import Watch
from dorylax.serverless.task import TaskKey, TensorResult, TensorTask

_log = logging.getLogger("dorylax.controller")

# Order of events at the same virtual time: results, deadlines, relaunches, ends of pauses. Each number extends the order
# tuple of the attempt.
_DEADLINE, _RELAUNCH, _RESUME = 1, 2, 3


@final
class Controller:
    """Runs the tensor tasks of a graph server.

    Each attempt holds a slot until it returns, fails, or exceeds its deadline.

    - The first result completes the task. Other attempts continue in the background, keep their slots, and are billed;
      the controller drops their results.
    - A failed attempt is retried until `attempts` of them have failed.
    - An attempt that exceeds its deadline counts as failed and releases its slot. Its result still counts if it is the
      first; the call has been reported by then.
    - A throttled attempt does not count as failed, and its task queues again. The controller pauses, then resumes with
      fewer concurrent attempts and raises their number while calls succeed. The task fails after `Throttle.patience`
      seconds of refusals only.
    - If the newest attempt is late (`Hedging`), the controller starts a second one with the same inputs and weights.

    A task never waits for a slot while it holds one, which rules out deadlock. If all its attempts have failed, it joins
    the main queue. A hedged request or a retry alongside a running attempt only uses spare slots.

    Closing the clock cancels background attempts; `drain` waits for them.

    Args:
        backend: Backend that runs the attempts.
        clock: Clock of the run.
        limit: Limit of concurrent attempts. Callers may change its slots at any time; only the controller sets its cap.
        hedging: Detector of late attempts, used by this controller only, or None to disable hedging.
        relaunches: Maximum number of hedged requests per task, in addition to retries.
        attempts: Number of failed attempts after which a task fails, ≥ 1.
        deadline: Time limit per attempt in seconds (> 0), or None for no limit.
        on_call: Callback for each attempt, invoked when its slot is released.
        throttle: Policy for throttled attempts, or None for a default `Throttle`.

    Attributes:
        relaunched: Number of hedged requests that have started, without throttled ones.

    Raises:
        ValueError: If a number is out of range.
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
        """Run a task. Cancelling the call releases its slots and cancels its attempts.

        Args:
            task: Task to run. Its inputs stay in memory until the last attempt ends.

        Returns:
            Result of the first successful attempt.

        Raises:
            TaskFailedError: If `attempts` attempts fail, or all are throttled for too long. The text includes the last
                failure.
            Exception: Any other exception of an attempt, without a retry.
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
        """Wait until no attempt holds a slot, and cancel attempts that have exceeded their deadline.

        Afterwards the clock runs no tasks of this controller, as checkpoints and complete bills require. Call it when no
        task is pending. Set a deadline if calls of the backend may hang.
        """
        await self._idle.wait()
        self._backoff.release()
        calls = [attempt.call for attempt in self._live]
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    async def _in_place(self, task: TensorTask) -> TensorResult:
        """Run a task without hedging and deadlines: await each attempt directly instead of spawning it on the clock."""
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
            if found.reason == "throttled":
                if starved is not None:
                    raise starved
                continue
            failures += 1
            _report(task.key, failures, self._attempts, found)
            if failures == self._attempts:
                raise _exhausted(task.key, failures, found) from found

    # Starting attempts.

    def _begin(self, hedged: HedgedTask, *, relaunch: bool = False) -> None:
        """Start an attempt, which takes over the slot acquired by its task."""
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
        """Start an attempt as soon as a slot is available."""
        if hedged.asking is not None:
            if spare:
                return
            hedged.give_up_asking()  # the task holds no slots, so it may join the main queue
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
        """Return the result of an attempt, or its exception, since an exception raised on the clock would end the run."""
        try:
            return await self._backend.run(task, number)
        except asyncio.CancelledError as error:
            call = asyncio.current_task()
            if call is None or call.cancelling():
                raise
            # The backend cancelled itself. Report an error, or the task would wait forever.
            cancelled = RuntimeError(f"{_named(task.key)} was cancelled by its backend")
            cancelled.__cause__ = error
            return cancelled
        except Exception as error:
            return error

    # Completing attempts.

    def _ended(self, attempt: Attempt, call: asyncio.Task[TensorResult | Exception]) -> None:
        """Process the end of an attempt, including cancelled and overtaken ones."""
        hedged = attempt.hedged
        del self._live[attempt], hedged.live[attempt]
        if call.cancelled():  # the clock has closed, or the task was cancelled
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
        elif isinstance(outcome, TaskFailedError) and outcome.reason == "throttled":
            if self._give_back(attempt, "throttled"):
                self._throttled(attempt, starved)
        elif isinstance(outcome, TaskFailedError):
            if self._give_back(attempt, "failed"):  # False if the deadline has already counted as a failure
                self._failed(hedged, outcome)
        else:
            self._give_back(attempt, "failed")
            hedged.settle(outcome)

    def _deadline_passed(self, attempt: Attempt) -> None:
        self._give_back(attempt, "deadline")
        self._failed(attempt.hedged, TaskFailedError(f"no answer within {self._deadline:g} seconds"))

    def _failed(self, hedged: HedgedTask, error: TaskFailedError) -> None:
        """Retry a failed task, or fail it after too many attempts."""
        hedged.failures += 1
        if hedged.outcome.done():
            return
        _report(hedged.task.key, hedged.failures, self._attempts, error)
        if hedged.failures < self._attempts:
            self._ask(hedged, spare=hedged.holds_slots)
        elif not hedged.holds_slots:  # otherwise a running attempt may still succeed
            exhausted = _exhausted(hedged.task.key, hedged.failures, error)
            exhausted.__cause__ = error
            hedged.settle(exhausted)

    def _note(
        self, found: TensorResult | Exception, key: TaskKey, number: int, start: float, *, beside: int
    ) -> TaskFailedError | None:
        """Report an attempt to the backoff before releasing its slot. Returns an error if the task should fail."""
        if not (isinstance(found, TaskFailedError) and found.reason == "throttled"):
            self._backoff.taken(start)
            return None
        problem = self._backoff.refused(key, start, beside, (*key, number, _RESUME))
        if problem is None:
            return None
        starved = TaskFailedError(f"{_named(key)} was not begun: {problem}; the last refusal: {found}")
        starved.__cause__ = found
        return starved

    def _throttled(self, attempt: Attempt, starved: TaskFailedError | None) -> None:
        """Queue a throttled attempt again, or fail the task with `starved`."""
        hedged = attempt.hedged
        hedged.relaunches -= attempt.relaunch
        self.relaunched -= attempt.relaunch
        if starved is not None:
            hedged.settle(starved)
        elif not hedged.outcome.done():
            beside = hedged.holds_slots
            self._ask(hedged, spare=beside, relaunch=attempt.relaunch and beside)

    def _abandon(self, hedged: HedgedTask) -> None:
        """Cancel a task's attempts, and release their slots immediately rather than after the cancellations."""
        hedged.give_up_asking()
        for attempt in hedged.live:
            self._give_back(attempt, "late")
            attempt.call.cancel()

    def _give_back(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Release an attempt's slot and report the call. Returns False if the slot was already released."""
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

    # Hedging late calls.

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
    return "throttled" if isinstance(found, TaskFailedError) and found.reason == "throttled" else "failed"


def _named(key: TaskKey) -> str:
    return f"tensor task of stage {key.stage}, interval {key.interval}, epoch {key.epoch}, chunk {key.chunk}"


def _report(key: TaskKey, failures: int, attempts: int, error: TaskFailedError) -> None:
    _log.warning("%s has failed, %d of at most %d times: %s", _named(key), failures, attempts, error)


def _exhausted(key: TaskKey, failures: int, last: TaskFailedError) -> TaskFailedError:
    times = "once" if failures == 1 else f"{failures} times"
    return TaskFailedError(f"{_named(key)} failed {times}; the last failure: {last}")
