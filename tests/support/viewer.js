// What is wrong with the enlarged pictures in each of their modes: a label or a button outside of the window, or two that
// overlap.
const bad = [], width = document.documentElement.clientWidth, height = window.innerHeight;
const viewer = document.querySelector("#viewer"), act = name => viewer.querySelector(`[data-do=${name}]`).click();
document.querySelector(".shot:not(.before) .open").click();
for (const mode of ["single", "side", "slide", "difference"]) {
  act(mode);
  const shown = [...viewer.querySelectorAll(".label,.bar button")].filter(e => e.checkVisibility({ visibilityProperty: true }) && e.textContent.trim());
  const boxes = shown.map(e => ({ text: e.textContent.trim().slice(0, 30), box: e.getBoundingClientRect() }));
  if (!boxes.some(({ text }) => text === "Close")) bad.push(`${mode}: no way to close`);
  for (const [at, a] of boxes.entries()) {
    if (a.box.left < -1 || a.box.right > width + 1 || a.box.top < -1 || a.box.bottom > height + 1) bad.push(`${mode}, outside: ${a.text}`);
    for (const b of boxes.slice(at + 1)) {
      if (Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left) > 1 && Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top) > 1) bad.push(`${mode}, overlap: ${a.text} / ${b.text}`);
    }
  }
}
act("single");
act("close");
return bad.slice(0, 6);
