"use strict";
// The view (what is searched, filtered, sorted, grouped and chosen) is in the address's fragment.
(() => {
const $ = id => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

// Numbers in words, as gpubench_plugin/core/format.py has them.
const powers = (base, names, suffix = "") => names.map((name, i) => [base ** (names.length - 1 - i), name + suffix]);
const DECIMAL = [" P", " T", " G", " M", " k", " "], THOUSANDS = ["T", "G", "M", "k", ""];
const SCALES = new Map([
  ["s", [[1, " s"], [1e-3, " ms"], [1e-6, " µs"], [1e-9, " ns"]]],
  ["bytes", powers(1024, [" PiB", " TiB", " GiB", " MiB", " KiB", " B"])],
  ["bytes/s", powers(1e3, DECIMAL, "B/s")],
  ["TFLOP/s", powers(1e3, DECIMAL, "FLOP/s").map(([factor, name]) => [factor / 1e12, name])],
  ["fraction", [[0.01, "%"]]],
  ["samples/s", powers(1e3, THOUSANDS, "/s")],
  ["tokens/s", powers(1e3, THOUSANDS, "/s")],
  ["count", powers(1e3, THOUSANDS)],
  ["1", [[1, ""]]],
  ["", [[1, ""]]],
]);
const scales = unit => SCALES.get(unit) || [[1, ` ${unit}`]];
// Ties go to the even digit, as in Python; more digits than thirty no tie has.
const exponential = (value, digits) => {
  const [more, exponent] = value.toExponential(30).split("e"), kept = more.indexOf(".") + digits;
  if (!/^50*$/.test(more.slice(kept)) || more[kept - 1] % 2) return value.toExponential(digits - 1);
  return `${more.slice(0, digits > 1 ? kept : kept - 1)}e${exponent}`;
};
const whole = value => {
  const near = Math.round(value);
  return String(Math.abs(value % 1) === 0.5 && near % 2 ? near - 1 : near);
};
const significant = (value, digits = 4) => {
  if (!value) return "0";
  if (Math.abs(value) < 1e-6 || Math.abs(value) >= 1e15)
    return exponential(value, digits).replace(/e([+-])(\d)$/, "e$10$2");
  const rounded = Number(exponential(value, digits));
  const decimals = digits - 1 - Math.floor(Math.log10(Math.abs(rounded)));
  return decimals < 0 ? whole(value) : rounded.toFixed(decimals);
};
const scaleOf = (value, unit) =>
  scales(unit).find(([factor]) => Number(exponential(Math.abs(value) / factor, 4)) >= 1) || scales(unit).at(-1);
const quantity = (value, unit) => {
  if (unit === "bytes" && Math.abs(value) < 1024) return `${whole(value)} B`;
  if (unit === "fraction") return `${significant(value * 100, 2)}%`;
  const [factor, name] = scaleOf(value, unit);
  return significant(value / factor) + name;
};
const ticks = (splits, unit) => {
  const [factor, name] = scaleOf(Math.max(...splits.filter(v => v !== null).map(Math.abs)), unit);
  return splits.map(v => v === null ? null : Number((v / factor).toPrecision(6)) + name);
};

// Charts: records of chart.py drawn by uPlot.
const charts = new Map();
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const DASHES = { base: [6, 3], reference: [2, 3] };
const WIDE = 50; // ratio of the highest to the lowest number above which a scale is logarithmic
const BYTES = Array.from({ length: 60 }, (_, i) => 2 ** i);
const nameOf = (chart, i) => chart.names[i] || `${chart.noun} ${chart.positions[i]}`;
const interval = (low, high, unit) => `[${quantity(low, unit)}, ${quantity(high, unit)}]`;
const isIn = (...values) => values.every(value => value !== null && value !== undefined);
const words = (series, i, unit) => [
  isIn(series.values[i]) ? quantity(series.values[i], unit) : "",
  isIn(series.low[i], series.high[i]) ? interval(series.low[i], series.high[i], unit) : "",
].join(" ").trim() || "–";

const plotted = chart => {
  const columns = [chart.positions], bands = [];
  const value = (_, raw, __, i) => isIn(i) ? nameOf(chart, i) : "–";
  const series = [{ label: chart.noun, value }];
  for (const own of chart.series) {
    const stroke = () => colour(own.role), isHollow = own.role === "base" || own.role === "doubt";
    const isBand = own.style === "band" || (own.style === "line" && own.low.length);
    if (isBand) bands.push({ series: [columns.length + 1, columns.length], fill: () => colour(`${own.role}-band`) });
    for (const end of isBand ? [own.low, own.high] : []) {
      columns.push(end);
      series.push({ class: "end", points: { show: false }, spanGaps: true });
    }
    columns.push(own.style === "band" ? own.low.map(() => null) : own.values);
    series.push({
      label: own.label, stroke, width: 1.75, dash: own.style === "line" ? DASHES[own.role] : undefined,
      value: (_, raw, __, i) => isIn(i) ? words(own, i, chart.unit) : "–",
      spanGaps: own.style === "line", paths: own.style === "dots" ? () => null : undefined,
      points: {
        show: own.style === "dots" ? true : own.style === "line" ? undefined : false,
        size: 7, width: 1.5, stroke, fill: () => isHollow ? colour("surface") : stroke(),
      },
    });
  }
  return { columns, series, bands };
};

// Vertical lines with their texts, in three rows, and the whiskers of dots.
const decorate = (plot, chart) => {
  const { ctx, bbox } = plot, scale = uPlot.pxRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  ctx.font = `${11 * scale}px system-ui, sans-serif`;
  ctx.lineWidth = scale;
  chart.marks.forEach(([at, text], i) => {
    const x = plot.valToPos(at, "x", true), isRight = x > bbox.left + bbox.width * 0.7;
    ctx.strokeStyle = ctx.fillStyle = colour("mark");
    ctx.setLineDash([4 * scale, 3 * scale]);
    ctx.stroke(new Path2D(`M${x} ${bbox.top}V${bbox.top + bbox.height}`));
    ctx.textAlign = isRight ? "right" : "left";
    ctx.fillText(text, x + (isRight ? -5 : 5) * scale, bbox.top + (12 + 14 * (i % 3)) * scale);
  });
  ctx.setLineDash([]);
  for (const own of chart.series.filter(({ style }) => style === "dots")) {
    ctx.strokeStyle = colour(own.role);
    own.low.forEach((low, i) => {
      if (!isIn(low, own.high[i])) return;
      const [x, from, to] = [[chart.positions[i], "x"], [low, "y"], [own.high[i], "y"]].map(p => plot.valToPos(...p, true));
      ctx.stroke(new Path2D(`M${x} ${from}V${to}`));
    });
  }
  ctx.restore();
};

const draw = (figure, chart) => {
  const box = figure.querySelector(".plot"), { columns, series, bands } = plotted(chart);
  const numbers = chart.series.flatMap(own => [...own.values, ...own.low, ...own.high]).filter(v => isIn(v));
  const [low, high] = numbers.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const isLog = 0 < low && low * WIDE < high, isWhole = chart.positions.some(Number.isInteger);
  const names = new Map(chart.positions.map((at, i) => [at, chart.ticks?.[i] || chart.names[i]]));
  const tick = at => at === null ? null : (names.get(at) || String(at)).replace(/^(.{11}).{2,}$/u, "$1…");
  const axis = { stroke: () => colour("muted"), font: "12px system-ui, sans-serif" };
  const lines = { stroke: () => colour("grid"), width: 1 };
  const plot = new uPlot({
    width: box.clientWidth || 600, height: 260, series, bands,
    legend: { markers: { width: 2 } },
    cursor: { drag: { x: true, y: false }, points: { size: 8 } },
    scales: {
      x: { time: false, range: (_, a, b) => [a - ((b - a) * 0.02 || 0.5), b + ((b - a) * 0.02 || 0.5)] },
      y: isLog ? { distr: 3 } : numbers.length ? {} : { range: [0, 1] },
    },
    axes: [
      { ...axis, grid: { show: false }, ticks: lines, space: 90, values: (_, splits) => splits.map(tick),
        incrs: isWhole ? [1, 2, 5].flatMap(v => [v, v * 10, v * 100, v * 1e3, v * 1e4, v * 1e5]).sort((a, b) => a - b)
          : undefined },
      { ...axis, grid: lines, ticks: lines, values: (_, splits) => ticks(splits, chart.unit),
        incrs: chart.unit === "bytes" ? BYTES : undefined,
        size: (_, texts) => 18 + 7 * Math.max(4, ...(texts || []).map(text => text ? text.length : 0)) },
    ],
    hooks: { draw: [drawn => decorate(drawn, chart)] },
  }, columns, box);
  const parts = chart.series.map(own => {
    const values = own.values.filter(v => isIn(v));
    if (!values.length) return isIn(own.low[0], own.high[0]) ? `${own.label} ${words(own, 0, chart.unit)}` : own.label;
    const ends = interval(Math.min(...values), Math.max(...values), chart.unit);
    return `${own.label}: ${values.length} from ${ends.slice(1, -1).replace(", ", " to ")}`;
  });
  box.setAttribute("aria-label", [chart.title, ...parts, ...chart.marks.map(([, text]) => text)].join("; "));
  charts.set(box, plot);
  sizes.observe(box);
  figure.querySelector("details").ontoggle = event => event.target.children.length > 1 || tell(event.target, chart);
};

// The numbers of a chart, exactly.
const tell = (details, chart) => {
  const exact = value => make("td", { className: "number" }, isIn(value) ? String(value) : "–");
  const marks = new Map(chart.marks), columns = chart.series.flatMap(own => [
    ...[["", own.values], [", low", own.low], [", high", own.high]]
      .filter(([, values]) => values.some(v => isIn(v)))
      .map(([suffix, values]) => [own.label + suffix, values]),
  ]);
  const unit = chart.unit && chart.unit !== "1" ? ` (${chart.unit})` : "";
  const head = [chart.noun, ...columns.map(([label]) => label + unit)].map(text => make("th", { scope: "col" }, text));
  if (marks.size) head.push(make("th", { scope: "col" }, "mark"));
  const lines = chart.positions.map((at, i) => make("tr", {},
    make("th", { scope: "row" }, nameOf(chart, i)), ...columns.map(([, values]) => exact(values[i])),
    ...(marks.size ? [make("td", {}, marks.get(at) || "")] : [])));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...lines));
  const scroll = make("div", { className: "scroll", tabIndex: 0 }, table);
  scroll.setAttribute("role", "group");
  scroll.setAttribute("aria-label", `Numbers of ${chart.title}`);
  details.append(scroll);
};

const sizes = new ResizeObserver(entries => {
  for (const { target } of entries) {
    const plot = charts.get(target), width = target.clientWidth;
    if (!target.isConnected) (plot.destroy(), charts.delete(target), sizes.unobserve(target));
    else if (width && width !== plot.width) plot.setSize({ width, height: plot.height });
  }
});
const pending = new IntersectionObserver(entries => entries.filter(e => e.isIntersecting).forEach(e => drawLater(e.target)),
  { rootMargin: "200px" });
const drawLater = figure => {
  pending.unobserve(figure);
  if (!figure.querySelector(".uplot")) draw(figure, JSON.parse(figure.querySelector("script").textContent));
};
const recolour = () => charts.forEach(plot => plot.redraw(false));
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", recolour);
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("paper");
  document.querySelectorAll(".chart").forEach(figure => figure.checkVisibility() && drawLater(figure));
  charts.forEach((plot, box) => plot.setSize({ width: Math.min(660, box.clientWidth), height: plot.height }));
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("paper");
  charts.forEach((plot, box) => plot.setSize({ width: box.clientWidth, height: plot.height }));
});
document.querySelectorAll(".chart").forEach(figure => pending.observe(figure));
if (!data.rows.length) return;

// Histories.
const floats = text => [...new Float64Array(Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer)];
const historyOf = row => {
  const history = row.data.history, values = floats(history.values).map(v => Number.isFinite(v) ? v : null);
  const runs = (history.runs || data.runs.map((_, i) => i)).map(i => data.runs[i]), doubts = new Map(history.doubts.flatMap(([text, at]) => at.map(i => [i, text])));
  return { ...history, values, runs, doubts };
};
const historyChart = row => {
  const { metric, unit, values, runs, doubts, levels, band } = historyOf(row);
  const part = isDoubtful => values.map((v, i) => doubts.has(i) === isDoubtful ? v : null);
  const series = (label, style, role, own) => ({ label, style, role, values: [], low: [], high: [], ...own });
  return {
    title: `${metric} over ${runs.length} runs`, unit, noun: "run",
    positions: runs.map((_, i) => i + 1),
    names: runs.map(([id, started, commit, branch], i) =>
      [started.slice(0, 16).replace("T", " "), commit.slice(0, 9), branch, id, doubts.get(i) && `≈ ${doubts.get(i)}`]
        .filter(Boolean).join(" · ")),
    ticks: runs.map(([id, started, commit]) => started.slice(0, 10) || commit.slice(0, 9) || id),
    series: [
      ...(band ? [series("baseline", "band", "reference", { low: runs.map(() => band[0]), high: runs.map(() => band[1]) })]
        : []),
      series("measured", "line", "head", { values: part(false) }),
      ...(doubts.size ? [series("in doubt", "dots", "doubt", { values: part(true) })] : []),
    ],
    marks: levels.map(([at, text]) => [at + 1, text]),
  };
};
const sparkline = row => {
  const { values, doubts } = historyOf(row), first = Math.max(0, values.length - 24), shown = values.slice(first);
  const known = shown.filter(v => v !== null), low = Math.min(...known), extent = Math.max(...known) - low || 1;
  const points = shown.map((v, i) => v !== null && [2 + i * 116 / Math.max(1, shown.length - 1), 20 - 17 * (v - low) / extent]);
  const shape = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const svg = shape("svg", { viewBox: "0 0 120 22", "aria-hidden": "true" });
  const isSure = i => !doubts.has(first + i);
  svg.append(shape("polyline", { points: points.filter((p, i) => p && isSure(i)).map(p => p.map(v => v.toFixed(1))).join(" ") }));
  points.forEach((p, i) => p && (!isSure(i) || i === points.length - 1) &&
    svg.append(shape("circle", { cx: p[0], cy: p[1], r: 2, class: isSure(i) ? "last" : "doubt" })));
  row.line.querySelector(".spark").replaceChildren(svg);
};

// The table.
const table = $("rows"), rows = [...table.tBodies[0].rows].map((line, i) => ({ line, i, data: data.rows[i] }));
const headers = [...table.tHead.rows[0].cells], SIGNED = { regressed: 1, improved: -1 };
for (const row of rows) {
  row.facets = new Map([
    ...data.facets.map((name, i) => [`facet.${name}`, [row.data.facets[i]]]),
    ["outcome", [row.data.outcome.replaceAll("_", " ")]],
    ["verdict", [row.data.kind.replaceAll("_", " ")]],
    ["doubt", row.data.doubts.length ? row.data.doubts : ["no doubt"]],
  ]);
  row.file = row.data.id.split("::")[0];
  row.cells = new Map(headers.map((header, i) => [header.dataset.sort, row.line.cells[i].textContent.trim()]));
  row.text = [row.data.id, row.line.textContent, ...row.data.facets].join("\n").toLowerCase();
}
const KEYS = {
  value: row => row.data.number,
  // The worst first: a regression's sign is that of what is worse.
  change: row => isIn(row.data.change) ? -(Math.abs(row.data.change) * SIGNED[row.data.kind] || row.data.change) : null,
};
const keyOf = (row, column) => KEYS[column] ? KEYS[column](row) : row.cells.get(column) || null;
const order = new Intl.Collator("en", { numeric: true }).compare;
const compare = (a, b) => typeof a === "string" ? order(a, b) : a - b;

let view = new URLSearchParams(location.hash.slice(1)), arranged = null, chosen = null;
const put = (entries, isStep = false) => {
  for (const [name, value] of Object.entries(entries)) value ? view.set(name, value) : view.delete(name);
  history[isStep ? "pushState" : "replaceState"](null, "", `#${view}`);
  show();
};
const search = $("search"), selects = new Map();
const addSelect = (name, title, options) => {
  const select = make("select", {}, make("option", { value: "" }, name === "group" ? "–" : "all"),
    ...options.map(([value, text]) => make("option", { value }, text)));
  select.onchange = () => put({ [name]: select.value });
  selects.set(name, select);
  $("controls").append(make("label", {}, `${title} `, select));
};
const titleOf = name => name.replace(/^facet\./, "");
for (const name of rows[0].facets.keys()) {
  const counts = new Map();
  for (const row of rows) for (const value of row.facets.get(name)) counts.set(value, (counts.get(value) || 0) + 1);
  counts.delete("");
  const options = [...counts].sort(([a], [b]) => order(a, b)).map(([value, count]) => [value, `${value} (${count})`]);
  if (options.length > 1) addSelect(name, titleOf(name), options);
}
addSelect("group", "Group by", [["file", "file"], ...data.facets.map(name => [`facet.${name}`, name])]);

const matching = () => {
  const sought = (view.get("search") || "").toLowerCase().split(/\s+/);
  const filters = [...view].filter(([name, value]) => value && name !== "group" && rows[0].facets.has(name));
  return rows.filter(row => sought.every(word => row.text.includes(word)) &&
    filters.every(([name, value]) => row.facets.get(name).includes(value)));
};
const sorted = (shown, text) => {
  if (!text) return shown;
  const column = text.replace(/^-/, ""), direction = text[0] === "-" ? -1 : 1;
  const keyed = shown.map(row => [keyOf(row, column), row]);
  const [known, unknown] = [true, false].map(is => keyed.filter(([key]) => isIn(key) === is));
  return [...known.sort(([a], [b]) => direction * compare(a, b)), ...unknown].map(([, row]) => row);
};
const grouped = (shown, name) => {
  const groups = new Map();
  const keyed = name === "file" ? row => row.file : row => (row.facets.get(name) || [""])[0] || "none";
  for (const row of shown) groups.set(keyed(row), [...(groups.get(keyed(row)) || []), row]);
  return [...groups].map(([key, own]) => {
    const kinds = Map.groupBy(own, row => row.cells.get("verdict") || "");
    const counts = [...kinds].filter(([kind]) => kind).map(([kind, those]) => `${those.length} ${kind}`);
    const text = `${key}: ${own.length}${counts.length ? ` (${counts.join(", ")})` : ""}`;
    const head = make("tr", { className: "group" }, make("th", { scope: "rowgroup", colSpan: headers.length }, text));
    return make("tbody", {}, head, ...own.map(row => row.line));
  });
};
const arrange = () => {
  const own = new URLSearchParams(view);
  own.delete("benchmark");
  if (String(own) === arranged) return;
  arranged = String(own);
  const shown = sorted(matching(), view.get("sort"));
  const bodies = view.get("group") ? grouped(shown, view.get("group")) : [make("tbody", {}, ...shown.map(row => row.line))];
  [...table.tBodies].forEach(body => body.remove());
  table.append(...bodies);
  const all = rows.length === shown.length ? "" : ` of ${rows.length}`;
  $("count").textContent = `${shown.length}${all} benchmark${rows.length === 1 ? "" : "s"}`;
  $("nothing").hidden = shown.length > 0;
  search.value = view.get("search") || "";
  selects.forEach((select, name) => { select.value = view.get(name) || ""; });
  for (const header of headers) {
    const direction = [header.dataset.sort, `-${header.dataset.sort}`].indexOf(view.get("sort"));
    if (header.firstElementChild) header.ariaSort = ["none", "ascending", "descending"][direction + 1];
  }
};

// The chosen benchmark.
const choose = row => {
  if (row === chosen) return;
  if (chosen) chosen.line.classList.remove("chosen"), chosen.line.querySelector("button").removeAttribute("aria-current");
  chosen = row;
  row.line.classList.add("chosen");
  row.line.querySelector("button").setAttribute("aria-current", "true");
  const panel = $("chosen"), facts = [];
  for (const [title, text] of row.cells) if (text && title !== "benchmark" && title !== "history") facts.push([title, text]);
  facts.push(...data.facets.map((name, i) => [name, row.data.facets[i]]).filter(([, text]) => text));
  const reason = row.line.querySelector(".reason");
  panel.replaceChildren($("chosen-name"), make("p", { className: "id" }, row.data.id), ...(reason ? [reason.cloneNode(true)] : []),
    make("dl", { className: "facts" }, ...facts.map(([t, d]) => make("div", {}, make("dt", {}, t), make("dd", {}, d)))));
  $("chosen-name").textContent = row.line.querySelector("button").textContent;
  panel.hidden = false;
  if (row.data.history) {
    const chart = historyChart(row), box = make("div", { className: "plot" });
    box.setAttribute("role", "img");
    const unseen = make("span", { className: "unseen" }, ` of ${chart.title}`);
    const numbers = make("details", { className: "numbers" }, make("summary", {}, "Numbers", unseen));
    const figure = make("figure", { className: "chart" }, make("figcaption", {}, chart.title), box, numbers);
    panel.append(figure);
    draw(figure, chart);
  }
  const template = document.querySelector(`template[data-row="${row.i}"]`);
  if (template) panel.append(template.content.cloneNode(true));
  panel.querySelectorAll(".chart").forEach(figure => pending.observe(figure));
};
const show = () => {
  arrange();
  choose(rows.find(row => row.data.id === view.get("benchmark")) || rows[0]);
};
const reveal = () => {
  chosen.line.scrollIntoView({ block: "nearest" });
  $("chosen").scrollIntoView();
  $("chosen-name").focus({ preventScroll: true });
};

for (const header of headers.filter(({ dataset }) => dataset.sort !== "history")) {
  const column = header.dataset.sort, button = make("button", { type: "button" }, header.textContent);
  header.replaceChildren(button);
  const steps = column === "value" ? [`-${column}`, column] : [column, `-${column}`];
  button.onclick = () => put({ sort: [...steps, ""][steps.indexOf(view.get("sort")) + 1] });
}
table.onclick = event => {
  const button = event.target.closest("button.name");
  if (!button) return;
  put({ benchmark: rows.find(row => row.line === button.closest("tr")).data.id }, true);
  reveal();
};
search.oninput = () => put({ search: search.value });
$("controls").onsubmit = event => event.preventDefault();
$("clear").onclick = () => {
  put(Object.fromEntries(["search", ...selects.keys()].filter(name => name !== "group").map(name => [name, ""])));
  search.focus();
};
const restore = () => {
  view = new URLSearchParams(location.hash.slice(1));
  show();
  if (view.get("benchmark")) reveal();
};
addEventListener("hashchange", restore);
$("controls").hidden = false;
if (table.querySelector(".spark")) {
  const visible = new IntersectionObserver(entries => entries.filter(e => e.isIntersecting).forEach(({ target }) => {
    visible.unobserve(target);
    sparkline(rows[target.dataset.row]);
  }), { root: $("region"), rootMargin: "300px" });
  for (const row of rows.filter(each => each.data.history)) {
    const cell = row.line.querySelector(".spark");
    cell.dataset.row = row.i;
    visible.observe(cell);
  }
}
restore();
performance.mark("usable");
})();
