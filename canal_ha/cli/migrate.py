"""`canal-ha migrate`: says what becomes of a Java deployer's directory, and writes a configuration of it."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from canal_ha.cli.check import ports
from canal_ha.config.effective import is_secret
from canal_ha.config.keys import BY_NAME, KeyFile
from canal_ha.config.listeners import admin_port_refusal
from canal_ha.config.load import INSTANCE_FILE, MAIN_FILE
from canal_ha.config.migration import Migration, MigrationNote, Outcome
from canal_ha.config.model import CanalConfig
from canal_ha.config.properties import Setting
from canal_ha.decode.filters import TableFilter
from canal_ha.errors import FileUnusable, MetaUnreadable
from canal_ha.meta.offline import CursorFiles
from canal_ha.model.excerpt import json_text, message
from canal_ha.private_files import make_directory, opener

CHANGED, UNUSABLE = 1, 2  # exit codes
DEPTH = 4  # of directories that are copied
LARGEST_BYTES = 64 * 1024 * 1024
_JAVA_OPTION = re.compile(r"-D(canal\.[\w.]+)=([^\s\"'$]+)")
_NOT_COPIED = re.compile(r"(spring|metrics)/.*|(.*/)?h2\..*|logback\.xml|canal_local\.properties|canal_template.*")
_HISTORY = (
    "canal's history of table definitions is not read: a node takes the tables as they are at its first start, and"
    " looks for statements since the cursor in the binlog (docs/how-to/migrate-from-canal.md)"
)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR")
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a configuration directory with the changed lines and the cursors. It must not exist, or be empty.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(directory: Path, target: Path | None, as_json: bool) -> None:
    """Say what becomes of a deployer of canal: each setting and file works the same, differs, is ignored or refused.

    DIR is the deployer's directory, or its conf/. It is only read. No server is asked; `canal-ha check` does that.
    Values of passwords appear as ***.

    Exit codes: 0 nothing is refused; 1 lines have to change, and --to changes them; 2 something is refused that a
    person has to decide, or DIR is not a deployer's.
    """
    root, conf = _deployer(directory.resolve())
    if target is not None:
        _check_target(target, directory)
    with TemporaryDirectory(prefix="canal-ha-migrate-") as scratch:
        copy = Path(scratch) / "conf"
        _copy(conf, copy)
        options = _with_java_options(root, copy)
        migration = Migration(copy, lambda path: _shown(path, copy, conf, root))
        migration.cure(partial(TableFilter, exclude=""), _check)
        notes = [*options, *migration.notes(), *_of_files(root, conf, copy, migration.config)]
        refused = [note for note in notes if note.outcome is Outcome.REFUSED]
        code = UNUSABLE if any(not note.change for note in refused) else CHANGED if refused else 0
        if target is not None:
            _copy(copy, target)
    if as_json:
        document = {
            "directory": str(directory),
            "exit_code": code,
            "written": str(target or ""),
            "notes": [{**asdict(note), "outcome": note.outcome.value} for note in notes],
        }
        click.echo(json_text(document, 2))
    else:
        for line in _lines(notes, code, target):
            click.echo(line)
    sys.exit(code)


def _deployer(directory: Path) -> tuple[Path, Path]:
    """Return the directory of a deployer and its conf. Raises FileUnusable."""
    for root, conf in ((directory, directory / "conf"), (directory.parent, directory)):
        if (conf / MAIN_FILE).is_file():
            return root, conf
    raise FileUnusable(
        str(directory), f"has no conf/{MAIN_FILE}: give the directory of canal's deployer, with bin/ and conf/"
    )


def _check_target(target: Path, source: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise click.BadParameter(f"{target} exists and is not an empty directory; name a new one", param_hint="--to")
    if target.resolve().is_relative_to(source.resolve()):
        raise click.BadParameter(f"{target} is inside {source}, which stays as it is; name another", param_hint="--to")


def _check(config: CanalConfig) -> None:
    list(ports(config))
    if refusal := admin_port_refusal(config):
        raise refusal


def _copy(conf: Path, copy: Path) -> None:
    """Copy what a node reads, for the user of the process alone: the files hold passwords. Raises FileUnusable."""
    make_directory(copy)
    for path in _files(conf, DEPTH):
        name = path.relative_to(conf)
        if _NOT_COPIED.fullmatch(name.as_posix()):
            continue
        try:
            if path.stat().st_size > LARGEST_BYTES:
                raise FileUnusable(str(path), f"has more than {LARGEST_BYTES} bytes: move it out of conf/")
            make_directory((copy / name).parent)
            with path.open("rb") as source, open(copy / name, "wb", opener=opener) as out:
                shutil.copyfileobj(source, out)
        except OSError as error:
            raise FileUnusable(str(error.filename or path), f"cannot be copied ({error.strerror})") from error


def _files(directory: Path, depth: int) -> Iterator[Path]:
    """Yield files, also behind links, which can lead in a circle."""
    for path in sorted(directory.iterdir()):
        if path.is_file():
            yield path
        elif path.is_dir() and depth > 1:
            yield from _files(path, depth - 1)


def _with_java_options(root: Path, copy: Path) -> list[MigrationNote]:
    """Add the settings of bin/startup.sh to all files that they override. Return a note for each."""
    script = root / "bin" / "startup.sh"
    notes: list[MigrationNote] = []
    if not script.is_file():
        return notes
    for number, line in enumerate(script.read_text(errors="replace").splitlines(), 1):
        found = [] if line.lstrip().startswith("#") else _JAVA_OPTION.findall(line)
        for key, value in found:
            if key == "canal.conf":
                continue
            known = BY_NAME.get(key)
            of_node = known is not None and known.place is KeyFile.NODE
            for path in (copy / MAIN_FILE, *(() if of_node else sorted(copy.glob(f"*/{INSTANCE_FILE}")))):
                with path.open("a") as file:
                    file.write(f"\n# canal-ha migrate: from bin/startup.sh, line {number}\n{key} = {value}\n")
            text = "an option of the Java process, which overrides files: --to writes it into these files"
            shown = Setting(value, "").shown(secret=is_secret(key))
            note = MigrationNote(Outcome.DIFFERS, "bin/startup.sh", number, key, shown, text, f"{key} = {shown}")
            notes.append(note)
    return notes


def _shown(path: Path, copy: Path, conf: Path, root: Path) -> str:
    original = conf / path.relative_to(copy) if path.is_relative_to(copy) else path
    return original.relative_to(root).as_posix() if original.is_relative_to(root) else str(original)


def _of_files(root: Path, conf: Path, copy: Path, config: CanalConfig | None) -> Iterator[MigrationNote]:
    """Yield notes about the files that hold no settings of a node."""
    shown = partial(_shown, copy=copy, conf=conf, root=root)
    for path in sorted(copy.glob("*/meta.dat")):
        yield _cursors(shown(path), path.parent)
    for path in sorted(conf.glob("*/h2.*db")):
        yield MigrationNote(Outcome.IGNORED, shown(path), text=_HISTORY)
    for name, text in (
        ("canal_local.properties", "it is for canal-admin's manager mode, which does not exist here"),
        ("logback.xml", "canal-ha writes the same files; canal.log.dir and canal.log.format set where and how"),
        ("spring", "templates are chosen by their names; changes inside them do not count"),
    ):
        if (conf / name).exists():
            yield MigrationNote(Outcome.IGNORED, shown(conf / name), text=text)
    if (root / "bin").is_dir():
        text = "start `canal-ha server --conf DIR` instead, for example with deploy/systemd"
        yield MigrationNote(Outcome.IGNORED, "bin", text=text)
    if (root / "bin" / "canal.pid").exists():
        text = "canal may be running: stop it before a node without ZooKeeper starts, and copy meta.dat after that"
        yield MigrationNote(Outcome.DIFFERS, "bin/canal.pid", text=text)
    if config is not None and not config.destinations:
        text = f"there is no destination: write {conf.name}/NAME/{INSTANCE_FILE} for each one that canal-admin kept"
        yield MigrationNote(Outcome.REFUSED, conf.name, text=text)


def _cursors(name: str, directory: Path) -> MigrationNote:
    files = CursorFiles(directory.parent)
    try:
        found = {client_id: files.read(directory.name, client_id) for client_id in files.clients(directory.name)}
    except MetaUnreadable as error:
        return MigrationNote(Outcome.REFUSED, name, text=f"the cursors cannot be read: {error}")
    text = "; ".join(f"client {client_id} continues at {cursor}" for client_id, cursor in found.items() if cursor)
    return MigrationNote(Outcome.SAME, name, text=text or "it holds no cursor yet")


def _lines(notes: Sequence[MigrationNote], code: int, target: Path | None) -> Iterator[str]:
    for note in notes:
        place = f"{note.file}:{note.line}" if note.line else note.file
        what = f" {note.key} = {note.value}".rstrip() if note.key else ""
        yield message(f"{note.outcome.value:8} {place}{what}{': ' if note.text else ''}{note.text}")
        if note.change:
            yield message(f"         write: {note.change}")
    counts = Counter(note.outcome for note in notes)
    yield ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome)
    if target is not None:
        after = {0: "", CHANGED: ", with the changed lines at the end of each file", UNUSABLE: ""}[code]
        yield f"written to {target}{after}"
        if code == UNUSABLE:
            yield "a node cannot use it yet: correct there what is refused without a line to write"
        else:
            yield f"next: canal-ha check --conf {target}"
