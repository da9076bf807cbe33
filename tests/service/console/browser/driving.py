"""A real browser on our pages: it notes whatever a page does that it must not."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium")
HAS_DRIVER = find_spec("playwright") is not None and find_spec("axe_playwright_python") is not None
needs_browser = pytest.mark.skipif(
    CHROMIUM is None or not HAS_DRIVER,
    reason="no browser: `make browser` installs Debian's Chromium where apt is at hand",
)
PATIENCE_MS = 120_000
# Told by the page itself: a violation of the policy, wherever it comes from.
LISTEN = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (e) => window.violations.push(`${e.violatedDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`));
"""


@dataclass
class Visit:
    """One page in one tab, and what it has done."""

    page: Page
    origin: str
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def go(self, path):
        """Open a page and wait until its scripts have run."""
        self.page.goto(f"{self.origin}{path}", wait_until="load")

    def violations(self):
        """What the policy has forbidden on the present page."""
        return self.page.evaluate("window.violations ?? []")

    def check(self):
        """Nothing was forbidden, nothing failed, nobody else was asked."""
        assert not self.violations(), self.violations()
        assert not self.errors, self.errors
        assert not self.foreign, self.foreign

    def findings(self, *rules, without=()):
        """What axe finds serious or critical; by these of its rules, or by all but some."""
        from axe_playwright_python.sync_playwright import Axe

        only = {"runOnly": list(rules)} if rules else {"rules": {rule: {"enabled": False} for rule in without}}
        found = Axe().run(self.page, options={"resultTypes": ["violations"]} | only).response["violations"]
        grave = [each for each in found if each["impact"] in {"serious", "critical"}]
        places = [json.dumps([node["html"][:200] for node in each["nodes"][:3]]) for each in grave]
        return [f"{each['impact']} {each['id']}: {each['help']}: {at}" for each, at in zip(grave, places, strict=True)]

    def start(self):
        """What the explorer of the present page begins with."""
        return json.loads(self.page.text_content("#start"))

    def settled(self):
        """Wait until the explorer has shown everything."""
        self.page.wait_for_selector("#what-if[data-state=settled]", timeout=PATIENCE_MS)

    def explore(self, path):
        """Open a page with an explorer, and wait until it has shown everything."""
        self.go(path)
        self.settled()

    def submit(self, form):
        """Press the button of a form, and wait for the page that it leads to."""
        with self.page.expect_navigation():
            self.page.click(f"{form} button")

    def n_settled(self):
        """The number of the answer that is shown."""
        return self.page.get_attribute("#what-if", "data-settled")

    @contextlib.contextmanager
    def settling(self):
        """Wait until what is asked by the way is shown."""
        before = self.n_settled()
        yield
        self.page.wait_for_function(
            "(n) => { const d = document.getElementById('what-if').dataset; return d.state === 'settled' && d.settled !== n; }",
            arg=before,
        )


@contextlib.contextmanager
def launched():
    """Debian's Chromium; a driver that is too old for it says so here."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def visit(browser, origin, **context):
    """A tab of its own; requests to other places fail and are noted."""
    own = browser.new_context(**context)
    own.set_default_timeout(PATIENCE_MS)
    own.add_init_script(LISTEN)
    page = own.new_page()
    told = Visit(page, origin)
    host = urlsplit(origin).netloc

    def route(each):
        url = each.request.url
        if urlsplit(url).netloc == host or url.startswith(("data:", "blob:")):
            told.requests.append(f"{each.request.method} {urlsplit(url).path}")
            each.continue_()
        else:
            told.foreign.append(url)
            each.abort()

    own.route("**/*", route)
    page.on("console", lambda message: told.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: told.errors.append(str(error)))
    try:
        yield told
    finally:
        own.close()
