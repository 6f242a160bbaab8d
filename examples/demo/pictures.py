"""Takes the pictures of the README of a demo that is up: `make demo` in one terminal, `make demo-pictures` in another.

Sends some minutes of requests through Kinference, opens its dashboard in a headless Chromium (Debian's packages
chromium and chromium-driver), and writes docs/images/dashboard.png and docs/images/decision.png. Ends with a failure
if the page is not as the pictures want it.
"""

import argparse
import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from services import die_with_parent, exit_on_signals

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
DRIVER = "/usr/bin/chromedriver"
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
ARGUMENTS += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"]
# As in run.py.
MODEL = "demo"
SPEEDUP = "10"
# Sessions a second of the engines' time, each one request; so many more than are sent before the pictures are taken
# that requests still run then.
RATE = 1.4
LIVE = "return document.body.dataset.connection === 'live'"
# Traffic in the tables, and the worker rows all there.
BUSY = "return document.querySelectorAll('#decisions tr[data-outcome=completed]').length > 20"
# One whose candidates differ: part of its prompt is cached on one engine and not on the others.
OPEN = """
const rows = [...document.querySelectorAll('#decisions tr[data-outcome=completed]')];
const share = (row) => parseInt(row.querySelector('[data-label^="Cached"]').innerText) || 0;
const best = rows.reduce((a, b) => (share(b) > share(a) ? b : a));
best.querySelector('button').click();
return document.getElementById('detail').open"""


def call(url, body=None, method=None):
    """The `value` of what a driver answers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, method=method, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        sys.exit(f"the browser: {error.read().decode(errors='replace')[:500]}")


class Browser:
    """A headless Chromium, driven over WebDriver; ends with `with`."""

    def __enter__(self):
        parent = os.getpid()
        try:
            self.driver = subprocess.Popen(
                [DRIVER, "--port=0", "--allowed-ips=127.0.0.1"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
            )
        except FileNotFoundError:
            sys.exit(f"{DRIVER} is not there: Debian has it in the packages chromium and chromium-driver")
        line = next(line for line in self.driver.stdout if "started successfully on port" in line)
        base = f"http://127.0.0.1:{line.strip().rstrip('.').rsplit(' ', 1)[1]}/session"
        self.profile = tempfile.TemporaryDirectory(prefix="kinference-pictures-")
        options = {"args": [*ARGUMENTS, f"--user-data-dir={self.profile.name}"], "binary": CHROMIUM}
        wanted = {"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}}
        self.session = f"{base}/{call(base, wanted)['sessionId']}"
        return self

    def __exit__(self, *_):
        call(self.session, method="DELETE")
        self.driver.terminate()
        self.driver.wait()
        self.profile.cleanup()

    def go(self, url):
        call(f"{self.session}/url", {"url": url})

    def run(self, script):
        """What the body of a function returns."""
        return call(f"{self.session}/execute/sync", {"script": script, "args": []})

    def until(self, what, script, seconds=30):
        deadline = time.monotonic() + seconds
        while self.run(script) is not True:
            if time.monotonic() > deadline:
                sys.exit(f"not shown in {seconds} s: {what}")
            time.sleep(0.1)

    def look(self, size, scheme):
        """As a screen of that size shows it to whom prefers `light` or `dark`."""
        width, height = size
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        prefers = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        for command, parameters in (
            ("Emulation.setDeviceMetricsOverride", screen),
            ("Emulation.setEmulatedMedia", prefers),
        ):
            call(f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def save(self, path):
        # What has just changed is drawn with the next frame.
        time.sleep(0.5)
        path.write_bytes(base64.b64decode(call(f"{self.session}/screenshot")))
        print(f"wrote {path}", flush=True)


def send(args):
    """The load generator, sending for longer than the pictures take."""
    sessions = int(RATE * int(SPEEDUP) * (args.seconds + 60))
    command = [TARGET / "examples" / "load", "--url", args.kinference, "--model", MODEL, "--speedup", SPEEDUP]
    command += ["--tokenizer", ROOT / "tests" / "fixtures" / "tokenizer" / "tokenizer.json", "--label", "pictures"]
    command += ["--workload", "shared_prefix", "--prefixes", "40", "--output-tokens", "32"]
    command += ["--rate", RATE, "--sessions", sessions]
    parent = os.getpid()
    return subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
    )


def take(args, load):
    with Browser() as browser:
        browser.look((1440, 1400), "light")
        browser.go(args.admin)
        browser.until("the page is live", LIVE)
        time.sleep(args.seconds)
        if load.poll() is not None:
            sys.exit(f"the load generator ended early, with {load.returncode}")
        browser.until("decisions that were answered", BUSY)
        browser.save(args.to / "dashboard.png")
        browser.look((1240, 800), "dark")
        browser.run("document.getElementById('pause').click()")
        browser.until("a decision opens", OPEN)
        browser.save(args.to / "decision.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--admin", default="http://127.0.0.1:9003/", help="URL of the dashboard")
    parser.add_argument("--kinference", default="http://127.0.0.1:10000", help="URL of the route through Kinference")
    parser.add_argument("--seconds", type=int, default=180, help="of traffic before the pictures")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "images", help="the directory to write to")
    args = parser.parse_args()
    exit_on_signals()
    args.to.mkdir(parents=True, exist_ok=True)
    load = send(args)
    try:
        take(args, load)
    finally:
        load.terminate()
        load.wait()


if __name__ == "__main__":
    main()
