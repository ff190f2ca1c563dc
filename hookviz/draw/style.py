"""What the widget looks like, and what core widgets have no setting for: its style sheet."""

from __future__ import annotations

ROOT_CLASS = "hookviz-explorer"

_DARK = """--hv-dim: #a7b0bd; --hv-line: #3b434f; --hv-bar: #22345c; --hv-accent: #f59a23;
  --hv-good: #8fdca6; --hv-odd: #f0c070; --hv-bad: #ff9aa6; --hv-soft: #1c222b;
  --hv-field: #11151a; --hv-ink: #e8eaed; --hv-label: #20262eCC"""
_ARROW = (
    "url(\"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E"
    "%3Cpath fill='none' stroke='COLOUR' stroke-width='1.6' d='M5 7l4 4 4-4'/%3E%3C/svg%3E\")"
)
_PLACES = ('[data-jp-theme-light="false"]', 'html[theme="dark"]', ".vscode-dark")


def dark_rule(selector: str, rule: str) -> str:
    """A rule for dark pages only."""
    return f"{', '.join(f'{place} {selector}' for place in _PLACES)} {{{rule}}}\n"


_COLOURS = (
    """.hookviz, .hookviz-explorer {--hv-dim: #5d6673; --hv-line: #d5d9df; --hv-bar: #dbe6fb;
  --hv-accent: #d97706; --hv-good: #1f6b35; --hv-odd: #7a4b00; --hv-bad: #a3122a;
  --hv-soft: #f4f5f7; --hv-field: #fff; --hv-ink: #1c1e21; --hv-label: #ffffffD0}
"""
    + dark_rule(".hookviz", _DARK)
    + dark_rule(".hookviz-explorer", _DARK)
    + """.hookviz img.dark {display: none}
"""
    + dark_rule(".hookviz img.dark", "display: block")
    + dark_rule(".hookviz img.light", "display: none")
)

# What the explorer and the player have in common.
_PARTS = """.hookviz {font-variant-numeric: tabular-nums; line-height: 1.4; font-size: 12px}
.hookviz figure {margin: 0}
.hookviz figcaption {display: flex; gap: 8px; justify-content: space-between; height: 20px;
  line-height: 20px; overflow: hidden; white-space: nowrap; margin: 0; font-size: 12px}
.hookviz figcaption b {font-weight: 600; overflow: hidden; text-overflow: ellipsis}
.hookviz figcaption span, .hookviz .ends, .hookviz .said, .hookviz .plain,
.hookviz .legend {color: var(--hv-dim)}
.hookviz .said {font-size: 11px; line-height: 14px}
.hookviz img {display: block; width: 100%; max-width: none; margin: 0; image-rendering: pixelated}
.hookviz img.smooth {image-rendering: auto}
.hookviz .frame {position: relative}
.hookviz .spot {position: absolute; inset: 0; width: 100%; height: 100%; pointer-events: none}
.hookviz .spot rect {fill: none; stroke: var(--hv-accent); stroke-width: 2}
.hookviz .scale {margin-top: 4px}
.hookviz .scale img {height: 8px; border-radius: 2px}
.hookviz .ends {display: flex; justify-content: space-between; font-size: 11px; line-height: 16px}
.hookviz .readings {line-height: 1.5; overflow-wrap: anywhere}
.hookviz .readings b {font-weight: 600}
.hookviz .title {display: flex; flex-wrap: wrap; gap: 2px 12px; align-items: baseline;
  line-height: 24px; overflow-wrap: anywhere}
.hookviz .title b {font-size: 15px; font-weight: 600}
.hookviz .title span {color: var(--hv-dim)}
.hookviz .title .chip {margin-left: auto; border: 1px solid; border-radius: 12px;
  padding: 0 10px; line-height: 20px; background: var(--hv-soft)}
.hookviz-first > :first-child {flex: 1}
.hookviz-there {width: auto; height: 22px; line-height: 20px}
.hookviz .title .good {color: var(--hv-good)}
.hookviz .title .odd {color: var(--hv-odd)}
.hookviz .title .bad {color: var(--hv-bad); font-weight: 600}
@media print {.hookviz-explorer {--side: 180px}}
.hookviz .note {color: var(--hv-bad)}
.hookviz pre {margin: 4px 0; padding: 8px 10px; overflow-x: auto; font-size: 12px;
  line-height: 1.45; color: inherit; background: rgba(128, 128, 128, 0.12);
  user-select: text; white-space: pre}
.hookviz pre code {font-family: monospace; color: inherit; background: none}
.hookviz table.numbers {border-collapse: collapse; margin: 8px 0 4px; font-size: 12px; border: none;
  table-layout: auto}
.hookviz table.numbers :is(td, th) {padding: 1px 18px 1px 0; text-align: right; border: none;
  font-weight: 400; background: none; white-space: nowrap; vertical-align: baseline}
.hookviz table.numbers th {color: var(--hv-dim)}
.hookviz table.numbers thead th {white-space: normal}
.hookviz:has(> table.numbers) {overflow-x: auto}
.hookviz table.numbers th:first-child {text-align: left}
.hookviz table.numbers tr {background: none; border: none}
.hookviz .tiles {display: grid; gap: 4px;
  grid-template-columns: repeat(auto-fill, minmax(44px, 1fr))}
.hookviz .t {position: relative; min-width: 0}
.hookviz .t > u {position: absolute; left: 0; bottom: 0; height: 3px; background: var(--hv-accent)}
.hookviz .t > u.gain {background: #2f7de1}
.hookviz .t > div {image-rendering: pixelated; background-repeat: no-repeat}
.hookviz .t i {position: absolute; right: 0; bottom: 0; font: 9px/11px system-ui, sans-serif;
  padding: 0 2px; color: var(--hv-ink); background: var(--hv-label); border-radius: 2px 0 0 0}
.hookviz-strip .hookviz .tiles {gap: 6px;
  grid-template-columns: repeat(auto-fill, minmax(72px, 1fr))}
.hookviz-strip .hookviz .t > div {image-rendering: auto; aspect-ratio: 1}
.hookviz-strip .hookviz .t i {position: static; display: block; overflow: hidden;
  overflow-wrap: anywhere; font-size: 10px; line-height: 12px; height: 36px; padding: 2px 0 0;
  background: none; color: var(--hv-dim)}
.hookviz .heading {line-height: 22px; overflow-wrap: anywhere}
.hookviz .heading b {font-size: 16px; font-weight: 600; margin-right: 8px}
.hookviz .heading span {color: var(--hv-dim)}
.hookviz .ribbon {display: flex; gap: 6px; padding: 3px 3px 0}
.hookviz .ribbon.many {gap: 2px}
.hookviz .ribbon .group {flex: 1 1 0; min-width: min-content}
.hookviz .ribbon.many .group {min-width: 2px}
.hookviz .ribbon .row {display: flex; gap: 1px; align-items: flex-end; height: 28px}
.hookviz .ribbon .cell {flex: 1 1 0; min-width: 1px; border-radius: 1px; position: relative;
  display: block}
.hookviz .ribbon .cell u {position: absolute; left: 0; bottom: 0; height: 3px; background: #000;
  border-top: 1px solid #fff}
.hookviz .ribbon .unknown {background-image: repeating-linear-gradient(45deg, #8888 0 2px,
  transparent 2px 5px)}
.hookviz .ribbon .wrong {box-shadow: 0 -4px 0 #ff00ff}
.hookviz .ribbon span {display: block; font-size: 11px; line-height: 14px; color: var(--hv-dim);
  border-top: 1px solid var(--hv-line); margin-top: 3px; overflow: hidden; white-space: nowrap;
  text-overflow: ellipsis}
.hookviz .legend {font-size: 11px; line-height: 14px}
.hookviz .legend img {height: 6px}
.hookviz .legend .ends {line-height: 13px}
"""

# The explorer: where its parts stand.
_EXPLORER = """.hookviz-explorer {container: hookviz / inline-size; width: 100%; overflow: visible;
  --side: clamp(180px, min((100vh - 460px) / 2, 27cqi), 340px)}
.hookviz-explorer :is(.widget-box, .jupyter-widgets-box) {overflow: visible}
.hookviz-explorer .widget-html {margin: 0}
.hookviz-explorer .widget-html-content {line-height: 1.4; min-width: 0}
.hookviz-explorer .hookviz-hidden-label > .widget-label {position: absolute; width: 1px;
  height: 1px; overflow: hidden; clip-path: inset(50%); margin: 0}
.hookviz-explorer .widget-label {color: var(--hv-dim)}
.hookviz-explorer :is(select, input)CORE {background-color: var(--hv-field) !important;
  color: var(--hv-ink) !important; border: 1px solid var(--hv-line) !important;
  border-radius: 3px; font-size: 12px}
.hookviz-explorer input::placeholder {color: var(--hv-dim); opacity: 1}
.hookviz-explorer selectCORE {background-image: ARROW !important; background-size: 16px;
  background-repeat: no-repeat; background-position: right 2px center; padding-right: 18px}
.hookviz-explorer .hookviz-preds {display: grid; gap: 8px; align-items: center; margin: 3px 0;
  grid-template-columns: repeat(5, minmax(0, 1fr)) minmax(120px, 0.8fr)}
.hookviz-explorer .hookviz-preds > * {width: auto; margin: 0}
.hookviz-explorer .hookviz-pred {display: block; position: relative; text-align: left;
  overflow: hidden; text-overflow: ellipsis; white-space: nowrap;
  border: 1px solid var(--hv-line); border-radius: 4px; background-color: transparent;
  color: var(--hv-ink); padding-left: 8px; height: 26px; line-height: 24px; font-size: 12px;
  font-variant-numeric: tabular-nums; box-shadow: none}
.hookviz-explorer .hookviz-pred::after {position: absolute; right: 7px; top: 0}
.hookviz-explorer .hookviz-pred::before {position: absolute; left: 8px; right: 7px; top: 17px;
  font-size: 11px; color: var(--hv-dim); overflow: hidden; text-overflow: ellipsis}
.hookviz-explorer .hookviz-edits {display: flex; flex-flow: row wrap; gap: 4px}
.hookviz-explorer .hookviz-edits > * {margin: 0; height: 22px; line-height: 20px; font-size: 11px;
  max-width: 320px; overflow: hidden; text-overflow: ellipsis}
.hookviz-explorer .hookviz-on, .hookviz-explorer .hookviz-on input {
  border-color: var(--hv-accent) !important; box-shadow: 0 0 0 1px var(--hv-accent) !important}
.hookviz-explorer .hookviz-pred:focus-visible, .hookviz-explorer .noUi-handle:focus-visible {
  outline: 2px solid #2f7de1; outline-offset: 2px}
.hookviz-explorer .hookviz-stand {display: grid; gap: 0 16px; align-items: start;
  grid-template-columns: minmax(0, 1fr) 150px}
.hookviz-explorer .hookviz-stand > *, .hookviz-explorer .hookviz-grid > * {min-width: 0;
  width: auto; margin: 0}
.hookviz-explorer .hookviz-stand .widget-slider {height: 20px}
.hookviz-explorer .hookviz-stand .widget-box > * {margin: 0; width: auto}
.hookviz-explorer .hookviz-line {display: flex; flex-flow: row wrap; align-items: center;
  gap: 2px 12px}
.hookviz-explorer .hookviz-grow {flex: 1 1 240px; min-width: 0}
.hookviz-explorer .hookviz-line > * {margin: 0}
.hookviz-explorer .hookviz-line > .widget-slider {flex: 1 1 220px}
.hookviz-explorer .hookviz-panel .frame.wide {aspect-ratio: 3}
.hookviz-explorer .hookviz-panel .frame.wide img {object-fit: fill}
.hookviz-explorer .hookviz-find {width: 210px}
.hookviz-explorer :is(.hookviz-find, .hookviz-preds) input {height: 26px}
.hookviz-explorer .hookviz-find input, .hookviz-explorer .hookviz-preds input {width: 100%}
.hookviz-explorer .hookviz-said {flex: 0 1 210px; min-width: 44px; white-space: nowrap;
  overflow: hidden; text-overflow: ellipsis}
.hookviz-explorer .hookviz-line > .hookviz-by-factor {flex: 0 1 230px; min-width: 170px}
.hookviz-explorer .hookviz-grid {display: grid; gap: 6px 14px; align-items: start; margin-top: 4px;
  grid-template-columns: repeat(2, minmax(0, 1fr))}
.hookviz-explorer .hookviz-mosaic {grid-column: 1 / -1}
.hookviz-explorer .hookviz-columns {display: grid; gap: 6px 14px; align-items: start;
  margin-top: 6px; grid-template-columns: repeat(3, minmax(0, 1fr))}
.hookviz-explorer .hookviz-columns > * {width: auto; margin: 0; min-width: 0}
.hookviz-explorer .hookviz-columns .hookviz-of-input figure {width: 45%}
.hookviz-explorer .hookviz-panel > *, .hookviz-panel .widget-html-content {min-width: 0}
.hookviz-explorer .hookviz-mosaic .widget-slider {flex: 1 1 160px; max-width: 360px}
.hookviz-explorer .hookviz-panel .frame {aspect-ratio: 1; overflow: hidden}
.hookviz-explorer .hookviz-panel .frame img {height: 100%; object-fit: contain;
  object-position: 50% 0}
.hookviz-explorer .hookviz-panel .said {height: 28px; overflow: hidden; margin-top: 2px}
.hookviz-explorer .hookviz-foot {display: flex; gap: 6px; height: 28px; align-items: center;
  overflow: visible}
.hookviz-explorer .hookviz-foot > * {flex: 1 1 0; min-width: 0; width: auto; margin: 0}
.hookviz-explorer .hookviz-foot select {width: 100%; height: 22px; line-height: 20px;
  padding: 0 16px 0 4px; font-size: 11px}
.hookviz-explorer .hookviz-foot input {width: 100%; height: 22px; font-size: 11px}
.hookviz-explorer .hookviz-head {height: 20px}
.hookviz-explorer .hookviz-head select {height: 20px; line-height: 18px}
.hookviz-explorer .hookviz-bare figcaption {display: none}
.hookviz-explorer .hookviz-mosaic .hookviz-line {min-height: 20px; flex-wrap: wrap}
.hookviz-explorer .hookviz-mosaic select {height: 22px; line-height: 20px; font-size: 11px;
  padding: 0 16px 0 4px}
.hookviz-explorer .hookviz-bottom {margin-top: 6px}
@container hookviz (min-width: 540px) {
  .hookviz-grid {grid-template-columns: repeat(3, minmax(0, 1fr)) !important}
  .hookviz-grid .hookviz-mosaic {grid-column: 2 / -1}
}
@container hookviz (min-width: 640px) {
  .hookviz-grid {grid-template-columns: var(--side) var(--side) minmax(0, 1fr) !important}
  .hookviz-grid .hookviz-mosaic {grid-column: 3; grid-row: 1 / span 3}
}
@container hookviz (max-width: 780px) {
  .hookviz-line > .hookviz-grow {flex-basis: 150px !important}
  .hookviz-line > .hookviz-said {flex-basis: 60px !important}
  .hookviz-line > .hookviz-by-factor {flex-basis: 170px !important; min-width: 150px !important}
}
@container hookviz (max-width: 700px) {
  .hookviz-stand {grid-template-columns: minmax(0, 1fr) !important}
  .hookviz-legend {display: none !important}
}
@container hookviz (max-width: 640px) {
  .hookviz-preds {grid-template-columns: repeat(3, minmax(0, 1fr)) !important}
}
"""

# The canvas in an explorer has a style of its own; another explorer on the page may have this one.
_CORE = ":not(:where(.hookviz-app *))"

STYLE = (
    "<style>"
    + _COLOURS
    + _PARTS
    + _EXPLORER.replace("ARROW", _ARROW.replace("COLOUR", "%235d6673")).replace("CORE", _CORE)
    + dark_rule(
        f".hookviz-explorer select{_CORE}",
        f"background-image: {_ARROW.replace('COLOUR', '%23c5ccd6')} !important",
    )
    + "</style>"
)

# What core widgets have no setting for, done by a tiny picture when the page has loaded it: a
# slider's handle gets the label beside it as its name for screen readers, that of ipywidgets 7
# also its role and value; layer and channel are read out by their names; and JupyterLab and
# Notebook 7 leave the keys to whatever has the focus. It is done again a little later, for controls
# that the page draws after the picture.
KEYBOARD = f"""<img alt="" style="display: none" onload="
var here = this;
function root() {{ return here.closest('.{ROOT_CLASS}') || document; }}
function tell(handle, readout) {{
  function value() {{
    handle.setAttribute('aria-valuenow', parseFloat(handle.style.left) || 0);
    if (readout) handle.setAttribute('aria-valuetext', readout.textContent);
  }}
  handle.setAttribute('role', 'slider');
  if (readout) new MutationObserver(value).observe(readout, {{childList: true}});
  value();
}}
function words_of(said) {{ return said.title || said.textContent; }}
function read(handle, words) {{
  function value() {{
    var said = root().querySelector(words);
    if (said && handle.getAttribute('aria-valuetext') !== words_of(said))
      handle.setAttribute('aria-valuetext', words_of(said));
  }}
  new MutationObserver(value).observe(handle, {{attributeFilter: ['aria-valuetext']}});
  new MutationObserver(value).observe(root().querySelector(words).closest('.widget-html'),
    {{childList: true, subtree: true, characterData: true}});
  value();
}}
function name() {{
  root().querySelectorAll('.noUi-handle, .ui-slider-handle').forEach(function (handle) {{
    var slider = handle.closest('.widget-inline-hbox, .widget-slider');
    var label = slider && slider.querySelector('.widget-label');
    if (label) handle.setAttribute('aria-label', label.textContent);
    var readout = slider && slider.querySelector('.widget-readout');
    if (!handle.hasAttribute('role')) tell(handle, readout);
    var words = {{'hookviz-by-layer': '.heading b', 'hookviz-by-channel': '.plain.place'}};
    if (slider && !handle.dataset.read) for (var kind in words)
      if (slider.classList.contains(kind) && root().querySelector(words[kind])) {{
        handle.dataset.read = 'yes';
        read(handle, words[kind]);
      }}
    handle.setAttribute('data-lm-suppress-shortcuts', 'true');
  }});
  root().querySelectorAll('select, input, button').forEach(function (control) {{
    control.setAttribute('data-lm-suppress-shortcuts', 'true');
  }});
  root().querySelectorAll('.hookviz-pred').forEach(function (button) {{
    function pressed() {{
      button.setAttribute('aria-pressed', button.classList.contains('hookviz-on'));
    }}
    if (!button.hasAttribute('aria-pressed'))
      new MutationObserver(pressed).observe(button, {{attributeFilter: ['class']}});
    pressed();
  }});
}}
name(); setTimeout(name, 300); setTimeout(name, 2000);"
src="data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==">"""
