// The table of all records: sorted by a click on a head, narrowed by words.
document.addEventListener("DOMContentLoaded", () => {
  const table = document.querySelector("article table");
  const body = table?.tBodies[0];
  if (!body) return;
  const rows = [...body.rows];
  const field = document.createElement("input");
  Object.assign(field, { type: "search", placeholder: "words, as in: formats 2026-11" });
  field.setAttribute("aria-label", "show the records with these words");
  field.oninput = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().replaceAll("\u2011", "-").includes(word));
  };
  table.before(field);
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    button.onclick = () => {
      const falls = head.getAttribute("aria-sort") === "ascending";
      for (const one of table.tHead.rows[0].cells) one.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", falls ? "descending" : "ascending");
      const order = new Intl.Collator("en", { numeric: true });
      rows.sort((a, b) => (falls ? -1 : 1) * order.compare(a.cells[column].textContent, b.cells[column].textContent));
      body.append(...rows);
    };
    head.replaceChildren(button);
  });
});
