"""One line of a batch: its request is run until it has a result."""

import asyncio
import logging
import secrets
from dataclasses import dataclass
from typing import Any

import orjson

from loragate.adapter_store.auth.principal import TenantPrincipal
from loragate.adapter_store.batches.batch import Batch, LineResult
from loragate.adapter_store.errors import StoreError
from loragate.gateway.batches.endpoints import ANSWERS, LineRequest
from loragate.gateway.batches.input_lines import InputLine
from loragate.gateway.batches.validation import parse_line
from loragate.gateway.calls.batch_line import BatchLineAdmission
from loragate.gateway.errors import ApiError, InternalError, error_details
from loragate.gateway.generation.prepare import RequestPreparer
from loragate.gateway.generation.service import GenerationService
from loragate.gateway.http.access_log import log_exception
from loragate.gateway.http.bodies import parse_body
from loragate.gateway.http.envelope import error_body
from loragate.gateway.metering.ledger import Prices
from loragate.gateway.services import Services

log = logging.getLogger(__name__)

_TEMPORARY = (429, 503)
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
_MAX_ATTEMPTS = 5  # at an adapter that cannot be loaded: this may be its own fault


@dataclass(frozen=True, slots=True)
class LineRunner:
    """Runs lines. `preparer` and `generation` are those of batches."""

    use: Services
    preparer: RequestPreparer
    generation: GenerationService
    prices: Prices

    async def run(self, caller: TenantPrincipal, batch: Batch, line: InputLine) -> LineResult:
        """Return the line's result. While the engine or the database is unavailable, wait and try again."""
        document = await parse_body(self.use.body_threads, caller.tenant_id, parse_line, line.content)
        attempt = 0
        while True:
            result = await self._try(caller, batch, line.number, document, attempt)
            if result is not None:
                return result
            await asyncio.sleep(min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(attempt, 10)))
            attempt += 1

    async def _try(
        self, caller: TenantPrincipal, batch: Batch, number: int, document: dict[str, Any], attempt: int
    ) -> LineResult | None:
        """Run the request once; return None if it is to be tried again."""
        request_id = f"req_{secrets.token_hex(16)}"
        admission = BatchLineAdmission(self.generation, self.use.link, self.use.lifecycle)
        request = LineRequest(self.preparer, admission, caller, request_id, document["body"])
        try:
            response = await ANSWERS[batch.endpoint](request)
            status, body = response.status_code, bytes(response.body)
        except (ApiError, StoreError) as error:
            if _is_temporary(error, attempt):
                return None
            status, body = _rejected(error)
        except Exception as error:
            log_exception(log, error, request_id)
            status, body = _rejected(InternalError(request_id))
        usage = await admission.usage()
        if usage is not None:
            usage = self.prices.priced(usage)
        answer = {"status_code": status, "request_id": request_id, "body": orjson.Fragment(body)}
        return LineResult(number, status != 200, output_line(document["custom_id"], answer), usage)


def output_line(custom_id: str, response: dict[str, Any] | None, error: dict[str, str] | None = None) -> str:
    """Return a line of an output or error file."""
    line_id = f"batch_req_{secrets.token_hex(12)}"
    return orjson.dumps({"id": line_id, "custom_id": custom_id, "response": response, "error": error}).decode()


def _is_temporary(error: ApiError | StoreError, attempt: int) -> bool:
    if error.code == "adapter_unavailable" and attempt + 1 >= _MAX_ATTEMPTS:
        return False
    return error.status in _TEMPORARY


def _rejected(error: ApiError | StoreError) -> tuple[int, bytes]:
    details = error_details(error)
    return details.status, orjson.dumps(error_body(details))
