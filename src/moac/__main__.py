"""`python -m moac` is `moac`."""

import sys

from moac.cli.main import main

sys.exit(main())
