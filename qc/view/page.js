"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const stage = document.getElementById("stage");
const drawings = [...stage.querySelectorAll("svg:not(#minimap)")];
const scenes = data.scenes.map((scene, index) => ({ ...scene, svg: drawings[index], view: null }));
const pages = new Map(); // for each card, the first scene with a drawing of it
const LEAST_SCALE = stage.clientWidth < 600 ? 0.8 : 0.6; // at which words can be read
let current = null;

scenes.forEach((scene, index) => {
  scene.svg.removeAttribute("viewBox");
  for (const element of scene.svg.querySelectorAll("[data-card]")) {
    const key = element.dataset.card;
    if (!pages.has(key)) pages.set(key, index);
  }
});

/* ---- moving about ---- */

function draw() {
  const { x, y, scale } = current.view;
  current.svg.firstElementChild.setAttribute("transform", `translate(${x},${y}) scale(${scale})`);
  frame_minimap();
}

/** As much of the picture as can be read, from where it begins. */
function fit() {
  const { clientWidth: width, clientHeight: height } = stage;
  const scale = Math.max(LEAST_SCALE, Math.min(1.1, width / current.width, height / current.height));
  const [left, top] = [width - current.width * scale, height - current.height * scale];
  current.view = { scale, x: left / 2, y: Math.max(top / 2, 0) };
  const first = left < 0 && current.svg.querySelector(".box");
  if (first) {
    draw();
    current.view.x = Math.min(0, Math.max(left, width / 2 - middle(first).x * scale));
  }
  draw();
}

function zoom(factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
  const view = current.view;
  const scale = Math.min(4, Math.max(0.02, view.scale * factor));
  view.x = x - ((x - view.x) * scale) / view.scale;
  view.y = y - ((y - view.y) * scale) / view.scale;
  view.scale = scale;
  draw();
}

/** The middle of an element in the coordinates of its scene at scale 1. */
function middle(element) {
  const box = element.getBoundingClientRect();
  const origin = current.svg.getBoundingClientRect();
  const { x, y, scale } = current.view;
  return {
    x: (box.left + box.width / 2 - origin.left - x) / scale,
    y: (box.top + Math.min(box.height / 2, 40) - origin.top - y) / scale,
  };
}

function centre(element) {
  const view = current.view;
  view.scale = Math.max(view.scale, 0.75);
  draw();
  const { x, y } = middle(element);
  view.x = stage.clientWidth / 2 - x * view.scale;
  view.y = stage.clientHeight / 2 - y * view.scale;
  draw();
}

const pointers = new Map();
let moved = 0;

stage.addEventListener("pointerdown", (event) => {
  pointers.set(event.pointerId, event);
  moved = 0;
});
stage.addEventListener("pointermove", (event) => {
  const last = pointers.get(event.pointerId);
  if (!last) return;
  const others = [...pointers.values()].filter((one) => one.pointerId !== event.pointerId);
  const dx = event.clientX - last.clientX;
  const dy = event.clientY - last.clientY;
  moved += Math.abs(dx) + Math.abs(dy);
  if (moved > 4 && !stage.hasPointerCapture(event.pointerId)) stage.setPointerCapture(event.pointerId);
  pointers.set(event.pointerId, event);
  if (others.length) {
    const [other] = others;
    const before = Math.hypot(last.clientX - other.clientX, last.clientY - other.clientY);
    const after = Math.hypot(event.clientX - other.clientX, event.clientY - other.clientY);
    const origin = stage.getBoundingClientRect();
    zoom(after / before, other.clientX - origin.left, other.clientY - origin.top);
  } else {
    stage.classList.add("dragging");
    current.view.x += dx;
    current.view.y += dy;
    draw();
  }
});
for (const name of ["pointerup", "pointercancel"]) {
  stage.addEventListener(name, (event) => {
    pointers.delete(event.pointerId);
    stage.classList.remove("dragging");
  });
}
stage.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) {
      const origin = stage.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 200), event.clientX - origin.left, event.clientY - origin.top);
    } else {
      const step = event.deltaMode ? 16 : 1;
      current.view.x -= (event.shiftKey ? event.deltaY : event.deltaX) * step;
      current.view.y -= (event.shiftKey ? 0 : event.deltaY) * step;
      draw();
    }
  },
  { passive: false },
);
document.getElementById("zoom-in").addEventListener("click", () => zoom(1.25));
document.getElementById("zoom-out").addEventListener("click", () => zoom(0.8));
document.getElementById("fit").addEventListener("click", fit);

/* ---- cards ---- */

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function link(text, action) {
  const element = make("a", "", text);
  element.tabIndex = 0;
  element.addEventListener("click", action);
  element.addEventListener("keydown", (event) => event.key === "Enter" && action());
  return element;
}

/** Whether there is anything to go to; of a part of a model not all is there. */
function leads(key) {
  return key in data.cards || scenes.some((scene) => scene.key === key);
}

function list(facts) {
  const found = make("dl");
  let before = "";
  for (const [label, parts] of facts) {
    found.append(make("dt", label === before ? "again" : "", label));
    const description = make("dd");
    for (const [text, key] of parts) description.append(leads(key) ? link(text, () => go(key)) : text);
    found.append(description);
    before = label;
  }
  return found;
}

function highlight(key) {
  for (const element of stage.querySelectorAll(".selected")) element.classList.remove("selected");
  for (const { svg } of scenes) {
    for (const element of svg.querySelectorAll(`[data-card="${CSS.escape(key)}"]`)) element.classList.add("selected");
  }
}

function select(key) {
  const card = data.cards[key];
  const place = document.getElementById("card");
  highlight(key);
  place.hidden = !card;
  if (!card) return;
  const head = make("div", "head");
  const close = make("button", "close", "\u00d7");
  close.title = "Close ( Esc )";
  close.addEventListener("click", () => select(""));
  head.append(make("span", "kind", card.kind), make("span", "name", card.name), close);
  place.replaceChildren(head, list(card.facts));
  if (card.history.length) place.append(make("h2", "", "What was done and decided"), list(card.history));
  place.parentElement.scrollTop = 0;
  if (current.svg.querySelector(".selected")) history.replaceState(null, "", `#${key}`);
}

/** Selects what a key stands for, and brings it to the middle. */
function go(key) {
  const scene = scenes.findIndex((one) => one.key === key);
  if (scene >= 0) {
    enter(scene);
    return;
  }
  if (!current.svg.querySelector(`[data-card="${CSS.escape(key)}"]`) && pages.has(key)) enter(pages.get(key));
  select(key);
  const found = current.svg.querySelectorAll(`[data-card="${CSS.escape(key)}"]`);
  const box = [...found].find((element) => element.matches(".box:not(.reference)"));
  if (found.length) centre(box || found[0]);
}

/** A click opens what has a picture of its own; of an op that holds graphs, it opens the first. */
stage.addEventListener("click", (event) => {
  if (moved > 4) return;
  const element = event.target.closest("[data-card]");
  const key = element ? element.dataset.card : "";
  const body = scenes.findIndex((scene) => scene.owner === key);
  if (key && body >= 0) {
    enter(body);
    select(key);
  } else if (element && (element.matches(".reference") || scenes.some((scene) => scene.key === key))) go(key);
  else select(key);
});

/* ---- search ---- */

const search = document.getElementById("search");
const results = document.getElementById("results");
const index = Object.entries(data.cards).map(([key, card]) => ({
  key,
  card,
  text: `${card.kind} ${card.name}`.toLowerCase(),
}));
let chosen = -1;

function find() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = words.length ? index.filter(({ text }) => words.every((word) => text.includes(word))) : [];
  chosen = -1;
  results.hidden = !words.length;
  results.replaceChildren(
    ...hits.slice(0, 60).map(({ key, card }) => {
      const item = make("li");
      item.append(make("span", "kind", card.kind), card.name);
      item.addEventListener("click", () => choose(key));
      item.dataset.key = key;
      return item;
    }),
  );
  if (words.length && hits.length !== results.children.length) results.append(make("li", "kind", `and ${hits.length - 60} more`));
  if (words.length && !hits.length) results.append(make("li", "kind", "nothing has this name"));
}

function choose(key) {
  results.hidden = true;
  go(key);
}

function step(by) {
  const items = [...results.querySelectorAll("[data-key]")];
  if (!items.length) return;
  chosen = (chosen + by + items.length) % items.length;
  items.forEach((item, position) => item.classList.toggle("current", position === chosen));
  items[chosen].scrollIntoView({ block: "nearest" });
}

search.addEventListener("input", find);
search.addEventListener("focus", find);
search.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown") step(1);
  else if (event.key === "ArrowUp") step(-1);
  else if (event.key === "Enter") {
    if (chosen < 0) step(1);
    const item = results.querySelector(".current");
    if (item) choose(item.dataset.key);
  } else return;
  event.preventDefault();
});
document.addEventListener("pointerdown", (event) => {
  if (!event.target.closest(".search")) results.hidden = true;
});
document.addEventListener("keydown", (event) => {
  if (event.target === search) {
    if (event.key === "Escape") search.blur(), (results.hidden = true);
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const actions = {
    "/": () => search.focus(),
    "+": () => zoom(1.25),
    "=": () => zoom(1.25),
    "-": () => zoom(0.8),
    0: fit,
    Escape: () => (document.getElementById("card").hidden ? leave() : select("")),
  };
  if (!actions[event.key]) return;
  actions[event.key]();
  event.preventDefault();
});

