"""Find the limit of TCP transfers, simulate remedies, and run sweeps of experiments.

The functions do what the commands of the same names do, and return the documents that the commands print with
``--json``, as dicts:

=================  =====================================================================================
:func:`diagnose`   names the limit of a measured transfer, and simulates what comes after it (the ladder)
:func:`whatif`     calculates the ladder of a path that is given by rate, RTT and loss
:func:`run`        runs an experiment in the simulator
:func:`sweep`      runs a large experiment, and writes its results as a data set of Parquet files
=================  =====================================================================================

Rates, times and sizes are strings with units: ``"340mbit"``, ``"210ms"``, ``"4MiB"``, ``"1.5%"``, ``"20ppm"``. A bare
number is refused, as in an experiment file.

>>> import fullpipe
>>> answer = fullpipe.whatif(link="10mbit", rtt="50ms", sndbuf="64KiB")
>>> answer["ladder"][0]["limit"]
'sndbuf'
"""

from ._diagnosis import Diagnosis, WhatIf, diagnose, whatif
from ._errors import (
    CommandNotFoundError,
    Error,
    ExpectationError,
    InputError,
    MissingPackageError,
    NetworkError,
    RevertedError,
    RightsError,
    UsageError,
)
from ._experiment import Experiment
from ._fullpipe import Table
from ._fullpipe import version as _version
from ._run import Result, run
from ._sweep import Dataset, Origin, Problem, Ratio, sweep

__version__ = _version()

__all__ = [
    "CommandNotFoundError",
    "Dataset",
    "Diagnosis",
    "Error",
    "ExpectationError",
    "Experiment",
    "InputError",
    "MissingPackageError",
    "NetworkError",
    "Origin",
    "Problem",
    "Ratio",
    "Result",
    "RevertedError",
    "RightsError",
    "Table",
    "UsageError",
    "WhatIf",
    "__version__",
    "diagnose",
    "run",
    "sweep",
    "whatif",
]
