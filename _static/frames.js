// Frames of tables, figures and code take the keyboard once they scroll, also after a window was
// resized or a fold opened; controls of the theme that only have a picture get a name.
(function () {
  "use strict";

  const FRAMES = ".pst-scrollable-table-container, .cell_output .output, figure, .highlight pre, .format-rows, .scrolls, div.math";
  const NAMES = { "#pst-search-dialog": "Search", "#pst-primary-sidebar-modal": "Navigation", "#pst-secondary-sidebar-modal": "Contents" };

  function start() {
    const watch = new ResizeObserver((changed) => {
      changed.forEach(({ target }) => {
        if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      });
    });
    document.querySelectorAll(FRAMES).forEach((frame) => watch.observe(frame));
    Object.entries(NAMES).forEach(([place, name]) => document.querySelector(place)?.setAttribute("aria-label", name));
    document.querySelectorAll(".search-button-field, .theme-switch-button, details > summary").forEach((one) => one.removeAttribute("aria-label")); // its text is its name
    document.querySelectorAll("details > summary").forEach((one) => {
      const link = one.closest("li")?.querySelector("a");
      if (!one.textContent.trim()) one.setAttribute("aria-label", "Pages below " + (link ? link.textContent.trim() : "this"));
    });
    document.querySelectorAll("button[title]:not([aria-label])").forEach((one) => {
      if (!one.textContent.trim()) one.setAttribute("aria-label", one.title);
    });
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
