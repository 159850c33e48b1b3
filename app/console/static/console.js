// Times in the viewer's zone, and ages that grow. Without it all is there, in UTC.
"use strict";
(() => {
  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const TICK_MS = 5000;
  const SENT_MS = 30000;
  const OFF_MIN_MS = 15000;
  const two = (number) => String(number).padStart(2, "0");
  // Ages are by the service's clock: that of a desk may be minutes off. A page that loads slowly is no such clock.
  const told = Date.parse(document.documentElement.dataset.now);
  const apart = told - Date.now();
  const offMs = Math.abs(apart) > OFF_MIN_MS ? apart : 0;

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
    const seconds = (Date.now() + offMs - at) / 1000;
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

  // A link that is asked for something is replaced by the answer: who came by keyboard goes on from there.
  function goOn({ target, requestConfig }) {
    if (requestConfig?.elt?.tagName !== "A" || document.activeElement !== document.body) return;
    target.tabIndex = -1;
    target.focus();
  }

  function refuse({ elt, xhr }) {
    if (elt.tagName !== "A") return;
    const said = elt.parentElement.querySelector("[role=alert]") || document.createElement("span");
    said.className = "fault";
    said.setAttribute("role", "alert");
    elt.parentElement.append(said);
    said.textContent = ` Nothing was shown${xhr?.status ? ` (HTTP ${xhr.status})` : ""}: try again in a moment.`;
  }

  document.addEventListener("htmx:afterSwap", ({ detail }) => {
    times();
    goOn(detail);
  });
  for (const lost of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(lost, ({ detail }) => refuse(detail));
  }
  // What somebody is typing stays as it is when the page around it comes anew; so does a form that is on its way:
  // with its key a second click acts no second time.
  if (window.Idiomorph) {
    window.Idiomorph.defaults.callbacks.beforeNodeMorphed = (old) =>
      !(old instanceof Element && (old.hasAttribute("data-keep") || old.hasAttribute("data-sent")));
  }
  document.addEventListener("submit", ({ target }) => {
    target.setAttribute("data-sent", "");
    setTimeout(() => target.removeAttribute("data-sent"), SENT_MS);
  });
  const zone = document.getElementById("zone");
  if (zone) {
    const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
    zone.parentElement.firstChild.textContent = name === "UTC" ? "Times are in UTC" : `Times are in ${name}, in UTC under the mouse`;
  }
  times();
  setInterval(times, TICK_MS);
})();
