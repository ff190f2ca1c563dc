"""A real kernel that gets cell ids as JupyterLab, VS Code or Colab send them."""

from __future__ import annotations

import ast
from contextlib import contextmanager

from jupyter_client.manager import KernelManager
from kernel_files import connection


class Kernel:
    """Runs cells with metadata, which ``execute`` of jupyter_client's `client` does not send."""

    def __init__(self, client):
        self.client = client
        self.open_comms: set[str] = set()  # as a page would count them

    def run(self, code, metadata=None, seconds=300):
        """Run a cell; return the texts that it printed and displayed.

        Parameters
        ----------
        metadata : dict, optional
            Metadata of the request: ``{"cellId": "a"}`` or ``{"colab": {"cell_id": "a"}}``.
        """
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        request = self.client.session.msg("execute_request", content, metadata=metadata or {})
        self.client.shell_channel.send(request)
        return list(self._texts(request["header"]["msg_id"], seconds))

    def slide(self, comm_id, value, seconds=60):
        """Move a slider as a page does; return the texts printed or displayed."""
        data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
        request = self.client.session.msg("comm_msg", {"comm_id": comm_id, "data": data})
        self.client.shell_channel.send(request)
        return list(self._texts(request["header"]["msg_id"], seconds))

    def _texts(self, request, seconds):
        while True:
            message = self.client.get_iopub_msg(timeout=seconds)
            kind, content = message["msg_type"], message["content"]
            if kind == "comm_open":
                self.open_comms.add(content["comm_id"])
            elif kind == "comm_close":
                self.open_comms.discard(content["comm_id"])
            if message["parent_header"].get("msg_id") != request:
                continue
            if kind == "stream":
                yield content["text"]
            elif kind in ("execute_result", "display_data"):
                text = content["data"]["text/plain"]
                # Progress bars appear only on slow machines.
                if "<progress" not in content["data"].get("text/html", ""):
                    yield text
            elif kind == "error":
                yield f"{content['ename']}: {content['evalue']}"
            elif kind == "status" and content["execution_state"] == "idle":
                return

    def value(self, expression):
        """Evaluate an expression of numbers, texts, lists and dicts in the kernel."""
        printed = self.run(f"print(repr({expression}))")
        return ast.literal_eval("".join(printed))


@contextmanager
def new_kernel():
    with connection() as config:
        manager = KernelManager(kernel_name="python3", config=config)
        manager.start_kernel()
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=300)
            yield Kernel(client)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
