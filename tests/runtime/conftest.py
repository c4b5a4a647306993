"""What the operators of the domain "qc" are run with."""

from __future__ import annotations

import pytest
from support import operator_sessions
from support.cuda_on_host import build_cuda_on_host

from qc.runtime.native.library import library_path
from qc.runtime.sessions.providers import missing_for_cuda


@pytest.fixture(params=["cpu", "cuda on host", "cuda"], scope="module")
def implementation(request: pytest.FixtureRequest) -> str:
    """What the sessions of a file run with."""
    name: str = request.param
    if name == "cuda" and missing_for_cuda():
        pytest.skip(f"CUDA cannot be used: {missing_for_cuda()}")
    library = build_cuda_on_host() if name == "cuda on host" else library_path(cuda=name == "cuda")
    operator_sessions.use(library, "cuda" if name == "cuda" else "cpu")
    return name
