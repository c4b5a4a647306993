"""Placement of quantizers as AIMET's quantsim does it, from AIMET's configuration files.

``config``, ``reading`` and ``writing`` hold the configuration, ``nodes`` and ``fusions`` the graph as the
rules see it, and ``drafts`` the quantizers while they are decided. The rules are in ``configuration``,
``exceptions`` and ``ties``, in the order in which they apply.
"""
