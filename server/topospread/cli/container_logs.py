"""The logs that `kubectl cluster-info dump` prints between its lists, taken out of a text."""

from __future__ import annotations

import re
from typing import Final

from topospread.cli.errors import BadInput, printable

_MARK: Final = b"==== "
_BEGIN: Final = re.compile(
    rb"^==== START logs for (container \S+ of pod \S+) ====\r?(?:\n|\Z)", re.MULTILINE
)
_STRAY: Final = re.compile(
    rb"^==== END logs for (container \S+ of pod \S+) ====\r?(?:\n|\Z)", re.MULTILINE
)
_NEXT: Final = re.compile(rb"\s*(?:\Z|\{|====|---|\.\.\.|#|apiVersion:|items:|kind:|metadata:)")
"""What may stand behind a log: a list as JSON or YAML, or the next log."""

_MARK_LENGTH: Final = 1024
"""More bytes than a mark has: names of pods and namespaces are short."""

_NEXT_LENGTH: Final = 64


class LogFilter:
    """Takes logs out of a text that comes in blocks, and leaves their line ends.

    A log ends where its own mark stands at the end of a line, behind a last line that need not
    end. What is in it may look like a list, or like a mark: where it is not certain what is log,
    the text is refused.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._held = b""
        self._at_line_start = True
        self._log = b""  # whose log it is in; empty outside of logs
        self._is_behind_log = False
        self._seen: set[bytes] = set()

    def filter(self, block: bytes, *, at_end: bool) -> bytes:
        """What a block adds to the text without logs.

        Raises:
            BadInput: the text ends in a log, or the end of a log is not certain.
        """
        if not self._log and not self._held and not self._is_behind_log and _MARK not in block:
            return self._passed(block, at_end=at_end)
        text, self._held = self._held + block, b""
        found: list[bytes] = []
        at = 0
        while at < len(text):
            step = self._in_log if self._log else self._outside
            out, at = step(text, at, at_end)
            found.append(out)
            if self._held:
                break
        if at_end and self._log:
            raise BadInput(
                f"{self._source}: it ends within the log of {_shown(self._log)}: it was cut"
            )
        return b"".join(found)

    def _passed(self, text: bytes, *, at_end: bool) -> bytes:
        """A text outside of logs, but its last line where that may become a mark."""
        line = text.rfind(b"\n") + 1
        rest = text[line:]
        starts = line > 0 or self._at_line_start
        if rest.startswith(b"=") and starts and not at_end and len(rest) < _MARK_LENGTH:
            self._held = rest
            text = text[:line]
        if text:
            self._at_line_start = text.endswith(b"\n")
        return text

    def _outside(self, text: bytes, at: int, at_end: bool) -> tuple[bytes, int]:
        if self._is_behind_log:
            if len(text) - at < _NEXT_LENGTH and not at_end:
                self._held = text[at:]
                return b"", at
            if not _NEXT.match(text, at):
                raise self._uncertain()
            self._is_behind_log = False
        begin = _BEGIN.search(text, at)
        while begin and begin.start() == at and not self._at_line_start:
            begin = _BEGIN.search(text, at + 1)
        if begin and begin.end() == len(text) and not text.endswith(b"\n") and not at_end:
            begin = None  # the line may go on
        before = text[at : begin.start()] if begin else text[at:]
        stray = _STRAY.search(before)
        if stray and (stray.start() or self._at_line_start) and (begin or stray[0].endswith(b"\n")):
            raise self._uncertain(stray[1])
        if begin is None:
            return self._passed(before, at_end=at_end), len(text)
        if begin[1] in self._seen:
            raise self._uncertain(begin[1])
        self._seen.add(begin[1])
        self._log = begin[1]
        return before + b"\n", begin.end()

    def _in_log(self, text: bytes, at: int, at_end: bool) -> tuple[bytes, int]:
        mark = b"==== END logs for " + self._log + b" ===="
        begin = at
        while (found := text.find(mark, begin)) >= 0:
            behind = found + len(mark)
            if behind + 2 > len(text) and not at_end:
                self._held = text[found:]
                return b"\n" * text.count(b"\n", at, found), found
            if text[behind : behind + 2] in (b"", b"\r", b"\r\n") or text[behind] == ord("\n"):
                self._log, self._is_behind_log, self._at_line_start = b"", True, False
                return b"\n" * text.count(b"\n", at, behind), behind
            begin = behind
        kept = len(text) if at_end else max(at, len(text) - len(mark))
        self._held = text[kept:]
        return b"\n" * text.count(b"\n", at, kept), kept

    def _uncertain(self, whose: bytes = b"") -> BadInput:
        of = f"the log of {_shown(whose)}" if whose else "a log"
        return BadInput(
            f"{self._source}: {of} has a line like the one that ends it, so what is log is not"
            " certain: `kubectl cluster-info dump --output-directory DIR` writes logs to files of"
            " their own, and --from DIR reads it"
        )


def _shown(whose: bytes) -> str:
    return printable(whose.decode(errors="replace"))
