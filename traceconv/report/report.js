// What makes the page explorable. It reads the page as it is, changes what is shown of it, and writes
// text as text only. It asks nothing of any network; without it the page says the same.
"use strict";
(() => {
  const all = (css, root = document) => [...root.querySelectorAll(css)];
  const make = (name, css, text) => {
    const made = document.createElement(name);
    if (css) made.className = css;
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const UNITS = {
    ns: 1, "\u00b5s": 1e3, us: 1e3, ms: 1e6, s: 1e9, min: 6e10,
    B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, KB: 1024, MB: 1024 ** 2, GB: 1024 ** 3,
  };
  const number = (text) => {
    const found = /^[\u00b1\s]*(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*([^\s\d(,;]*)/.exec(text.trim());
    return found ? Number(found[1].replaceAll(",", "")) * (UNITS[found[2]] || 1) : NaN;
  };
  // "0-3,7" as a test of numbers; null for all, undefined for what is no such text
  const chosen = (text) => {
    if (!text.trim()) return null;
    const spans = text.split(",").map((part) => /^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$/.exec(part));
    if (spans.includes(null)) return undefined;
    const ends = spans.map((m) => [Number(m[1]), Number(m[2] ?? m[1])]);
    return { ends, has: (a, b = a) => ends.some(([low, high]) => a <= high && b >= low) };
  };
  const named = (text, word) => {
    const found = new RegExp(`\\b${word}s? (\\d+)(?:-(\\d+))?`).exec(text);
    return found && [Number(found[1]), Number(found[2] ?? found[1])];
  };
  const state = { ranks: null, steps: null };
  const keeps = (span, what) => !span || !state[what] || state[what].has(...span);

  // -- exact figures where one points, by mouse, finger or keyboard
  const tip = make("div", "tip");
  tip.hidden = true;
  document.body.append(tip);
  for (const one of all("[title]")) {
    one.dataset.tip = one.title;
    one.setAttribute("aria-label", one.title);
    one.removeAttribute("title");
  }
  for (const one of all("svg title")) {
    one.parentNode.dataset.tip = one.textContent;
    one.remove();
  }
  const point = (event) => {
    const at = event.target.closest?.("[data-tip]");
    tip.hidden = !at;
    if (!at) return;
    tip.textContent = at.dataset.tip;
    const x = event.clientX + 14, y = event.clientY + 16;
    tip.style.left = `${Math.max(4, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${y + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 8 : y}px`;
  };
  for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, point);
  document.addEventListener("scroll", () => { tip.hidden = true; }, true);

  // -- tables
  const shownRows = () => {
    for (const table of all("table")) {
      const heads = all("thead th", table).map((th) => th.dataset.name);
      const [rank, step] = ["rank", "step"].map((name) => heads.indexOf(name));
      const words = (table.filter?.value || "").toLowerCase();
      let shown = 0;
      const rows = all("tbody tr", table);
      for (const row of rows) {
        const value = (i) => /^\d+$/.test(row.cells[i]?.textContent || "")
          ? [Number(row.cells[i].textContent)] : null;
        row.hidden = !keeps(value(rank), "ranks") || !keeps(value(step), "steps")
          || !row.textContent.toLowerCase().includes(words);
        shown += !row.hidden;
      }
      if (table.count) {
        table.count.textContent = shown ? `${shown} of ${rows.length}` : `no row of ${rows.length} fits`;
        table.filter.classList.toggle("odd", !shown);
      }
    }
  };
  for (const table of all("table")) {
    const body = table.tBodies[0];
    if (!body) continue;
    all("thead th", table).forEach((th, column) => {
      const button = make("button", "sort", th.textContent);
      th.dataset.name = th.textContent;
      button.type = "button";
      th.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = th.getAttribute("aria-sort") === "descending";
        all("th", table).forEach((other) => other.removeAttribute("aria-sort"));
        th.setAttribute("aria-sort", down ? "ascending" : "descending");
        const rows = [...body.rows].map((row) => [row.cells[column]?.textContent.trim() || "", row]);
        const figures = rows.some(([text]) => !Number.isNaN(number(text)));
        rows.sort(([a], [b]) => {
          if (!figures) return (down ? 1 : -1) * a.localeCompare(b, undefined, { numeric: true });
          const [x, y] = [number(a), number(b)];
          if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
          return down ? x - y : y - x;  // what is unknown stays last
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
    if (body.rows.length > 8) {
      const bar = make("p", "filter");
      table.filter = make("input");
      table.filter.type = "search";
      table.filter.placeholder = "filter";
      table.filter.setAttribute("aria-label", "show only rows with these words");
      table.count = make("span");
      table.filter.addEventListener("input", shownRows);
      bar.append(table.filter, table.count);
      table.parentNode.before(bar);
    }
  }

  // -- ranks: bars, rows and columns of maps
  const shownBars = () => {
    for (const bar of all(".bar")) {
      const name = bar.querySelector(".name").firstChild?.textContent || "";
      bar.hidden = !keeps(/^rank \d+/.test(name) ? named(name, "rank") : null, "ranks")
        || !keeps(/^rank \d+, step \d+/.test(name) ? named(name, "step") : null, "steps");
    }
  };
  const maps = all("#heat .map").map((map) => {
    const grid = map.querySelector(".cells"), cells = [...grid.children];
    const names = all(".left > span", map);
    const columns = cells.length / names.length;
    const rows = names.map((name, i) => cells.slice(i * columns, (i + 1) * columns));
    return {
      grid, names, rows, below: map.querySelector(".below"),
      ranks: rows.map((row) => named(row[0]?.dataset.tip || "", "rank")),
      steps: (rows[0] || []).map((cell) => named(cell.dataset.tip || "", "step")),
    };
  });
  const shownMaps = () => {
    for (const { grid, names, rows, below, ranks, steps } of maps) {
      const here = steps.map((step) => keeps(step, "steps"));
      rows.forEach((row, i) => {
        const shown = keeps(ranks[i], "ranks");
        names[i].hidden = !shown;
        row.forEach((cell, j) => { cell.hidden = !shown || !here[j]; });
      });
      grid.style.gridTemplateColumns = `repeat(${Math.max(here.filter(Boolean).length, 1)},1fr)`;
      below.hidden = !here.every(Boolean);
    }
  };

  // -- the line of steps: a stretch of it fills the drawing
  const charts = all(".lines").map((chart) => {
    const svg = chart.querySelector("svg");
    const touched = all(".touch", svg).map((rect) => {
      const x = Number(rect.getAttribute("x")), wide = Number(rect.getAttribute("width"));
      return { step: named(rect.dataset.tip || "", "step"), low: x, high: x + wide };
    });
    const labels = all(".below span", chart).map((span) => [span, parseFloat(span.style.left)]);
    const ends = svg.getAttribute("viewBox").split(" ").map(Number);
    return { chart, svg, touched, labels, ends };
  });
  const zoom = ({ svg, labels, ends }, low, high) => {
    const whole = low <= 0 && high >= ends[2];
    svg.setAttribute("viewBox", `${low} 0 ${high - low} ${ends[3]}`);
    svg.style.overflow = whole ? "" : "hidden";
    for (const [span, left] of labels) {
      const x = (100 * ((left / 100) * ends[2] - low)) / (high - low);
      span.style.left = `${x}%`;
      span.hidden = x < -0.01 || x > 100.01;
    }
  };
  const shownCharts = () => {
    for (const one of charts) {
      const inside = one.touched.filter(({ step }) => step && keeps(step, "steps"));
      if (!one.touched.length) continue;
      if (!state.steps || !inside.length) zoom(one, 0, one.ends[2]);
      else zoom(one, Math.min(...inside.map((t) => t.low)), Math.max(...inside.map((t) => t.high)));
    }
  };
  const update = () => { shownRows(); shownBars(); shownMaps(); shownCharts(); };

  const panel = make("form", "choose");
  panel.addEventListener("submit", (event) => event.preventDefault());
  const fields = {};
  const said = make("output");
  const there = {
    ranks: [...all(".bar .name").map((one) => named(one.textContent, "rank")), ...maps.flatMap((map) => map.ranks)],
    steps: [...maps.flatMap((map) => map.steps), ...charts.flatMap((one) => one.touched.map((t) => t.step))],
  };
  const wrong = (what, found) => {
    if (found === undefined) return `${what}: write numbers, as in 0-3,7`;
    const known = there[what].filter(Boolean);
    if (!found || !known.length || known.some((span) => found.has(...span))) return "";
    const ends = known.flat();
    return `no such ${what}: there are ${Math.min(...ends)}-${Math.max(...ends)}`;
  };
  for (const what of ["ranks", "steps"]) {
    const label = make("label", "", what), field = make("input");
    field.placeholder = "all, or 0-3,7";
    field.addEventListener("input", () => {
      const found = chosen(field.value), odd = wrong(what, found);
      field.classList.toggle("odd", Boolean(odd));
      said.textContent = odd;
      if (!odd) { state[what] = found; update(); }
    });
    fields[what] = field;
    label.append(field);
    panel.append(label);
  }
  const set = (what, text) => {
    fields[what].value = text;
    fields[what].dispatchEvent(new Event("input"));
  };
  const everything = make("button", "", "show all");
  everything.type = "button";
  everything.addEventListener("click", () => { set("ranks", ""); set("steps", ""); });
  panel.append(everything, said);
  if (all(".bar, .map, .lines").length) document.querySelector("nav")?.after(panel);

  for (const one of charts) {
    const steps = one.touched.filter(({ step }) => step);
    if (!steps.length) continue;
    const mark = document.createElementNS(one.svg.namespaceURI, "rect");
    mark.setAttribute("class", "drawn");
    let from = null;
    const at = (event) => {
      const box = one.svg.getBoundingClientRect(), view = one.svg.viewBox.baseVal;
      return view.x + ((event.clientX - box.left) / box.width) * view.width;
    };
    one.svg.addEventListener("pointerdown", (event) => { from = at(event); });
    one.svg.addEventListener("pointermove", (event) => {
      if (from === null || !(event.buttons & 1)) return;
      const to = at(event);
      for (const [key, value] of Object.entries({
        x: Math.min(from, to), y: 0, width: Math.abs(to - from), height: one.ends[3],
      })) mark.setAttribute(key, value);
      one.svg.append(mark);
    });
    addEventListener("pointerup", (event) => {
      if (from === null) return;
      const [low, high] = [from, at(event)].sort((a, b) => a - b);
      from = null;
      mark.remove();
      const inside = steps.filter((t) => t.high > low && t.low < high);
      if (high - low < 0.01 * one.svg.viewBox.baseVal.width || !inside.length) return;
      set("steps", `${inside[0].step[0]}-${inside.at(-1).step[1]}`);
    });
    one.svg.addEventListener("dblclick", () => set("steps", ""));
  }

  // -- places: what finds one in the trace, for the search box of the viewer
  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const field = make("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    said.textContent = "copied: paste it behind a colon in the viewer's search box";
    setTimeout(() => { said.textContent = ""; }, 4000);
  };
  // The viewer fetches the trace from this machine, so links lead there only while the page is served
  // beside the trace.
  const served = new URLSearchParams(/^(127\.0\.0\.1|localhost)$/.test(location.hostname) ? location.search : "");
  const [trace, viewer] = [served.get("trace"), served.get("viewer")];
  const linked = trace && /^https?:\/\//.test(viewer);
  const leading = (query, start, end) => {
    const route = new URLSearchParams({ url: trace, query });
    if (end !== undefined) {
      const margin = Math.max(2 * (end - start), 1e4);
      route.set("visStart", Math.max(0, Math.round(start - margin)));
      route.set("visEnd", Math.round(end + margin));
    }
    return `${viewer}/#!/?${route.toString().replaceAll("+", "%20")}`;
  };
  for (const find of all(".find")) {
    const code = find.querySelector("code"), { start, end } = find.dataset;
    const button = make("button", "copy", "copy query");
    button.type = "button";
    button.addEventListener("click", () => copied(code.textContent));
    find.hidden = true;
    find.after(button);
    if (!linked || start === undefined) continue;
    const way = make("a", "open", "show in the viewer");
    way.href = leading(code.textContent, Number(start), Number(end));
    way.target = "_blank";
    way.rel = "noopener";
    button.after(way);
  }
  // what is folded is printed, too
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open]):not(.find)");
    opened.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => { opened.forEach((one) => { one.open = false; }); });
  for (const link of all("nav a")) {
    link.addEventListener("click", () => {
      const folded = document.querySelector(`${link.getAttribute("href")} > details`);
      if (folded) folded.open = true;
    });
  }
  for (const { rows } of maps) {
    for (const cell of rows.flat()) {
      cell.addEventListener("click", () => {
        const words = cell.dataset.tip || "";
        const [rank, step] = [named(words, "rank"), named(words, "step")];
        if (!rank || !step) return;
        const query = (
          "SELECT slice.id AS slice_id, ts, dur, track_id, slice.name FROM slice JOIN process_track "
          + "ON track_id = process_track.id JOIN process USING (upid) WHERE "
          + `process.name || ' ' GLOB 'Rank ${rank[0]} *' AND EXTRACT_ARG(slice.arg_set_id, 'debug.step') = ${step[0]}`
        );
        if (linked) open(leading(query), "_blank", "noopener"); else copied(query);
      });
    }
  }
})();
