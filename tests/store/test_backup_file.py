"""Files of backups with lines that nobody wrote: each is refused, whatever it is."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from contextlib import closing

import pytest

from tests.store.backends import pod, put
from topospread.errors import ConfigError
from topospread.store.backup_file import BackupWriter, SavedCluster, read_backup
from topospread.store.model import Revision

HEADER, CLUSTER, OBJECT = range(3)


def written() -> list[bytes]:
    """The lines of a backup of one cluster with one pod, but the last."""
    file = io.BytesIO()
    with closing(BackupWriter(file, time="2026-01-01T00:00:00Z", version="0.1.0")) as writer:
        writer.cluster(SavedCluster("prod", "id", Revision(3, "tag"), 1), [put(pod()).object])
        writer.finish()
    return gzip.decompress(file.getvalue()).splitlines()[:-1]


def read(lines: list[bytes]) -> list[object]:
    """What is read of lines, with an end that fits them."""
    body = b"".join(line + b"\n" for line in lines)
    digest = hashlib.sha256(body).hexdigest()
    end = json.dumps({"clusterCount": 1, "objectCount": 1, "sha256": digest}).encode()
    return list(read_backup(io.BytesIO(gzip.compress(body + end + b"\n")), "backup.gz"))


def test_lines_with_an_end_that_fits_them_are_read() -> None:
    assert len(read(written())) == 2


@pytest.mark.parametrize("place", [HEADER, CLUSTER, OBJECT])
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"7",
        b"[]",
        b"{}",
        b'[["2/default/web-1"], "AA=="]',
        b'{"2/default/web-1": "AA=="}',
        b'["2/default/\\ud800", "AA=="]',
        b'["2/default/web-1", {}]',
        b'["2/default/web-1", "AA=="]',
        b'{"cluster": "prod", "identity": "id", "number": 1e400, "tag": "", "objectCount": 1}',
        b'{"cluster": "prod", "identity": "id", "number": [], "tag": "", "objectCount": 1}',
        b'{"cluster": ["prod"], "identity": "id", "number": 1, "tag": "", "objectCount": 1}',
        b"[" * 100_000,
        b"9" * 5000,
        b"\xff",
    ],
    ids=lambda line: line[:40].decode(errors="replace"),
)
def test_line_of_another_form_is_refused(place: int, line: bytes) -> None:
    lines = written()
    lines[place] = line
    with pytest.raises(ConfigError, match=r"backup.gz: .*(no backup|altered)"):
        read(lines)
