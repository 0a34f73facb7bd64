// Frames of tables and code take the keyboard once they scroll,
// also after a window was resized or a fold opened.
(function () {
  "use strict";

  function start() {
    const watch = new ResizeObserver((changed) => {
      changed.forEach(({ target }) => {
        if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      });
    });
    document.querySelectorAll(".pst-scrollable-table-container, .highlight pre").forEach((frame) => watch.observe(frame));
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
