"""Requests are logged only where the operator asks for it."""

import logging
from collections.abc import Iterator

import pytest

from loragate.gateway.http.access_log import access_log, show_requests, write_access_line
from loragate.gateway.http.context import RequestContext


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = access_log.level
    yield
    access_log.setLevel(before)


@pytest.mark.parametrize("shown", [False, True])
def test_a_request_has_a_line_only_if_requests_are_shown(shown: bool, caplog: pytest.LogCaptureFixture) -> None:
    show_requests(shown)
    with caplog.at_level(logging.INFO):
        write_access_line(logging.INFO, "GET", "/v1/models", RequestContext("req"), 200)
    assert len(caplog.records) == shown
