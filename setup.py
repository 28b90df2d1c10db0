"""What pyproject.toml cannot say: student notebooks go into the wheel, where `course start` is."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithNotebooks(build_py):
    """Copies `notebooks/` into the package `coursework`. Solutions stay where they are."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "coursework" / "notebooks"
        target.mkdir(parents=True, exist_ok=True)
        for notebook in sorted(Path("notebooks").glob("*/*.ipynb")):
            shutil.copyfile(notebook, target / notebook.name)


setup(cmdclass={"build_py": WithNotebooks})
