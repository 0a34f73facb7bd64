// The page of decisions: looks answers up that `wire decide` has computed; no formula is here.
(function () {
  "use strict";

  const NAMES = { shape: "Array", dtype: "Type", access: "Accesses", store: "Store" };
  const HEAD = ["choice", "how it is read", "median (95th percentile)", "a month", "support"];

  function make(tag, text, parent) {
    const node = document.createElement(tag);
    if (text) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }

  function addSelect(name, options, chosen, parent, onChange) {
    const label = make("label", NAMES[name], parent);
    const select = make("select", "", label);
    Object.entries(options).forEach(([value, text]) => {
      const option = make("option", text, select);
      option.value = value;
      option.selected = value === chosen;
    });
    select.name = name;
    select.addEventListener("change", onChange);
    return select;
  }

  function addTable(choices, parent) {
    const frame = make("div", "", parent);
    frame.className = "decide-frame";
    frame.tabIndex = 0;
    frame.setAttribute("role", "region");
    frame.setAttribute("aria-label", "Choices, the best first");
    const table = make("table", "", frame);
    const head = make("tr", "", make("thead", "", table));
    HEAD.forEach((text) => (make("th", text, head).scope = "col"));
    const body = make("tbody", "", table);
    choices.forEach((choice) => {
      const row = make("tr", "", body);
      choice.forEach((text) => make("td", text, row));
    });
  }

  function show(found, command, parent) {
    parent.replaceChildren();
    make("pre", "$ " + command, parent);
    addTable(found.choices, parent);
    if (found.case) {
      const line = make("p", "The first choice rests on ", parent);
      make("a", found.case, line).href = "notebooks/" + found.case + ".html";
    }
    make("p", "To paste:", parent);
    make("pre", found.code, parent);
  }

  function writeCommand(chosen) {
    const type = chosen.dtype === "float32" ? "" : " --type " + chosen.dtype;
    const store = chosen.store === "in-region" ? "" : " --store " + chosen.store;
    return "wire decide --shape " + chosen.shape + type + " --access " + chosen.access + store;
  }

  function start() {
    const place = document.getElementById("decide-lookup");
    const source = document.getElementById("decide-data");
    if (!place || !source) return;
    const data = JSON.parse(source.textContent);
    const asked = new URLSearchParams(window.location.hash.slice(1));
    place.replaceChildren();
    const form = make("form", "", place);
    const answer = make("div", "", place);
    answer.setAttribute("aria-live", "polite");
    const selects = {};

    function update() {
      const chosen = {};
      Object.keys(selects).forEach((name) => (chosen[name] = selects[name].value));
      show(data.answers[Object.values(chosen).join(" ")], writeCommand(chosen), answer);
      return chosen;
    }

    function change() {
      window.history.replaceState(null, "", "#" + new URLSearchParams(update()));
    }

    Object.entries(data.options).forEach(([name, options]) => {
      selects[name] = addSelect(name, options, asked.get(name), form, change);
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    update();
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
