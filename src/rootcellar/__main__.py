"""`python -m rootcellar`."""

import sys

from rootcellar.cli.main import main

sys.exit(main())
