"""Chromium without a window, driven through chromedriver."""

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

CHROMEDRIVER = "chromedriver"
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run --no-proxy-server "
    "--disable-background-networking --disable-component-update --disable-sync --force-color-profile=srgb"
)
PATIENCE_S = 60.0
CLEAR = 80
"""Between two shades of grey of 256 that are told apart at a glance."""


class Browser:
    """Shows the page at ``url``, as a person sees and uses it."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self._url = url
        self.open()

    @property
    def origin(self) -> str:
        """Of the page, as a server that is asked by it is told."""
        return self._url.rstrip("/")

    def open(self) -> None:
        """The page anew: no conversation, all settings as they come."""
        self.driver.get(self._url)

    def set(self, name: str, value: str) -> None:
        """A setting, by its name in the form."""
        field = self._one(f"[name='{name}']")
        field.clear()
        field.send_keys(value)

    def ask(self, question: str) -> None:
        """Types it, and Enter."""
        self._one("#message").send_keys(question, Keys.ENTER)

    def set_message(self, text: str) -> None:
        """As if it was pasted: keys take their time."""
        self.driver.execute_script("arguments[0].value = arguments[1]", self._one("#message"), text)

    def press(self, key: str) -> None:
        """Whatever has the focus gets it."""
        webdriver.ActionChains(self.driver).send_keys(key).perform()

    def click(self, selector: str) -> None:
        self._one(selector).click()

    def text(self, selector: str) -> str:
        """Of the last such element, white space as it is; empty if there is none."""
        found = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return str(found[-1].get_property("textContent")) if found else ""

    def attribute(self, selector: str, name: str) -> str | None:
        return self._one(selector).get_attribute(name)

    def until(self, selector: str) -> None:
        """Returns when there is such an element."""
        WebDriverWait(self.driver, PATIENCE_S, 0.05).until(
            lambda _: self.driver.find_elements(By.CSS_SELECTOR, selector)
        )

    def until_answered(self, num_answers: int = 1) -> str:
        """The last answer, when it is complete and there are so many."""
        self.until(f".answer[aria-busy=false]:nth-of-type({2 * num_answers})")
        return self.text(".answer .text")

    def run(self, script: str) -> Any:
        return self.driver.execute_script(script)

    @property
    def complaints(self) -> list[str]:
        """Errors in the browser's own log since they were last asked for."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def save(self, path: Path, width: int = 1200, height: int = 800) -> None:
        """A picture of what is seen."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        path.write_bytes(self.driver.get_screenshot_as_png())

    def ink(self, selector: str) -> float:
        """Share of the picture of an element that is clearly not its ground: nothing is drawn at 0, all at 1."""
        picture = Image.open(io.BytesIO(self._one(selector).screenshot_as_png)).convert("L")
        shades = Counter(picture.tobytes())
        ((ground, _),) = shades.most_common(1)
        return sum(count for shade, count in shades.items() if abs(shade - ground) > CLEAR) / shades.total()

    def _one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)


@contextmanager
def browsing(url: str, profile: Path, driver_path: str) -> Iterator[Browser]:
    """``profile``: an empty folder."""
    options = webdriver.ChromeOptions()
    for flag in [*_FLAGS.split(), f"--user-data-dir={profile}", "--window-size=1200,800"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(driver_path))
    try:
        yield Browser(driver, url)
    finally:
        driver.quit()
