"""Speed, memory and quality beside peers and physical limits; one command each."""

import os

# Or else each process that is timed compiles our modules anew, and the installed peers' not.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
