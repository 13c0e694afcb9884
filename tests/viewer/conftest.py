"""A browser for the tests of viewers and pages."""

import pytest
from paths import CHROMIUM


@pytest.fixture(scope="module")
def browser():
    """A browser without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra viewer-test")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()
