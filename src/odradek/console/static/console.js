// What is live: the tail of a topic, by server-sent events. Every page works without this script.
"use strict";

const tail = document.getElementById("tail");
if (tail && window.EventSource) {
  const most = 500;
  const state = document.getElementById("tail-state");
  const button = document.getElementById("tail-pause");
  let events = null;

  const add = (event) => {
    // The server has escaped what the records hold; the markup is that of the page's own template.
    const part = document.createRange().createContextualFragment(event.data);
    tail.prepend(part);
    while (tail.childElementCount > most) tail.lastElementChild.remove();
  };
  const stop = (text) => {
    if (events) events.close();
    events = null;
    state.textContent = text;
    button.textContent = "Continue";
  };
  const start = () => {
    events = new EventSource(tail.dataset.events);
    state.textContent = "Live: new records appear first.";
    button.textContent = "Pause";
    events.addEventListener("reset", () => tail.replaceChildren());
    events.addEventListener("records", add);
    events.addEventListener("note", (event) => { state.textContent = event.data; });
    events.addEventListener("end", (event) => stop(event.data));
    events.onerror = () => { state.textContent = "The connection was lost; trying again."; };
  };
  button.hidden = false;
  button.addEventListener("click", () => (events ? stop("Paused.") : start()));
  start();
}
