"""Downloads a pinned package from the npm registry: with npm where there is one, else from the registry that npm is configured for.

Owner: tools.py. No registry is named here: without npm, `npm_config_registry` or a line `registry=` in `~/.npmrc` has to.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path


def registry():
    """The configured registry, or None."""
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if os.environ.get(name):
            return os.environ[name]
    npmrc = Path(os.environ.get("NPM_CONFIG_USERCONFIG") or Path.home() / ".npmrc")
    for line in npmrc.read_text().splitlines() if npmrc.exists() else []:
        key, _, value = line.partition("=")
        if key.strip() == "registry":
            return value.strip().strip("\"'")
    return None


def reachable():
    """Whether packages can be had at all."""
    return shutil.which("npm") is not None or registry() is not None


def download(package, version, dir):
    """Puts the tarball of a package into a folder; gives its path."""
    if shutil.which("npm"):
        command = ["npm", "pack", "--silent", "--pack-destination", dir, f"{package}@{version}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (path,) = Path(dir).glob("*.tgz")
        return path
    path = Path(dir) / "package.tgz"
    file = f"{package.rpartition('/')[2]}-{version}.tgz"
    url = f"{registry().rstrip('/')}/{urllib.parse.quote(package)}/-/{file}"
    with urllib.request.urlopen(url, timeout=300) as answer, open(path, "wb") as out:
        shutil.copyfileobj(answer, out)
    return path


def verify(path, integrity):
    """Ends the program if a file is not the one that was pinned."""
    algorithm, _, wanted = integrity.partition("-")
    digest = hashlib.new(algorithm, path.read_bytes()).digest()
    if base64.b64encode(digest).decode() != wanted:
        sys.exit(f"{path.name}: its {algorithm} is not the pinned one")
