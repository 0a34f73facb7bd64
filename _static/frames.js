// Frames of tables and code take the keyboard once they scroll,
// also after a window was resized or a fold opened; those of tables fade where there is more.
(function () {
  "use strict";

  function tellMore({ target }) {
    target.classList.toggle("more", target.scrollLeft + target.clientWidth < target.scrollWidth - 1);
  }

  function start() {
    const watch = new ResizeObserver((changed) => {
      changed.forEach(({ target }) => {
        if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
        if (target.matches(".pst-scrollable-table-container")) tellMore({ target });
      });
    });
    document.querySelectorAll(".pst-scrollable-table-container, .highlight pre").forEach((frame) => watch.observe(frame));
    document.querySelectorAll(".pst-scrollable-table-container").forEach((frame) => frame.addEventListener("scroll", tellMore));
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
