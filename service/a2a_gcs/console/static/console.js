// What scripts add to pages that work without them: tasks that move while one looks, local times, two keys.
// Whatever comes from a task goes through textContent, never through HTML.
"use strict";

const MOST_SHOWN = 64000; // characters of an artifact that is streaming

document.documentElement.classList.add("scripted");

for (const time of document.querySelectorAll("time[datetime]")) {
  const at = new Date(time.dateTime);
  if (!Number.isNaN(at.valueOf())) time.textContent = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

document.addEventListener("keydown", (event) => {
  const field = event.target;
  if (event.key === "Enter" && event.ctrlKey && field.dataset && field.dataset.submitWith) field.form.requestSubmit();
  const typing = field instanceof HTMLElement && field.closest("input, textarea, select, [contenteditable]");
  const search = document.querySelector("[data-focus-with]");
  if (!typing && search && event.key === search.dataset.focusWith && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.focus();
  }
});

for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", () => {
    for (const button of form.querySelectorAll("button")) button.disabled = true;
  });
}
window.addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("form[method=post] button")) button.disabled = false;
});

const list = document.querySelector("[data-events]");
if (list) follow(list);

function follow(place) {
  const source = new EventSource(place.dataset.events);
  const first = place.dataset.state;
  let begun = false;
  source.addEventListener("message", (message) => {
    const event = JSON.parse(message.data);
    if (event.kind === "end" || (ends(event) && (begun || event.state !== first))) {
      source.close();
      window.setTimeout(lookAgain, begun ? 0 : 1000); // a stream that cannot even begin is not asked for at once
      return;
    }
    begun = true;
    if (event.kind === "artifact") {
      show(place, event, event.append);
      return;
    }
    tell(event);
    for (const artifact of event.artifacts || []) show(place, artifact, false);
  });
}

// The page that the server makes is the truth; it is fetched when there is something to see that a script cannot show.
function lookAgain() {
  const text = document.getElementById("text");
  if (text && text.value) return; // somebody is writing an answer
  window.location.reload();
}

function ends(event) {
  return event.terminal || event.state === "input-required" || event.state === "auth-required";
}

function tell(event) {
  const chip = document.getElementById("state");
  chip.className = "chip " + event.state;
  chip.textContent = event.label;
  const line = document.getElementById("live-status");
  if (line && event.text && event.kind === "status") {
    line.hidden = false;
    line.querySelector("pre").textContent = event.text;
  }
}

function show(place, artifact, append) {
  const article = articleOf(place, artifact);
  const text = article.querySelector("pre.live") || liveText(article);
  const whole = (append ? text.textContent : "") + artifact.text;
  const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 8;
  text.textContent = whole.length > MOST_SHOWN ? whole.slice(-MOST_SHOWN) : whole;
  if (atEnd) text.scrollTop = text.scrollHeight;
}

function articleOf(place, artifact) {
  for (const article of place.querySelectorAll("[data-artifact]")) {
    if (article.dataset.artifact === artifact.id) return article;
  }
  const none = document.getElementById("no-artifacts");
  if (none) none.remove();
  const article = document.createElement("article");
  article.className = "card artifact";
  article.dataset.artifact = artifact.id;
  const title = document.createElement("h3");
  title.textContent = artifact.name || artifact.id;
  article.append(title);
  place.append(article);
  return article;
}

function liveText(article) {
  for (const old of article.querySelectorAll("pre")) old.remove();
  const text = document.createElement("pre");
  text.className = "text live";
  text.tabIndex = 0;
  article.append(text);
  return text;
}
