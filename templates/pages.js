"use strict";
(() => {
  const all = (what, where = document) => [...where.querySelectorAll(what)];
  const one = (what, where = document) => where.querySelector(what);
  const KEY = "chemigram:" + document.body.dataset.page;
  const viewer = one("#viewer"), stage = one(".stage"), left = one("#left"), right = one("#right"), split = one("#split");

  // Picks: kept in the browser where it has a place for them, and saved as a file.
  let picks = {};
  try { picks = JSON.parse(localStorage.getItem(KEY)) || {}; } catch { /* no store, or not ours */ }
  let wasBlind = false;
  const pickOf = shot => picks[shot.dataset.key] || {};
  const isBranch = shot => !!shot && !!one(".pick", shot);
  function set(shot, change) {
    if (!isBranch(shot)) return;
    const pick = { ...pickOf(shot), ...change };
    if (wasBlind) pick.blind = true;
    picks[shot.dataset.key] = pick;
    if (!pick.verdict && !pick.stars && !pick.note) delete picks[shot.dataset.key];
    try { localStorage.setItem(KEY, JSON.stringify(picks)); } catch { /* no store */ }
    draw(shot);
    say(`${nameOf(shot)}: ${pick.verdict || "no pick"}, ${pick.stars || 0} of 5 stars`);
  }
  function draw(shot) {
    if (!isBranch(shot)) return;
    const pick = pickOf(shot), stars = pick.stars || 0;
    shot.classList.toggle("picked", pick.verdict === "pick");
    shot.classList.toggle("rejected", pick.verdict === "reject");
    for (const b of all("[data-pick]", shot)) b.setAttribute("aria-pressed", String(pick.verdict === b.dataset.pick));
    const shown = one(".stars", shot);
    shown.textContent = "★".repeat(stars) + "☆".repeat(5 - stars);
    shown.setAttribute("aria-label", stars ? `${stars} of 5 stars` : "No stars");
    const note = one(".note", shot);
    if (note !== document.activeElement) note.value = pick.note || "";
    const n = Object.keys(picks).length;
    one("#save").disabled = n === 0;
    one("#count").textContent = n ? ` (${n})` : "";
    if (viewer.open && shot === current) press();
  }
  const verdict = (shot, word) => set(shot, { verdict: pickOf(shot).verdict === word ? undefined : word });
  function file() {
    const photos = [];
    for (const group of all(".group")) {
      const mine = all(".shot", group).filter(isBranch);
      const found = mine.filter(shot => picks[shot.dataset.key]).map(shot => {
        const [branch, commit] = shot.dataset.key.split(" ").slice(1), pick = pickOf(shot);
        return { branch, commit, verdict: pick.verdict || null, stars: pick.stars || null, note: pick.note || "", blind: !!pick.blind };
      });
      if (found.length) photos.push({ photo: group.dataset.photo, session: group.dataset.session, baseline: group.dataset.baseline, picks: found });
    }
    return { format: 1, kind: "chemigram picks", photos };
  }
  one("#save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([JSON.stringify(file(), null, 2) + "\n"], { type: "application/json" }));
    link.download = "picks.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    say("Saved picks.json; promote what you picked with: chemigram promote --picks picks.json");
  });
  const say = text => { one("#status").textContent = text; };

  // The viewer.
  let current = null, view = { scale: 1, x: 0, y: 0 }, blinking = false;
  const picture = shot => shot && one(".open img", shot);
  const nameOf = shot => shot.dataset.alias || shot.dataset.name;
  const shown = group => all(".shot", group).filter(shot => picture(shot) && !shot.hidden);
  const before = () => one(".shot.before", current.closest(".group")) || shown(current.closest(".group"))[0];
  function put(pane, shot, source) {
    const from = picture(shot);
    one("img", pane).src = source || from.src;
    one("img", pane).alt = from.alt;
    one(".label", pane).textContent = nameOf(shot) + (source ? ": difference from before" : "");
  }
  function show() {
    const first = before(), usable = first && picture(first) ? first : current;
    const mode = stage.dataset.mode, heat = picture(current).dataset.heat;
    put(left, usable);
    if (mode === "difference" && heat) put(right, current, heat);
    else put(right, blinking && mode === "single" ? usable : current);
    if (mode === "difference" && !heat) one(".label", right).textContent = nameOf(current) + ": no difference";
    right.style.clipPath = mode === "slide" ? `inset(0 0 0 ${split.value}%)` : "";
    for (const pane of [left, right]) one("img", pane).style.transform = `translate(${view.x}px,${view.y}px) scale(${view.scale})`;
    press();
  }
  function press() {
    const pick = pickOf(current);
    const on = { [stage.dataset.mode]: true, blink: blinking, zoom: view.scale !== 1, pick: pick.verdict === "pick", reject: pick.verdict === "reject" };
    for (const b of all("[data-do]", viewer)) if (b.hasAttribute("aria-pressed")) b.setAttribute("aria-pressed", String(!!on[b.dataset.do]));
    for (const word of ["pick", "reject"]) one(`[data-do=${word}]`, viewer).disabled = !isBranch(current);
  }
  function open(shot) {
    if (!picture(shot)) return;
    current = shot; blinking = false; view = { scale: 1, x: 0, y: 0 };
    if (!viewer.open) { stage.dataset.mode = "single"; viewer.showModal(); }
    show();
  }
  function step(by) {
    const list = shown(current.closest(".group"));
    current = list[(list.indexOf(current) + by + list.length) % list.length];
    blinking = false;
    show();
  }
  function zoomTo(scale, x = right.clientWidth / 2, y = right.clientHeight / 2) {
    const to = Math.min(16, Math.max(1, scale)), by = to / view.scale;
    view = to === 1 ? { scale: 1, x: 0, y: 0 } : { scale: to, x: x - (x - view.x) * by, y: y - (y - view.y) * by };
    show();
  }
  function natural() {
    const img = one("img", right), fit = Math.min(img.clientWidth / img.naturalWidth, img.clientHeight / img.naturalHeight);
    return fit < 0.95 ? 1 / fit : 2;
  }
  const modes = word => { stage.dataset.mode = stage.dataset.mode === word ? "single" : word; blinking = false; show(); };
  const acts = {
    previous: () => step(-1), next: () => step(1), close: () => viewer.close(),
    single: () => { stage.dataset.mode = "single"; show(); }, side: () => modes("side"), slide: () => modes("slide"), difference: () => modes("difference"),
    blink: () => { stage.dataset.mode = "single"; blinking = !blinking; show(); },
    zoom: () => zoomTo(view.scale === 1 ? natural() : 1),
    pick: () => verdict(current, "pick"), reject: () => verdict(current, "reject"),
  };
  viewer.addEventListener("click", event => { const b = event.target.closest("[data-do]"); if (b) acts[b.dataset.do](); });
  viewer.addEventListener("close", () => { const b = current && one(".open", current); if (b) b.focus(); });
  split.addEventListener("input", show);
  stage.addEventListener("wheel", event => {
    event.preventDefault();
    const box = event.target.closest(".pane")?.getBoundingClientRect();
    if (box) zoomTo(view.scale * (event.deltaY < 0 ? 1.2 : 1 / 1.2), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  let drag = null;
  stage.addEventListener("pointerdown", event => {
    if (event.target === split) return;
    drag = { x: event.clientX - view.x, y: event.clientY - view.y };
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", event => {
    if (!drag || view.scale === 1) return;
    view = { ...view, x: event.clientX - drag.x, y: event.clientY - drag.y };
    show();
  });
  stage.addEventListener("pointerup", () => { drag = null; });
  stage.addEventListener("dblclick", () => acts.zoom());

  // The page.
  document.addEventListener("click", event => {
    const shot = event.target.closest(".shot");
    if (event.target.closest(".open")) open(shot);
    const b = event.target.closest("[data-pick]");
    if (b) verdict(shot, b.dataset.pick);
  });
  document.addEventListener("input", event => { if (event.target.matches(".note")) set(event.target.closest(".shot"), { note: event.target.value }); });
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=range]),select,textarea")) return;
    if (one("#help").open) return;
    const key = event.key, shot = viewer.open ? current : event.target.closest?.(".shot");
    const done = act => { event.preventDefault(); act(); };
    if (key >= "0" && key <= "5" && shot) return done(() => set(shot, { stars: Number(key) || undefined }));
    if (key === "p" && shot) return done(() => verdict(shot, "pick"));
    if (key === "x" && shot) return done(() => verdict(shot, "reject"));
    if (key === "?") return done(() => one("#help").showModal());
    if (viewer.open) {
      const word = { " ": "blink", c: "side", s: "slide", d: "difference", z: "zoom" }[key];
      if (event.target === split && key.startsWith("Arrow")) return;
      if (key === "ArrowLeft" || key === "ArrowRight") return done(() => step(key === "ArrowLeft" ? -1 : 1));
      if (key === "+" || key === "=") return done(() => zoomTo(view.scale * 1.5));
      if (key === "-") return done(() => zoomTo(view.scale / 1.5));
      if (word) return done(acts[word]);
      return;
    }
    if (key === "b") return done(() => blind(!document.body.classList.contains("blind")));
    if ((key === "ArrowLeft" || key === "ArrowRight") && shot) return done(() => {
      const list = shown(document), next = list[list.indexOf(shot) + (key === "ArrowLeft" ? -1 : 1)];
      if (next) one(".open", next).focus();
    });
    if (key === "j" || key === "k") return done(() => {
      const list = all(".group").filter(g => !g.hidden), at = list.indexOf(document.activeElement.closest(".group"));
      const next = list[Math.max(0, Math.min(list.length - 1, at + (key === "j" ? 1 : -1)))];
      if (!next) return;
      next.scrollIntoView({ block: "start" });
      (one(".open", next) || next).focus({ preventScroll: true });
    });
  });
  one("#keys").addEventListener("click", () => one("#help").showModal());
  one("#help-close").addEventListener("click", () => one("#help").close());

  // Blind: without names and scores, in another order.
  function blind(on) {
    document.body.classList.toggle("blind", on);
    one("#blind").setAttribute("aria-pressed", String(on));
    one("#blind").textContent = on ? "Reveal" : "Blind";
    wasBlind = on;
    for (const group of all(".group")) {
      const survey = one(".survey", group);
      if (!survey) continue;
      const shots = all(".shot:not(.before)", survey);
      const order = on ? shots.map(s => [Math.random(), s]).sort((a, b) => a[0] - b[0]).map(pair => pair[1])
                       : shots.sort((a, b) => a.dataset.place - b.dataset.place);
      order.forEach((shot, at) => {
        survey.append(shot);
        if (on) shot.dataset.alias = `Picture ${String.fromCharCode(65 + at)}`; else delete shot.dataset.alias;
        const name = nameOf(shot), img = picture(shot);
        one(".name", shot).textContent = name;
        if (img) {
          img.dataset.alt ??= img.alt;
          img.alt = on ? name : img.dataset.alt;
          one(".open", shot).setAttribute("aria-label", `Enlarge ${name}`);
        }
      });
    }
    say(on ? "Names and scores are hidden." : "Names and scores are shown.");
  }
  one("#blind").addEventListener("click", () => blind(!document.body.classList.contains("blind")));

  // Filter, order, search.
  const items = () => document.body.dataset.kind === "session" ? all(".shot:not(.before)") : all(".group");
  function sift() {
    const want = one("#filter")?.value || "", words = (one("#find")?.value || "").toLowerCase();
    for (const item of items()) {
      const tags = (item.dataset.tags || "").split(",");
      const picked = want === "picked" && [item, ...all(".shot", item)].some(s => s.classList.contains("picked"));
      const found = !words || item.textContent.toLowerCase().includes(words);
      item.hidden = !(found && (!want || picked || tags.includes(want)));
    }
  }
  for (const id of ["#filter", "#find"]) one(id)?.addEventListener("input", sift);
  one("#order")?.addEventListener("input", event => {
    const list = all(".group").sort((a, b) => event.target.value === "best" ? b.dataset.best - a.dataset.best || a.dataset.place - b.dataset.place : a.dataset.place - b.dataset.place);
    one("main").append(...list);
  });
  all(".group").forEach((group, at) => { group.dataset.place = at; });
  all(".shot").forEach((shot, at) => { shot.dataset.place = at; draw(shot); });
  if (document.body.hasAttribute("data-blind")) blind(true);
})();
