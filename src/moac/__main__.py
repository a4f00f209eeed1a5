"""`python -m moac` is `moac`."""

import sys

from moac.cli import main

sys.exit(main())
