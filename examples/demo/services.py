"""Processes that die with this one, whatever happens: on Linux the kernel sees to it, elsewhere exit handlers do."""

import ctypes
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

PR_SET_PDEATHSIG = 1


def die_with_parent(sig, parent):
    """Asks the kernel to end this process when its parent (process id) ends. Linux only; elsewhere nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, sig)
        if os.getppid() != parent:  # it ended in between
            os._exit(1)


def exit_on_signals():
    """Turns the signals that end a program into an exit that runs `finally` blocks."""

    def leave(number, _frame):
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, leave)


def port(wanted):
    """This port if it is free, else any that is."""
    for candidate in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            return probe.getsockname()[1]
    sys.exit("no free port")


def wait_for(url, seconds, check=lambda: None):
    """Waits until a URL answers 200; else what it said last."""
    deadline = time.monotonic() + seconds
    said = "nothing"
    while time.monotonic() < deadline:
        check()
        try:
            with urllib.request.urlopen(url, timeout=2):
                return None
        except urllib.error.HTTPError as error:
            said = f"{error.code} {error.read().decode(errors='replace')}"
        except (OSError, http.client.HTTPException) as error:
            said = str(error)
        time.sleep(0.05)
    return said


class Services:
    """The running processes and where their output goes."""

    def __init__(self, logs):
        self.logs = logs
        self.running = {}

    def start(self, name, command, **options):
        """Starts a process in a session of its own, so that Ctrl-C reaches only us; stderr goes to a log."""
        parent = os.getpid()
        with open(self.logs / f"{name}.log", "wb") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": log, **options}
            self.running[name] = subprocess.Popen(
                [str(part) for part in command],
                stderr=log,
                start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent),
                **options,
            )
        return self.running[name]

    def announced(self, name, command):
        """Starts a process that says in a line of JSON where it listens, and ends with its stdin; what it says."""
        process = self.start(name, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        line = process.stdout.readline()
        if not line:
            process.wait()
            self.check()
        return json.loads(line)

    def check(self):
        """Ends the program with a log's last lines if a service has ended."""
        for name, process in self.running.items():
            if process.poll() is not None:
                self.fail(name, f"{name} ended with {process.returncode}")

    def fail(self, name, why):
        """Ends the program with a log's last lines."""
        tail = (self.logs / f"{name}.log").read_text(errors="replace").splitlines()[-20:]
        sys.exit("\n".join([f"{why}; its log ends with:", *tail]))

    def wait_until_ready(self, name, url, seconds=30):
        """Waits until a URL answers 200."""
        said = wait_for(url, seconds, self.check)
        if said is not None:
            self.fail(name, f"{url} was not ready after {seconds} s, it said: {said}")

    def stop(self):
        """Ends them all: politely, then not."""
        for process in self.running.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 2
        for process in self.running.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
