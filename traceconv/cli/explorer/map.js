// The map of a run: ranks from top to bottom, steps from left to right, a cell for each.
//
// Cells are drawn as pixels of a small picture that the browser enlarges. Where there are more ranks
// than rows of pixels, a row shows the worst of its ranks, so that a single slow rank stays visible.

import { html as markup, useEffect, useMemo, useRef, useState } from "./htm-preact.mjs";

/** Markup whose texts all show: characters that act or vanish become their number. */
export const html = (parts, ...values) =>
  markup(parts, ...values.map((one) => (typeof one === "string" ? one.replace(UNSEEN, numbered) : one)));

const UNSEEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;

const numbered = (one) => `\\u${one.codePointAt(0).toString(16).padStart(4, "0")}`;

export const MEASURES = {
  excess_ns: "Longer than peers",
  cause: "Cause of that",
  waiting_ns: "Waits for others",
  own_ns: "Own time",
};

export function time(ns) {
  if (ns === null || ns === undefined) return "not known";
  const size = Math.abs(ns);
  const [unit, scale] =
    size >= 1e9 ? ["s", 1e9] : size >= 1e6 ? ["ms", 1e6] : size >= 1e3 ? ["µs", 1e3] : ["ns", 1];
  const value = ns / scale;
  const digits = Math.abs(value) >= 100 || unit === "ns" ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(digits)}\u00a0${unit}`;
}

export function ranges(numbers) {
  const parts = [];
  for (const one of [...numbers].sort((a, b) => a - b)) {
    const last = parts[parts.length - 1];
    if (last && one <= last[1] + 1) last[1] = one;
    else parts.push([one, one]);
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(",");
}

/** "rank 3", "ranks 3-5". */
export function named(word, numbers) {
  return `${word}${numbers.length === 1 ? "" : "s"} ${ranges(numbers)}`;
}

function colour(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

function mixed(a, b, share) {
  return a.map((one, i) => Math.round(one + (b[i] - one) * share));
}

function loss(row) {
  let sum = 0;
  for (const one of row) if (one > 0) sum += one;
  return sum;
}

export function order(map, by) {
  const rows = map.ranks.map((_, i) => i);
  if (by !== "loss") return rows;
  const losses = map.excess_ns.map(loss);
  return rows.sort((a, b) => losses[b] - losses[a] || a - b);
}

/** What is shown at first: of many ranks by loss, those that lose most. */
function begin(rows, by) {
  return { first: 0, count: by === "loss" && rows.length > 128 ? 64 : rows.length };
}

/** The end of the scale of a measure: its largest value but for a few, fewer than one slow rank has. */
export function scale(map, measure) {
  const key = measure === "cause" ? "excess_ns" : measure;
  const values = map[key].flat().filter((one) => one !== null && one > 0);
  if (!values.length) return 1;
  const sorted = Float64Array.from(values).sort();
  return sorted[Math.max(0, sorted.length - 1 - Math.floor(map.steps.length / 4))];
}

export function RankMap({ map, measure, by, limit, chosen, choose, open, name }) {
  const canvas = useRef(null);
  const rows = useMemo(() => order(map, by), [map, by]);
  const columns = map.steps.length;
  const [view, setView] = useState(() => begin(rows, by));
  const [cursor, setCursor] = useState({ row: 0, step: 0 });
  const [pointed, setPointed] = useState(null);
  const [width, setWidth] = useState(0);
  const [dark, setDark] = useState(false);
  const drag = useRef(null);
  const height = Math.max(48, Math.min(560, rows.length * 22));
  const lines = Math.min(view.count, height);
  useEffect(() => setView(begin(rows, by)), [rows]);

  useEffect(() => {
    const watcher = new ResizeObserver(([one]) => setWidth(Math.floor(one.contentRect.width)));
    watcher.observe(canvas.current.parentElement);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setDark(scheme.matches);
    changed();
    scheme.addEventListener("change", changed);
    return () => {
      watcher.disconnect();
      scheme.removeEventListener("change", changed);
    };
  }, []);

  /** The worst of the ranks that share a line of the picture. */
  const worstOf = (line, step) => {
    const values = map[measure === "cause" ? "excess_ns" : measure];
    const from = view.first + Math.floor((line * view.count) / lines);
    const to = view.first + Math.floor(((line + 1) * view.count) / lines);
    let most = null, worst = from;
    for (let at = from; at < to && at < rows.length; at++) {
      const value = values[rows[at]][step];
      if (value !== null && (most === null || value > most)) [most, worst] = [value, at];
    }
    return { worst, most };
  };
  const cells = useMemo(() => {
    const picture = new ImageData(columns, lines);
    const low = colour("--cell"), high = colour("--loss"), none = colour("--unknown");
    const causes = map.causes.map((_, i) => colour(`--cause-${i}`));
    for (let line = 0; line < lines; line++) {
      for (let step = 0; step < columns; step++) {
        const { worst, most } = worstOf(line, step);
        let shade = none;
        if (most !== null) {
          const share = Math.min(1, Math.max(0, most / limit));
          const cause = measure === "cause" ? map.cause[rows[worst]][step] : null;
          shade = mixed(low, cause === null ? high : causes[cause], share);
          if (measure === "cause" && cause === null) shade = low;
        }
        picture.data.set([...shade, 255], 4 * (line * columns + step));
      }
    }
    const small = document.createElement("canvas");
    [small.width, small.height] = [columns, lines];
    small.getContext("2d").putImageData(picture, 0, 0);
    return small;
  }, [map, measure, rows, view, limit, height, dark]);

  useEffect(() => {
    if (!width) return;
    const one = canvas.current, ratio = devicePixelRatio || 1;
    [one.width, one.height] = [width * ratio, height * ratio];
    const pen = one.getContext("2d");
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cells, 0, 0, one.width, one.height);
    const x = one.width / columns, y = one.height / view.count;
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--page");
    pen.lineWidth = ratio;
    if (y >= 8 * ratio) for (let i = 1; i < view.count; i++) line(pen, 0, i * y, one.width, i * y);
    if (x >= 8 * ratio) for (let i = 1; i < columns; i++) line(pen, i * x, 0, i * x, one.height);
    pen.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink");
    pen.lineWidth = 2 * ratio;
    if (chosen) {
      const inside = rows.slice(view.first, view.first + view.count);
      const at = inside.map((rank, i) => (chosen.ranks.includes(map.ranks[rank]) ? i : -1));
      const mine = at.filter((i) => i >= 0);
      if (mine.length) {
        const [low, high] = [mine[0], mine[mine.length - 1] + 1];
        pen.strokeRect(
          chosen.from * x, low * y, (chosen.to + 1 - chosen.from) * x, Math.max(3, (high - low) * y));
      }
    }
    if (document.activeElement === one && cursor.row >= view.first) {
      pen.setLineDash([4 * ratio, 3 * ratio]);
      pen.strokeRect(cursor.step * x, (cursor.row - view.first) * y, x, Math.max(3, y));
      pen.setLineDash([]);
    }
  });

  const cell = (event) => {
    const box = canvas.current.getBoundingClientRect();
    const step = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const line = Math.floor(((event.clientY - box.top) / box.height) * lines);
    if (step < 0 || step >= columns || line < 0 || line >= lines) return null;
    return { row: worstOf(line, step).worst, step };
  };
  const select = (a, b) => {
    const [low, high] = [Math.min(a.row, b.row), Math.max(a.row, b.row)];
    const ranks = rows.slice(low, high + 1).map((one) => map.ranks[one]);
    choose({ ranks, from: Math.min(a.step, b.step), to: Math.max(a.step, b.step) });
  };
  const zoom = (factor, row) => {
    const count = Math.max(Math.min(8, rows.length), Math.min(rows.length, Math.round(view.count * factor)));
    const share = view.count ? (row - view.first) / view.count : 0;
    const first = Math.round(row - share * count);
    setView({ first: Math.max(0, Math.min(rows.length - count, first)), count });
  };
  useEffect(() => {
    const one = canvas.current;
    const wheel = (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // else the page scrolls
      event.preventDefault();
      zoom(event.deltaY < 0 ? 1 / 1.4 : 1.4, (cell(event) || cursor).row);
    };
    one.addEventListener("wheel", wheel, { passive: false });
    return () => one.removeEventListener("wheel", wheel);
  });
  const key = (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (move) {
      const row = Math.max(0, Math.min(rows.length - 1, cursor.row + move[0]));
      const step = Math.max(0, Math.min(columns - 1, cursor.step + move[1]));
      setCursor({ row, step });
      select(event.shiftKey && drag.current ? drag.current : { row, step }, { row, step });
      if (!event.shiftKey) drag.current = { row, step };
      if (row < view.first) setView({ ...view, first: row });
      if (row >= view.first + view.count) setView({ ...view, first: row - view.count + 1 });
    } else if (event.key === "+" || event.key === "=") zoom(1 / 1.4, cursor.row);
    else if (event.key === "-") zoom(1.4, cursor.row);
    else if (event.key === "0") setView({ first: 0, count: rows.length });
    else if (event.key === "Enter") open();
    else return;
    event.preventDefault();
  };

  const shown = pointed || (document.activeElement === canvas.current ? cursor : null);
  const told = shown && rows[shown.row] !== undefined ? words(map, rows[shown.row], shown.step) : "";
  const every = Math.ceil(view.count / Math.max(1, Math.floor(height / 18)));
  const names = [];
  for (let i = 0; i < view.count; i += every) names.push(map.ranks[rows[view.first + i]]);
  const apart = Math.ceil((columns * 48) / Math.max(width, 48));
  const numbers = map.steps.filter((_, i) => i % apart === 0).map((one) => one.step);
  return html`<div class="map">
    <div class="zoom" role="group" aria-label="Zoom">
      <button type="button" title="Zoom in (+)" onClick=${() => zoom(1 / 1.4, view.first + view.count / 2)}>+</button>
      <button type="button" title="Zoom out (−)" onClick=${() => zoom(1.4, view.first + view.count / 2)}>−</button>
      <button type="button" title="All ranks (0)" onClick=${() => setView({ first: 0, count: rows.length })}>All</button>
      ${view.count < rows.length &&
      html`<input type="range" aria-label="Scroll ranks" min="0" max=${rows.length - view.count}
        value=${view.first} onInput=${(e) => setView({ ...view, first: +e.target.value })} />`}
      <span class="note">${view.count < rows.length ? `${view.count} of ${rows.length} ranks` : ""}</span>
    </div>
    <div class="grid">
      <div class="ranks" style=${{ height: `${height}px` }} aria-hidden="true">
        ${names.map((one, i) => html`<span style=${{ top: `${(100 * (i * every + 0.5)) / view.count}%` }}>${one}</span>`)}
      </div>
      <div class="cells">
        <canvas ref=${canvas} tabindex="0" role="application" style=${{ height: `${height}px` }}
          aria-label=${`${name}: ${rows.length} ranks by ${columns} steps. Arrow keys move, Shift selects, Enter opens the window, plus and minus zoom.`}
          onPointerMove=${(e) => {
            const at = cell(e);
            setPointed(at && { ...at, x: e.offsetX, y: e.offsetY });
            if (drag.current && e.buttons === 1 && at) select(drag.current, at);
          }}
          onPointerLeave=${() => setPointed(null)}
          onPointerDown=${(e) => {
            const at = cell(e);
            if (at) [drag.current] = [at], setCursor(at), select(at, at);
          }}
          onDblClick=${open} onKeyDown=${key} onFocus=${() => setCursor({ ...cursor })} onBlur=${() => setCursor({ ...cursor })} />
        ${pointed && told &&
        html`<div class="tip" style=${{ left: `${Math.max(0, Math.min(pointed.x - 20, width - 340))}px`,
            top: `${Math.min(pointed.y, height - 20) + 24}px` }}>${told.split("\n").map((t) => html`<div>${t}</div>`)}</div>`}
      </div>
      <div class="steps" aria-hidden="true">
        ${numbers.map((one, i) => html`<span style=${{ left: `${(100 * (i * apart + 0.5)) / columns}%` }}>${one}</span>`)}
      </div>
    </div>
    <p class="axis">steps; ${by === "loss" ? "ranks by loss, the largest first" : "ranks in order"}</p>
    <div class="hidden" aria-live="polite">${told}</div>
  </div>`;
}

function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

/** The figures of a cell. */
export function words(map, row, step) {
  const label = map.labels && map.labels[row] ? ` (${map.labels[row]})` : "";
  const excess = map.excess_ns[row][step], cause = map.cause[row][step];
  const why = cause !== null && excess > 0 ? `, mostly ${map.causes[cause]}` : "";
  const more = excess === null ? "not known" : excess < 0 ? `${time(-excess)} less` : `${time(excess)} more`;
  return [
    `rank ${map.ranks[row]}${label}, step ${map.steps[step].step}`,
    `own time ${time(map.own_ns[row][step])}, ${more} than peers${why}`,
    `waits for others ${time(map.waiting_ns[row][step])}; the step takes ${time(map.step_ns[step])}`,
  ].join("\n");
}
