"""Command line of the generator: python -m tests.accuracy.generate --out DIR."""

from __future__ import annotations

import argparse
import fnmatch
import time
from pathlib import Path

from .cases import make
from .drawn import draw, draw_wrong
from .family import CASES


def main() -> None:
    parser = argparse.ArgumentParser(description="write a family of decode traces with their truth")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="*", help="shell pattern of case names")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drawn", type=int, metavar="N", help="N cases drawn at random instead")
    parser.add_argument("--wrong", action="store_true", help="drawn ones with a wrong plan")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.wrong and args.drawn is None:
        parser.error("--wrong is for cases drawn at random: say --drawn N")
    drawn = (draw_wrong if args.wrong else draw)(args.seed, args.drawn or 0)
    cases = CASES if args.drawn is None else drawn
    chosen = [case for case in cases if fnmatch.fnmatch(case.name, args.only)]
    if args.list or args.out is None:
        print("\n".join(case.name for case in chosen))
        return
    for case in chosen:
        start = time.perf_counter()
        make(case, args.out, args.seed)
        print(f"{case.name:<52} {time.perf_counter() - start:5.1f} s")


if __name__ == "__main__":
    main()
