// A live page: it hears of changes while somebody looks at it, asks for its part again, and says whether what stands
// there is of now. All windows of a browser hear by one stream (hearing.js); a hidden page hears nothing.
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live || !window.htmx) return;
  const RETRY_FIRST_MS = 500;
  const RETRY_MAX_MS = 5000;
  const two = (number) => String(number).padStart(2, "0");
  const { stream: url, topic, hearing: script, session } = live.dataset;
  let goodAt = new Date();
  let isHeard = false;
  let isAnswered = true;
  let retry = { timer: 0, ms: RETRY_FIRST_MS };

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
    isHeard = message.isHeard;
    tell();
    if (message.ask) ask();
  }

  function alone() {
    const hearing = new window.Hearing(url);
    return (isSeen) => (isSeen ? hearing.listen(told, topic) : hearing.leave(told));
  }

  function shared() {
    // Of one session: the stream of another one has other rights.
    const worker = new SharedWorker(script, { name: session });
    worker.onerror = () => {
      hear = alone();
      seen();
    };
    worker.port.onmessage = ({ data }) => told(data);
    return (isSeen) => worker.port.postMessage({ url, topic, isSeen });
  }

  function seen() {
    if (!document.hidden) {
      hear(true);
      return;
    }
    clearTimeout(retry.timer);
    isHeard = false;
    hear(false);
  }

  let hear = window.SharedWorker ? shared() : alone();
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
    if (isHeard || !isAnswered) tell();
  });
  seen();
})();
