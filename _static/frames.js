// Frames of tables that scroll take the keyboard, also after a window was resized or a fold opened.
(function () {
  "use strict";

  function reach() {
    document.querySelectorAll(".pst-scrollable-table-container").forEach((frame) => {
      if (frame.scrollWidth > frame.clientWidth) frame.tabIndex = 0;
    });
  }

  window.addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true);
})();
