// What is wrong with the text of a page as it is laid out: outside of the window, or over other text.
document.querySelectorAll(".row").forEach(row => { row.style.contentVisibility = "visible"; });
const bad = [], width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth > width) bad.push("the page is wider than the window: " + document.documentElement.scrollWidth);
document.querySelectorAll("details").forEach(d => { d.open = true; });
const shown = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const at = node.parentElement;
  if (!node.textContent.trim() || at.closest("script,style,noscript,dialog,.visually-hidden,option,.wide") || !at.checkVisibility()) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  for (const box of range.getClientRects()) {
    if (box.width < 1) continue;
    const text = node.textContent.trim().slice(0, 40);
    if (box.right > width + 1 || box.left < -1) bad.push("outside: " + text);
    const scrolls = at.closest("pre,.brief");
    if (!scrolls) shown.push({ box, at, text });
  }
}
shown.sort((a, b) => a.box.top - b.box.top);
for (let i = 0; i < shown.length; i++) for (let j = i + 1; j < shown.length && shown[j].box.top < shown[i].box.bottom - 2; j++) {
  const a = shown[i], b = shown[j];
  // The bar stays where it is while the page moves below it.
  if (!a.at.closest(".tools") !== !b.at.closest(".tools")) continue;
  if (Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left) > 2 && Math.min(a.box.bottom, b.box.bottom) - b.box.top > 4) bad.push(`overlap: ${a.text} / ${b.text}`);
}
document.querySelectorAll("details").forEach(d => { d.open = false; });
return bad.slice(0, 6);
