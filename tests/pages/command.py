"""The command as pages have it run: forked from the forge, where it would load the same modules sixty times.

It is a program of its own, and stands in PATH as `lethe`: it hands its words, environment, folder and streams
to the forge, signals to the process that it gets, and ends as that does. The page that everybody reads first
has the command itself (test_blocks.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.forge import LETHE, forge_place

TEXT = """#!{python} -SIE
import json, os, signal, socket, sys

connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect({place!r})
request = dict(arguments=[{lethe!r}, *sys.argv[1:]], env=dict(os.environ), cwd=os.getcwd())
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
pid = int(connection.recv(64))
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
code = int(connection.recv(64) or -signal.SIGKILL)
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def forged_command(folder: Path) -> Path:
    """Write it into a folder; returns the folder."""
    folder.mkdir()
    file = folder / "lethe"
    file.write_text(TEXT.format(python=sys.executable, lethe=str(LETHE), place=str(forge_place())))
    file.chmod(0o755)
    return folder
