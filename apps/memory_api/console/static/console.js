/* Pages work without this script. With it, parts of a page that take long load after the page, work
   in progress is followed, and a search runs while a person types.

   `data-part`: the element is replaced by the part of a page at this address, once, or every
   `data-every` seconds.
   `data-target`: the answer to this form is shown in the element of this ID.

   It sends GET requests to this server only, so markup can make it do no more than an image does. */
"use strict";

const TYPING_PAUSE_MILLISECONDS = 300;

async function fetchPart(address, signal) {
  const response = await fetch(address, { headers: { "Hansei-Part": "true" }, mode: "same-origin", signal });
  if (response.status === 401) location.reload(); // the session ended: the page leads to the login
  if (!response.ok) throw new Error(`status ${response.status}`);
  const parsed = new DOMParser().parseFromString(await response.text(), "text/html"); // runs no script
  return [...parsed.body.childNodes];
}

function followParts(root) {
  const parts = [...root.querySelectorAll("[data-part]")];
  if (root.matches("[data-part]")) parts.push(root);
  for (const element of parts) {
    const seconds = Number(element.dataset.every || 0);
    const replace = async () => {
      if (!element.isConnected) return;
      try {
        show(await fetchPart(element.dataset.part), (nodes) => element.replaceWith(...nodes));
      } catch {
        if (seconds) setTimeout(replace, seconds * 1000);
      }
    };
    setTimeout(replace, seconds * 1000);
  }
}

function show(nodes, insert) {
  insert(nodes);
  for (const node of nodes) if (node instanceof Element) followParts(node);
}

function followForm(form) {
  const target = document.getElementById(form.dataset.target);
  let timer;
  let running;
  const send = async () => {
    clearTimeout(timer);
    running?.abort();
    running = new AbortController();
    const address = new URL(form.action);
    address.search = new URLSearchParams(new FormData(form));
    try {
      show(await fetchPart(address, running.signal), (nodes) => target.replaceChildren(...nodes));
    } catch (error) {
      if (error.name !== "AbortError") form.submit(); // the page shows what is wrong
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(send, TYPING_PAUSE_MILLISECONDS);
  });
}

followParts(document.body);
for (const form of document.querySelectorAll("form[data-target]")) followForm(form);
