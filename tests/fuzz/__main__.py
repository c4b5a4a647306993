"""``python -m fuzz``: a campaign from the command line; the exit code is 1 if anything failed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .campaign import Campaign, Limits
from .mutant import MODELS
from .subject import DEEDS, SOUND_DEEDS


def main() -> int:
    """Runs the campaign."""
    parser = argparse.ArgumentParser(
        "fuzz", description="Tries hostile models, and unusual sound ones, on qc."
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=10_000, help="number of models")
    parser.add_argument("--models", choices=MODELS, default="hostile", help="which models")
    parser.add_argument("--deeds", help="what is done with each model; by default all there is for its kind")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="where failures are kept")
    parser.add_argument("--seconds", type=float, default=Limits.seconds, help="limit for one model")
    given = parser.parse_args()
    deeds = given.deeds.split(",") if given.deeds else DEEDS if given.models == "hostile" else SOUND_DEEDS
    campaign = Campaign(given.folder, deeds, Limits(given.seconds), given.models)
    outcome = campaign.run(
        range(given.seed, given.seed + given.count), lambda words: print(words, flush=True)
    )
    print(outcome)
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
