"""Files that `dump` and `token new` write: regular ones, links, devices and pipes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tests.cli.manifests import CLUSTER
from topospread.access.file import read_access
from topospread.cli.files import write_file

OBJECTS = 6


@pytest.fixture
def dump(bare, tmp_path):
    """Writes a dump of a small cluster into a file."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return lambda path: bare("dump", path, "--from", tmp_path / "cluster.yaml")


@pytest.fixture
def folder(tmp_path):
    """A folder with nothing in it."""
    made = tmp_path / "folder"
    made.mkdir()
    return made


@pytest.fixture(params=["dump", "token"])
def write(request, bare, dump):
    """Each of the verbs that write a file."""
    return dump if request.param == "dump" else lambda path: token(bare, path)


@pytest.fixture
def null(folder):
    """A character device that discards what is written, as /dev/null."""
    path = folder / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        path.write_bytes(b"")
    except PermissionError:
        pytest.skip("devices are made by root alone, on a file system that takes them")
    return path


def token(command, path):
    return command("token", "new", "--file", path, "--name", "somebody", "--role", "read")


def names(folder):
    return {each.name for each in folder.iterdir()}


def is_dump(text):
    return len(json.loads(text)["items"]) == OBJECTS


def test_dump_writes_to_a_device_and_leaves_it(dump, null, folder):
    before = null.stat()
    assert dump(null).code == 0
    assert (null.stat().st_ino, null.stat().st_mode) == (before.st_ino, before.st_mode)
    assert names(folder) == {"null"}


def test_dump_through_a_link_to_a_device_leaves_both(dump, null, folder):
    link = folder / "link"
    link.symlink_to(null)
    assert dump(link).code == 0
    assert link.is_symlink()
    assert null.is_char_device()


def test_dump_writes_to_a_pipe(dump, folder):
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    assert dump(pipe).code == 0
    reader.join(timeout=30)
    assert is_dump(read[0])
    assert pipe.is_fifo()
    assert names(folder) == {"pipe"}


def test_dump_to_a_full_device_says_so(dump):
    said = dump("/dev/full")
    assert said.code == 2
    assert said.err.endswith("topospread: /dev/full: cannot be written: No space left on device\n")


def run_dump(tmp_path, path, stdout):
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    program = "import sys; from topospread.cli.main import run; sys.exit(run())"
    words = ("dump", path, "--from", tmp_path / "cluster.yaml")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TOPOSPREAD_")
    }
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=environment,
    )


def test_dump_to_dev_stdout_goes_through_a_pipe(tmp_path):
    done = run_dump(tmp_path, "/dev/stdout", subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert is_dump(done.stdout)
    assert "6 objects at revision" in done.stderr


def test_dump_to_dev_stdout_keeps_what_a_file_had(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    with log.open("a") as appended:
        done = run_dump(tmp_path, "/dev/stdout", appended)
    assert done.returncode == 0, done.stderr
    first, rest = log.read_text().split("\n", 1)
    assert first == "before"
    assert is_dump(rest)


def test_links_to_links_stay_and_the_file_at_their_end_is_replaced(write, folder):
    (folder / "below").mkdir()
    file = folder / "below" / "file"
    file.write_text("")
    file.chmod(0o604)
    before = file.stat()
    (folder / "near").symlink_to("below/file")
    (folder / "far").symlink_to(folder / "near")
    assert write(folder / "far").code == 0
    assert (folder / "far").readlink() == folder / "near"
    assert str((folder / "near").readlink()) == "below/file"
    assert file.read_text()
    assert file.stat().st_ino != before.st_ino, "replaced in one step, not written over"
    assert stat.S_IMODE(file.stat().st_mode) == 0o604
    assert names(folder / "below") == {"file"}


def test_file_that_a_dangling_link_names_is_made(write, folder):
    (folder / "below").mkdir()
    link = folder / "link"
    link.symlink_to("below/file")
    assert write(link).code == 0
    assert link.is_symlink()
    assert names(folder / "below") == {"file"}


@pytest.mark.parametrize(
    ("to", "said"), [("none/file", "there is no folder"), ("link", "Too many levels")]
)
def test_link_that_leads_nowhere_is_an_error(write, folder, to, said):
    (folder / "link").symlink_to(to)
    result = write(folder / "link")
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert f"{folder / 'link'}: cannot be " in result.err
    assert names(folder) == {"link"}


@pytest.mark.parametrize("kind", ["device", "link to a device", "pipe", "link to a pipe"])
def test_token_is_kept_in_a_regular_file_alone(bare, folder, request, kind):
    if kind.endswith("device"):
        path = request.getfixturevalue("null")
    else:
        path = folder / "pipe"
        os.mkfifo(path)
    before = path.stat()
    if kind.startswith("link"):
        (folder / "link").symlink_to(path)
        path = folder / "link"
    said = token(bare, path)
    assert (said.code, said.out) == (2, "")
    assert said.err == f"topospread: {path}: cannot be changed: only a regular file keeps tokens\n"
    assert path.stat().st_ino == before.st_ino
    assert stat.S_IFMT(path.stat().st_mode) == stat.S_IFMT(before.st_mode)


def test_folder_is_no_file_to_write(dump, folder):
    said = dump(folder)
    assert said.code == 2
    assert said.err.endswith(f"topospread: {folder}: cannot be written: Is a directory\n")
    assert names(folder) == set()


@pytest.fixture
def unprivileged():
    """The rights of a user who is not root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


def test_file_in_a_read_only_folder_stays_as_it_was(unprivileged):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "file"
        file.write_text("before")
        folder.chmod(0o555)
        try:
            for path in (file, folder / "new"):
                with pytest.raises(PermissionError):
                    write_file(path, "after")
            assert file.read_text() == "before"
            assert names(folder) == {"file"}
        finally:
            folder.chmod(0o755)


def test_replaced_file_keeps_its_owner(folder):
    file = folder / "file"
    file.write_text("before")
    try:
        os.chown(file, 12345, 54321)
    except PermissionError:
        pytest.skip("only root gives files away")
    file.chmod(0o640)
    write_file(file, "after")
    found = file.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 54321, 0o640)
    assert file.read_text() == "after"


def test_new_access_file_is_kept_from_others(bare, folder):
    file = folder / "access.yaml"
    assert token(bare, file).code == 0
    assert token(bare, file).code == 0
    assert len(read_access(file.read_text(), "it").tokens) == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
