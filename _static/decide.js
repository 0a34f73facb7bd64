// The page of decisions: looks answers up that `wire decide` has computed; no formula is here.
// What a budget changes is in the table too: an order of the choices from each amount on.
(function () {
  "use strict";

  const NAMES = { shape: "Array", dtype: "Type", access: "Accesses", store: "Store" };
  const HEAD = ["choice", "how it is read", "median (95th percentile)", "a month", "support"];
  const COST = HEAD.indexOf("a month");

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

  function addBudget(given, parent, onChange) {
    const label = make("label", "Most a month, USD", parent);
    const input = make("input", "", label);
    Object.assign(input, { name: "budget", type: "number", min: "0", step: "any", placeholder: "no limit" });
    input.value = given || "";
    input.addEventListener("input", onChange);
    return input;
  }

  function addTable(found, order, nFit, parent) {
    const frame = make("div", "", parent);
    frame.className = "decide-frame";
    frame.tabIndex = 0;
    frame.setAttribute("role", "region");
    frame.setAttribute("aria-label", "Choices, the best first");
    const table = make("table", "", frame);
    const head = make("tr", "", make("thead", "", table));
    HEAD.forEach((text) => (make("th", text, head).scope = "col"));
    const body = make("tbody", "", table);
    order.forEach((i, place) => {
      const row = make("tr", "", body);
      found.choices[i].forEach((text, column) => {
        const cell = make("td", text + (column === COST && place >= nFit ? ", over the budget" : ""), row);
        cell.dataset.head = HEAD[column];
      });
    });
  }

  function show(found, chosen, parent) {
    const budget = parseFloat(chosen.budget);
    const isLimited = budget > 0;
    const fitting = found.orders.filter(([usd]) => (isLimited ? usd !== null && usd <= budget : usd === null));
    const [, order, nFit] = fitting[fitting.length - 1];
    parent.replaceChildren();
    make("pre", "$ " + writeCommand(chosen) + (isLimited ? " --budget-usd-month " + budget : ""), parent).tabIndex = 0;
    if (nFit === 0) make("p", "None of the choices fits this budget.", parent);
    addTable(found, order, nFit, parent);
    const first = found.cases[order[0]];
    if (first) {
      const line = make("p", "The first choice rests on ", parent);
      make("a", first, line).href = "notebooks/" + first + ".html";
    }
    make("p", "To paste:", parent);
    make("pre", found.codes[order[0]], parent).tabIndex = 0;
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
      const found = data.answers[Object.values(chosen).join(" ")];
      if (budget.value) chosen.budget = budget.value;
      show(found, chosen, answer);
      return chosen;
    }

    function change() {
      window.history.replaceState(null, "", "#" + new URLSearchParams(update()));
    }

    Object.entries(data.options).forEach(([name, options]) => {
      selects[name] = addSelect(name, options, asked.get(name), form, change);
    });
    const budget = addBudget(asked.get("budget"), form, change);
    form.addEventListener("submit", (event) => event.preventDefault());
    update();
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
