"""wireguard.py ROLE DIRECTORY PROGRAM COMMAND...: runs a command with a tunnel by wireguard-go."""

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unmodified"))

from tunnel import tunnel

role, directory, program = sys.argv[1:4]
with tunnel(directory, role, program):
    subprocess.run(sys.argv[4:])
