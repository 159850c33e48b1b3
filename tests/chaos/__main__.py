"""`python -m tests.chaos`: everything goes wrong for a while, and no promise may be broken. See storm.py."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.storm import storm

SECONDS = 900.0


def main() -> int:
    """Run the storm; the exit code says whether every promise held."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long faults are made (900)")
    parser.add_argument(
        "--seed", type=int, help="what is drawn; else another one each time, which is printed"
    )
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lethe-chaos-") as directory:
        wrong = storm(Path(directory), seconds=chosen.seconds, seed=chosen.seed)
    print("chaos: every promise held" if not wrong else f"chaos: {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
