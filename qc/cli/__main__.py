"""``python -m qc.cli`` is the command ``qc``."""

import sys

from qc.cli import main

sys.exit(main())
