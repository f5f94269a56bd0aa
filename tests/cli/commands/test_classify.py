"""`loragate classify` against the real gateway, whose engine's logits are 3 and -4."""

import json
from pathlib import Path

import pytest

from tests.cli.command_runner import run
from tests.gateway import tiny_model


@pytest.mark.usefixtures("tenant")
def test_labels_of_texts(tmp_path: Path) -> None:
    folder = tiny_model.write_adapter(tmp_path / "topics", labels=2, id2label={"0": "billing", "1": "technical"})
    run("adapters", "upload", str(folder))
    rows = [line.split("\t") for line in run("classify", "--model", "topics", "one two", "three").stdout.splitlines()]
    assert [row[:2] for row in rows] == [["one two", "billing"], ["three", "billing"]]
    assert [float(row[2]) for row in rows] == [pytest.approx(0.99909, abs=1e-5)] * 2
    piped = json.loads(run("classify", "--model", "topics", "--logits", "--json", typed="one\n\ntwo\n").stdout)
    assert [item["probs"] for item in piped["data"]] == [[3.0, -4.0], [3.0, -4.0]]
    run("classify", "--model", "topics", typed="", status=2)
