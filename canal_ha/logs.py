"""Structured logs, written from any thread to canal's files (logs/canal/canal.log, logs/<destination>/*.log).

    log = logs.get(__name__)
    log.info("running.claimed", destination=destination, node=node)      # the node's file
    logs.bound(destination).warning("source.lost", error=str(error))    # the destination's own file

Before `setup` is called, events follow the standard library's default configuration.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from io import TextIOWrapper
from ipaddress import ip_address
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, cast

import structlog

from canal_ha import steady_time
from canal_ha.model.excerpt import STEERING, excerpt, json_text
from canal_ha.model.position import LogPosition
from canal_ha.private_files import make_directory, opener, tighten

Log = structlog.stdlib.BoundLogger

ROTATE_BYTES = 100 * 1024 * 1024
ROTATE_FILES = 10
ROTATE_AGAIN_S = 60.0
SPARED_LINES = 10  # of an event, in SPARED_S
SPARED_S = 60.0
TAIL_BYTES = 64 * 1024
TAIL_LINES = 200
FILES_MOST = 200

NODE_NAME = "canal"  # of the node's own directory and file
OF_THE_NODE = frozenset({NODE_NAME, "audit"})  # directories that a destination of that name would share

_NODE = "canal_ha"
_DESTINATIONS = "canal_ha.destinations"
_CURSORS = "canal_ha.cursors"
_SECRET = re.compile(r"passw|secret|token", re.IGNORECASE)
_LOG_FILE = re.compile(r"\.log(\.|$)")
_PLAIN = re.compile(rf"[^\s\"\x00-\x1f{STEERING}]+")

_installed: list[tuple[logging.Logger, logging.Handler]] = []


def get(name: str) -> Log:
    """Return a logger that writes to the node's file. name: the module's name."""
    return _wrap(name if name.startswith(_NODE) else f"{_NODE}.{name}")


def bound(destination: str, **keys: object) -> Log:
    """Return a logger that writes to logs/<destination>/<destination>.log and adds `keys` to each line."""
    log: Log = _wrap(_DESTINATIONS).bind(destination=destination, **keys)
    return log


class Spared:
    """A log for events that data from outside can repeat: SPARED_LINES of an event in SPARED_S. Safe in any thread.

    The last of them has `more_lines_in_s`, and the first one after them `left_out`. Texts are cut.
    """

    def __init__(self, log: Log, clock: Callable[[], float] = steady_time.seconds) -> None:
        """Write to a log. clock: seconds that only go on."""
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._spans: dict[str, tuple[float, int]] = {}  # event -> when its span began, and its lines since

    def info(self, event: str, **keys: object) -> None:
        """Write a line."""
        self._write(self._log.info, event, keys)

    def warning(self, event: str, **keys: object) -> None:
        """Write a line."""
        self._write(self._log.warning, event, keys)

    def _write(self, write: Callable[..., object], event: str, keys: Mapping[str, object]) -> None:
        now = self._clock()
        with self._lock:
            begun, lines = self._spans.get(event, (now, 0))
            left_out = 0
            if now - begun >= SPARED_S:
                begun, left_out, lines = now, max(lines - SPARED_LINES, 0), 0
            lines += 1
            self._spans[event] = (begun, lines)
        if lines > SPARED_LINES:
            return
        shown = {key: excerpt(value) if isinstance(value, str) else value for key, value in keys.items()}
        if left_out:
            shown["left_out"] = left_out
        if lines == SPARED_LINES:
            shown["more_lines_in_s"] = round(begun + SPARED_S - now)
        write(event, **shown)


def cursor_persisted(destination: str, client_id: int, cursor: LogPosition, ip: str = "") -> None:
    """Write one line to logs/<destination>/meta.log.

    destination: name of the destination.
    client_id: the client's id.
    cursor: the cursor that was written.
    ip: address of the source, if it is known; "" if not.
    """
    logging.getLogger(_CURSORS).info(cursor_line(client_id, cursor, ip), extra={"destination": destination})


def cursor_line(client_id: int, cursor: LogPosition, ip: str = "") -> str:
    """Format a cursor as canal does: `clientId:1001 cursor:[journal,offset,ms] address[localhost/127.0.0.1:3306]`."""
    place = f"{cursor.journal},{cursor.offset},{cursor.timestamp_ms}"
    host = cursor.address
    return f"clientId:{client_id} cursor:[{place}] address[{host}/{ip or _known_ip(host)}:{cursor.port}]"


def setup(log_dir: Path, log_format: str = "text", *, console: bool = True) -> None:
    """Open the log files below log_dir and send all events there, including those of Twisted and other libraries.

    log_dir: the directory that holds canal/ and one directory for each destination.
    log_format: text or json.
    console: also write every line to standard error.
    Raises OSError if the directory cannot be written.
    """
    close()
    formatter = _formatter(_render_json if log_format == "json" else _render_text)
    lines = logging.Formatter("%(asctime)s.%(msecs)03d - %(message)s", "%Y-%m-%d %H:%M:%S")
    files = _LogFiles(log_dir, formatter)
    files.open(files.node_file)
    node = _Routed(files, lambda record: files.node_file)
    destinations = _Routed(files, files.destination_file)
    cursors = _Routed(_LogFiles(log_dir, lines), files.cursor_file)
    root, own = logging.getLogger(), logging.getLogger(_NODE)
    root.setLevel(logging.WARNING)
    own.setLevel(logging.INFO)
    _install(root, node)
    _install(logging.getLogger(_DESTINATIONS), destinations)
    _install(logging.getLogger(_CURSORS), cursors)
    if console:
        stream = logging.StreamHandler(sys.stderr)
        stream.setFormatter(formatter)
        _install(root, stream)
        _install(logging.getLogger(_DESTINATIONS), stream)
    for name in (_DESTINATIONS, _CURSORS):
        logging.getLogger(name).propagate = False
    _pipe_twisted()


def to_stderr() -> None:
    """Log to standard error, for commands: all our events, and only errors from libraries."""
    close()
    stream = logging.StreamHandler(sys.stderr)
    stream.setFormatter(_formatter(_render_text))
    stream.setLevel(logging.INFO)
    root, own = logging.getLogger(), logging.getLogger(_NODE)
    root.setLevel(logging.ERROR)
    own.setLevel(logging.INFO)
    _install(root, stream)


def files(log_dir: Path, destination: str = "") -> list[str]:
    """Return the names of log files, also of rotated ones; FILES_MOST at most. Blocks.

    log_dir: as in `setup`.
    destination: whose logs; "" for the node's own.
    """
    name = destination or NODE_NAME
    if not _is_directory_name(name):
        return []
    try:
        with os.scandir(log_dir / name) as entries:
            found = [
                each.name for each in entries if _LOG_FILE.search(each.name) and each.is_file(follow_symlinks=False)
            ]
    except (OSError, ValueError):  # a name can have a character that no directory's has
        return []
    return sorted(found)[:FILES_MOST]


def tail(log_dir: Path, destination: str = "", file_name: str = "", most: int = TAIL_LINES) -> list[str]:
    """Return the last lines of a log file, of TAIL_BYTES at most; none without a file. Blocks.

    log_dir: as in `setup`.
    destination: whose log; "" for the node's own.
    file_name: one of `files`; "" for the log itself.
    most: how many lines.
    """
    name = destination or NODE_NAME
    if not _is_directory_name(name) or (file_name and file_name not in files(log_dir, destination)):
        return []
    try:
        with open(log_dir / name / (file_name or f"{name}.log"), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
    except (FileNotFoundError, ValueError):  # a name can have a character that no file's has
        return []
    lines = text.splitlines()
    return lines[1 if size > TAIL_BYTES else 0 :][-most:]


def close() -> None:
    """Undo `setup` or `to_stderr` and close the files."""
    for logger, handler in _installed:
        logger.removeHandler(handler)
        handler.close()
    _installed.clear()
    for name in (_DESTINATIONS, _CURSORS):
        logging.getLogger(name).propagate = True


@dataclass(frozen=True, slots=True)
class LogFailure:
    """A log file cannot be written or rotated. text: why, behind its path; since: when it began, s since 1970."""

    text: str
    since: float


def failures() -> Mapping[Path, LogFailure]:
    """Return the log files that cannot be written now. What a file kept back is written as soon as there is room."""
    for handler in tuple(_failing.values()):
        handler.try_again()
    return {path: handler.failure for path, handler in tuple(_failing.items())}


def rotate(path: Path) -> None:
    """Rename a file to `.1`, and each older one to the next number, up to the first that is free. Raises OSError.

    Without a free number the oldest file is lost. If an attempt fails, the next one begins where it ended, and no more
    files are lost.
    """
    files = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, ROTATE_FILES + 1))]
    free = next((number for number, file in enumerate(files) if number and not file.exists()), ROTATE_FILES)
    for number in range(free - 1, -1, -1):
        with suppress(FileNotFoundError):
            files[number].replace(files[number + 1])


class _LogFile(RotatingFileHandler):
    """A file that only the node's user reads, and that says whether it can be written and rotated.

    Lines that do not reach it are on standard error. A file that cannot be rotated grows.
    """

    failure = LogFailure("", 0.0)  # the last one
    _failed = False  # whether the record that is being written failed
    _rotate_at = 0.0  # after a rotation that failed: steady seconds of the next attempt

    def emit(self, record: logging.LogRecord) -> None:
        self._failed = False
        super().emit(record)
        if not self._failed:
            self._works()

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        """Return whether the record belongs in a new file. Python's own makes five system calls for that."""
        if self.stream is None:
            self.stream = self._open()
        return os.fstat(self.stream.fileno()).st_size >= self.maxBytes and steady_time.seconds() >= self._rotate_at

    def doRollover(self) -> None:
        """Begin a new file. If that fails, go on with this one for ROTATE_AGAIN_S."""
        try:
            if self.stream:
                self.stream.close()
            rotate(Path(self.baseFilename))
            self._rotate_at = 0.0
        except OSError as error:
            if not self._rotate_at:
                self._fail(f"cannot be rotated, and grows: {error}")
            self._rotate_at = steady_time.seconds() + ROTATE_AGAIN_S
        self.stream = None  # it is closed, and the next record opens it again

    def handleError(self, record: logging.LogRecord) -> None:
        self._failed = True
        if Path(self.baseFilename) not in _failing:
            self._fail(f"cannot be written: {sys.exc_info()[1]}; make room")
            super().handleError(record)

    def _fail(self, text: str) -> None:
        self.failure = LogFailure(text, time.time())
        _failing[Path(self.baseFilename)] = self

    def _works(self) -> None:
        if _failing and not self._rotate_at:
            _failing.pop(Path(self.baseFilename), None)

    def try_again(self) -> None:
        """Write what was kept back."""
        with suppress(OSError):
            self.flush()
            self._works()

    def close(self) -> None:
        _failing.pop(Path(self.baseFilename), None)
        super().close()

    def _open(self) -> TextIOWrapper:
        return cast(
            TextIOWrapper,
            open(self.baseFilename, self.mode, encoding=self.encoding, errors=self.errors, opener=opener),
        )


_failing: dict[Path, _LogFile] = {}


class _LogFiles:
    """The open log files of one format. A destination named `canal` shares the node's file."""

    def __init__(self, log_dir: Path, formatter: logging.Formatter) -> None:
        self._log_dir = log_dir
        self._formatter = formatter
        self._handlers: dict[Path, logging.Handler] = {}
        self.node_file = log_dir / NODE_NAME / f"{NODE_NAME}.log"

    def open(self, path: Path) -> logging.Handler:
        handler = self._handlers.get(path)
        if handler is None:
            make_directory(path.parent)
            for rotated in path.parent.glob(f"{glob.escape(path.name)}.*"):
                tighten(rotated)
            handler = _LogFile(path, maxBytes=ROTATE_BYTES, backupCount=ROTATE_FILES, encoding="utf-8")
            handler.setFormatter(self._formatter)
            self._handlers[path] = handler
        return handler

    def close(self) -> None:
        for handler in self._handlers.values():
            handler.close()
        self._handlers.clear()

    def destination_file(self, record: logging.LogRecord) -> Path:
        name = str(record.msg.get("destination", "")) if isinstance(record.msg, Mapping) else ""
        return self._log_dir / name / f"{name}.log" if _is_directory_name(name) else self.node_file

    def cursor_file(self, record: logging.LogRecord) -> Path:
        name = str(record.__dict__["destination"])
        return self._log_dir / name / "meta.log" if _is_directory_name(name) else self._log_dir / NODE_NAME / "meta.log"


class _Routed(logging.Handler):
    """Writes each record to the file that its path function selects; opens the file at its first record."""

    def __init__(self, files: _LogFiles, path: Callable[[logging.LogRecord], Path]) -> None:
        super().__init__()
        self._files = files
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._files.open(self._path(record)).handle(record)
        except OSError:  # a full or missing disk must not stop replication; the error goes to standard error
            self.handleError(record)

    def close(self) -> None:
        self._files.close()
        super().close()


def _is_directory_name(name: str) -> bool:
    return bool(name) and "/" not in name and name not in (".", "..")


@lru_cache(1024)
def _known_ip(host: str) -> str:
    """Return what Java prints after the slash. Names are not resolved, because a lookup can block."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        return str(ip_address(host))
    except ValueError:
        return "<unresolved>"


def _install(logger: logging.Logger, handler: logging.Handler) -> None:
    logger.addHandler(handler)
    _installed.append((logger, handler))


@cache
def _pipe_twisted() -> None:
    """Send Twisted's events and Python's warnings to the node's file, once per process.

    The import is inside the function because clients use this module without Twisted.
    """
    from twisted.logger import STDLibLogObserver, globalLogBeginner

    observer = STDLibLogObserver("twisted")
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False)  # type: ignore[list-item] # zope interface


# ---- from event to line


def _redact(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in event:
        if _SECRET.search(key):
            event[key] = "***"
    return event


_PROCESSORS = (structlog.stdlib.filter_by_level, _redact, structlog.stdlib.ProcessorFormatter.wrap_for_formatter)


def _wrap(name: str) -> Log:
    log: Log = structlog.wrap_logger(
        logging.getLogger(name), processors=_PROCESSORS, wrapper_class=structlog.stdlib.BoundLogger
    )
    return log


def _formatter(render: Callable[[object, str, MutableMapping[str, Any]], str]) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(processors=[structlog.processors.format_exc_info, render])


def _split(event: MutableMapping[str, Any]) -> tuple[logging.LogRecord, str, str, dict[str, Any]]:
    """Return the record, the event's name, the traceback or "", and the event's keys."""
    fields = {key: value for key, value in event.items() if key not in ("_record", "_from_structlog")}
    return event["_record"], str(fields.pop("event", "")), str(fields.pop("exception", "")), fields


def _render_text(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    """Render canal's line: `2017-10-11 14:06:04.589 [thread] INFO  logger - event key=value`. Tracebacks add lines."""
    record, name, exception, fields = _split(event)
    moment = datetime.fromtimestamp(record.created).strftime("%Y-%m-%d %H:%M:%S")
    words = [name.replace("\n", " "), *(f"{key}={_quoted(value)}" for key, value in fields.items())]
    level = "WARN" if record.levelno == logging.WARNING else record.levelname
    head = f"{moment}.{int(record.msecs):03d} [{record.threadName}] {level:<5} {record.name} - "
    return head + " ".join(words) + ("\n" + exception if exception else "")


def _quoted(value: object) -> str:
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return json_text(text)


def _render_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    """Render one JSON object a line; the time includes the zone."""
    record, name, exception, fields = _split(event)
    line = {
        "time": datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "thread": record.threadName,
        "event": name,
        **fields,
    }
    if exception:
        line["exception"] = exception
    return json_text(line)
