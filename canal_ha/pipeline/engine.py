"""PipelineEngine: runs a pipeline in this process, with a Flow for each destination.

If its file changes, or at SIGHUP, the engine reads it again. What can be taken over is checked first; then all flows
end behind the commits that run, and begin again with the new description, as after a start of the process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from canal_ha import logs
from canal_ha.errors import CanalError, OptionInvalid, TargetUnavailable
from canal_ha.pipeline import options as source_options
from canal_ha.pipeline.access import WAIT_S, SourceAccess, filter_of
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.destinations import resolve
from canal_ha.pipeline.flow import Flow, FlowState
from canal_ha.pipeline.options import SourceOptions
from canal_ha.pipeline.reload import FileWatch, keep, note_of, refusals
from canal_ha.pipeline.run_note import RunNotes
from canal_ha.pipeline.targets import open_target
from canal_ha.pipeline.targets.target import PipelineTarget, wants_exact

SHOW_S = 1.0

log = logs.Spared(logs.get(__name__))


class PipelineEngine:
    """Runs one pipeline; run() once, stop() from any thread or signal handler."""

    def __init__(
        self,
        description: Description,
        target: PipelineTarget | None = None,
        reread: Callable[[], Description] | None = None,
    ) -> None:
        """Check the source's options; nothing is opened yet.

        description: what to run.
        target: None opens the described one.
        reread: reads the file again after a change; None leaves changes alone. Raises OptionInvalid.
        Raises OptionInvalid.
        """
        self._description = description
        self._options = _parsed(description)
        self._target = target
        self._reread = reread
        self._flows: list[Flow] = []
        self._wake = threading.Event()
        self._stopping = False
        self._asked = False  # to read the file again
        self._file_note: bytes | None = None  # waits until this process is in charge: another one may be active

    @property
    def states(self) -> list[FlowState]:
        """The state of each destination now."""
        return [flow.state for flow in self._flows]

    def run(self, *, once: bool = False, show: Callable[[list[FlowState]], None] = lambda states: None) -> None:
        """Run until stop(), SIGTERM or SIGINT.

        once: end when the target has everything up to the end that the source's binlog had at the start. The file is
            not read again.
        show: called about once a second.
        Raises the first error that a person has to mend; the flows of all destinations end with it.
        """
        if once:
            self._reread = None
        watch = FileWatch(self._description.file)
        notes = RunNotes(self._description.state)

        def tell(states: list[FlowState]) -> None:
            self._written(lambda: notes.tell(states))
            self._keep_file_note(states)
            show(states)

        try:
            self._run_until_end(watch, once=once, show=tell)
        except CanalError as error:
            ended = str(error)
            self._written(lambda: notes.end(ended))
            raise
        self._written(lambda: notes.end(""))

    def _run_until_end(self, watch: FileWatch, *, once: bool, show: Callable[[list[FlowState]], None]) -> None:
        """Run with one description after the other. See run."""
        following: PipelineTarget | None = self._target or open_target(self._description)
        with _signalled(self.stop, self.reload if self._reread is not None else None):
            while following is not None:
                target = following
                try:
                    with suppress(TargetUnavailable):  # each flow waits for it
                        target.check()
                    if self._reread is not None:
                        self._note("")
                    following = self._run(target, watch, once=once, show=show)
                finally:
                    target.close()

    def stop(self) -> None:
        """End all flows after the commits that run; run() returns then."""
        self._stopping = True
        self._end()

    def reload(self) -> None:
        """Make run() read the pipeline's file again, soon."""
        self._asked = True
        self._wake.set()

    def _end(self) -> None:
        for flow in self._flows:
            flow.stop()
        self._wake.set()

    def _run(
        self, target: PipelineTarget, watch: FileWatch, *, once: bool, show: Callable[[list[FlowState]], None]
    ) -> PipelineTarget | None:
        """Run until the end, or until the file has changed; return the target to go on with then."""
        filter = filter_of(self._description, self._options)
        self._flows = [
            Flow(
                self._description,
                self._options,
                SourceAccess(name, self._options, filter, exact=wants_exact(target)),
                target,
                once=once,
                ended=self._wake.set,
            )
            for name in resolve(self._options)
        ]
        for flow in self._flows:
            flow.start()
        following: PipelineTarget | None = None
        while not self._stopping and following is None and any(flow.running for flow in self._flows):
            self._wake.wait(SHOW_S)
            self._wake.clear()
            if any(flow.error is not None for flow in self._flows):
                break
            show(self.states)
            if self._reread is not None and (watch.changed() or self._asked):
                following = self._changed(self._reread)
        self._end()
        for flow in self._flows:
            flow.join()
            while following is not None and flow.running and not self._stopping:  # its client id is not free before
                flow.join()
        show(self.states)
        error = next((flow.error for flow in self._flows if flow.error is not None), None)
        if following is not None and (self._stopping or error is not None):
            following.close()
        if error is not None:
            raise error
        return None if self._stopping else following

    def _changed(self, reread: Callable[[], Description]) -> PipelineTarget | None:
        """Read the file; return the target to go on with, or None to go on as before."""
        asked, self._asked = self._asked, False
        target: PipelineTarget | None = None
        try:
            new = reread()
            options = _parsed(new)
            if not asked and (new, options) == (self._description, self._options):
                self._note("")
                return None
            refused = refusals(self._description, new)
            wrong = [f"{new.file}:{new.line(each.place)}: {each.named} has changed: {each.why}" for each in refused]
            if wrong:
                raise OptionInvalid("\n".join(wrong))
            target = open_target(new)
            target.check()
            if options != self._options:
                for name in resolve(options):
                    SourceAccess(name, options, filter_of(new, options)).end(WAIT_S)
        except CanalError as error:
            if target is not None:
                target.close()
            log.warning("pipeline.file_refused", file=self._description.file, error=str(error))
            self._note(str(error))
            return None
        log.info("pipeline.file_taken_over", file=new.file)
        self._description, self._options = new, options
        self._note("")
        return target

    def _note(self, problem: str) -> None:
        self._file_note = note_of(self._description, problem)

    def _keep_file_note(self, states: list[FlowState]) -> None:
        note = self._file_note
        if note is not None and any(state.in_charge for state in states):
            self._file_note = None
            self._written(lambda: keep(self._description.state, note))

    def _written(self, write: Callable[[], None]) -> None:
        """Write a note for `canal-ha pipeline status`. The pipeline goes on without it."""
        try:
            write()
        except OSError as error:
            log.warning("pipeline.note_not_written", state=self._description.state, error=str(error))


def _parsed(description: Description) -> SourceOptions:
    options = source_options.parse(description.source)
    if options.starting or options.ending:
        raise OptionInvalid(
            f"{description.file}: source: startingOffsets and endingOffsets belong to spark.read; set the cursor of"
            " the client id with `canal-ha cursor set` instead"
        )
    return options


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


@contextmanager
def _signalled(stop: Callable[[], None], reload: Callable[[], None] | None) -> Iterator[None]:
    """Call `stop` on SIGTERM and SIGINT within the block, and `reload` on SIGHUP; on threads that may take locks.

    A terminal that is closed sends SIGHUP, too: then it is `stop`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    had_terminal = _has_terminal()

    def hung_up() -> None:
        (stop if reload is None or (had_terminal and not _has_terminal()) else reload)()

    calls = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: hung_up}

    def handle(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=calls[signal.Signals(number)], name="signalled", daemon=True).start()

    before = {number: signal.signal(number, handle) for number in calls}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
