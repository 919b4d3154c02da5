// The kernels of one step on a canvas: drag or arrow keys pan, wheel or +/- zoom.
// Times are ns since the step began. The view and the selection stand in data attributes of
// the canvas, so that they can be read from outside.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("timeline");
  if (!canvas || !data.step) return;
  const step = data.step;
  const kernels = step.start.map((start, index) => ({
    index, start, end: start + step.duration[index], lane: step.lane[index],
    phase: data.phases[step.phase[index]], layer: step.layer[index], name: step.names[step.name[index]],
    op: step.texts[step.op[index]], matrix: step.texts[step.matrix[index]],
    evidence: step.texts[step.evidence[index]], bytes: step.bytes[index],
  }));
  const bytesKnown = step.bytes.some((bytes) => bytes);
  const ROW = 46, TOP = 18, BAR = 24, AXIS = 26, LEFT = 4, LEAST_NS = 500;
  const lanes = ["phases", "layers", ...step.lanes];
  const spans = { 0: runs((k) => k.phase.label), 1: runs((k) => (k.layer === null ? null : `${k.phase.label}, layer ${k.layer}`)) };
  const panel = document.getElementById("kernel");
  const search = document.getElementById("timeline-search");
  const count = document.getElementById("timeline-count");
  let from = 0, to = step.wall, selected = null, hovered = null, matches = null, width = 0;

  function runs(key) {
    const found = [];
    for (const kernel of kernels) {
      const label = key(kernel), last = found[found.length - 1];
      if (last && last.label === label) last.end = Math.max(last.end, kernel.end);
      else found.push({ label, start: kernel.start, end: kernel.end, phase: kernel.phase, layer: kernel.layer });
    }
    return found.filter((span) => span.label !== null);
  }
  const x = (ns) => LEFT + ((ns - from) / (to - from)) * (width - 2 * LEFT);
  const at = (px) => from + ((px - LEFT) / (width - 2 * LEFT)) * (to - from);
  // On paper the page is light, and the style of the screen still holds when this is asked.
  const PAPER = { "--ink": "#000000", "--soft": "#444444", "--line": "#cccccc", "--paper": "#ffffff" };
  let printing = false;
  const css = (name) => printing ? PAPER[name] : getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function time(ns, unit) {
    const scale = { ms: 1e6, "µs": 1e3, ns: 1 }[unit];
    return `${(ns / scale).toLocaleString("en", { maximumFractionDigits: 3 })} ${unit}`;
  }
  const duration = (ns) => time(ns, ns >= 1e6 ? "ms" : ns >= 1e3 ? "µs" : "ns");

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    width = canvas.clientWidth;
    const height = lanes.length * ROW + AXIS;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const ink = css("--ink"), soft = css("--soft"), line = css("--line");
    pen.fillStyle = css("--paper");
    pen.fillRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    axis(pen, height, ink, line);
    pen.fillStyle = soft;
    lanes.forEach((name, lane) => pen.fillText(name, LEFT, lane * ROW + 10));
    for (const lane of [0, 1]) {
      for (const span of spans[lane]) {
        const shade = span.layer % 2 ? "#c9ced4" : "#9aa3ad";
        bar(pen, lane, span, lane ? shade : span.phase.colour, lane ? "" : span.label);
      }
    }
    layerNumbers(pen);
    for (const kernel of kernels) {
      pen.globalAlpha = matches && !matches.has(kernel.index) ? 0.15 : 1;
      bar(pen, kernel.lane + 2, kernel, kernel.phase.colour, short(kernel));
    }
    pen.globalAlpha = 1;
    for (const [index, colour] of [[hovered, soft], [selected, ink]]) {
      if (index === null) continue;
      const kernel = kernels[index];
      const left = Math.max(x(kernel.start), -3), right = Math.min(x(kernel.end), width + 3);
      pen.strokeStyle = colour;
      pen.lineWidth = 3;
      pen.strokeRect(left, (kernel.lane + 2) * ROW + TOP, Math.max(right - left, 2), BAR);
    }
    canvas.dataset.from = String(Math.round(from));
    canvas.dataset.to = String(Math.round(to));
    canvas.dataset.selected = selected === null ? "" : String(selected);
    canvas.dataset.hovered = hovered === null ? "" : String(hovered);
  }

  function bar(pen, lane, span, colour, label) {
    const left = Math.max(x(span.start), 0), right = Math.min(x(span.end), width);
    if (right < 0 || left > width) return;
    const wide = Math.max(right - left, 0.6);
    pen.fillStyle = colour;
    pen.fillRect(left, lane * ROW + TOP, wide > 3 ? wide - 0.5 : wide, BAR);
    const shown = fitting(pen, label, wide - 6);
    if (shown) {
      pen.fillStyle = dark(colour) ? "#ffffff" : "#000000";
      pen.fillText(shown, left + 3, lane * ROW + TOP + 1 + BAR / 2);
    }
  }

  // Numbers of layers at regular intervals, as close as they fit; a number may be wider than its layer.
  function layerNumbers(pen) {
    pen.fillStyle = "#000000";
    const scale = (width - 2 * LEFT) / (to - from);
    const every = new Map();
    for (const phase of new Set(spans[1].map((span) => span.phase))) {
      const here = spans[1].filter((span) => span.phase === phase);
      const room = (scale * here.reduce((ns, span) => ns + span.end - span.start, 0)) / here.length;
      const wide = pen.measureText(String(Math.max(...here.map((span) => span.layer)))).width + 8;
      every.set(phase, [1, 2, 5, 10, 20, 50, 100].find((n) => n * room >= wide) || 1000);
    }
    let free = 0;
    for (const span of spans[1]) {
      const left = Math.max(x(span.start), 0) + 3, text = String(span.layer);
      if (x(span.end) < 0 || left < free || span.layer % every.get(span.phase)) continue;
      const wide = pen.measureText(text).width;
      if (left + wide > width) continue;
      pen.fillText(text, left, ROW + TOP + 1 + BAR / 2);
      free = left + wide + 4;
    }
  }

  function fitting(pen, label, room) {
    if (!label || room < 6) return "";
    if (pen.measureText(label).width <= room) return label;
    let kept = Math.floor((label.length * room) / pen.measureText(label).width);
    while (kept > 3 && pen.measureText(`${label.slice(0, kept)}\u2026`).width > room) kept -= 1;
    return kept > 3 ? `${label.slice(0, kept)}\u2026` : "";
  }

  function dark(colour) {
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16) / 255);
    return 0.2126 * r ** 2.2 + 0.7152 * g ** 2.2 + 0.0722 * b ** 2.2 < 0.18;
  }

  function axis(pen, height, ink, line) {
    const rough = (to - from) / Math.max(width / 110, 1);
    const power = 10 ** Math.floor(Math.log10(rough));
    const tick = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const unit = tick >= 1e5 ? "ms" : tick >= 100 ? "µs" : "ns";
    pen.lineWidth = 1;
    for (let t = Math.ceil(from / tick) * tick; t <= to; t += tick) {
      pen.strokeStyle = line;
      pen.beginPath();
      pen.moveTo(x(t), 0);
      pen.lineTo(x(t), height - AXIS + 5);
      pen.stroke();
      pen.fillStyle = ink;
      const text = time(t, unit), wide = pen.measureText(text).width;
      pen.fillText(text, Math.min(Math.max(x(t) - wide / 2, 2), width - wide - 2), height - AXIS / 2 + 2);
    }
  }

  const short = (kernel) => kernel.matrix
    ? kernel.matrix.split("+").map((part) => part.split(".").pop()).join(" + ")
    : kernel.op || kernel.name.split(/[<(]/)[0];

  function show(index) {
    panel.replaceChildren();
    if (index === null) {
      panel.textContent = "Point at a kernel, or choose one with n and p.";
      return;
    }
    const kernel = kernels[index];
    const put = (tag, text) => {
      const element = document.createElement(tag);
      element.textContent = text;
      panel.append(element);
    };
    put("b", short(kernel));
    const where = kernel.layer === null ? "" : `, layer ${kernel.layer}`;
    put("div", `${kernel.phase.label}${where}; ${kernel.matrix ? `reads ${kernel.matrix.replaceAll("+", " + ")}` : bytesKnown ? "reads no weights" : "bytes not known"}`);
    const ns = kernel.end - kernel.start;
    let figures = `${duration(ns)}, from ${time(kernel.start, "ms")}, ${lanes[kernel.lane + 2]}`;
    if (kernel.bytes) {
      const rate = kernel.bytes / ns;
      figures += `; ${(kernel.bytes / 1e6).toFixed(2)} MB, ${rate.toFixed(1)} GB/s`;
      if (data.peak) figures += `, ${((100 * rate) / data.peak).toFixed(1)} % of the peak`;
    }
    put("div", figures);
    put("div", kernel.name);
  }

  function view(start, end) {
    const span = Math.min(Math.max(end - start, LEAST_NS), step.wall);
    from = Math.min(Math.max(start, 0), step.wall - span);
    to = from + span;
    draw();
  }
  const pan = (part) => view(from + part * (to - from), to + part * (to - from));
  function zoom(factor, around = (from + to) / 2) {
    view(around - (around - from) * factor, around + (to - around) * factor);
  }
  function select(index, wide) {
    selected = index;
    const kernel = kernels[index], size = Math.max(kernel.end - kernel.start, LEAST_NS);
    show(index);
    if (wide) view(kernel.start - 2 * size, kernel.end + 2 * size);
    else if (kernel.start < from || kernel.end > to) {
      const middle = (kernel.start + kernel.end) / 2, half = Math.max(to - from, size) / 2;
      view(middle - half, middle + half);
    } else draw();
  }
  function next(direction) {
    const order = matches ? [...matches] : kernels.map((kernel) => kernel.index);
    if (!order.length) return;
    const place = order.indexOf(selected);
    if (place >= 0) return select(order[(place + direction + order.length) % order.length], false);
    const inView = order.find((index) => kernels[index].end >= from);
    select(inView === undefined ? order[0] : inView, false);
  }
  function under(event) {
    const box = canvas.getBoundingClientRect();
    const lane = Math.floor((event.clientY - box.top) / ROW) - 2, ns = at(event.clientX - box.left);
    const reach = (2 / width) * (to - from);
    let best = null, far = reach;
    for (const kernel of kernels) {
      if (kernel.lane !== lane || kernel.start - reach > ns || kernel.end + reach < ns) continue;
      const away = Math.max(kernel.start - ns, ns - kernel.end, 0);
      if (away === 0) return kernel.index;
      if (away < far) { far = away; best = kernel.index; }
    }
    return best;
  }

  const pointers = new Map();
  let moved = false;
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, event);
    canvas.setPointerCapture(event.pointerId);
    moved = false;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!pointers.has(event.pointerId)) {
      const found = under(event);
      if (found !== hovered) { hovered = found; show(found === null ? selected : found); draw(); }
      return;
    }
    const before = pointers.get(event.pointerId);
    const others = [...pointers.values()].filter((other) => other.pointerId !== event.pointerId);
    if (others.length) {
      const other = others[0].clientX, left = canvas.getBoundingClientRect().left;
      const was = Math.abs(before.clientX - other), is = Math.abs(event.clientX - other);
      if (was > 10 && is > 10) zoom(was / is, at((event.clientX + other) / 2 - left));
      moved = true;
    } else if (Math.abs(event.clientX - before.clientX) > 2 || moved) {
      moved = true;
      canvas.classList.add("dragging");
      pan((before.clientX - event.clientX) / width);
    } else return;
    pointers.set(event.pointerId, event);
  });
  for (const kind of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(kind, (event) => {
      if (kind === "pointerup" && !moved) {
        const found = under(event);
        if (found !== null) select(found, false);
      }
      pointers.delete(event.pointerId);
      canvas.classList.remove("dragging");
    });
  }
  canvas.addEventListener("pointerleave", () => {
    hovered = null;
    show(selected);
    draw();
  });
  canvas.addEventListener("dblclick", (event) => {
    const found = under(event);
    if (found !== null) select(found, true);
  });
  canvas.addEventListener("wheel", (event) => {
    // A plain wheel scrolls the page until the timeline has been chosen.
    if (document.activeElement !== canvas && !event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      pan((event.deltaX || event.deltaY) / 600);
    } else zoom(1.0015 ** event.deltaY, at(event.clientX - canvas.getBoundingClientRect().left));
  }, { passive: false });

  const keys = {
    ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2),
    ArrowUp: () => zoom(0.5), ArrowDown: () => zoom(2), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
    Home: () => view(0, step.wall), 0: () => view(0, step.wall),
    n: () => next(1), p: () => next(-1),
    Enter: () => selected !== null && select(selected, true),
    Escape: () => { selected = null; show(null); draw(); },
    "/": () => search.focus(),
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  const buttons = {
    "zoom-in": keys["+"], "zoom-out": keys["-"], earlier: keys.ArrowLeft, later: keys.ArrowRight,
    whole: keys.Home, previous: keys.p, next: keys.n,
  };
  for (const [name, act] of Object.entries(buttons)) {
    document.getElementById(`timeline-${name}`).addEventListener("click", act);
  }

  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    const layer = /^layer (\d+)$/.exec(wanted);
    const fits = (kernel) => (layer ? kernel.layer === Number(layer[1])
      : [kernel.name, kernel.op, kernel.matrix, kernel.phase.label].some(
        (text) => text && text.toLowerCase().includes(wanted)));
    matches = wanted === "" ? null : new Set(kernels.filter(fits).map((kernel) => kernel.index));
    const sum = matches ? [...matches].reduce((ns, i) => ns + kernels[i].end - kernels[i].start, 0) : 0;
    count.textContent = matches ? `${matches.size} kernels, ${duration(sum)}` : "";
    draw();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") { event.preventDefault(); next(event.shiftKey ? -1 : 1); }
    if (event.key === "Escape") { search.value = ""; search.dispatchEvent(new Event("input")); canvas.focus(); }
  });

  for (const [event, now] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(event, () => { printing = now; draw(); });
  }
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  show(null);
  draw();
})();
