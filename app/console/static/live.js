// A live page: it hears of changes while somebody looks at it, asks for its part again, and says whether what stands
// there is of now. A hidden page hears nothing: a browser gives a host six connections, and each stream holds one.
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live || !window.htmx) return;
  const RETRY_FIRST_MS = 500;
  const RETRY_MAX_MS = 5000;
  const SILENT_MAX_MS = 45000; // the service says something every 30 s
  const WATCH_MS = 5000;
  const two = (number) => String(number).padStart(2, "0");
  let stream = null;
  let heardAt = 0;
  let goodAt = new Date();
  let isHeard = false;
  let isAnswered = true;
  let openIn = { timer: 0, ms: RETRY_FIRST_MS };
  let askIn = { timer: 0, ms: RETRY_FIRST_MS };

  function tell() {
    const element = document.getElementById("connection");
    if (!element) return;
    const isLive = isHeard && isAnswered;
    const clock = [goodAt.getHours(), goodAt.getMinutes(), goodAt.getSeconds()].map(two).join(":");
    const text = isLive ? "live" : `not live, as of ${clock}; trying again`;
    if (element.textContent !== text) element.textContent = text;
    element.className = `connection ${isLive ? "good" : "warn"}`;
  }

  function later(act, pause) {
    clearTimeout(pause.timer);
    pause.timer = setTimeout(act, pause.ms);
    pause.ms = Math.min(2 * pause.ms, RETRY_MAX_MS);
  }

  function ask() {
    clearTimeout(askIn.timer);
    if (!document.hidden) window.htmx.trigger(live, "refresh");
  }

  function close() {
    clearTimeout(openIn.timer);
    clearTimeout(askIn.timer);
    if (stream) stream.close();
    stream = null;
    isHeard = false;
  }

  function open() {
    if (document.hidden || stream) return;
    const mine = new EventSource(live.dataset.stream);
    stream = mine;
    heardAt = Date.now();
    mine.addEventListener("refresh", () => {
      heardAt = Date.now();
      ask();
    });
    mine.onopen = () => {
      heardAt = Date.now();
      isHeard = true;
      openIn.ms = RETRY_FIRST_MS;
      tell();
    };
    mine.onerror = () => {
      isHeard = false;
      tell();
      if (mine.readyState !== EventSource.CLOSED) return; // the browser connects again by itself
      close();
      ask(); // a session that has ended leads to the form
      later(open, openIn);
    };
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
    } else {
      tell();
      open();
    }
  });
  live.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt !== live) return;
    isAnswered = Boolean(event.detail.successful);
    if (isAnswered) {
      goodAt = new Date();
      askIn.ms = RETRY_FIRST_MS;
    } else if (!document.hidden) {
      later(ask, askIn);
    }
    if (isHeard || !isAnswered) tell();
  });
  setInterval(() => {
    if (!stream || Date.now() - heardAt < SILENT_MAX_MS) return;
    close();
    tell();
    open();
  }, WATCH_MS);
  open();
})();
