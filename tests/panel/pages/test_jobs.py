"""Fine-tuning from a file to a job; no worker runs here, so jobs wait."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.panel.leaving import asks_before_leaving
from tests.panel.world import World


def _file(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("\n".join(lines))
    return path


def _example(number: int) -> str:
    asked, answered = {"role": "user", "content": f"<i>{number}</i>?"}, {"role": "assistant", "content": "Yes."}
    return json.dumps({"messages": [asked, answered]})


def test_bad_lines_are_named_before_anything_is_sent(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/fine-tuning")
    page.get_by_role("button", name="New job").click()
    lines = [*map(_example, range(10)), "{", '{"prompts": "x"}', '{"text": "alone"}']
    page.get_by_label("Training file").set_input_files(_file(world.folder, "bad.jsonl", lines))
    alert = page.get_by_role("dialog").get_by_role("alert")
    for words in ("Line 11: it is not JSON.", "Line 12: it does not have the fields", "Line 13: its format"):
        expect(alert).to_contain_text(words)
    page.get_by_role("button", name="Create job", exact=True).click()
    expect(page.get_by_text("Choose a training file first.")).to_be_visible()
    with world.api() as api:
        assert api.get("/v1/files").json()["data"] == []


def test_a_file_becomes_a_job_that_is_paused_and_cancelled(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/fine-tuning")
    page.get_by_role("button", name="New job").click()
    file = _file(world.folder, "good.jsonl", [*map(_example, range(12))])
    with page.expect_response("**/transfer/files") as sent:
        page.get_by_label("Training file").set_input_files(file)
    assert sent.value.status == 200
    expect(page.get_by_role("dialog").get_by_text("12 examples, chat")).to_be_visible()
    expect(page.get_by_role("dialog")).to_contain_text("<i>0</i>?")
    page.get_by_role("dialog").get_by_label("Name").fill("support")
    page.get_by_text("Hyperparameters", exact=True).click()
    page.get_by_label("Epochs").fill("2")
    page.get_by_label("Invocation tokens").fill("[5, six]")
    page.get_by_role("button", name="Create job", exact=True).click()
    expect(page.get_by_text("alora_invocation_tokens.1")).to_be_visible()
    page.get_by_label("Invocation tokens").fill("")
    page.get_by_role("button", name="Create job", exact=True).click()
    page.wait_for_url("**/fine-tuning/ftjob-*")
    with world.api() as api:
        (job,) = api.get("/v1/fine_tuning/jobs").json()["data"]
    assert job["method"]["supervised"]["hyperparameters"]["n_epochs"] == 2
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_text("cancelled", exact=True)).to_be_visible()
    page.goto(f"{world.panel.url}/fine-tuning")
    expect(page.get_by_role("row").filter(has_text=job["id"])).to_contain_text("cancelled")


def _waiting(world: World) -> str:
    """Create a waiting job of acme."""
    with world.api() as api:
        body = "\n".join(map(_example, range(12))).encode()
        file = api.post("/v1/files", data={"purpose": "fine-tune"}, files={"file": ("f.jsonl", body)}).json()
        wanted = {"model": "tiny/base-model", "training_file": file["id"]}
        return str(api.post("/v1/fine_tuning/jobs", json=wanted).json()["id"])


def test_a_click_during_a_redraw_is_not_lost(signed_in: Callable[..., Page], world: World) -> None:
    job = _waiting(world)
    page = signed_in(world.admin_key, "/fine-tuning")
    row = page.get_by_role("row").filter(has_text=job)
    page.get_by_role("button", name=f"Cancel {job}").focus()
    page.keyboard.down("Space")
    with world.api(world.admin_key) as admin:
        assert admin.post(f"/admin/v1/jobs/{job}/pause").is_success
    expect(row).to_contain_text("paused")
    expect(page.get_by_role("button", name=f"Resume {job}")).to_be_visible()
    page.keyboard.up("Space")
    expect(row).to_contain_text("cancelled")


def test_the_operator_sees_all_jobs_and_other_tenants_none(signed_in: Callable[..., Page], world: World) -> None:
    job = _waiting(world)
    page = signed_in(world.other_key, f"/fine-tuning/{job}")
    expect(page.get_by_role("alert").filter(has_text="does not exist")).to_be_visible()
    expect(page.get_by_text("starts from")).to_have_count(0)
    page = signed_in(world.admin_key, "/fine-tuning")
    row = page.get_by_role("row").filter(has_text=job)
    expect(row).to_contain_text("acme")
    page.get_by_role("link", name=job).click()
    expect(page.get_by_text("A job of the tenant acme.")).to_be_visible()
    expect(page.get_by_text("starts from tiny/base-model")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.goto(f"{world.panel.url}/fine-tuning")
    page.get_by_role("button", name=f"Pause {job}").click()
    expect(row).to_contain_text("paused")
    page.get_by_role("button", name=f"Resume {job}").click()
    expect(page.get_by_role("button", name=f"Pause {job}")).to_be_visible()
    page.get_by_role("button", name=f"Cancel {job}").click()
    expect(row).to_contain_text("cancelled")
    page.get_by_label("State").click()
    page.get_by_role("option", name="Succeeded").click()
    expect(page.get_by_text("No job is in this state.")).to_be_visible()


def _preference(number: int) -> str:
    answers = {"preferred_output": "Gladly.", "non_preferred_output": "<b>No.</b>"}
    reported = {name: [{"role": "assistant", "content": words}] for name, words in answers.items()}
    return json.dumps({"input": {"messages": [{"role": "user", "content": f"{number}?"}]}} | reported)


def test_a_file_of_preferences_is_trained_with_dpo(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/fine-tuning")
    page.get_by_role("button", name="New job").click()
    dialog = page.get_by_role("dialog")
    with page.expect_response("**/transfer/files") as sent:
        page.get_by_label("Training file").set_input_files(
            _file(world.folder, "pairs.jsonl", [*map(_preference, range(12))])
        )
    assert sent.value.status == 200
    expect(dialog.get_by_text("12 examples, preference")).to_be_visible()
    for words in ("0?", "preferred", "Gladly.", "not preferred", "<b>No.</b>"):
        expect(dialog.get_by_text(words, exact=True).first).to_be_visible()
    expect(dialog.get_by_text("preferred and rejected answers")).to_be_visible()
    page.get_by_text("Hyperparameters", exact=True).click()
    dialog.get_by_label("Beta").fill("0.25")
    page.get_by_role("button", name="Create job", exact=True).click()
    page.wait_for_url("**/fine-tuning/ftjob-*")
    with world.api() as api:
        method = api.get("/v1/fine_tuning/jobs").json()["data"][0]["method"]
    assert (method["type"], method["dpo"]["hyperparameters"]["beta"]) == ("dpo", 0.25)


def test_labelled_texts_become_a_classifier_with_a_confusion_matrix(
    signed_in: Callable[..., Page], world: World
) -> None:
    page = signed_in(path="/fine-tuning")
    page.get_by_role("button", name="New job").click()
    dialog = page.get_by_role("dialog")
    lines = [json.dumps({"text": f"{n}?", "label": "<b>a</b>" if n % 2 else "b"}) for n in range(12)]
    with page.expect_response("**/transfer/files") as sent:
        page.get_by_label("Training file").set_input_files(_file(world.folder, "topics.jsonl", lines))
    assert sent.value.status == 200
    expect(dialog.get_by_text("12 examples, labelled text")).to_be_visible()
    expect(dialog.get_by_text("<b>a</b>", exact=True).first).to_be_visible()
    page.get_by_role("button", name="Create job", exact=True).click()
    page.wait_for_url("**/fine-tuning/ftjob-*")
    with world.api() as api:
        job, *others = api.get("/v1/fine_tuning/jobs").json()["data"]
        for other in others:  # of the tests before, which would come first
            api.post(f"/v1/fine_tuning/jobs/{other['id']}/cancel")
    assert job["method"]["type"] == "classify"
    world.gateway.classifier_trained()
    matrix = page.get_by_role("region", name="Confusion matrix")
    expect(matrix.get_by_role("row", name="b 1 2 67%", exact=True)).to_be_visible()
    expect(matrix.get_by_role("columnheader", name="<b>a</b>")).to_be_visible()
    expect(page.get_by_label("Evaluation")).to_contain_text("Accuracy0.750")
    expect(page.get_by_role("link", name="Open in the playground")).to_have_attribute("href", re.compile("^/classify"))


def test_a_file_is_never_read_as_a_whole(signed_in: Callable[..., Page], world: World) -> None:
    lines = [*map(_example, range(4000)), json.dumps({"messages": "x" * (5 << 20)}), _example(1), "{"]
    page = signed_in()
    page.add_init_script(
        "for (const each of ['text', 'arrayBuffer']) Blob.prototype[each] = () => { throw new Error('whole'); }"
    )
    page.goto(f"{world.panel.url}/fine-tuning")
    page.get_by_role("button", name="New job").click()
    page.get_by_label("Training file").set_input_files(_file(world.folder, "long.jsonl", lines))
    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_contain_text("Line 4001: it is longer than 4 MiB.")
    expect(alert).to_contain_text("Line 4003: it is not JSON.")
    expect(alert).not_to_contain_text("4002")
    expect(page.get_by_role("dialog").get_by_text("4001 examples, chat")).to_be_visible()


def test_files_are_kept_for_further_jobs_until_they_are_deleted(signed_in: Callable[..., Page], world: World) -> None:
    with world.api() as api:
        body = "\n".join(map(_example, range(12))).encode()
        api.post("/v1/files", data={"purpose": "fine-tune"}, files={"file": ("kept.jsonl", body)}).raise_for_status()
    page = signed_in(path="/fine-tuning")
    page.get_by_role("button", name="New job").click()
    page.get_by_label("Or an uploaded file").click()
    page.get_by_role("option", name="kept.jsonl").click()
    page.get_by_role("button", name="Create job", exact=True).click()
    page.wait_for_url("**/fine-tuning/ftjob-*")
    page.goto(f"{world.panel.url}/fine-tuning")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download kept.jsonl").click()
    assert download.value.path().read_bytes() == body
    page.get_by_role("button", name="Delete kept.jsonl").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("cell", name="kept.jsonl")).to_have_count(0)


def test_the_browser_asks_before_leaving_during_a_file_upload(signed_in: Callable[..., Page], world: World) -> None:
    page = signed_in(path="/fine-tuning")
    page.route("**/transfer/files", lambda route: None)  # it never ends
    page.get_by_role("button", name="New job").click()
    expect(page.get_by_label("Method")).to_be_attached()
    assert not asks_before_leaving(page)
    lines = [*map(_example, range(12))]
    page.get_by_label("Training file").set_input_files(_file(world.folder, "left.jsonl", lines))
    expect(page.get_by_role("progressbar", name="Uploading")).to_be_visible()
    assert asks_before_leaving(page)
    page.get_by_role("button", name="Create job", exact=True).click()
    expect(page.get_by_text("A file is still being uploaded. Start the job when it is complete.")).to_be_visible()
    expect(page.get_by_text("Choose a training file first.")).to_have_count(0)
