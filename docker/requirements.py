"""What setup.cfg asks for, as lines for pip: `requirements.py setup.cfg [EXTRA...]`.

So that an image installs what we stand on before it is given our sources: a changed source then costs seconds, not
another TensorFlow. No image names a package that setup.cfg does not.
"""

import configparser
import sys
from pathlib import Path


def requirements(path: Path, extras: list[str]) -> list[str]:
    """The lines of install_requires and of the given extras, each once."""
    config = configparser.ConfigParser(interpolation=None)
    config.read_string(path.read_text())
    texts = [config["options"]["install_requires"], *(config["options.extras_require"][extra] for extra in extras)]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return list(dict.fromkeys(line for line in lines if line and not line.startswith("#")))


if __name__ == "__main__":
    print(*requirements(Path(sys.argv[1]), sys.argv[2:]), sep="\n")
