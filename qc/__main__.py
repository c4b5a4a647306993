"""``python -m qc`` is the command ``qc``."""

import sys

from qc.cli import main

sys.exit(main())
