/* ---- from picture to picture ---- */

function show(index) {
  if (current) current.svg.classList.remove("shown");
  current = scenes[index];
  current.svg.classList.add("shown");
  const path = document.getElementById("path");
  path.hidden = !current.parent;
  path.replaceChildren(...steps(current));
  document.querySelectorAll("#scenes a").forEach((one, number) => {
    one.style.fontWeight = number === index ? "600" : "";
  });
  if (!current.view) fit();
  draw_minimap();
  draw();
}

/** Shows another picture, from which the browser leads back to this one. */
function enter(index) {
  if (scenes[index] === current) return;
  select("");
  history.pushState(null, "", `#${scenes[index].key}`);
  show(index);
}

/** Shows the picture around. */
function leave() {
  const outer = scenes.findIndex((scene) => scene.key === current.parent);
  if (outer >= 0) enter(outer);
}

/** Shows what the address names. */
function arrive() {
  const key = decodeURIComponent(location.hash.slice(1));
  const scene = scenes.findIndex((one) => one.key === key);
  show(scene >= 0 ? scene : pages.get(key) ?? 0);
  if (key in data.cards) go(key);
  else select("");
}

/** The way to a picture, the outermost first: a body stands behind its op, and the one shown beside the others. */
function steps(scene) {
  const outer = scenes.find((one) => one.key === scene.parent);
  const before = outer ? steps(outer) : [];
  if (scene.owner) before.push(crumb(link(scene.owner_label, () => go(scene.owner))));
  const others = scenes.filter((one) => scene === current && scene.owner && one.owner === scene.owner && one !== scene);
  return [...before, crumb(...[scene, ...others].map(link_to))];
}

function crumb(...links) {
  const place = make("span", "step");
  place.append(...links);
  return place;
}

function link_to(scene) {
  const element = link(scene.label, () => enter(scenes.indexOf(scene)));
  element.classList.toggle("here", scene === current);
  return element;
}

window.addEventListener("popstate", arrive);
