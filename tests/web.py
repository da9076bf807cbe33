"""Servers of the web on loopback, as tests need them."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Quiet(BaseHTTPRequestHandler):
    """Answers in one call, and logs nothing."""

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, status, content=b"", headers=()):
        self.send_response(status)
        for name, value in ({"content-length": str(len(content))} | dict(headers)).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def answer_with_ranges(self, content):
        """With the part of a file that is asked for."""
        if span := self.headers.get("Range"):
            first, _, last = span.removeprefix("bytes=").partition("-")
            end = min(int(last or len(content)), len(content) - 1)
            part = {"Accept-Ranges": "bytes", "Content-Range": f"bytes {first}-{end}/{len(content)}"}
            self.answer(206, content[int(first) : end + 1], part)
        else:
            self.answer(200, content, {"Accept-Ranges": "bytes"})

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(handler):
    """The host and port of a server with this handler."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
