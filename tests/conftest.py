"""What holds for every test: one thread, the same examples every time, and in CI no skips."""

import os
import signal
import sys
from pathlib import Path

import hypothesis
import pytest

# Read when NumPy or PyTorch is first imported, here and in the processes that tests start. On a
# loaded machine two threads are far slower than one.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

# nbgrader starts alembic by name. The environment need not be active for its tests to run.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

# What a script starts in the background ignores interrupts, and so would all that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The notebooks under tests/ are material, often damaged on purpose, and not tests.
collect_ignore_glob = ["*.ipynb"]

hypothesis.settings.register_profile("course", deadline=None, derandomize=True)
hypothesis.settings.load_profile("course")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    return _no_skip_in_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    return _no_skip_in_ci((yield))


def _no_skip_in_ci(report):
    """Turn a skipped report into a failed one where CI=true, keeping its reason."""
    if report.skipped and os.environ.get("CI") == "true":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped where CI=true. {reason}"
    return report
