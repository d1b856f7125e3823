"""Makes the engine API's messages a part of what is built."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent))
from generate import generate


class BuildWithMessages(build_py):
    """The package, and the messages beside it."""

    def run(self) -> None:
        super().run()
        generate(Path(self.build_lib))


setup(cmdclass={"build_py": BuildWithMessages})
