// One stream of the service for all windows of a browser: a browser opens six connections to a host, and a stream
// holds one. As a worker that windows share it lives while one of them does; where a browser shares none, each window
// has a Hearing of its own. It tells windows that something has changed; they ask with their own rights.
"use strict";
(() => {
  const RETRY_FIRST_MS = 500;
  const RETRY_MAX_MS = 5000;
  const GATHER_MS = 20; // windows that open together are one stream
  const SILENT_MAX_MS = 45000; // the service says something every 30 s
  const WATCH_MS = 5000;
  const GONE_MS = 120000; // a window says every 30 s that it is still here
  const ALL = "all";
  const EVERYBODY = "*";

  class Hearing {
    constructor(url, topicsMax) {
      this.url = url;
      this.topicsMax = topicsMax; // as the service takes; beyond that every window hears of everything
      this.windows = new Map(); // what to tell a window: the topic that it shows, and when it last said so
      this.topics = new Set(); // what the stream was opened for
      this.stream = null;
      this.isHeard = false;
      this.heardAt = 0;
      this.timer = 0;
      this.pauseMs = RETRY_FIRST_MS;
      setInterval(() => this.watch(), WATCH_MS);
    }

    listen(tell, topic) {
      const isKnown = this.windows.has(tell);
      this.windows.set(tell, { topic, saidAt: Date.now() });
      if (isKnown) return;
      if (!this.stream || !(this.topics.has(topic) || this.isOverfull())) {
        this.later(GATHER_MS);
      } else if (this.isHeard) {
        tell({ isHeard: true, ask: true }); // it was loaded a moment ago, before it was listening
      }
    }

    leave(tell) {
      this.windows.delete(tell);
      if (!this.windows.size) this.close();
    }

    isOverfull() {
      return this.topics.size > this.topicsMax;
    }

    later(ms) {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.open(), ms);
    }

    close() {
      clearTimeout(this.timer);
      if (this.stream) this.stream.close();
      this.stream = null;
      this.isHeard = false;
    }

    open() {
      this.close();
      if (!this.windows.size) return;
      this.topics = new Set([...this.windows.values()].map(({ topic }) => topic));
      const asked = this.isOverfull() ? [ALL] : [...this.topics];
      const query = asked.map((topic) => `topic=${encodeURIComponent(topic)}`).join("&");
      const mine = new EventSource(`${this.url}?${query}`);
      this.stream = mine;
      this.heardAt = Date.now();
      mine.addEventListener("refresh", (event) => this.refresh(event.data));
      // That it is open says nothing: a proxy that buffers hands on the head alone. A stream begins with a word.
      mine.onopen = () => {
        this.heardAt = Date.now();
        this.pauseMs = RETRY_FIRST_MS;
      };
      mine.onerror = () => this.lost(mine);
    }

    lost(mine) {
      if (mine !== this.stream) return;
      this.isHeard = false;
      const isClosed = mine.readyState === EventSource.CLOSED; // else the browser connects again by itself
      this.tellAll({ isHeard: false, ask: isClosed }); // a session that has ended leads to the form
      if (!isClosed) return;
      this.close();
      this.later(this.pauseMs);
      this.pauseMs = Math.min(2 * this.pauseMs, RETRY_MAX_MS);
    }

    refresh(topic) {
      this.heardAt = Date.now();
      this.isHeard = true;
      const isForAll = topic === EVERYBODY || this.isOverfull();
      for (const [tell, wanted] of this.windows) {
        if (isForAll || wanted.topic === topic) tell({ isHeard: true, ask: true });
      }
    }

    tellAll(message) {
      for (const tell of this.windows.keys()) tell(message);
    }

    forget() {
      for (const [tell, { saidAt }] of this.windows) {
        if (Date.now() - saidAt > GONE_MS) this.leave(tell);
      }
    }

    watch() {
      this.forget();
      if (!this.stream || Date.now() - this.heardAt < SILENT_MAX_MS) return;
      this.tellAll({ isHeard: false, ask: true });
      this.open();
    }
  }

  if (!("onconnect" in self)) {
    self.Hearing = Hearing;
    return;
  }
  const hearings = new Map();
  self.onconnect = (event) => {
    const port = event.ports[0];
    const tell = (message) => port.postMessage(message);
    port.onmessage = ({ data }) => {
      if (!hearings.has(data.url)) hearings.set(data.url, new Hearing(data.url, data.topicsMax));
      const hearing = hearings.get(data.url);
      if (!data.isSeen) {
        hearing.leave(tell);
        return;
      }
      tell({ isHere: true });
      hearing.listen(tell, data.topic);
    };
  };
})();
