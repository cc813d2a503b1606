/* Pages work without this script. With it, parts of a page that take long load after the page, work
   in progress is followed, a search runs while a person types, and a form that the service refuses
   stays as it was typed, with the reason.

   `data-part`: the element is replaced by the part of a page at this address, once, or every
   `data-every` seconds.
   `data-target`: the answer to this form is shown in the element of this ID.
   `data-options`: the address of what this field suggests.
   `data-native`: the browser sends this form itself.

   It sends requests to this server only: GET, and forms that a person submits. */
"use strict";

const TYPING_PAUSE_MILLISECONDS = 300;

async function fetchPart(address, signal) {
  const response = await fetch(address, { headers: { "Hansei-Part": "true" }, mode: "same-origin", signal });
  if (response.status === 401) location.reload(); // the session ended: the page leads to the login
  const answer = await parse(response);
  if (response.ok) return [...answer.body.childNodes];
  const main = answer.querySelector("main");
  throw Object.assign(new Error(`status ${response.status}`), { nodes: [...(main?.childNodes ?? [])] });
}

async function parse(response) {
  return new DOMParser().parseFromString(await response.text(), "text/html"); // runs no script
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
      } catch (error) {
        if (seconds) setTimeout(replace, seconds * 1000);
        else if (error.nodes) element.replaceWith(...error.nodes); // what is wrong
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

async function sendForm(form, submitter) {
  const response = await fetch(submitter?.getAttribute("formaction") ?? form.getAttribute("action"), {
    method: "POST",
    headers: { "Hansei-Part": "true" },
    mode: "same-origin",
    body: new URLSearchParams(new FormData(form, submitter)),
  });
  const target = response.headers.get("Hansei-Location");
  if (target) return location.assign(target);
  const answer = await parse(response);
  const main = answer.querySelector("main");
  if (!main) return showProblem(form, answer.querySelector(".notice"));
  document.title = answer.title;
  document.querySelector("main").replaceWith(main);
  start(main);
  const wrong = main.querySelector("[autofocus]");
  if (wrong) wrong.focus();
  else scrollTo(0, 0);
}

function showProblem(form, notice) {
  for (const old of form.querySelectorAll(".notice.bad")) old.remove();
  for (const field of form.elements) field.removeAttribute("aria-invalid");
  const field = [...form.elements].find((element) => element.name === notice.dataset.field);
  const label = field?.closest(".field");
  if (label) label.after(notice);
  else form.prepend(notice);
  field?.setAttribute("aria-invalid", "true");
  (field ?? form.elements[0])?.focus({ preventScroll: true });
  notice.scrollIntoView({ block: "nearest" });
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.method !== "post" || "native" in form.dataset) return;
  event.preventDefault();
  if (form.ariaBusy) return;
  form.ariaBusy = "true";
  try {
    await sendForm(form, event.submitter);
  } catch {
    const notice = document.createElement("p");
    notice.className = "notice bad";
    notice.textContent = document.body.dataset.unreachable;
    showProblem(form, notice);
  } finally {
    form.ariaBusy = null;
  }
});

document.addEventListener("focusin", async ({ target }) => {
  if (!target.dataset?.options || target.list.options.length) return;
  target.list.replaceChildren(...(await fetchPart(target.dataset.options)));
});

function start(root) {
  followParts(root);
  for (const form of root.querySelectorAll("form[data-target]")) followForm(form);
}

start(document.body);
