// Two switches above the recipes: lines of code that stand as comments marked "not on AWS" or
// "public bucket" lose the comment sign, in all blocks of the page.
(function () {
  "use strict";

  const MARKS = { aws: "not on", public: "public bucket" };

  function uncomment(line, mark) {
    const code = line.replace(/^# /, "");
    return code.slice(0, code.lastIndexOf("  # " + mark));
  }

  function start() {
    const form = document.querySelector("form.switches");
    if (!form) return;
    const comments = [...document.querySelectorAll(".highlight pre .c1")];
    const lines = Object.entries(MARKS).flatMap(([name, mark]) =>
      comments.filter((span) => span.textContent.startsWith("# ") && span.textContent.includes("  # " + mark))
        .map((span) => ({ name, span, comment: span.textContent, code: uncomment(span.textContent, mark) })));
    const update = () => lines.forEach(({ name, span, comment, code }) => {
      const isOn = form.elements[name].checked;
      span.textContent = isOn ? code : comment;
      span.classList.toggle("switched", isOn);
    });
    form.hidden = false;
    form.addEventListener("change", update);
    update(); // a browser keeps what was ticked when a page is loaded again
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
