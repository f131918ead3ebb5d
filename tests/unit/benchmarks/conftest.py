"""Benchmarks are not installed. Appended, so that no module of theirs hides an installed one (benchmarks/build.py)."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
