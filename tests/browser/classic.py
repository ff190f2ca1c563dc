"""The classic Notebook 6 in a real browser, with ipywidgets 7 as in Colab."""

from __future__ import annotations

from front_end import PATIENCE, TOKEN, FrontEnd, OpenNotebook, number, wait_for


class Classic(FrontEnd):
    """A running Notebook 6."""

    module = "notebook"

    def options(self):
        return {
            "ip": "127.0.0.1",
            "port": self.port,
            "NotebookApp.port_retries": 0,
            "NotebookApp.token": TOKEN,
            "NotebookApp.password": "",
            "NotebookApp.notebook_dir": self.files,
        }

    def address(self, name):
        return f"http://127.0.0.1:{self.port}/notebooks/{name}?token={TOKEN}"


CONNECTED = """() => {
  const { notebook } = globalThis.Jupyter ?? {};
  return notebook?._fully_loaded && notebook.kernel?.is_connected();
}"""
ANSWER = """() => new Promise((done) => {
  const ask = () => Jupyter.notebook.kernel.execute("", { iopub: { status } }, { silent: true });
  const again = setInterval(ask, 1000); // what is asked while a kernel restarts gets no answer
  const status = ({ content }) => {
    if (content.execution_state !== "idle") return;
    clearInterval(again);
    done();
  };
  ask();
})"""


class ClassicNotebook(OpenNotebook):
    """A notebook in Notebook 6, which has no dark theme."""

    problems = ".output_error"
    results = ".output_area"
    tells_cells = False
    # MathJax first looks for a local font.
    noise = (*OpenNotebook.noise, "Access to font at", "net::ERR_FAILED")

    def open(self, seconds=PATIENCE):
        super().open(seconds)
        self.page.wait_for_function(CONNECTED)  # before that, a command would be lost
        self.round_trip()

    def run_all(self, seconds=PATIENCE):
        self.page.locator("#celllink").click()
        self.page.locator("#run_all_cells a").click()
        prompts = self.page.locator(".code_cell .input_prompt")
        problems = self.page.locator(self.problems)

        def done():
            texts = prompts.all_inner_texts()
            finished = bool(texts) and all(number(text).isdigit() for text in texts)
            return finished or problems.count() > 0

        wait_for(done, "all cells to have run", seconds)
        assert not problems.count(), problems.first.inner_text()

    def press_restart(self):
        self.page.locator("#kernellink").click()
        self.page.locator("#restart_kernel a").click()
        self.page.locator(".modal-footer .btn-danger").click()

    def round_trip(self):
        self.page.evaluate(ANSWER)

    def theme(self, name):
        assert name in self.themes
