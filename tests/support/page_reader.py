"""A reader who follows a page of docs/ and does what its snippets show."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from running_server import ADMIN_KEY, RunningServer, client, ok
from snippets import Block

_HEADERS = """ -H "Authorization: Bearer $KEY" -H 'content-type: application/json'"""
_SERVE = re.compile(r"((?:\w+=\S+ )*)loragate serve( .*)?")
_KEPT = re.compile(r"(from|import) |client = ")
_ACTIVATE = ". .venv/bin/activate"
_OF_HUB = ("LORAGATE_IMPORTS__HUB", "HF_ENDPOINT", "HF_HOME")
_PROMPT = re.compile(r"(.*\)):(.*)")


class Reader:
    """A reader who follows a page: in a folder with the files that pages name, with the variables that they leave to
    the reader, and with the shared server until the page starts one."""

    def __init__(
        self,
        folder: Path,
        shared: RunningServer,
        environment: dict[str, str],
        placeholders: dict[str, str],
        *,
        whole_programs: bool = False,  # which need nothing of earlier ones
    ) -> None:
        self.whole_programs = whole_programs
        self.folder = self.home = folder
        self.server = shared
        self.own: RunningServer | None = None
        self.started = 0  # servers of its own
        self.environment = environment
        self.placeholders = placeholders
        self.known = ""  # what a program has from earlier ones of its page
        self.data_dir = folder / ".loragate"
        self.data_dir.symlink_to(shared.data_dir)

    def run(self, block: Block) -> str:
        """Run what a block shows, and return what its program or its last command prints on stdout."""
        if block.language == "python":
            return self.run_program(block.text)
        assert block.commands, f"{block.beginning}: no line begins with $"
        printed = ""
        if any(command.startswith(_ACTIVATE) for command, _ in block.commands):  # a new terminal
            self.enter(self.home)
        for command, shown in block.commands:
            served = _SERVE.fullmatch(command)
            if served:
                self.serve(
                    dict(each.split("=") for each in served[1].split()), shlex.split(served[2] or "", comments=True)
                )
            else:
                printed = self.run_command(self.filled(command), shown)
        return printed

    def enter(self, folder: Path) -> None:
        """Continue in another folder."""
        if folder != self.folder:
            self.folder, self.data_dir = folder, folder / ".loragate"
            os.chdir(folder)

    def serve(self, environment: dict[str, str], options: list[str]) -> None:
        self.stop()
        if self.data_dir.is_symlink():
            self.data_dir.unlink()
        hub = {name: self.environment[name] for name in _OF_HUB if name in self.environment}
        self.started += 1
        self.own = RunningServer(self.data_dir, *options, **hub, **environment)
        self.server = self.own
        if self.own.base_url.startswith("http:"):  # no page has commands for one with a certificate
            self.environment |= variables(self.own, f"reader-{self.started}")

    def run_command(self, command: str, shown: list[str]) -> str:
        """Run a command with what earlier ones exported. If lines are shown below it, it must print them, and gets
        what is typed into them. Return its stdout."""
        if command.startswith("loragate init "):
            (self.folder / "loragate.toml").unlink(missing_ok=True)  # of the server before
        prompts = [_PROMPT.fullmatch(line) for line in shown]
        exported = self.folder / ".exported"
        done = subprocess.run(
            ["bash", "-aeo", "pipefail", "-c", f"{command}\nenv -0 > {exported}"],
            cwd=self.folder, env=self.environment, input="".join(f"{each[2].strip()}\n" for each in prompts if each),
            capture_output=True, text=True, start_new_session=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        for line, prompt in zip(shown, prompts, strict=True):
            assert (prompt[1] if prompt else line) in done.stdout + done.stderr
        self.environment = dict(each.split("=", 1) for each in exported.read_text().split("\0") if each)
        self.enter(Path(self.environment["PWD"]))
        return done.stdout

    def run_program(self, text: str) -> str:
        """Run a program in a process of its own, and return its stdout."""
        program = text = self.filled(text)
        if not self.whole_programs:
            key = self.environment["LORAGATE_API_KEY"]
            given = f"API_KEY, first_lines, batches = {key!r}, open('first.jsonl', 'rb'), [open('more.jsonl', 'rb')]\n"
            program = given + self.known + text
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"
        self.known += "".join(line for line in text.splitlines(True) if _KEPT.match(line))
        return done.stdout

    def filled(self, text: str) -> str:
        """Replace the placeholders, and the addresses that servers have by default. An ellipsis at the end of a command
        stands for the headers that every request has."""
        addresses = {
            "http://127.0.0.1:8000": self.server.base_url,
            "127.0.0.1:50051": self.server.runtime["grpc_target"],
        }
        for shown, real in {
            **addresses,
            **self.placeholders,
            "lg-…": self.environment.get("LORAGATE_API_KEY", ""),
        }.items():
            text = text.replace(shown, real)
        text = re.sub(r" …(?=\s|$)", _HEADERS, text)
        assert "…" not in text
        return text

    def stop(self) -> None:
        if self.own is not None:
            assert self.own.stop() == 0
            self.own = None


def variables(server: RunningServer, tenant: str) -> dict[str, str]:
    """Create a tenant; return the variables that commands in the pages have."""
    key = server.add_tenant(tenant, "all", "export")
    with server.admin() as admin, client(server.base_url, key) as caller:
        (tenant_id,) = (each["id"] for each in ok(admin.get("/admin/v1/tenants"))["data"] if each["name"] == tenant)
        form = {"purpose": "fine-tune", "open": "true"}
        file_id = ok(caller.post("/v1/files", data=form, files={"file": ("calls.jsonl", b"")}))["id"]
    keys = {"LORAGATE_API_KEY": key, "KEY": key, "LORAGATE_ADMIN_KEY": ADMIN_KEY, "ADMIN_KEY": ADMIN_KEY}
    return {"BASE": server.base_url, "URL": server.base_url, "TENANT": tenant_id, "FILE": file_id} | keys
