// The page of `traceconv explore`. Everything it shows comes from the JSON documents of the command
// line; texts are set as text, never as markup.

import { render, useEffect, useMemo, useRef, useState } from "./htm-preact.mjs";
import { MEASURES, RankMap, html, named, ranges, scale, time } from "./map.js";

async function fetched(address) {
  const answer = await fetch(address);
  const document = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(document.error || `the server answered ${answer.status}`);
  return document;
}

const query = (pairs) => new URLSearchParams(pairs).toString();

/** A word of a command line, whatever is in it: names and paths are copied into a shell. */
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function polled() {
  try {
    return await fetched("about/0");
  } catch {
    throw new Error("traceconv explore has ended; its terminal says why. Start it again for a new link.");
  }
}

function App() {
  const [runs, setRuns] = useState(null);
  const [about, setAbout] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    (async () => {
      for (let shown = false, read = false; !read; ) {
        const now = await polled();
        setAbout(now);
        if (now.is_shown && !shown) {
          const found = await Promise.all([...Array(now.runs).keys()].map((i) => fetched(`run/${i}`)));
          setRuns(found);
          document.title = `traceconv: ${found.map((one) => one.path).join(" and ")}`;
          shown = true;
        }
        read = now.is_read;
        if (!read) await pause(500);
      }
    })().catch((error) => setProblem(String(error.message)));
  }, []);
  const progress = about && !about.is_read && about.reading;
  return html`
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    ${!problem && !runs && html`<${Reading} progress=${progress} />`}
    ${runs && html`<${Page} runs=${runs} progress=${progress} />`}`;
}

/** How far reading the run is. */
function Reading({ progress, shown }) {
  if (!progress || !progress.what) return html`<p class="loading" role="status">Loading …</p>`;
  const { done, total, what } = progress;
  const share = total && done < total ? ` ${Math.floor((100 * done) / total)} %` : " …";
  return html`<div class="loading"><p role="status">${`${what}${share}`}</p>
    <progress max=${total || 1} value=${total ? Math.min(done, total) : undefined} aria-label=${what} />
    <p class="note">${shown ? "What if and reports are answered" : "The run is shown"} once its ranks are read${shown ? "." : "; the next time at once."}</p></div>`;
}

function Page({ runs, progress }) {
  const [measure, setMeasure] = useState("excess_ns");
  const [by, setBy] = useState("loss");
  const [report, setReport] = useState(null);
  const mapped = runs.filter((run) => run.map.ranks);
  const limit = useMemo(
    () => Math.max(1, ...mapped.map((run) => scale(run.map, measure))), [runs, measure]);
  return html`
    <header>
      <p class="chips"><span>traceconv ${runs[0].traceconv}</span>${runs.map((run) => html`<span>${run.path}</span>`)}</p>
      ${runs.length > 1 && html`<${Compared} show=${setReport} />`}
      <div class=${runs.length > 1 ? "runs two" : "runs"}>
        ${runs.map(({ verdict, straggler }) => html`<section class=${`verdict ${verdict.severity}`}>
          <h1>${verdict.text}</h1>
          ${verdict.lost && html`<p>${verdict.lost}</p>`}
          ${verdict.severity !== "warning" && straggler && html`<p>${straggler}</p>`}
          ${verdict.advice && html`<p><strong>What to do: </strong>${verdict.advice}</p>`}
        </section>`)}
      </div>
    </header>
    ${mapped.length > 0 &&
    html`<div class="controls">
      <fieldset><legend>Colour</legend>
        ${Object.entries(MEASURES).map(([key, label]) => html`<label><input type="radio" name="measure"
          checked=${measure === key} onChange=${() => setMeasure(key)} />${label}</label>`)}
      </fieldset>
      <fieldset><legend>Order</legend>
        ${[["loss", "By loss"], ["rank", "By rank"]].map(([key, label]) => html`<label><input type="radio" name="order"
          checked=${by === key} onChange=${() => setBy(key)} />${label}</label>`)}
      </fieldset>
      <${Scale} map=${mapped[0].map} measure=${measure} limit=${limit} />
    </div>`}
    <div class=${runs.length > 1 ? "runs two" : "runs"}>
      ${runs.map((run, number) => html`<${Run} ...${{ run, number, measure, by, limit, progress, show: setReport }} />`)}
    </div>
    ${report && html`<${Report} ...${report} close=${() => setReport(null)} />`}`;
}

function Scale({ map, measure, limit }) {
  if (measure === "cause") {
    return html`<p class="legend">${map.causes.map((one, i) => html`<span><i class=${`cause-${i}`} />${one}</span>`)}
      <span><i class="unknown" />not known</span></p>`;
  }
  return html`<p class="legend">0 <i class="ramp" /> ${time(limit)} <span><i class="unknown" />not known</span></p>`;
}

function Compared({ show }) {
  const [said, setSaid] = useState("Comparing …");
  useEffect(() => {
    fetched("diff/0").then((one) => setSaid(one.headline || one.verdict), (error) => setSaid(error.message));
  }, []);
  return html`<section class="card"><h2>The second run beside the first</h2><p>${said}</p>
    <button type="button" onClick=${() => show({ address: "diff-report/0", title: "Comparison" })}>Report of the comparison</button>
  </section>`;
}

function Run({ run, number, measure, by, limit, progress, show }) {
  const map = run.map.ranks ? run.map : null;
  const [chosen, choose] = useState(null);
  const [opened, setOpened] = useState(null);
  const steps = chosen && map ? map.steps.slice(chosen.from, chosen.to + 1).map((one) => one.step) : [];
  const part = chosen ? { ranks: ranges(chosen.ranks), steps: ranges(steps) } : null;
  const title = chosen ? `${named("Rank", chosen.ranks)}, ${named("step", steps)}` : "";
  const open = async (asked = part) => {
    if (!asked) return;
    setOpened({ text: "Making the window …" });
    const began = performance.now();
    // opened while the click counts, or the browser takes it for an advertisement
    const tab = window.open("", "_blank");
    try {
      const found = await fetched(`window/${number}?${query(asked)}`);
      if (tab) [tab.opener, tab.location] = [null, found.link];
      setOpened({
        text: `${Math.ceil(found.bytes / 1024)} KiB in ${((performance.now() - began) / 1000).toFixed(1)} s`,
        link: found.link,
        lost: found.lost,
      });
    } catch (error) {
      if (tab) tab.close();
      setOpened({ text: error.message, bad: true });
    }
  };
  return html`<div class="run">
    <div class="columns">
      <section class="card wide">
        <h2>Ranks and steps</h2>
        ${map
          ? html`<${RankMap} ...${{ map, measure, by, limit, chosen, choose, name: run.path }} open=${() => open()} />`
          : html`<p class="note">${run.map.missing}</p>`}
        <${Chosen} ...${{ part, title, opened, open, chosen }} report=${() =>
          show({ address: `report/${number}?${query(part)}`, title })} />
        <p><button type="button" onClick=${() => show({ address: `report/${number}`, title: "Report" })}>Report of the whole run</button></p>
      </section>
      <div class="side">
        <${WhatIf} ...${{ run, number, chosen, progress }} />
        <${Findings} ...${{ run, open, map }} />
      </div>
    </div>
  </div>`;
}

function Chosen({ part, title, opened, open, report, chosen }) {
  if (!part) return html`<p class="note">Click a cell, or drag over several, for its window and its report.</p>`;
  const many = chosen.ranks.length > 32;
  return html`<div class="chosen">
    <p><strong>${title}</strong></p>
    <p><button type="button" class="main" onClick=${() => open()}>Open in Perfetto</button>
      <button type="button" onClick=${report}>Report of these</button></p>
    ${many && html`<p class="note">A window of ${chosen.ranks.length} ranks takes longer to make and to load.</p>`}
    ${opened && html`<p class=${opened.bad ? "problem" : "note"} role="status">${opened.text}
      ${opened.link && html` · <a href=${opened.link} target="_blank" rel="noopener">open it again</a>`}</p>
      ${(opened.lost || []).map((line) => html`<p class="problem">${line}</p>`)}`}
  </div>`;
}

function Findings({ run, open, map }) {
  if (!run.findings.length) return html`<section class="card"><h2>Findings</h2><p class="note">No rule found anything.</p></section>`;
  const known = new Set(map ? map.steps.map((one) => one.step) : []);
  return html`<section class="card findings"><h2>Findings</h2>
    ${run.findings.map((one) => {
      const steps = (one.steps || []).filter((step) => known.has(step));
      const place = steps.length && one.rank !== null ? { ranks: `${one.rank}`, steps: `${steps[0]}` } : null;
      return html`<details><summary><span class=${`tag ${one.severity}`}>${one.severity}</span>${one.title}
          ${one.ms_per_step !== null && html` <small>${time(one.ms_per_step * 1e6)} per step</small>`}</summary>
        <p>${one.text}</p>
        <ul>${one.evidence.map((fact) => html`<li>${fact}</li>`)}</ul>
        ${one.advice && html`<p><strong>What to do: </strong>${one.advice}</p>`}
        ${place && html`<button type="button" onClick=${() => open(place)}>${`Open rank ${place.ranks}, step ${place.steps}`}</button>`}
      </details>`;
    })}
  </section>`;
}

function WhatIf({ run, number, chosen, progress }) {
  const [factors, setFactors] = useState({});
  const [answer, setAnswer] = useState(null);
  const asked = useRef(0);
  const knobs = useMemo(() => {
    const own = (chosen && chosen.ranks.length <= 256 ? chosen.ranks : []);
    const more = own.length ? [{ label: `${named("rank", own)} like ${own.length > 1 ? "their" : "its"} peers`, change: `rank:${ranges(own)}=peers` }] : [];
    const there = new Set(run.changes.map((one) => one.change));
    return [...run.changes, ...more.filter((one) => !there.has(one.change))];
  }, [run, chosen]);
  const changes = knobs
    .filter((one) => factors[one.change] !== undefined && factors[one.change] !== 1)
    .map((one) => one.change.replace("{}", String(factors[one.change])));
  const key = changes.join("\n");
  useEffect(() => {
    if (!changes.length) return setAnswer(null);
    const mine = ++asked.current;
    const timer = setTimeout(() => {
      fetched(`what-if/${number}?${query(changes.map((one) => ["change", one]))}`).then(
        (found) => mine === asked.current && setAnswer(found),
        (error) => mine === asked.current && setAnswer({ error: error.message }));
    }, 150);
    return () => clearTimeout(timer);
  }, [key]);
  if (!run.changes.length) return null;
  const set = (change, value) => setFactors({ ...factors, [change]: value });
  return html`<section class="card"><h2>What if</h2>
    <div class="answer" role="status">
      ${!changes.length && html`<p>A step takes <strong>${time(run.step_ns)}</strong>; replay error ${(100 * run.replay_error).toFixed(1)} %.</p>`}
      ${changes.length > 0 && !answer && html`<p>${progress ? "Waiting for the ranks …" : "Replaying …"}</p>`}
      ${progress && html`<${Reading} progress=${progress} shown />`}
      ${answer && answer.error && html`<p class="problem">${answer.error}</p>`}
      ${answer && !answer.error && html`<p>A step takes <strong>${time(answer.step_if_ns)}</strong> instead of ${`${time(answer.step_ns)} `}
        (<strong>${`${(-100 * answer.gain_share).toFixed(1).replace("-", "−")}\u00a0%`}</strong>)</p>
        <div class="bar"><i style=${{ width: `${Math.min(100, (100 * answer.step_if_ns) / answer.step_ns)}%` }} /></div>
        <p class="note">${answer.text}</p>`}
    </div>
    <div class="knobs">${knobs.map((one) => {
      const value = factors[one.change];
      return one.change.includes("{}")
        ? html`<label class="knob"><span title=${one.label}>${one.label}</span>
            <input type="range" min="0" max="1.5" step="0.05" value=${value ?? 1} onInput=${(e) => set(one.change, +e.target.value)} />
            <output>${value === 0 ? "0" : `×${(value ?? 1).toFixed(2)}`}</output></label>`
        : html`<label class="knob"><input type="checkbox" checked=${value === 0} onChange=${(e) => set(one.change, e.target.checked ? 0 : undefined)} />
            <span title=${one.label}>${one.label}</span></label>`;
    })}</div>
    ${changes.length > 0 && html`${!/\p{C}/u.test(run.path) &&
      html`<p class="note"><code>${["traceconv what-if", ...changes.map(quoted), quoted(run.path)].join(" ")}</code></p>`}
      <button type="button" onClick=${() => setFactors({})}>Reset</button>`}
  </section>`;
}

function Report({ address, title, close }) {
  const dialog = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
  }, []);
  return html`<dialog ref=${dialog} onClose=${close} aria-label=${title}>
    <p><strong>${title}</strong><button type="button" onClick=${() => dialog.current.close()}>Close</button></p>
    <iframe src=${address} title=${title}></iframe>
  </dialog>`;
}

const place = document.getElementById("app");
place.textContent = "";
render(html`<${App} />`, place);
