"""The parts of the routing benchmark in real time. It starts programs as the demo does, and peers as .ci/peers.py installs them."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
for folder in ("examples/demo", ".ci"):
    sys.path.insert(0, str(ROOT / folder))
