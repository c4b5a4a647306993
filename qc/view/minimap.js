/* ---- the whole picture in a corner, where not all of it is seen ---- */

const minimap = document.getElementById("minimap");
const LARGEST = { width: 180, height: 220 };
const MARGIN = 48; // around the boxes of every picture

function draw_minimap() {
  const width = Math.min(LARGEST.width, stage.clientWidth / 6);
  const height = Math.min(LARGEST.height, stage.clientHeight / 3);
  const share = Math.min(width / current.width, height / current.height);
  minimap.setAttribute("viewBox", `0 0 ${current.width} ${current.height}`);
  minimap.style.width = `${Math.max(current.width * share, 24)}px`;
  minimap.style.height = `${Math.max(current.height * share, 24)}px`;
  minimap.firstElementChild.setAttribute("d", current.outline ??= outline(current.svg));
}

/** The boxes of a picture as one path. */
function outline(svg) {
  const outer = svg.firstElementChild.firstElementChild.transform.baseVal.consolidate().matrix;
  return [...svg.querySelectorAll(".box")]
    .map((box) => {
      const { e, f } = box.transform.baseVal.consolidate().matrix;
      const body = box.querySelector(".body");
      const [width, height] = [body.width.baseVal.value, body.height.baseVal.value];
      return `M${outer.e + e},${outer.f + f}h${width}v${height}h${-width}z`;
    })
    .join("");
}

function frame_minimap() {
  const { x, y, scale } = current.view;
  const [width, height] = [stage.clientWidth / scale, stage.clientHeight / scale];
  const [left, top] = [-x / scale, -y / scale];
  const [right, bottom] = [left + width + MARGIN, top + height + MARGIN];
  const whole = Math.max(left, top) <= MARGIN && right >= current.width && bottom >= current.height;
  minimap.toggleAttribute("hidden", whole);
  const frame = minimap.lastElementChild;
  for (const [name, value] of Object.entries({ x: left, y: top, width, height })) frame.setAttribute(name, value);
}

function move_by_minimap(event) {
  event.stopPropagation();
  if (event.type === "pointermove" && !event.buttons) return;
  const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(minimap.getScreenCTM().inverse());
  current.view.x = stage.clientWidth / 2 - point.x * current.view.scale;
  current.view.y = stage.clientHeight / 2 - point.y * current.view.scale;
  draw();
}
for (const name of ["pointerdown", "pointermove"]) minimap.addEventListener(name, move_by_minimap);
minimap.addEventListener("click", (event) => event.stopPropagation());
