"""Installs the pinned routers that `make bench-peers` compares with into `.cache/peers/`, once; each with its own packages.

Usage: peers.py [NAME...]   prints one line for each: its folder, for PYTHONPATH, or why it can't be had here.
Needs what tools.py needs.
"""

import os
import shutil
import subprocess
import sys
import tempfile

import tools

# package: version
PEERS = {
    "vllm-router": "0.1.17",
    "sglang-router": "0.3.2",
    "smg": "1.13.0",
    "ai-dynamo-runtime": "1.6.1",
}


def folder(name):
    """Where a peer is, once it is installed."""
    return tools.CACHE / "peers" / name / PEERS[name]


def reason(name):
    """The file that says why the last attempt failed."""
    return folder(name).with_suffix(".why")


def install(name):
    """Installs a peer if it isn't there; why that failed, or nothing."""
    if folder(name).exists():
        return None
    print(f"fetching {name} {PEERS[name]}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=tools.made(folder(name).parent)) as dir:
        options = ["--quiet", "--disable-pip-version-check", "--only-binary", ":all:", "--target", f"{dir}/whole"]
        command = [*tools.pip(), "install", *options, f"{name}=={PEERS[name]}"]
        env = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
        done = subprocess.run(command, text=True, capture_output=True, env=env)
        if done.returncode != 0:
            why = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
            reason(name).write_text(f"pip could not install {name} {PEERS[name]}: {why}")
            return reason(name).read_text()
        try:
            os.rename(f"{dir}/whole", folder(name))
        except OSError:  # another run was faster
            shutil.rmtree(f"{dir}/whole")
    reason(name).unlink(missing_ok=True)
    return None


def missing(name):
    """Why a peer is not installed, or nothing."""
    if folder(name).exists():
        return None
    return reason(name).read_text() if reason(name).exists() else "not installed: make bench-peers"


if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in PEERS]
    if unknown:
        sys.exit(f"usage: peers.py [NAME...]   ({', '.join(PEERS)})")
    for name in sys.argv[1:] or PEERS:
        print(f"{name}: {install(name) or folder(name)}")
