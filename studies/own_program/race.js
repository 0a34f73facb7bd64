// Plays the race of the first page: requests appear as they happened, on one clock.
(function () {
  "use strict";

  const race = document.currentScript.previousElementSibling;
  const until = Number(race.dataset.until);
  const button = race.querySelector("button");
  const label = button.textContent;
  const ways = [...race.querySelectorAll(".race-way")].map((way) => ({
    end: Number(way.dataset.end),
    picture: way.querySelector("svg"),
    time: way.querySelector("b"),
    text: way.querySelector("b").textContent,
  }));
  let began = 0;

  function show(seconds) {
    for (const way of ways) {
      const isOver = seconds >= way.end;
      way.picture.style.clipPath = isOver ? "" : `inset(0 ${100 - (100 * seconds) / until}% 0 0)`;
      way.time.textContent = isOver ? way.text : `${seconds.toFixed(1)} s`;
    }
  }

  function stop() {
    began = 0;
    button.textContent = label;
    show(until);
  }

  function step(now) {
    if (!began) return;
    const seconds = (now - began) / 1000;
    if (seconds >= until) stop();
    else {
      show(seconds);
      requestAnimationFrame(step);
    }
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    if (began) stop();
    else {
      began = performance.now();
      button.textContent = "Stop";
      requestAnimationFrame(step);
    }
  });
})();
