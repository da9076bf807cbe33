"""Convert CSV bytes to plain UTF-8, without the lines above the names and without comments."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator

import pyarrow as pa

from learners.errors import SourceError, columns_setting
from learners.schema.reading import Dialect

BLOCK_BYTES = 1 << 20
MARKS = (
    *((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32")),
    *((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")),
)
NO_TEXT = {
    b"\x1f\x8b": "is compressed by gzip. Rename it so that it ends in .csv.gz or .tsv.gz.",
    b"PK\x03\x04": "is a ZIP file, as Excel writes. Unpack it, or save it as CSV.",
    b"PAR1": "is a Parquet file. Rename it so that it ends in .parquet.",
}
UTF8 = ("utf-8", "utf-8-sig")
DELIMITER = r"[,;\t|]"  # one of those that are found by themselves


def detect_csv_encoding(head: bytes, option: str) -> str:
    """Detect the encoding of a file by its byte order mark, else use the option, else UTF-8.

    A beginning that is valid non-ASCII UTF-8 is read as UTF-8 despite the option, because text in other encodings
    does not look like it.
    """
    marked = next((name for mark, name in MARKS if head.startswith(mark)), None)
    if marked is not None:
        return marked
    name = codecs.lookup(option).name if option else UTF8[0]
    if not head.isascii() and first_invalid_utf8_index(head) is None:
        return UTF8[0]
    return name


def first_invalid_utf8_index(head: bytes) -> int | None:
    """Return the first position that is not UTF-8; an incomplete character at the end is accepted, a zero byte is not."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError as error:
        return error.start
    return head.index(0) if 0 in head[:64] else None


def csv_encoding_error(path: str, encoding: str, head: bytes, line: int, start: int) -> SourceError:
    """Create the error for bytes that are invalid in the file's encoding; the first is at `start` in `head`."""
    for mark, words in NO_TEXT.items():
        if head.startswith(mark):
            return SourceError(path, words)
    if b"\0" in head[:64]:
        name = "utf-16-le" if head[1:64:2].count(0) >= head[0:64:2].count(0) else "utf-16-be"
        return SourceError(
            path,
            f"contains zero bytes, as UTF-16 does. Set its encoding: {columns_setting({'*': {'encoding': name}})}.",
        )
    line += len(re.findall(rb"\r\n|\r|\n", head[:start]))
    if encoding in UTF8:
        before, behind = re.findall(rb"[^\r\n,;\t|\"]*$", head[:start]), re.findall(rb"^[^\r\n,;\t|\"]*", head[start:])
        word = (before[0][-20:] + behind[0][:20]).decode("windows-1252", "replace")
        remedy = f'To read {word!r}, set the encoding: {columns_setting({"*": {"encoding": "windows-1252"}})} (or "latin-1", …).'
    else:
        remedy = "Remove the encoding setting, or set another."
    return SourceError(path, f"is not {encoding.upper()} in line {line:,} (byte 0x{head[start]:02X}). {remedy}")


class PlainLines(io.RawIOBase):
    """Stream of CSV that is decoded, without its first lines and comments.

    `stream`: at the beginning of the file, unpacked.
    `dialect`: its encoding is known.
    `n_skipped`: lines of the file above the names.
    `path`: for messages.
    """

    def __init__(self, stream: pa.NativeFile, dialect: Dialect, n_skipped: int, path: str) -> None:
        self.stream, self.dialect, self.path = stream, dialect, path
        self.n_skipped = n_skipped
        self._decoder = codecs.getincrementaldecoder(dialect.encoding)()
        self._blocks = self._plain()
        self._rest = b""

    def readable(self) -> bool:
        """Return True: the stream is readable."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes."""
        while size < 0 or len(self._rest) < size:
            block = next(self._blocks, None)
            if block is None:
                break
            self._rest += block
        end = len(self._rest) if size < 0 else size
        content, self._rest = self._rest[:end], self._rest[end:]
        return content

    def _plain(self) -> Iterator[bytes]:
        is_simple = not self.n_skipped and not self.dialect.comment
        yield from (text.encode() for text in (self._texts() if is_simple else self._kept()))

    def _texts(self) -> Iterator[str]:
        n_lines = 1
        while True:
            block = self.stream.read(BLOCK_BYTES)
            before = self._decoder.getstate()[0]
            try:
                text = self._decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise csv_encoding_error(
                    self.path, self.dialect.encoding, before + block, n_lines, error.start
                ) from None
            n_lines += len(re.findall(r"\r\n|\r|\n", text))
            yield text
            if not block:
                return

    def _lines(self) -> Iterator[str]:
        """Yield lines with their original line ends."""
        rest = ""
        for text in self._texts():
            lines = list(io.StringIO(rest + text, newline=""))
            rest = lines.pop() if lines else ""  # it may go on, as may "\r" with "\n"
            yield from lines
        if rest:
            yield rest

    def _kept(self) -> Iterator[str]:
        quotes = Quotes(self.dialect)
        lines: list[str] = []
        n_characters = 0
        for place, line in enumerate(self._lines()):
            if place < self.n_skipped or (self.dialect.comment and quotes.is_comment(line)):
                continue
            lines.append(line)
            n_characters += len(line)
            if n_characters > BLOCK_BYTES:
                yield "".join(lines)
                lines, n_characters = [], 0
        yield "".join(lines)


class Quotes:
    """Tracks whether lines begin inside a quoted value, in which a comment mark is text.

    `dialect`: a delimiter that is not yet known may be any that is detected automatically.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.comment, self.quote, self.is_within = dialect.comment, dialect.quote, False
        quote, escape = re.escape(dialect.quote or '"'), re.escape(dialect.escape)
        inside = rf"(?:[^{quote}{escape}]|{quote}{quote}" + (rf"|{escape}." if escape else "") + ")*"
        before = rf"(?:^|{re.escape(dialect.delimiter) or DELIMITER})"
        self._end = re.compile(rf"{inside}{quote}(?!{quote})", re.DOTALL)
        self._whole = re.compile(rf"{before}{quote}{inside}{quote}(?!{quote})", re.DOTALL)
        self._begin = re.compile(before + quote)

    def is_comment(self, line: str) -> bool:
        """Return whether the next line is a comment."""
        if not self.is_within and line.startswith(self.comment):
            return True
        if not self.quote:
            return False
        if self.is_within:
            end = self._end.match(line)
            if end is None:
                return False
            line = "-" + line[end.end() :]
        self.is_within = self.quote in line and self._begin.search(self._whole.sub("-", line)) is not None
        return False


def refuse_non_utf8_lines(stream: pa.NativeFile, path: str) -> None:
    """Raise SourceError naming the first line that is not UTF-8, if any."""
    lines = PlainLines(stream, Dialect(encoding=UTF8[0]), 0, path)
    while lines.read(BLOCK_BYTES):
        pass
