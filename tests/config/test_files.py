from __future__ import annotations

import os
import queue
import threading

import pytest

from tests.app.certificates import Mint
from topospread.config.files import FileWatcher, Loaded, PemFiles
from topospread.errors import ConfigError


def read(text):
    if "broken" in text:
        raise ConfigError(f"cannot use {text!r}")
    return text.upper()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text("one")
    return path


@pytest.fixture
def reported():
    return queue.Queue()


@pytest.fixture
def rules(file, reported):
    made = FileWatcher(str(file), read, on_reload=reported.put, interval=0.005)
    yield made
    made.close()


def test_the_first_reading_is_generation_1(rules, reported):
    assert rules.current == Loaded("ONE", 1, "")
    assert reported.empty()


def test_a_broken_first_reading_is_an_error(file):
    file.write_text("broken")
    with pytest.raises(ConfigError, match="broken"):
        FileWatcher(str(file), read)


def test_without_a_file_the_empty_text_holds():
    rules = FileWatcher("", read)
    rules.start()
    assert rules.reload()
    assert rules.current == Loaded("")
    rules.close()


def test_reloading_by_hand(rules, file, reported):
    file.write_text("two")
    assert rules.reload()
    assert rules.current == reported.get_nowait() == Loaded("TWO", 2, "")


def test_the_same_content_is_the_same_generation(rules, file, reported):
    file.write_text("one")
    assert rules.reload()
    assert rules.current.generation == 1
    assert reported.empty()


def test_a_broken_file_leaves_the_old_value_in_force(rules, file, reported):
    file.write_text("broken")
    assert not rules.reload()
    assert rules.current == Loaded("ONE", 1, "cannot use 'broken'")
    assert reported.get_nowait() == rules.current
    # Told once, however often it is read.
    assert not rules.reload()
    assert reported.empty()


@pytest.mark.parametrize(("mended", "generation"), [("one", 1), ("two", 2)])
def test_a_mended_file_ends_the_error(rules, file, reported, mended, generation):
    file.write_text("broken")
    rules.reload()
    reported.get_nowait()
    file.write_text(mended)
    assert rules.reload()
    assert rules.current == reported.get_nowait() == Loaded(mended.upper(), generation, "")


def test_a_file_that_goes_away_leaves_the_old_value_in_force(rules, file):
    file.unlink()
    assert not rules.reload()
    assert rules.current.value == "ONE"
    assert "cannot be read" in rules.current.error


def put(file, text):
    """Replace a file at once, so that nobody reads half of it."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.rename(file)


def test_changes_are_seen_by_themselves(rules, file, reported):
    rules.start()
    seen = []
    for text in ("two", "three", "broken", "four"):
        put(file, text)
        seen.append(reported.get(timeout=30))
    assert seen == [
        Loaded("TWO", 2, ""),
        Loaded("THREE", 3, ""),
        Loaded("THREE", 3, "cannot use 'broken'"),
        Loaded("FOUR", 4, ""),
    ]


def test_a_link_that_is_swapped_is_a_change(tmp_path, reported):
    # As the kubelet updates a ConfigMap: files of one size, times that may be equal.
    for version in ("old", "new"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "rules.yaml").write_text(version)
        os.utime(tmp_path / version / "rules.yaml", ns=(1, 1))
    (tmp_path / "data").symlink_to("old")
    rules = FileWatcher(
        str(tmp_path / "data" / "rules.yaml"), read, on_reload=reported.put, interval=0.005
    )
    rules.start()
    (tmp_path / "next").symlink_to("new")
    (tmp_path / "next").rename(tmp_path / "data")
    assert reported.get(timeout=30) == Loaded("NEW", 2, "")
    rules.close()


def test_readers_see_value_and_generation_of_one_reading(rules, file):
    file.write_text("1")
    rules.reload()
    begin = rules.current.generation - 1
    stop = threading.Event()
    wrong = []

    def look():
        while not stop.is_set():
            now = rules.current
            if int(now.value) != now.generation - begin:
                wrong.append(now)

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(2, 200):
        file.write_text(str(number))
        rules.reload()
    stop.set()
    reader.join()
    assert wrong == []
    assert rules.current.value == "199"


def test_closing_ends_the_watch(file):
    rules = FileWatcher(str(file), read, interval=0.005)
    rules.start()
    rules.close()
    file.write_text("two")
    assert rules.current.value == "ONE"
    assert not [t for t in threading.enumerate() if t.name == "config-watch"]


@pytest.mark.parametrize("broken", ["cert", "key", "client_ca"])
@pytest.mark.parametrize("content", [None, b"no pem"])
def test_files_of_tls_that_cannot_be_used_are_named(broken, content, tmp_path):
    mint, bad = Mint(tmp_path), tmp_path / "bad.pem"
    if content is not None:
        bad.write_bytes(content)
    files = {"cert": mint.cert, "key": mint.key, "client_ca": mint.ca, broken: str(bad)}
    with pytest.raises(ConfigError, match=r"bad\.pem"):
        PemFiles(**files).read()
