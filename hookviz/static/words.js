// All words of page and widget in other languages. The key is the English text as the code has it,
// {} in place of what changes; a text that is not here stays English.

/** @type {Record<string, Record<string, string>>} */
const LANGUAGES = {
  de: {
    // guided pages
    questions: "Fragen",
    "your name": "Ihr Name",
    "your answer": "Ihre Antwort",
    "save answers": "Antworten speichern",
    "a file to hand in": "eine Datei zum Abgeben",
    check: "prüfen",
    keep: "festhalten",
    back: "zurück",
    next: "weiter",
    "✓ right": "✓ richtig",
    "✗ not yet": "✗ noch nicht",
    kept: "festgehalten",
    "{} of {} right": "{} von {} richtig",
    "question {}, {}": "Frage {}, {}",
    "{}: answer by moving the view": "{}: antworten Sie, indem Sie die Ansicht bewegen",
    present: "vorführen",
    "larger, full screen, for a beamer": "größer und bildschirmfüllend, für den Beamer",
    // the view
    input: "Eingabe",
    heatmap: "Heatmap",
    alone: "allein",
    "over input": "über der Eingabe",
    "all layers": "alle Schichten",
    "the heatmaps of all layers": "die Heatmaps aller Schichten",
    colours: "Farben",
    channel: "Kanal",
    layer: "Schicht",
    network: "Netz",
    sample: "Beispiel",
    call: "Aufruf",
    depth: "Tiefe",
    predictions: "Vorhersagen",
    "range of the colours": "Bereich der Farben",
    "order of the channels": "Reihenfolge der Kanäle",
    "opacity of the heatmap": "Deckkraft der Heatmap",
    "where the heatmap is shown": "wo die Heatmap gezeigt wird",
    "class that the gradient is of": "Klasse, deren Gradient gezeigt wird",
    "any class …": "andere Klasse …",
    "find a layer": "Schicht suchen",
    "find a layer: name, type, size …": "Schicht suchen: Name, Typ, Größe …",
    "colour of a layer:": "Farbe einer Schicht:",
    "what the colour of a layer says": "was die Farbe einer Schicht bedeutet",
    "size of activations": "Größe der Aktivierungen",
    "size of gradients": "Größe der Gradienten",
    "share of silent channels": "Anteil stummer Kanäle",
    "share of zeros": "Anteil der Nullen",
    "largest maximum": "größtes Maximum",
    "largest mean": "größtes Mittel",
    "largest gradient": "größter Gradient",
    "most zeros": "meiste Nullen",
    "Grad-CAM weight": "Gewicht in Grad-CAM",
    // pictures, and a brush on them
    "another input": "andere Eingabe",
    "picture …": "Bild …",
    "choose a picture; or drop or paste one": "ein Bild wählen; oder eines hereinziehen oder einfügen",
    camera: "Kamera",
    "stop camera": "Kamera aus",
    "show what the camera sees": "zeigen, was die Kamera sieht",
    pictures: "Bilder",
    "a picture's file": "Datei eines Bildes",
    brush: "Pinsel",
    "change the input below a brush, and see what follows": "die Eingabe unter einem Pinsel ändern und sehen, was folgt",
    "what the brush does": "was der Pinsel tut",
    "brush, or a window to drag": "Pinsel, oder ein Fenster zum Aufziehen",
    "size of the brush": "Größe des Pinsels",
    "colour of the brush": "Farbe des Pinsels",
    "paint here; by keys: arrows, then space": "hier malen; mit Tasten: Pfeile, dann Leertaste",
    grey: "grau",
    mean: "Mittel",
    blur: "weichzeichnen",
    noise: "Rauschen",
    draw: "zeichnen",
    restore: "wiederherstellen",
    freehand: "freihändig",
    window: "Fenster",
    "What was dropped is no file: drop a picture.": "Das ist keine Datei: ziehen Sie ein Bild herein.",
    // tools of the view
    pin: "anheften",
    pins: "angeheftet",
    note: "Notiz",
    keys: "Tasten",
    Keys: "Tasten",
    tour: "Rundgang",
    "keep this channel and place, with a note: key p": "diesen Kanal und Ort mit einer Notiz behalten: Taste p",
    "save table": "Tabelle speichern",
    "all pins as a CSV file": "alles Angeheftete als CSV-Datei",
    "save picture": "Bild speichern",
    "the shown view as a PNG file": "die gezeigte Ansicht als PNG-Datei",
    "copy code": "Code kopieren",
    "this view without hookviz, as PyTorch code": "diese Ansicht ohne hookviz, als PyTorch-Code",
    "copy link": "Link kopieren",
    "this page at this view": "diese Seite mit dieser Ansicht",
    copied: "kopiert",
    "to copy": "zum Kopieren",
    "writing …": "wird geschrieben …",
    "keys, and a tour of half a minute: key ?": "Tasten, und ein Rundgang von einer halben Minute: Taste ?",
    "a tour of half a minute": "ein Rundgang von einer halben Minute",
    close: "schließen",
    "the channel before, the next": "voriger Kanal, nächster Kanal",
    "the layer before, the next": "vorige Schicht, nächste Schicht",
    "the first channel, the last; of layers where they have the focus": "erster Kanal, letzter; der Schichten, wo sie den Fokus haben",
    "the tiles before, the next": "vorige Kacheln, nächste Kacheln",
    "another place": "ein anderer Ort",
    "best here: the channels by their value at the place, the first is shown": "bester hier: die Kanäle nach ihrem Wert an diesem Ort, der erste wird gezeigt",
    "the channels most like the shown one": "die Kanäle, die dem gezeigten am ähnlichsten sind",
    "why the value is what it is": "woraus der Wert entsteht",
    "the network as a map": "das Netz als Karte",
    map: "Karte",
    fold: "falten",
    "map of the network": "Karte des Netzes",
    "the network as a map, its branches and skips (key m)": "das Netz als Karte, mit Zweigen und Sprüngen (Taste m)",
    "make the map smaller (key −)": "die Karte verkleinern (Taste −)",
    "make the map larger (key +)": "die Karte vergrößern (Taste +)",
    "the map in its own size (key 0)": "die Karte in ihrer eigenen Größe (Taste 0)",
    fit: "ganz",
    "the whole map at once (key f)": "die ganze Karte auf einmal (Taste f)",
    "close all that was opened": "alles Geöffnete schließen",
    "the map is being made …": "die Karte entsteht …",
    "zoom; without Ctrl once a picture was clicked": "vergrößern; ohne Strg, sobald ein Bild angeklickt wurde",
    "move what is enlarged, show all of it": "Vergrößertes verschieben, wieder alles zeigen",
    "give the place up": "den Ort aufgeben",
    "this list": "diese Liste",
    "The network: a column is a layer, from the input to the answer. Click one, or press ↑ ↓.": "Das Netz: eine Säule ist eine Schicht, von der Eingabe bis zur Antwort. Klicken Sie eine an, oder drücken Sie ↑ ↓.",
    "The answer. Click a class: gradient and heatmap are of it from then on.": "Die Antwort. Klicken Sie eine Klasse an: Gradient und Heatmap gehören dann zu ihr.",
    "One channel of the layer, as it was returned. Press ← → for the others.": "Ein Kanal der Schicht, wie er zurückgegeben wurde. Drücken Sie ← → für die anderen.",
    "Click a place, in any picture: its value, the part of the input that it depends on, and with key b the channel with the largest value there.": "Klicken Sie in irgendeinem Bild einen Ort an: sein Wert, der Teil der Eingabe, von dem er abhängt, und mit Taste b der Kanal mit dem größten Wert dort.",
    "All channels of the layer, in the order of the menu above. Click one.": "Alle Kanäle der Schicht, in der Reihenfolge des Menüs darüber. Klicken Sie einen an.",
    "value here": "Wert hier",
    "z-score here": "z-Wert hier",
    "value × gradient here": "Wert × Gradient hier",
    similarity: "Ähnlichkeit",
    "best here": "bester hier",
    "the channel that is first at the chosen place: key b": "der Kanal, der am gewählten Ort der erste ist: Taste b",
    "by number: click a place first": "nach Nummer: klicken Sie zuerst einen Ort an",
    "by number: on its way …": "nach Nummer: unterwegs …",
    "by number: no gradient arrives here": "nach Nummer: hier kommt kein Gradient an",
    "to {}": "zu {}",
    index: "Nummer",
    number: "Nummer",
    "page before": "vorige Seite",
    "next page": "nächste Seite",
    "page {} of {}": "Seite {} von {}",
    "go there": "dorthin",
    "zero everywhere": "überall null",
    "the same everywhere": "überall gleich",
    "on its way …": "unterwegs …",
    "left out of this page for its size": "auf dieser Seite der Größe wegen weggelassen",
    "not in this page": "nicht auf dieser Seite",
    "no gradient arrives here": "hier kommt kein Gradient an",
    "the input, as a person sees it": "die Eingabe, wie ein Mensch sie sieht",
    "as fed": "wie eingegeben",
    "over a picture for exact values": "über einem Bild: genaue Werte",
    "click for its receptive field": "klicken: rezeptives Feld",
    "the whole input": "die ganze Eingabe",
    "whole input": "ganze Eingabe",
    "switch the channel off": "den Kanal abschalten",
    "switch it on again": "wieder einschalten",
    "show its Grad-CAM": "zeige sein Grad-CAM",
    "show its gradient and heatmaps": "zeige Gradient und Heatmaps",
    "drag to choose what the colours span; double-click for all": "ziehen: Bereich der Farben wählen; Doppelklick: alles",
    "channel {}": "Kanal {}",
    "channel {} of {}": "Kanal {} von {}",
    "{} of {}, sorted by": "{} von {}, geordnet nach",
    "of {}, sorted by": "von {}, geordnet nach",
    "channel {} of {} of layer {}, a map of {}, in {}": "Kanal {} von {} der Schicht {}, eine Karte von {}, in {}",
    "channel {} of {} of layer {}": "Kanal {} von {} der Schicht {}",
    "gradient of {}": "Gradient von {}",
    "{}, layer {} of {}": "{}, Schicht {} von {}",
    "least value of the colours of the {}": "kleinster Wert der Farben: {}",
    "largest value of the colours of the {}": "größter Wert der Farben: {}",
    "feature map": "Feature-Map",
    gradient: "Gradient",
    activation: "Aktivierung",
    "all {}": "alle {}",
    // attention
    head: "Kopf",
    "head {}": "Kopf {}",
    "head {} ×": "Kopf {} ×",
    "head {} of {}": "Kopf {} von {}",
    "head {} of {} of layer {}": "Kopf {} von {} der Schicht {}",
    "head {} of {} of layer {}, a map of {}, seen from {}, in {}":
      "Kopf {} von {} der Schicht {}, eine Karte von {}, gesehen von {}, in {}",
    "{}, seen from {}": "{}, gesehen von {}",
    "patch ({}, {})": "Patch ({}, {})",
    "the class token": "dem Klassen-Token",
    "all queries' mean": "dem Mittel aller Anfragen",
    "Head {}, seen from {}, looks beside the patches at: {}.":
      "Kopf {}, gesehen von {}, blickt außer auf die Patches auf: {}.",
    "Attention in this page is seen from {}.": "Die Attention auf dieser Seite ist gesehen von {}.",
    "Other queries need the notebook.": "Andere Anfragen gibt es nur im Notebook.",
    "switch the head off": "den Kopf abschalten",
    "channel {} ×": "Kanal {} ×",
    "factor of {}": "Faktor von {}",
    // why, and weights
    "why?": "warum?",
    why: "warum",
    "why this value": "warum dieser Wert",
    "why the value at the chosen place is what it is (key w)": "warum der Wert an der gewählten Stelle ist, was er ist (Taste w)",
    "why is this value what it is? (key w)": "warum ist dieser Wert, was er ist? (Taste w)",
    "from the value back to the input": "vom Wert zurück zur Eingabe",
    "from {}": "von {}",
    prediction: "Vorhersage",
    "switch these off": "diese abschalten",
    "switch channel {} off": "Kanal {} abschalten",
    "input channel": "Eingabekanal",
    contribution: "Beitrag",
    kernel: "Kern",
    patch: "Ausschnitt",
    "came from": "kam von",
    bias: "Bias",
    "{} others": "{} weitere",
    "{} constant": "{} konstant",
    "kernel of channel {}": "Kern von Kanal {}",
    "patch of channel {}": "Ausschnitt von Kanal {}",
    "map of input channel {}": "Karte des Eingabekanals {}",
    "padding, or mixed on its way": "Auffüllung, oder unterwegs gemischt",
    "Point at a kernel or patch for each product.": "Auf einen Kern oder Ausschnitt zeigen: jedes Produkt.",
    "Click a value in the feature map, or begin from the prediction.":
      "Einen Wert der Feature-Map anklicken, oder bei der Vorhersage beginnen.",
    "Why needs the notebook: {}": "Warum braucht das Notebook: {}",
    "this page holds no weights.": "Diese Seite hat keine Gewichte.",
    "this layer is not in this page.": "Diese Schicht ist nicht auf dieser Seite.",
    "its weights and inputs do not fit into this page.": "Gewichte und Eingaben der Schicht passen nicht auf diese Seite.",
    "working: the network runs once more, to keep what its layers are given; interrupt the kernel to stop":
      "das Netz läuft noch einmal und behält die Eingaben der Schichten; Abbruch: den Kernel unterbrechen",
    "working: the network runs": "das Netz läuft",
    weights: "Gewichte",
    "weights of the layer": "Gewichte der Schicht",
    "the kernels of this layer": "die Kerne dieser Schicht",
    "all weights, and this channel's": "alle Gewichte, und die des Kanals",
    "{} of {} channels silent": "{} von {} Kanälen stumm",
  },
};

/** @type {Record<string, string> | null} */
let table = null;
/** @type {Array<[RegExp, string]>} */
let patterns = [];
/** @type {Map<string, string>} */
const translated = new Map();

/**
 * Choose the language of all that is said from now on.
 * @param {string | undefined} language Such as "de"; one that is not here is English.
 */
export function speak(language) {
  table = LANGUAGES[language ?? ""] ?? null;
  translated.clear();
  // The longest comes first: "channel {}" would take all that "channel {} of {}" is for.
  const longest = Object.entries(table ?? {}).sort(([one], [other]) => other.length - one.length);
  patterns = longest.flatMap(([english, other]) => {
    if (!english.includes("{}")) return [];
    const parts = english.split("{}").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    return [/** @type {[RegExp, string]} */ ([new RegExp(`^${parts.join("(.+?)")}$`), other])];
  });
}

/**
 * A text in the chosen language.
 * @param {string} text
 */
export function word(text) {
  if (!table || !text) return text;
  const known = table[text] ?? translated.get(text);
  if (known !== undefined) return known;
  let said = text;
  for (const [pattern, other] of patterns) {
    const found = pattern.exec(text);
    if (!found) continue;
    let place = 0;
    said = other.replace(/\{\}/g, () => word(found[(place += 1)] ?? ""));
    break;
  }
  if (translated.size > 5000) translated.clear(); // exact values make ever new texts
  translated.set(text, said);
  return said;
}
