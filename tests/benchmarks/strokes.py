"""The time from the end of a brush stroke to its new pictures, stage by stage, in JupyterLab."""

from __future__ import annotations

import json
import statistics

from benchmarks.in_browser import CANVAS_ON, chromium, jupyter_lab, opened
from benchmarks.race import Table

CASES = {
    "demo": """
model, weights = hookviz.demo_model(), None
image = hookviz.demo_images()[6]""",
    "EfficientNet-Lite0": """
model, weights = hookviz.pretrained("efficientnet_lite0")
image = hookviz.models.photographs()["chelsea"]""",
}
STAGES = {
    "sent": "the message is sent",
    "received": "the kernel starts",
    "answered": "maps, picture and heatmap are sent, while backward goes on",
    "facts": "predictions are sent",
    "put": "the browser has drawn the map",
    "drawn": "the map is on the screen",
}
"""The moments after the pointer goes up, in their order; a stage ends with each."""

# The kernel notes its moments in milliseconds since 1970.
KERNEL = """
import json, time, torch, hookviz
from hookviz.widgets.canvas import Canvas

torch.set_num_threads(1)
moments, plain = {}, []


def note_after(owner, method, name):
    inner = getattr(owner, method)

    def outer(*arguments, **options):
        result = inner(*arguments, **options)
        moments[name] = 1000 * time.time()
        return result

    setattr(owner, method, outer)


def received(canvas, widget, message, data, inner=Canvas._received):
    if message.get("set") == "paint":
        moments["received"] = 1000 * time.time()
    inner(canvas, widget, message, data)


Canvas._received = received
note_after(Canvas, "_answer_coming", "answered")
note_after(Canvas, "_facts", "facts")


def run_plain():
    x = explorer.inputs.args[0].clone().requires_grad_()
    start = time.perf_counter()
    torch.autograd.grad(model(x).max(), x)
    plain.append(1000 * (time.perf_counter() - start))


def report():
    run_plain()
    print(json.dumps([moments, plain]))
"""
SHOW = "explorer = hookviz.explore(model, image, weights=weights)\nexplorer"

# The browser notes its moments. The clock stops in the task after the animation frame in which the
# map is drawn, or after the next one if it is drawn between two.
PAGE = """() => {
  const note = (name) => { moments[name] ??= performance.timeOrigin + performance.now(); };
  globalThis.moments = {};
  document.addEventListener("pointerup", () => {
    globalThis.moments = {};
    note("up");
  }, { capture: true });
  const { send } = WebSocket.prototype;
  WebSocket.prototype.send = function (data) {
    note("sent");
    return send.call(this, data);
  };
  const { putImageData } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.putImageData = function (...image) {
    putImageData.apply(this, image);
    if (moments.put || !this.canvas.closest(".hv-activation")) return;
    note("put");
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => note("drawn");
    if (isFrame) port2.postMessage(null);
    else request(() => port2.postMessage(null));
  };
  const request = globalThis.requestAnimationFrame.bind(globalThis);
  let isFrame = false;
  globalThis.requestAnimationFrame = (act) => request((time) => {
    isFrame = true;
    act(time);
    isFrame = false;
  });
}"""
EXECUTE = """([name, code]) => {
  const panels = [...globalThis.jupyterapp.shell.widgets("main")];
  const { kernel } = panels.find((each) => each.context?.path === name).sessionContext.session;
  let text = "";
  const future = kernel.requestExecute({ code });
  future.onIOPub = ({ content }) => { text += content.text ?? ""; };
  return future.done.then(() => text);
}"""


def strokes(quick):
    """Paint over the input in JupyterLab, and wait for the new map."""
    with jupyter_lab() as lab, chromium() as browser:
        for name, case in CASES.items():
            stages, plain = stroke_times(lab, browser, name, case, 3 if quick else 20)
            unit = statistics.median(plain)
            medians = {words: statistics.median(times) for words, times in stages.items()}
            rows = [["a plain forward and backward", f"{unit:.1f}", "1"]]
            rows += [[words, f"{ms:.1f}", f"{ms / unit:.2f}"] for words, ms in medians.items()]
            head = ["until", "median ms", "ratio"]
            yield Table(f"{name}: the stages after a stroke", head, rows)


def stroke_times(lab, browser, name, case, count):
    """Return the milliseconds of each stage, and those of plain runs between the strokes."""
    page = opened(lab, browser, name, [CANVAS_ON, KERNEL, case, SHOW])
    execute = lambda code: page.evaluate(EXECUTE, [f"{name}.ipynb", code])  # noqa: E731
    page.get_by_role("button", name="Edit", exact=True).click()
    page.get_by_role("button", name="paint", exact=True).click()
    sheet = page.locator("canvas.hv-brush")
    page.evaluate(PAGE)
    stages: dict[str, list[float]] = {words: [] for words in (*STAGES.values(), "altogether")}
    plain: list[float] = []
    for number in range(-1, count):
        sheet.wait_for()
        box = sheet.bounding_box()
        assert box
        page.mouse.move(box["x"] + box["width"] * (0.2 + 0.6 * number / count), box["y"] + 50)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * (0.3 + 0.6 * number / count), box["y"] + 50)
        page.mouse.up()
        page.wait_for_function("() => globalThis.moments.drawn")
        page.wait_for_timeout(1000)  # let the kernel come to rest
        kernel, plain = json.loads(execute("report()"))
        moments = page.evaluate("moments") | kernel
        execute("explorer.reset()")
        page.wait_for_timeout(1000)
        if number >= 0:
            last = moments["up"]
            for moment, words in STAGES.items():
                stages[words].append(moments[moment] - last)
                last = moments[moment]
            stages["altogether"].append(last - moments["up"])
    page.close()
    return stages, plain
