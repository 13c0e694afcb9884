"""``python -m tests.scenarios [NAME...] --seeds 40``: what verdicts and alignments are worth.

On jobs of ``tests/support/job_simulator``, whose truth is known. ``--list`` shows all scenarios,
``--show SEED`` what is said of one job.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from job_simulator.harness import main

if __name__ == "__main__":
    sys.exit(main())
