"""Hostile models: whatever a file says, qc answers with a result or with one of its own errors.

``PYTHONPATH=tests python -m fuzz --count 10000`` runs a campaign, ``--seed N --count 1`` replays one model of
it. A failure is a process that dies of a signal, a model that takes too long, an exception that is no
:class:`~qc.ir.errors.QcError`, a file read that lies outside the model's folder, or one written outside the
output folder.

``--models capturing`` is about sound models whose bodies capture what other ops carry along: each is compiled
and opened by ONNX Runtime with all optimizations, and must give nearly the same numbers.
"""
