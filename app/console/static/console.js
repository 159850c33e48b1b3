// Times in the viewer's zone, and ages that grow. Without it all is there, in UTC.
"use strict";
(() => {
  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const TICK_MS = 5000;
  const two = (number) => String(number).padStart(2, "0");

  function local(at) {
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  }

  function lasting(seconds) {
    let left = Math.round(seconds);
    const parts = [];
    for (const [name, size] of UNITS) {
      const number = Math.floor(left / size);
      left -= number * size;
      if (number || parts.length) parts.push([number, name]);
    }
    return parts.slice(0, 2).filter(([number]) => number).map((part) => part.join(" ")).join(" ") || "0 s";
  }

  function distance(at) {
    const seconds = (Date.now() - at) / 1000;
    return seconds >= 0 ? `${lasting(seconds)} ago` : `in ${lasting(-seconds)}`;
  }

  function show(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function times() {
    for (const element of document.querySelectorAll("time[datetime]")) {
      const at = new Date(element.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      show(element, element.classList.contains("ago") ? distance(at) : local(at));
    }
  }

  document.addEventListener("htmx:afterSwap", times);
  // What somebody is typing stays as it is when the page around it comes anew.
  if (window.Idiomorph) {
    window.Idiomorph.defaults.callbacks.beforeNodeMorphed = (old) =>
      !(old instanceof Element && old.hasAttribute("data-keep"));
  }
  const zone = document.getElementById("zone");
  if (zone) {
    const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
    zone.parentElement.firstChild.textContent = name === "UTC" ? "Times are in UTC" : `Times are in ${name}, in UTC under the mouse`;
  }
  times();
  setInterval(times, TICK_MS);
})();
