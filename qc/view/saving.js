/* ---- the shown picture as a file ---- */

const MOST_PIXELS = 12000; // on a side; browsers draw nothing beyond

/** The picture as a file of its own, with the colours of the page as it is shown. */
function svg_text() {
  const copy = current.svg.cloneNode(true);
  copy.removeAttribute("class");
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("viewBox", `0 0 ${current.width} ${current.height}`);
  copy.firstElementChild.removeAttribute("transform");
  const page = getComputedStyle(document.documentElement);
  const style = document.createElementNS("http://www.w3.org/2000/svg", "style");
  const rules = document.querySelector("style").textContent;
  style.textContent = rules.replace(/var\((--[\w-]+)\)/g, (whole, name) => page.getPropertyValue(name).trim() || whole);
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const side of ["width", "height"]) ground.setAttribute(side, "100%");
  ground.setAttribute("fill", page.getPropertyValue("--paper"));
  copy.prepend(style, ground);
  return new XMLSerializer().serializeToString(copy);
}

function save(blob, suffix) {
  const anchor = document.createElement("a");
  anchor.href = URL.createObjectURL(blob);
  anchor.download = `${document.title} ${current.label}.${suffix}`;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 10000);
}

function svg_blob() {
  return new Blob([svg_text()], { type: "image/svg+xml" });
}

async function png_blob() {
  const image = new Image();
  image.src = URL.createObjectURL(svg_blob());
  await image.decode();
  const scale = Math.min(2, MOST_PIXELS / Math.max(current.width, current.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(current.width * scale);
  canvas.height = Math.ceil(current.height * scale);
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

document.getElementById("save-svg").addEventListener("click", () => save(svg_blob(), "svg"));
document.getElementById("save-png").addEventListener("click", async () => save(await png_blob(), "png"));
