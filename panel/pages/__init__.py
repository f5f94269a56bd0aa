"""The pages, each a module with a `draw` function."""

from loragate.panel.pages.adapters import adapter
from loragate.panel.pages.adapters import list as adapters
from loragate.panel.pages.jobs import batches, job, responses, training_runs
from loragate.panel.pages.jobs import list as jobs
from loragate.panel.pages.operations import audit, engine, keys, tenant, tenants, usage
from loragate.panel.pages.overview import overview
from loragate.panel.pages.page import PageSpec, add_page
from loragate.panel.pages.playground import classify, playground

PAGES: tuple[PageSpec, ...] = (
    PageSpec("/", "Overview", overview.draw),
    PageSpec("/adapters", "Adapters", adapters.draw),
    PageSpec("/adapters/{name}", "Adapter", adapter.draw, "adapters:read"),
    PageSpec("/playground", "Playground", playground.draw, "inference"),
    PageSpec("/classify", "Classify", classify.draw, "inference"),
    PageSpec("/fine-tuning", "Fine-tuning", jobs.draw),
    PageSpec("/fine-tuning/{job}", "Job", job.draw, "finetune or operator"),
    PageSpec("/batches", "Batches", batches.draw, "inference or operator"),
    PageSpec("/responses", "Responses", responses.draw, "inference"),
    PageSpec("/training", "Training", training_runs.draw),
    PageSpec("/usage", "Usage", usage.draw),
    PageSpec("/keys", "Keys", keys.draw, "tenant"),
    PageSpec("/tenants", "Tenants", tenants.draw, "operator"),
    PageSpec("/tenants/{tenant}", "Tenant", tenant.draw, "operator"),
    PageSpec("/engine", "Engine", engine.draw, "operator"),
    PageSpec("/audit", "Audit", audit.draw, "admin"),
)


def register() -> None:
    """Register all pages, once per process, before NiceGUI starts."""
    for page in PAGES:
        add_page(page)
