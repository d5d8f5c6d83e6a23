"use strict";
(() => {
const $ = id => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const make = (tag, attributes = {}, ...children) => {
  const isShape = ["svg", "polyline", "circle"].includes(tag);
  const element = document.createElementNS(`http://www.w3.org/${isShape ? "2000/svg" : "1999/xhtml"}`, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const isIn = (...values) => values.every(value => (value ?? null) !== null);
const known = values => values.filter(value => isIn(value));
const extent = values => known(values).reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);

// Numbers in words: as core/format.py has them, where ties go to the even digit.
const exponential = (value, digits) => {
  const [all, exponent] = value.toExponential(30).split("e"), end = all.indexOf(".") + digits;
  const isTie = /^50*$/.test(all.slice(end)) && all[end - 1] % 2 === 0;
  return isTie ? `${all.slice(0, end)}e${exponent}` : value.toExponential(digits - 1);
};
const whole = value => (Math.abs(value % 1) === 0.5 ? 2 * Math.round(value / 2) : value).toFixed();
const significant = (value, digits = 4) => {
  if (!value) return "0";
  const text = exponential(value, digits);
  if (Math.abs(value) < 1e-6 || Math.abs(value) >= 1e15) return text.replace(/e([+-])(\d)$/, "e$10$2");
  const decimals = digits - 1 - Math.floor(Math.log10(Math.abs(text)));
  return decimals < 0 ? whole(value) : Number(text).toFixed(decimals);
};
const scaleOf = (value, unit) => {
  const scales = Object.hasOwn(data.scales, unit) ? data.scales[unit] : [[1, ` ${unit}`]];
  return scales.find(([factor]) => Number(exponential(Math.abs(value) / factor, 4)) >= 1) || scales.at(-1);
};
const quantity = (value, unit) => {
  if (unit === "bytes" && Math.abs(value) < 1024) return `${whole(value)} B`;
  if (unit === "fraction") return `${significant(value * 100, 2)}%`;
  const [factor, name] = scaleOf(value, unit);
  return significant(value / factor) + name;
};

// Charts: records of chart.py, drawn by uPlot.
const charts = new Map(), HOLLOW = new Set(["base", "doubt"]), DASHES = { base: [6, 3], reference: [2, 3] };
const STEPS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6].flatMap(power => [power, 2 * power, 5 * power]);
const BINARY_STEPS = Array.from({ length: 60 }, (_, power) => 2 ** power);
const probe = document.body.appendChild(make("i", { hidden: "" }));
const colour = (name, share = 100) => {
  probe.style.color = `color-mix(in srgb, var(--${name}) ${share}%, transparent)`;
  return getComputedStyle(probe).color;
};
const nameOf = (chart, i) => chart.names[i] || `${chart.noun} ${chart.positions[i]}`;
const spelled = ({ values, low, high }, i, unit) => {
  const ends = isIn(low[i], high[i]) ? ` [${quantity(low[i], unit)}, ${quantity(high[i], unit)}]` : "";
  return isIn(values[i]) ? quantity(values[i], unit) + ends : ends || "–";
};
const plotted = chart => {
  const columns = [chart.positions], bands = [], nothing = () => null;
  const told = words => (_, value, __, i) => isIn(i) ? words(i) : "–";
  const series = [{ label: chart.noun, value: told(i => nameOf(chart, i)) }];
  for (const own of chart.series) {
    const isLine = own.style === "line", paths = own.style === "dots" ? nothing : undefined;
    const stroke = () => colour(own.role), fill = () => colour(HOLLOW.has(own.role) ? "surface" : own.role);
    const band = { series: [columns.length + 1, columns.length], fill: () => colour(own.role, 15) };
    if (own.low.length && !paths) bands.push(band);
    for (const end of own.low.length ? [own.low, own.high] : []) {
      columns.push(end);
      series.push({ class: "end", points: { show: false }, spanGaps: true, paths });
    }
    columns.push(own.values.length ? own.values : own.low.map(nothing));
    series.push({
      label: own.label, stroke, width: 1.75, dash: isLine ? DASHES[own.role] : undefined, spanGaps: isLine, paths,
      value: told(i => spelled(own, i, chart.unit)),
      points: { show: Boolean(paths) || (isLine ? own.values.length < 2 || undefined : false), size: 7, width: 1.5, stroke, fill },
    });
  }
  return { columns, series, bands };
};
const decorate = ({ ctx, bbox, valToPos }, chart) => { // by intervals of dots, and marks with texts in three rows
  const ratio = uPlot.pxRatio, line = (x, from, to) => ctx.stroke(new Path2D(`M${x} ${from}V${to}`));
  const x = at => valToPos(at, "x", true), y = value => valToPos(value, "y", true);
  ctx.save();
  ctx.clip(new Path2D(`M${bbox.left} ${bbox.top}h${bbox.width}v${bbox.height}h${-bbox.width}z`));
  ctx.lineWidth = ratio;
  for (const { role, low, high } of chart.series.filter(({ style }) => style === "dots")) {
    ctx.strokeStyle = colour(role);
    low.forEach((end, i) => isIn(end, high[i]) && line(x(chart.positions[i]), y(end), y(high[i])));
  }
  ctx.strokeStyle = ctx.fillStyle = colour("mark");
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  chart.marks.forEach(([at, text], i) => {
    const isRight = x(at) + ctx.measureText(text).width > bbox.left + bbox.width;
    line(x(at), bbox.top, bbox.top + bbox.height);
    ctx.textAlign = isRight ? "right" : "left";
    ctx.fillText(text, x(at) + (isRight ? -5 : 5) * ratio, bbox.top + (12 + 14 * (i % 3)) * ratio);
  });
  ctx.restore();
};
const draw = (figure, chart) => {
  const box = figure.querySelector(".plot"), numbers = figure.querySelector("details"), { positions, unit } = chart;
  const [least, most] = extent(chart.series.flatMap(own => [...own.values, ...own.low, ...own.high]));
  const isWide = 0 < least && least * 50 < most; // on a linear scale the lower ones would lie on the axis
  const names = new Map(positions.map((at, i) => [at, (chart.ticks || chart.names)[i]]));
  const nameAt = at => at < positions[0] || at > positions.at(-1) ? "" : String(names.get(at) || at);
  const words = splits => {
    const [factor, name] = scaleOf(Math.max(...splits.map(Math.abs)), unit);
    return splits.map(value => value === null ? null : Number((value / factor).toPrecision(6)) + name);
  };
  const lines = { stroke: () => colour("rule", 60), width: 1 };
  const axis = { stroke: () => colour("muted"), font: "12px system-ui, sans-serif", grid: lines, ticks: lines };
  const { columns, ...parts } = plotted(chart);
  charts.get(box)?.destroy();
  charts.set(box, new uPlot({
    ...parts, width: box.clientWidth || 600, height: 260, cursor: { drag: { x: true, y: false } },
    scales: {
      x: { time: false, range: (_, a, b) => [a - ((b - a) * 0.02 || 0.5), b + ((b - a) * 0.02 || 0.5)] },
      y: isWide ? { distr: 3 } : least <= most ? {} : { range: [0, 1] },
    },
    axes: [
      { ...axis, grid: { show: false }, space: 90, incrs: positions.at(-1) - positions[0] < 1 ? undefined : STEPS,
        values: (_, splits) => splits.map(at => nameAt(at).replace(/^(.{11}).{2,}$/u, "$1…")) },
      { ...axis, incrs: unit === "bytes" ? BINARY_STEPS : undefined, values: (_, splits) => words(splits),
        size: (_, texts) => 18 + 7 * Math.max(4, ...known(texts || []).map(text => text.length)) },
    ],
    hooks: { draw: [plot => decorate(plot, chart)] },
  }, columns, box));
  sizes.observe(box);
  const range = own => `${own.label} from ${extent(own.values).map(end => quantity(end, unit)).join(" to ")}`;
  const ranges = chart.series.filter(own => known(own.values).length).map(range);
  const marks = chart.marks.map(([at, text]) => `${chart.noun} ${at}: ${text}`);
  box.setAttribute("aria-label", [chart.title, ...ranges, ...marks].join("; "));
  figure.querySelector("figcaption").textContent = chart.title;
  numbers.open = false;
  numbers.querySelector("div")?.remove();
  numbers.ontoggle = () => numbers.open && !numbers.querySelector("div") && numbers.append(exactly(chart));
};
const exactly = ({ title, unit, noun, series, ...chart }) => {
  const shown = series.flatMap(own => [["", own.values], [", low", own.low], [", high", own.high]]
    .map(([end, values]) => [own.label + end + (unit && unit !== "1" ? ` (${unit})` : ""), values]))
    .filter(([, values]) => known(values).length);
  const head = [[noun], ...shown].map(([label]) => make("th", { scope: "col" }, label));
  const lines = chart.positions.map((at, i) => known(shown.map(([, values]) => values[i])).length ? make("tr", {},
    make("th", { scope: "row" }, nameOf({ noun, ...chart }, i)),
    ...shown.map(([, values]) => make("td", { class: "number" }, values[i] ?? "–"))) : "");
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `Numbers of ${title}` },
    make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines)));
};

const STORED = ".chart:has(script)"; // those with data; the history's is made of the row's
const resize = (box, most = Infinity) => {
  const plot = charts.get(box), width = Math.min(most, box.clientWidth);
  if (!box.isConnected) (plot.destroy(), charts.delete(box), sizes.unobserve(box));
  else if (width && width !== plot.width) plot.setSize({ width, height: plot.height });
};
const sizes = new ResizeObserver(entries => entries.forEach(({ target }) => resize(target)));
const drawStored = figure => {
  pending.unobserve(figure);
  if (!figure.querySelector(".uplot")) draw(figure, JSON.parse(figure.querySelector("script").textContent));
};
const whenSeen = (act, options) => new IntersectionObserver(entries =>
  entries.forEach(entry => entry.isIntersecting && act(entry.target)), { rootMargin: "300px", ...options });
const pending = whenSeen(drawStored);
const drawSeen = root => root.querySelectorAll(STORED).forEach(figure => pending.observe(figure));
for (const query of ["(prefers-color-scheme: dark)", "print"])
  matchMedia(query).addEventListener("change", () => charts.forEach(plot => plot.redraw(false)));
for (const name of ["beforeprint", "afterprint"]) addEventListener(name, () => {
  const is = name === "beforeprint";
  document.documentElement.classList.toggle("paper", is);
  for (const figure of is ? document.querySelectorAll(STORED) : []) if (figure.checkVisibility()) drawStored(figure);
  charts.forEach((plot, box) => (resize(box, is ? 660 : Infinity), plot.redraw(false)));
});
drawSeen(document);
if (!data.rows.length) return;

const historyOf = ({ data: { history } }) => {
  const bytes = Uint8Array.from(atob(history.values), letter => letter.charCodeAt(0));
  const values = Array.from(new Float64Array(bytes.buffer), value => Number.isFinite(value) ? value : null);
  const doubts = new Map(history.doubts.flatMap(([text, at]) => at.map(i => [i, text])));
  return { ...history, values, doubts, runs: history.runs ? history.runs.map(i => data.runs[i]) : data.runs };
};
const historyChart = row => {
  const { metric, unit, values, runs, doubts, levels, band } = historyOf(row);
  const series = (label, style, role, own) => ({ label, style, role, values: [], low: [], high: [], ...own });
  const part = isDoubtful => ({ values: values.map((value, i) => doubts.has(i) === isDoubtful ? value : null) });
  const [low, high] = (band || []).map(end => runs.map(() => end));
  return {
    title: `${metric} of ${runs.length} run${runs.length === 1 ? "" : "s"}`, unit, noun: "run",
    positions: runs.map((_, i) => i + 1), marks: levels.map(([at, text]) => [at + 1, text]),
    names: runs.map(([id, started, commit, branch], i) => [started.slice(0, 16).replace("T", " "), commit.slice(0, 9),
      branch, id, doubts.has(i) && `≈ ${doubts.get(i)}`].filter(Boolean).join(" · ")),
    ticks: runs.map(([id, started, commit]) => started.slice(0, 10) || commit.slice(0, 9) || id),
    series: [
      ...(band ? [series("interval of the baseline", "band", "reference", { low, high })] : []),
      series("measured", "line", "head", part(false)),
      ...(doubts.size ? [series("in doubt", "dots", "doubt", part(true))] : []),
    ],
  };
};
const sparkline = row => {
  const { values, doubts } = historyOf(row), first = Math.max(0, values.length - 24);
  const [low, high] = extent(values.slice(first)), step = 116 / Math.max(1, values.length - 1 - first);
  const places = values.flatMap((value, i) => i < first || value === null ? [] : [{
    cx: 2 + (i - first) * step, cy: 19 - 16 * (value - low) / (high - low || 1),
    class: doubts.has(i) ? "doubt" : "last",
  }]);
  const { doubt = [], last = [] } = Object.groupBy(places, place => place.class);
  row.line.querySelector(".history").replaceChildren(make("svg", { viewBox: "0 0 120 22", "aria-hidden": true },
    make("polyline", { points: last.map(({ cx, cy }) => `${cx.toFixed(1)},${cy.toFixed(1)}`).join(" ") }),
    ...[...doubt, ...last.slice(-1)].map(place => make("circle", { ...place, r: 2 }))));
};

// The table. The address has the view of it.
const table = $("rows"), headers = [...table.tHead.rows[0].cells], kindText = kind => kind.replaceAll("_", " ");
const rows = Array.from(table.tBodies[0].rows, (line, i) => {
  const own = Object.assign(data.rows[i], { id: data.rows[i].id.toWellFormed() }); // as in an address
  return {
    line, i, data: own, text: [own.id, line.textContent, ...own.facets].join("\n").toLowerCase(),
    cells: new Map(headers.map((header, at) => [header.dataset.column, line.cells[at].textContent.trim()])),
    facets: new Map([
      ...data.facets.map((name, at) => [`facet.${name}`, [own.facets[at]]]), ["outcome", [kindText(own.outcome)]],
      ["verdict", [kindText(own.kind)]], ["doubt", own.doubts.length ? own.doubts : ["none"]],
    ]),
  };
});
const rowOf = new Map(rows.map(row => [row.line, row]));
const order = new Intl.Collator("en", { numeric: true }).compare, WORSE = { regressed: 1, improved: -1 };
const keyOf = ({ data: { number, change, kind }, cells }, column) => {
  if (column === "value") return number;
  if (column !== "change") return cells.get(column) || null;
  return isIn(change) ? Math.abs(change) * WORSE[kind] || change : null; // more can be better
};
let view = new URLSearchParams(), arranged = "", chosen = null;
const put = (entries, isStep = false) => {
  for (const [name, value] of Object.entries(entries)) value ? view.set(name, value) : view.delete(name);
  history[isStep ? "pushState" : "replaceState"](null, "", `#${view}`);
  show();
};
const selects = new Map();
const addSelect = (name, title, ...options) => {
  const select = make("select", { "aria-label": title });
  select.append(...options.map(([value, text]) => make("option", { value }, text)));
  select.onchange = () => put({ [name]: select.value });
  $("controls").append(make("label", {}, `${title} `, select));
  selects.set(name, select);
};
for (const name of rows[0].facets.keys()) {
  const values = Map.groupBy(rows.flatMap(row => row.facets.get(name)).filter(Boolean), value => value);
  const options = [...values.keys()].sort(order).map(value => [value, `${value} (${values.get(value).length})`]);
  if (options.length > 1) addSelect(name, name.replace(/^facet\./, ""), ["", "all"], ...options);
}
addSelect("group", "group by", ["", "–"], ["file", "file"], ...data.facets.map(name => [`facet.${name}`, name]));

const matching = () => {
  const sought = (view.get("search") || "").toLowerCase().split(/\s+/);
  const filters = [...view].filter(([name, value]) => value && rows[0].facets.has(name));
  return rows.filter(row => sought.every(word => row.text.includes(word)) &&
    filters.every(([name, value]) => row.facets.get(name).includes(value)));
};
const sorted = shown => {
  const sort = view.get("sort") || "", column = sort.replace("-", ""), sign = sort === column ? 1 : -1;
  const compare = (a, b) => isIn(a, b) ? sign * (typeof a === "string" ? order(a, b) : a - b) : isIn(b) - isIn(a);
  const keys = new Map(shown.map(row => [row, keyOf(row, column)]));
  return sort ? shown.toSorted((a, b) => compare(keys.get(a), keys.get(b))) : shown;
};
const grouped = (shown, name) => {
  const group = row => name === "file" ? row.data.id.split("::")[0] : row.facets.get(name)?.[0] || "none";
  return Array.from(Map.groupBy(shown, group), ([title, own]) => {
    const kinds = Map.groupBy(own, row => row.cells.get("verdict") || "");
    const text = `${title}: ${Array.from(kinds, ([kind, those]) => `${those.length} ${kind}`).join(", ")}`;
    const head = make("tr", { class: "group" }, make("th", { scope: "rowgroup", colspan: headers.length }, text));
    return make("tbody", {}, head, ...own.map(row => row.line));
  });
};
const arrange = () => {
  const group = view.get("group"), sort = view.get("sort"), wanted = [...view].filter(([name]) => name !== "benchmark");
  if (String(wanted) === arranged) return;
  arranged = String(wanted);
  const shown = sorted(matching());
  const bodies = group ? grouped(shown, group) : [make("tbody", {}, ...shown.map(row => row.line))];
  for (const body of [...table.tBodies]) body.remove(); // the head keeps the focus
  table.append(...bodies);
  $("count").textContent = `${shown.length} of ${rows.length} shown`;
  $("nothing").hidden = shown.length > 0;
  if ($("search").value !== view.get("search")) $("search").value = view.get("search") || "";
  selects.forEach((select, name) => { select.value = view.get(name) || ""; });
  const direction = sort?.startsWith("-") ? "descending" : "ascending";
  for (const header of headers) header.ariaSort = sort?.endsWith(header.dataset.column) ? direction : "none";
};
const choose = row => {
  if (row === chosen) return;
  chosen?.line.removeAttribute("aria-current");
  row.line.setAttribute("aria-current", "true");
  chosen = row;
  const put = (name, ...children) => $("chosen").querySelector(name).replaceChildren(...children);
  const facts = [...row.cells, ...data.facets.map((name, i) => [name, row.data.facets[i]])]
    .filter(([title, text]) => text && title !== "benchmark");
  put("h2", row.line.querySelector(".name").textContent);
  put(".id", row.data.id);
  put(".reason", row.line.querySelector(".reason")?.textContent || "");
  put("dl", ...facts.map(([title, text]) => make("div", {}, make("dt", {}, title), make("dd", {}, text))));
  put("#details", document.querySelector(`template[data-row="${row.i}"]`)?.content.cloneNode(true) || "");
  $("chosen").hidden = false;
  $("history").hidden = !row.data.history;
  if (row.data.history) draw($("history"), historyChart(row));
  drawSeen($("details"));
};
const show = () => {
  const id = view.get("benchmark"), row = rows.find(each => each.data.id === id);
  arrange();
  choose(row || rows[0]);
  $("unknown").hidden = Boolean(row || !id);
};
const reveal = () => {
  $("region").scrollTop = chosen.line.offsetTop - $("region").clientHeight / 2;
  $("chosen").scrollIntoView();
  $("chosen-name").focus({ preventScroll: true });
};
table.onclick = ({ target }) => {
  const column = target.closest("thead button")?.parentElement.dataset.column, name = target.closest(".name");
  const steps = column === "value" || column === "change" ? [`-${column}`, column, ""] : [column, `-${column}`, ""];
  if (column) put({ sort: steps[steps.indexOf(view.get("sort")) + 1] });
  if (!name) return;
  put({ benchmark: rowOf.get(name.closest("tr")).data.id }, true);
  reveal();
};
$("search").oninput = () => put({ search: $("search").value });
$("clear").onclick = () => {
  put(Object.fromEntries(["search", ...rows[0].facets.keys()].map(name => [name, ""])));
  $("search").focus();
};
const restore = () => {
  if (location.hash && !location.hash.includes("=")) return; // a place on the page
  view = new URLSearchParams(location.hash.slice(1));
  show();
  if (view.has("benchmark")) reveal();
};
addEventListener("hashchange", restore);
const seen = whenSeen(line => (seen.unobserve(line), sparkline(rowOf.get(line))), { root: $("region") });
rows.forEach(row => row.data.history && seen.observe(row.line));
$("controls").hidden = false;
restore();
performance.mark("usable");
})();
