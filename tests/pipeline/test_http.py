"""The HTTP target against a real server that fails, stalls and closes, and against SIGKILL of the sender."""

from __future__ import annotations

import hmac
import json
import os
import random
import re
import signal
import ssl
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from canal_ha.client.rows import rows_of
from canal_ha.errors import SinkRefused, TargetUnavailable
from canal_ha.model.signature import secret_of
from canal_ha.pipeline import targets
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.targets.http import HttpTarget, open_target
from canal_ha.pipeline.webhooks import asked_pause, own_pause
from lab.certificates import Authority
from lab.ports import LOOPBACK, free_port
from tests.pipeline.given import RUN, described, portion
from tests.pipeline.raw_http import answering
from tests.pipeline.receiver import PATH, Answer, Receiver
from tests.pipeline.sender import transaction
from tests.spark.entries import begin, ddl, end, insert, rows

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "receive-rows-over-http.md"
SCHEMA = json.loads((Path(targets.__file__).parent / "http.schema.json").read_text())


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


def opened(receiver: Receiver, state: Path, **options: Any) -> HttpTarget:
    """Return the target of these options, which the schema allows."""
    given = {"url": receiver.url, "timeoutS": 2, "retryForS": 10, **options}
    Draft202012Validator(SCHEMA).validate(given)
    return begun(open_target(described("http", "events", state, given)))


def begun(target: HttpTarget, destination: str = "d") -> HttpTarget:
    """Return a target in which the run has begun, as a flow begins it."""
    if target.progress(destination) is None:
        target.commit(portion(0, 0, [], destination=destination))
    return target


def of_rows(seq: int, first: int, count: int, **more: Any) -> Portion:
    """Return a commit of the transactions with these numbers."""
    entries = [entry for number in range(first, first + count) for entry in transaction(number)]
    return portion(seq, (first + count - 1) * 10 + 2, entries, **more)


def lines(entries: list[bytes]) -> list[str]:
    """Return the rows of entries as they are sent."""
    return [row.to_json() for row in rows_of(entries)]


def expected(count: int) -> list[str]:
    """Return the lines of the first transactions."""
    return lines([entry for number in range(1, count + 1) for entry in transaction(number)])


def documented() -> dict[str, Any]:
    """Return the functions that the guide gives to receivers."""
    [code] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    return found


def test_every_row_and_statement_is_sent_in_order(receiver: Receiver, tmp_path: Path) -> None:
    """Inserts, updates with both images, deletes and statements come as the lines of Row.to_json."""
    entries = [
        begin(4),
        insert(5, 1, "ä\n\u2028"),
        rows(6, "UPDATE", [({"id": "1", "name": "a"}, {"id": "1", "name": None})]),
        rows(7, "DELETE", [({"id": "1", "name": None}, None)]),
        end(8),
        ddl(9, "ALTER TABLE t ADD c INT"),
    ]
    target = opened(receiver, tmp_path)
    assert target.progress("d") == portion(0, 0, []).progress
    given = portion(1, 9, entries)
    target.commit(given)
    [request] = receiver.stored
    assert request.body.decode().split("\n")[:-1] == lines(entries)
    assert [json.loads(line)["type"] for line in lines(entries)] == ["INSERT", "UPDATE", "DELETE", "ALTER"]
    assert request.path == PATH
    assert request.headers["content-type"] == "application/x-ndjson"
    assert target.progress("d") == given.progress
    assert target.progress("another") is None


def test_requests_have_bounded_rows_and_bytes_and_keys_that_number_the_rows(receiver: Receiver, tmp_path: Path) -> None:
    """A request has at most batchRows rows and batchBytes bytes; only a single row may be larger."""
    target = opened(receiver, tmp_path, batchRows=4, batchBytes=1024, format="array")
    target.commit(of_rows(1, 1, 10))
    big = insert(201, 20, "x" * 5000)
    target.commit(portion(2, 202, [begin(200), insert(200, 19), big, insert(202, 21), end(202)]))
    assert [len(request.lines) for request in receiver.stored] == [4, 4, 2, 1, 1, 1]
    assert all(len(request.body) <= 1024 for request in receiver.stored if b"xxx" not in request.body)
    assert [request.key.split(".")[:2] for request in receiver.stored] == [
        [RUN, str(first)] for first in (0, 4, 8, 10, 11, 12)
    ]
    assert receiver.rows()[:10] == expected(10)
    assert receiver.connections == 1


def test_a_commit_without_rows_sends_nothing_and_moves_the_progress(receiver: Receiver, tmp_path: Path) -> None:
    """Transactions of other tables move the progress."""
    target = opened(receiver, tmp_path)
    given = of_rows(1, 1, 3, takes=lambda schema, table: False)
    target.commit(given)
    assert receiver.requests == []
    assert target.progress("d") == given.progress


def test_the_signature_is_over_key_timestamp_and_body(receiver: Receiver, tmp_path: Path) -> None:
    """A receiver with the secret computes the same signature. A new secret in the file counts at once."""
    secret = tmp_path / "secret"
    target = None
    secrets = ((" correct horse\n", b"correct horse"), (f"whsec_{b64encode(bytes(24)).decode()}", bytes(24)))
    for seq, (text, raw) in enumerate(secrets, 1):
        secret.write_text(text)
        target = target or opened(receiver, tmp_path, secretFile=str(secret))
        target.commit(of_rows(seq, seq, 1))
        request = receiver.stored[-1]
        stamp = request.headers["webhook-timestamp"]
        assert abs(time.time() - int(stamp)) < 60
        signed = f"{request.headers['webhook-id']}.{stamp}.".encode() + request.body
        version, _, code = request.headers["webhook-signature"].partition(",")
        assert version == "v1"
        assert b64decode(code) == hmac.digest(raw, signed, "sha256")
        assert request.headers["webhook-id"] == request.key
        assert documented()["verified"](raw, dict(request.headers), request.body)
        assert not documented()["verified"](raw, dict(request.headers), request.body + b" ")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
def test_an_answer_that_asks_to_come_again_repeats_the_same_request(
    receiver: Receiver, tmp_path: Path, status: int
) -> None:
    """The repeated request has the same key and body, and comes before any later row."""
    receiver.script += [Answer(status), Answer(status)]
    target = opened(receiver, tmp_path, batchRows=5)
    target.commit(of_rows(1, 1, 10))
    first, second, third, rest = receiver.requests
    assert (first.key, first.body) == (second.key, second.body) == (third.key, third.body)
    assert rest.key != first.key
    assert receiver.rows() == expected(10)


def test_a_process_that_was_overtaken_sends_nothing_and_keeps_the_progress(receiver: Receiver, tmp_path: Path) -> None:
    """Another process has gone on, before this one sends or while it does."""
    slow, other = opened(receiver, tmp_path), opened(receiver, tmp_path)
    other.commit(of_rows(1, 1, 2))
    slow.commit(of_rows(1, 1, 2))
    other.commit(of_rows(2, 3, 2))
    assert len(receiver.requests) == 2, "a commit that the target has is not sent again"
    with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
        slow.commit(of_rows(2, 3, 3))
    assert len(receiver.requests) == 2

    receiver.script.append(Answer(stores=True, delay_s=1))
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(slow.commit, of_rows(3, 5, 1))
        while len(receiver.requests) < 3:
            time.sleep(0.01)
        other.commit(of_rows(3, 5, 1))
        other.commit(of_rows(4, 6, 1))
        with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
            late.result()
    assert other.progress("d") == of_rows(4, 6, 1).progress


def test_retry_after_is_honoured(receiver: Receiver, tmp_path: Path) -> None:
    """Nothing is sent before the time that the receiver named."""
    receiver.script.append(Answer(429, {"retry-after": "1"}))
    opened(receiver, tmp_path).commit(of_rows(1, 1, 1))
    early, late = receiver.requests
    assert late.at - early.at >= 0.99


def test_a_long_retry_after_ends_the_commit_and_binds_the_next_one(receiver: Receiver, tmp_path: Path) -> None:
    """The engine's next try does not bother a receiver that asked for an hour."""
    receiver.script.append(Answer(503, {"retry-after": "3600"}, b"maintenance"))
    target = opened(receiver, tmp_path)
    for _ in range(2):
        with pytest.raises(TargetUnavailable, match=r"to be tried again in 3\d\d\d\.\d s: "):
            target.commit(of_rows(1, 1, 1))
    assert len(receiver.requests) == 1
    assert target.progress("d") == portion(0, 0, []).progress


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 409, 413, 422])
def test_a_refusal_stops_at_once_with_the_answer(receiver: Receiver, tmp_path: Path, status: int) -> None:
    """The error has the first 200 characters, without characters that steer a terminal. Redirects are not followed."""
    elsewhere = {"location": receiver.url.replace("rows", "elsewhere")}
    receiver.script.append(Answer(status, elsewhere, b"\x1b[2J no column amount " + b"x" * 1000))
    target = opened(receiver, tmp_path)
    with pytest.raises(SinkRefused, match=f"rows 0 to 1 of run {RUN}; it answered {status} ") as error:
        target.commit(of_rows(1, 1, 2))
    assert "\\x1b[2J no column amount xxx" in str(error.value)
    assert str(error.value).count("x") < 210
    assert "tenant" not in str(error.value)
    assert [request.path for request in receiver.requests] == [PATH]
    assert target.progress("d") == portion(0, 0, []).progress


def test_an_answer_before_the_body_is_read_is_understood(receiver: Receiver, tmp_path: Path) -> None:
    """A receiver that refuses a large body and closes is not taken for one that is away."""
    receiver.script.append(Answer(413, body=b"too large", early=True, delay_s=0.1))
    target = opened(receiver, tmp_path, batchBytes=1 << 26, batchRows=100_000, retryForS=0)
    with pytest.raises(SinkRefused, match=f"413 {HTTPStatus(413).phrase}: too large"):
        target.commit(portion(1, 9, [insert(5, 1, "x" * 30_000_000)]))


@pytest.mark.parametrize(
    "answer",
    [
        Answer(0),
        Answer(0, stores=True),
        Answer(delay_s=1.5),
        Answer(delay_s=1.5, stores=True),
        Answer(dribble=True, stores=True),
    ],
    ids=["closed", "stored and closed", "stalled", "stored and stalled", "dribbled"],
)
def test_a_receiver_that_closes_or_stalls_gets_the_rows_again(
    receiver: Receiver, tmp_path: Path, answer: Answer
) -> None:
    """Every row arrives, and rows that were stored before the failure come again with the same key."""
    receiver.script += [Answer(stores=True), answer]
    target = opened(receiver, tmp_path, batchRows=5, timeoutS=0.5)
    target.commit(of_rows(1, 1, 15))
    assert receiver.distinct() == expected(15)
    keys = [request.key for request in receiver.stored]
    assert len(keys) == 3 + answer.stores
    assert len(set(keys)) == 3


def test_a_long_status_line_filled_logs_and_the_note_of_the_pipeline(tmp_path: Path) -> None:
    """It can have 64 KiB."""
    with answering([b"HTTP/1.1 400 " + b"x" * 60_000 + b"\r\ncontent-length: 4\r\n\r\nbody"]) as url:
        target = begun(open_target(described("http", "events", tmp_path, {"url": url, "retryForS": 0})))
        with pytest.raises(SinkRefused, match=r"it answered 400 x{200}: body$"):
            target.commit(of_rows(1, 1, 1))
        target.close()


@pytest.mark.parametrize("size", [b"-1", b"-5"])
def test_an_answer_with_a_negative_chunk_took_all_memory_or_ended_the_pipeline(tmp_path: Path, size: bytes) -> None:
    """-1 meant everything that comes, and -5 was an unknown error. Only the beginning of a body is read."""
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b"HTTP/1.1 400 Wrong\r\ntransfer-encoding: chunked\r\n\r\n" + size + b"\r\n"
        while True:
            yield b"x" * (1 << 16)
            sent += 1 << 16

    with answering(endless()) as url:
        target = begun(open_target(described("http", "events", tmp_path, {"url": url, "timeoutS": 2, "retryForS": 0})))
        with pytest.raises(SinkRefused, match="400 Wrong: xxx"):
            target.commit(of_rows(1, 1, 1))
        target.close()
    assert sent < 32 << 20


def test_a_connection_that_the_receiver_closed_while_idle_is_replaced(receiver: Receiver, tmp_path: Path) -> None:
    """The next commit uses a new connection without a failure."""
    target = opened(receiver, tmp_path, retryForS=0)
    receiver.script.append(Answer(stores=True, headers={"connection": "close"}))
    target.commit(of_rows(1, 1, 1))
    target.commit(of_rows(2, 2, 1))
    assert receiver.rows() == expected(2)
    assert receiver.connections == 2


def test_a_failed_commit_that_is_tried_again_leaves_out_what_was_accepted(receiver: Receiver, tmp_path: Path) -> None:
    """Only requests without a good answer are repeated, although the second commit has more rows."""
    target = opened(receiver, tmp_path, batchRows=4, retryForS=0)
    receiver.script += [Answer(stores=True), Answer(503, body=b"busy")]
    with pytest.raises(TargetUnavailable, match="503 Service Unavailable: busy"):
        target.commit(of_rows(1, 1, 6))
    target.commit(of_rows(1, 1, 9))
    assert [request.lines for request in receiver.stored] == [expected(9)[:4], expected(9)[4:8], expected(9)[8:]]
    assert target.progress("d") == of_rows(1, 1, 9).progress


def test_nobody_listens(tmp_path: Path) -> None:
    """The check ended a pipeline that was started while its receiver was down. A commit waited for it."""
    url = f"http://{LOOPBACK}:{free_port()}/"
    target = begun(open_target(described("http", "events", tmp_path, {"url": url, "retryForS": 0.1})))
    with pytest.raises(TargetUnavailable, match="ConnectionRefusedError"):
        target.check()
    with pytest.raises(TargetUnavailable, match="ConnectionRefusedError"):
        target.commit(of_rows(1, 1, 1))


def test_a_silent_receiver_was_called_one_that_closes_its_connections(tmp_path: Path) -> None:
    """The connection was closed here, when the time was over."""
    with answering([]) as url:
        options = {"url": url, "timeoutS": 0.3, "retryForS": 0}
        target = begun(open_target(described("http", "events", tmp_path, options)))
        with pytest.raises(TargetUnavailable, match=r"TimeoutError: no whole answer within 0\.3 s"):
            target.commit(of_rows(1, 1, 1))


def test_closing_ends_a_pause(receiver: Receiver, tmp_path: Path) -> None:
    """No commit waits after the target is closed."""
    target = opened(receiver, tmp_path)
    receiver.script.append(Answer(500))
    target.close()
    with pytest.raises(TargetUnavailable, match="closing"):
        target.commit(of_rows(1, 1, 1))


def test_tls_with_an_own_authority_and_a_client_certificate(tmp_path: Path) -> None:
    """Rows go only to a receiver of the authority, and the receiver demands the client's certificate."""
    authority = Authority(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(authority.sign("receiver"))
    client, token = str(authority.sign("client")), tmp_path / "token"
    token.write_text("t0k3n\n")
    with Receiver(context) as receiver:
        files = {"sslCa": str(authority.file), "sslCert": client}
        target = opened(receiver, tmp_path, **files, tokenFile=str(token), headers={"X-Team": "lake"})
        assert target.check() == f"events to {receiver.url.removesuffix(PATH)}, without a signature"
        receiver.script += [Answer(dribble=True)]
        opened(receiver, tmp_path / "2", **files, timeoutS=0.5).commit(of_rows(1, 1, 3))
        target.commit(of_rows(1, 1, 3))
        assert receiver.stored[-1].headers["authorization"] == "Bearer t0k3n"
        assert receiver.stored[-1].headers["x-team"] == "lake"
        kept = len(receiver.requests)
        with pytest.raises(SinkRefused, match="CERTIFICATE_VERIFY_FAILED"):
            opened(receiver, tmp_path).check()
        with pytest.raises(TargetUnavailable):
            opened(receiver, tmp_path / "3", sslCa=str(authority.file), retryForS=0).commit(of_rows(1, 1, 1))
        assert len(receiver.requests) == kept


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"url": "https://u:geheim@h/"}, "names a user"),
        ({"url": "http://h:99999/"}, "Port out of range"),
        ({"url": "http:///x"}, "expected http"),
        ({"url": "https://[geheim/x"}, "expected http"),
        ({"url": "https://h/geheim x"}, "expected http"),
        ({"url": "http://h/a b"}, "expected http"),
        ({"url": "http://h/", "tokenFile": "token"}, "a token needs https"),
        ({"url": "https://h/", "tokenFile": "missing"}, "tokenFile missing cannot be read"),
        ({"url": "https://h/", "tokenFile": "/dev/null"}, "not a regular file"),
        ({"url": "http://h/", "secretFile": "bad"}, "no base64 follows whsec_"),
        ({"url": "https://h/", "tokenFile": "two"}, "expected one line"),
        ({"url": "https://h/", "sslCa": "bad"}, "not PEM files"),
    ],
)
def test_options_that_cannot_work_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], reason: str
) -> None:
    """The error names the option and shows no secret."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("token", "t"), ("bad", "whsec_%"), ("two", "a\nb")):
        Path(name).write_text(text)
    with pytest.raises(SinkRefused, match=reason) as error:
        open_target(described("http", "events", tmp_path, options))
    assert "geheim" not in str(error.value)


def test_another_mode_is_refused(tmp_path: Path) -> None:
    """HTTP cannot mirror a table."""
    with pytest.raises(SinkRefused, match="has the mode events, not mirror"):
        open_target(described("http", "mirror", tmp_path, {"url": "http://h/"}))


def test_a_damaged_progress_file_stops_the_pipeline(receiver: Receiver, tmp_path: Path) -> None:
    """The error names the file and what to do. Nothing starts again silently."""
    target = opened(receiver, tmp_path)
    target.commit(of_rows(1, 1, 1))
    [file] = (tmp_path / "http").iterdir()
    file.write_text(file.read_text()[:20])
    with pytest.raises(SinkRefused, match=r"d\.json cannot be read.*remove it to start without progress"):
        target.progress("d")
    with pytest.raises(SinkRefused, match=r"d\.json cannot be read"):
        target.commit(of_rows(2, 2, 1))


def test_names_of_destinations_cannot_leave_the_directory(receiver: Receiver, tmp_path: Path) -> None:
    """The name of a destination is escaped."""
    target = opened(receiver, tmp_path / "state")
    begun(target, "../../d").commit(of_rows(1, 1, 1, destination="../../d"))
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert target.progress("../../d") is not None


def test_pauses() -> None:
    """Pauses double up to 30 s; Retry-After is seconds or a date, at most an hour; anything else is ignored."""
    assert [own_pause(failures, 1.0) for failures in (1, 2, 3, 9, 10_000)] == [0.2, 0.4, 0.8, 30.0, 30.0]
    assert own_pause(1, 0.0) == 0.1
    now = 1_700_000_000.0
    assert asked_pause(formatdate(now + 90, usegmt=True), now) == 90.0
    texts = (None, "7", " 7 ", "-7", "1e9", "999999999999", "٣", "soon", formatdate(now - 9))
    assert [asked_pause(text, now) for text in texts] == [0.0, 7.0, 7.0, 0.0, 0.0, 3600.0, 0.0, 0.0, 0.0]
    assert secret_of("whsec_AAAA") == bytes(3)


def test_a_retry_after_with_large_numbers_ended_the_pipeline() -> None:
    """A date's parts can be too large for Python's date, or for its time zone."""
    texts = (
        f"Mon, {'9' * 30} Jan 2026 00:00:00 GMT",
        f"Mon, 01 Jan {'9' * 30} 00:00:00 GMT",
        f"Mon, 01 Jan 2026 00:00:{'9' * 30} GMT",
        f"Mon, 01 Jan 2026 00:00:00 +{'9' * 30}",
        "Mon, 01 Jan 0001 00:00:00 +2300",
        "Mon, 01 Jan 0001 00:00:00 -0000",
        "9" * 5000,
        "1" + "0" * 400,
    )
    assert {asked_pause(text, 1_700_000_000.0) for text in texts} <= {0.0, 3600.0}


def test_the_receiver_of_the_guide_takes_every_row_once(receiver: Receiver, tmp_path: Path) -> None:
    """Repeats are dropped, however a crash has made the commits shorter or longer."""
    for seq, first, count in ((1, 1, 5), (2, 6, 9), (2, 6, 3), (3, 9, 7), (3, 9, 20)):
        opened(receiver, tmp_path / "new", batchRows=4).commit(of_rows(seq, first, count))
        if (seq, count) in ((2, 9), (3, 7)):
            copytree(tmp_path / "old", tmp_path / "new", dirs_exist_ok=True)  # killed before the file was written
        copytree(tmp_path / "new", tmp_path / "old", dirs_exist_ok=True)
    next_row: dict[str, int] = {}
    kept = [row for each in receiver.stored for row in documented()["new_rows"](each.key, each.body, next_row)]
    assert len(receiver.rows()) == 44
    assert [row.decode() for row in kept] == expected(28)


ROWS = 400


@pytest.mark.real
@pytest.mark.parametrize(
    "most_kills", [6, pytest.param(20, marks=pytest.mark.nightly("the run with fewer kills"))], ids=["few", "many"]
)
def test_a_killed_sender_loses_nothing_and_its_repeats_are_recognised(
    receiver: Receiver, tmp_path: Path, most_kills: int
) -> None:
    """A sender killed at random moments, with a receiver that fails: every row is there, and repeats have their number.

    Each start cuts the rows in another way.
    """
    chance = random.Random(18)
    ways = [Answer(stores=True)] * 12 + [Answer(0, stores=True), Answer(0), Answer(500), Answer(503, stores=True)]
    receiver.otherwise = lambda: chance.choice(ways)
    command = [sys.executable, "-m", "tests.pipeline.sender", receiver.url, str(tmp_path), str(ROWS)]
    kills = 0
    for start in range(60):
        process = subprocess.Popen([*command, str(start)], cwd=Path(__file__).parents[2], env=dict(os.environ))
        before, limit = len(receiver.requests), chance.randint(1, 9)
        while process.poll() is None and (kills >= most_kills or len(receiver.requests) < before + limit):
            time.sleep(0.005)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    assert process.returncode == 0
    assert kills > most_kills // 2
    assert len(receiver.rows()) > ROWS
    assert receiver.distinct() == expected(ROWS)
