// A live page: it hears of changes while somebody looks at it, asks for its part again, and says whether what stands
// there is of now. All windows of a browser hear by one stream (hearing.js); a hidden page hears nothing.
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live || !window.htmx) return;
  const RETRY_FIRST_MS = 500;
  const RETRY_MAX_MS = 5000;
  const HERE_MS = 30000; // so often a window says that it is still here, and is answered
  const SILENT_MAX_MS = 60000;
  const ANSWER_MAX_MS = 10000; // of a worker that is told of this window
  const WATCH_MS = 2000;
  const two = (number) => String(number).padStart(2, "0");
  const { stream: url, topic, hearing: script, session } = live.dataset;
  const topicsMax = Number(live.dataset.topicsMax);
  let goodAt = new Date();
  let isHeard = false;
  let isAnswered = true;
  let retry = { timer: 0, ms: RETRY_FIRST_MS };
  let hear; // tells the hearing whether this window is seen
  let isAlone = false;
  let isDoubted = false; // a worker fell silent, and the next one has said nothing yet
  let dueAt = 0; // until then a word has to come

  function tell() {
    const element = document.getElementById("connection");
    if (!element) return;
    const isLive = isHeard && isAnswered;
    const clock = [goodAt.getHours(), goodAt.getMinutes(), goodAt.getSeconds()].map(two).join(":");
    const text = isLive ? "live" : `not live, as of ${clock}; trying again`;
    if (element.textContent !== text) element.textContent = text;
    element.className = `connection ${isLive ? "good" : "warn"}`;
  }

  function ask() {
    clearTimeout(retry.timer);
    if (!document.hidden) window.htmx.trigger(live, "refresh");
  }

  function askLater() {
    clearTimeout(retry.timer);
    retry.timer = setTimeout(ask, retry.ms);
    retry.ms = Math.min(2 * retry.ms, RETRY_MAX_MS);
  }

  function told(message) {
    if (document.hidden) return;
    dueAt = Date.now() + SILENT_MAX_MS;
    isDoubted = false;
    if (message.isHere) return;
    isHeard = message.isHeard;
    tell();
    if (message.ask) ask();
  }

  function alone() {
    const hearing = new window.Hearing(url, topicsMax);
    isAlone = true;
    hear = (isSeen) => (isSeen ? hearing.listen(told, topic) : hearing.leave(told));
  }

  function share() {
    // Of one session: the stream of another one has other rights.
    const worker = new SharedWorker(script, { name: session });
    const mine = (isSeen) => worker.port.postMessage({ url, topic, topicsMax, isSeen });
    worker.onerror = () => {
      if (hear !== mine) return;
      alone();
      seen();
    };
    worker.port.onmessage = ({ data }) => hear === mine && told(data);
    hear = mine;
  }

  function seen() {
    if (!document.hidden) {
      dueAt = Date.now() + ANSWER_MAX_MS;
      hear(true);
      return;
    }
    clearTimeout(retry.timer);
    isHeard = false;
    hear(false);
  }

  // A worker lives in the process of one of its windows; when that is killed, nothing tells the others.
  function watch() {
    if (document.hidden || isAlone || Date.now() < dueAt) return;
    isHeard = false;
    tell();
    hear(false); // it may be slow only
    if (isDoubted) alone();
    else share();
    isDoubted = true;
    seen();
    ask();
  }

  if (window.SharedWorker) share();
  else alone();
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) tell();
    seen();
  });
  window.addEventListener("pagehide", () => hear(false));
  window.addEventListener("pageshow", (event) => event.persisted && seen());
  live.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt !== live) return;
    isAnswered = Boolean(event.detail.successful);
    if (isAnswered) {
      goodAt = new Date();
      retry.ms = RETRY_FIRST_MS;
    } else if (!document.hidden) {
      askLater();
    }
    if (isHeard || !isAnswered || document.getElementById("connection")?.textContent) tell();
  });
  setInterval(watch, WATCH_MS);
  setInterval(() => document.hidden || hear(true), HERE_MS);
  seen();
})();
