"""The interpreted and the compiled kernel give the same bytes, arrays and errors."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from canal_ha.decode import kernel
from canal_ha.decode.kernel import codes, kinds
from canal_ha.decode.outputs import Passed
from canal_ha.errors import MalformedEvent
from lab.dump import Dump, decoder
from tests.decode import fuzz
from tests.sampling import LONG


def start(build: str, *arguments: int, module: str = "vectors") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.decode.{module}", *map(str, arguments)],
        env={**os.environ, "CANAL_HA_KERNEL": build, "TZ": "Europe/Berlin", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.skipif(kernel.BUILD == "interpreted", reason="it runs both builds, once is enough")
def test_both_builds_make_the_same_of_everything() -> None:
    """Both builds give the same result for recorded binlogs, generated rows of all types, and damaged ones.

    Entries are also the bytes that protobuf's own library writes.
    """
    arguments = (random.randrange(1 << 30), 10_000, 20_000) if LONG else (1, 400, 300)
    runs = [start(build, *arguments) for build in ("off", "require")]
    interpreted, compiled = (run.communicate()[0].splitlines() for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert (interpreted.pop(0), compiled.pop(0)) == ("interpreted", "compiled")
    assert len(interpreted) == len(compiled)
    differences = [(a, b) for a, b in zip(interpreted, compiled, strict=True) if a != b]
    assert not differences, f"seed {arguments[0]}: {len(differences)} lines differ, first {differences[0]}"
    said = " ".join(compiled)
    assert "otherwise" not in said
    assert said.count("MalformedEvent") > 20
    assert sum(int(rows) for rows in re.findall(r"(\d+) rows", said)) > (100_000 if LONG else 5000)


@pytest.mark.skipif(kernel.BUILD == "interpreted", reason="it runs both builds, once is enough")
def test_both_builds_cut_typed_rows_at_the_same_places() -> None:
    """Sheets begin and end at the same rows and have the same bytes, also if NULLs fit two types of a column."""
    arguments = (random.randrange(1 << 30), 20_000) if LONG else (1, 500)
    runs = [start(build, *arguments, module="sheets") for build in ("off", "require")]
    interpreted, compiled = (run.communicate()[0].splitlines() for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert (interpreted.pop(0), compiled.pop(0)) == ("interpreted", "compiled")
    assert len(compiled) == arguments[1]
    assert interpreted == compiled, f"seed {arguments[0]}"


def test_damage_ends_in_an_error_of_ours() -> None:
    """Damaged dumps and documents raise only our errors: a short run of the program of deploy/fuzz.sh."""
    fuzz.run(random.randrange(1 << 30), 0, 500)


@pytest.mark.parametrize("module", [kinds, codes], ids=["kinds", "codes"])
def test_constants_are_the_same_in_both(module: ModuleType) -> None:
    """kinds.pxd has the same names and numbers as kinds.py, and codes.pxd as codes.py."""
    file = Path(module.__file__ or "").with_suffix(".pxd")
    lines = re.findall(r"^    (\w+) = (-?\d+)$", file.read_text(), re.MULTILINE)
    assert {name: int(value) for name, value in lines} == {
        name: value for name, value in vars(module).items() if name.isupper()
    }


@pytest.mark.parametrize("size", [*range(70), 127, 128, 129, 4096, 70001])
def test_checksums_of_every_length(size: int) -> None:
    """The checksum of an event of any length is zlib's CRC32; a flipped bit is an error."""
    dump = bytes(Dump().format().add(kinds.PREVIOUS_GTIDS, random.Random(size).randbytes(size)).data)
    assert isinstance(list(decoder().feed(dump))[-1], Passed)
    wrong = bytearray(dump)
    wrong[-4 - (size + 1) // 2] ^= 1
    with pytest.raises(MalformedEvent, match="the checksum of an event of type 35 does not hold"):
        list(decoder().feed(wrong))


_WAITING = """
import sys, threading
from lab.dump import AnyTable, Dump, decoder

dump = Dump().format().begin().table()
for number in range(20_000):
    dump.insert(number)
data = bytes(dump.xid().data)
sys.setswitchinterval(1000)
turn, ran = threading.Lock(), []
turn.acquire()
waiting = threading.Thread(target=lambda: (turn.acquire(), ran.append(True)))
waiting.start()
turn.release()
for _ in range(500):
    for _ in decoder(AnyTable()).feed(data):
        pass
    if ran:
        break
print(bool(ran))
"""


def test_other_threads_run_while_the_compiled_kernel_decodes() -> None:
    """With a switch interval of 1000 s, a waiting thread gets the interpreter's lock only from the kernel."""
    environment = {**os.environ, "CANAL_HA_KERNEL": "require", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _WAITING], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"]
