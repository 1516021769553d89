"""Counts how many of canal's recorded entries we reproduce, by file: `bash bench/golden.sh`."""

from __future__ import annotations

import os
import sys
import time

from canal_ha.decode import kernel
from lab.variants import VARIANTS, score


def main() -> int:
    """Print the table; return 1 if an entry differs."""
    os.environ["TZ"] = "UTC"  # time zone of the recordings
    time.tzset()
    print(f"kernel: {kernel.BUILD}\n{'file and setting':28} {'equal':>6} / {'total':<6} {'made':>6}   deliberate")
    failed = False
    for variant in VARIANTS:
        found = score(variant)
        failed |= not found.perfect
        counts = f"{found.equal:6} / {found.total:<6} {found.made:6} {found.deliberate:12}"
        print(f"{variant.name:28} {counts}   {100 * found.equal / found.total:6.2f} %")
        if found.first:
            print(f"    first difference: {found.first[:400]}")
    print("deliberate: entries that differ on purpose (docs/compatibility.md), compared with their intended form")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
