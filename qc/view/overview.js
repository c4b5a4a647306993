/* ---- overview ---- */

function legend(title, rows, style) {
  if (!rows.length) return [];
  const items = rows.map(([className, label, number]) => {
    const item = make("li");
    item.append(make("span", `swatch ${style} ${className}`), label, make("span", "number", number.toLocaleString("en-US")));
    return item;
  });
  const found = make("ul", "legend");
  found.append(...items);
  return [make("h2", "", title), found];
}

/** A choice of what ops are coloured by, and the meaning of the colours. */
function overlay_control() {
  const choice = make("select");
  choice.id = "overlay";
  const names = ["nothing", ...data.overlays.map((one) => one.name)];
  choice.append(...names.map((name) => make("option", "", name)));
  const scale = make("div", "scale");
  choice.addEventListener("change", () => colour(data.overlays[choice.selectedIndex - 1], scale));
  choice.selectedIndex = 1;
  colour(data.overlays[0], scale);
  return [make("h2", "", "Ops coloured by"), choice, scale];
}

function colour(overlay, scale) {
  for (const { svg } of scenes) colour_picture(svg, overlay);
  scale.hidden = !overlay;
  if (overlay) scale.replaceChildren(make("span", "", overlay.ends[0]), make("i"), make("span", "", overlay.ends[1]), make("p", "", overlay.title));
}

/** Colours boxes by their marks; as a part of the greatest in the picture, where nothing else is full. */
function colour_picture(svg, overlay) {
  const boxes = [...svg.querySelectorAll(".box")].map((box) => [box, overlay?.marks[box.dataset.card]]);
  const whole = overlay?.is_relative ? Math.max(0.001, ...boxes.map(([, mark]) => mark?.[0] ?? 0)) : 1;
  for (const [box, mark] of boxes) {
    box.classList.toggle("heated", Boolean(mark));
    if (mark) box.style.setProperty("--heat", `${(100 * mark[0]) / whole}%`);
    const title = box.firstElementChild;
    title.dataset.name ??= title.textContent;
    title.textContent = mark ? `${title.dataset.name}: ${mark[1]}` : title.dataset.name;
  }
}

function overview() {
  const place = document.getElementById("overview");
  if (data.overlays.length) place.append(...overlay_control());
  place.append(list(data.facts.map(([label, text]) => [label, [[text, ""]]])));
  if (scenes.length > 1) {
    const found = make("ul", "legend");
    found.id = "scenes";
    scenes.forEach((scene, number) => {
      const item = make("li");
      item.style.paddingLeft = `${steps_above(scene) * 14}px`;
      const label = scene.owner ? `${scene.owner_label} \u203a ${scene.label}` : scene.label;
      item.append(link(label, () => enter(number)), make("span", "number", `${scene.ops.toLocaleString("en-US")} op${scene.ops === 1 ? "" : "s"}`));
      found.append(item);
    });
    place.append(make("h2", "", "Graphs"), found);
  }
  place.append(...legend("Tensors", data.formats, ""));
  place.append(
    ...legend("Ops", [["quantized", "reads quantized numbers only", ""], ["floating", "reads float numbers", ""]], "state"),
  );
  place.append(...legend("Regions", data.regions, "area"));
}

function steps_above(scene) {
  const outer = scenes.find((one) => one.key === scene.parent);
  return outer ? 1 + steps_above(outer) : 0;
}

function begin_page() {
  overview();
  arrive();
}
