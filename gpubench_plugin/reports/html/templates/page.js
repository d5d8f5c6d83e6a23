"use strict";
(() => {
const $ = id => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const make = (tag, attributes = {}, ...children) => {
  const space = ["svg", "polyline", "path"].includes(tag) ? "2000/svg" : "1999/xhtml";
  const element = document.createElementNS(`http://www.w3.org/${space}`, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const isIn = (...values) => values.every(each => (each ?? null) !== null), known = values => values.filter(v => isIn(v));
const extent = values => known(values).reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);

// Numbers in words: as core/format.py has them, where ties go to the even digit.
const exponential = (value, digits) => {
  const [all, power] = value.toExponential(30).split("e"), end = all.indexOf(".") + digits;
  return /^[02468]50*$/.test(all.slice(end - 1)) ? `${all.slice(0, end)}e${power}` : value.toExponential(digits - 1);
};
const whole = value => (Math.abs(value % 1) === 0.5 ? 2 * Math.round(value / 2) : value).toFixed();
const significant = (value, digits = 4) => {
  if (!value) return "0";
  const text = exponential(value, digits), decimals = digits - 1 - Math.floor(Math.log10(Math.abs(text)));
  if (Math.abs(value) < 1e-6 || Math.abs(value) >= 1e15) return text.replace(/e([+-])(\d)$/, "e$10$2");
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
const charts = new Map(), DASHES = { base: [6, 3], reference: [2, 3] }, MOST_DOTS = 100; // of a line
const SHAPES = { base: "○", head: "●", reference: "◆", doubt: "◇", base_doubt: "□" }; // as svg.py has them
const STEPS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6].flatMap(power => [power, 2 * power, 5 * power]);
const BINARY_STEPS = Array.from({ length: 60 }, (_, power) => 2 ** power);
const probe = document.body.appendChild(make("i", { hidden: "" }));
const colour = (name, share = 100) => {
  probe.style.color = `color-mix(in srgb, var(--${name}) ${share}%, transparent)`;
  return getComputedStyle(probe).color;
};
const nameOf = (chart, i) => chart.names[i] || `${chart.noun} ${chart.positions[i]}`;
const spelled = ({ values, low, high }, i, unit) => [isIn(values[i]) && quantity(values[i], unit),
  isIn(low[i], high[i]) && `[${quantity(low[i], unit)}, ${quantity(high[i], unit)}]`].filter(Boolean).join(" ") || "–";
const shapes = role => (plot, i) => {
  const r = 3.5 * uPlot.pxRatio, d = 2 * r, { left, top, width, height } = plot.bbox;
  const outlines = { "◆": `m0-${r}l${r} ${r}-${r} ${r}-${r}-${r}z`, "□": `m-${r}-${r}h${d}v${d}h-${d}z` };
  const outline = outlines[SHAPES[role].replace("◇", "◆")] || `m-${r} 0a${r} ${r} 0 1 0 ${d} 0a${r} ${r} 0 1 0-${d} 0`;
  const x = at => plot.valToPos(plot.data[0][at], "x", true), y = value => plot.valToPos(value, "y", true);
  const shown = plot.data[i].map((value, at) => isIn(value) ? `M${x(at)} ${y(value)}${outline}` : "");
  const clip = new Path2D(`M${left - r} ${top - r}h${width + 2 * r}v${height + 2 * r}h${-width - 2 * r}z`);
  const stroke = new Path2D(shown.join(""));
  return { stroke, fill: stroke, clip, flags: 3 }; // of uPlot: clip both
};
const plotted = chart => {
  const columns = [chart.positions], bands = [], nothing = () => null;
  const told = words => (_, value, __, i) => isIn(i) ? words(i) : "–";
  const series = [{ label: chart.noun, value: told(i => nameOf(chart, i)) }];
  for (const own of chart.series) {
    const { style, role } = own, isLine = style === "line", isFew = known(own.values).length <= MOST_DOTS;
    const hasDots = (from, to) => style === "dots" || (isLine && (isFew || to - from < MOST_DOTS));
    const sign = style === "band" ? "▬" : hasDots(0, columns[0].length) ? SHAPES[role] : "—";
    const paths = style === "dots" ? nothing : undefined, stroke = () => colour(role);
    const fill = () => colour("○◇□".includes(SHAPES[role]) ? "surface" : role);
    const ends = [columns.length + 1, columns.length];
    if (own.low.length && !paths) bands.push({ series: ends, fill: () => colour(role, 15) });
    for (const end of own.low.length ? [own.low, own.high] : []) {
      columns.push(end);
      series.push({ class: "end", points: { show: false }, spanGaps: true, paths });
    }
    columns.push(own.values.length ? own.values : own.low.map(nothing));
    series.push({
      label: `${sign} ${own.label}`, class: style === "pairs" ? "end" : role, stroke, width: 1.75,
      dash: isLine ? DASHES[role] : undefined, spanGaps: isLine, paths, value: told(i => spelled(own, i, chart.unit)),
      points: { show: (_, __, from, to) => hasDots(from, to), width: 1.5, stroke, fill, paths: shapes(role) },
    });
  }
  return { columns, series, bands };
};
const decorate = ({ ctx, bbox, valToPos }, chart) => { // by intervals of dots, and marks with texts in three rows
  const ratio = uPlot.pxRatio, line = (x, from, to) => ctx.stroke(new Path2D(`M${x} ${from}V${to}`));
  const x = at => valToPos(at, "x", true), y = value => valToPos(value, "y", true);
  ctx.save();
  ctx.clip(new Path2D(`M${bbox.left} ${bbox.top}h${bbox.width}v${bbox.height}h${-bbox.width}z`));
  Object.assign(ctx, { lineWidth: ratio, fillStyle: colour("mark"), font: `${11 * ratio}px system-ui, sans-serif` });
  for (const { role, low, high } of chart.series.filter(({ style }) => style === "dots")) {
    ctx.strokeStyle = colour(role);
    low.forEach((end, i) => isIn(end, high[i]) && line(x(chart.positions[i]), y(end), y(high[i])));
  }
  ctx.strokeStyle = ctx.fillStyle;
  ctx.setLineDash([4 * ratio, 3 * ratio]);
  chart.marks.forEach(([at, text], i) => {
    const isRight = x(at) + ctx.measureText(text).width > bbox.left + bbox.width;
    line(x(at), bbox.top, bbox.top + bbox.height);
    ctx.textAlign = isRight ? "right" : "left";
    ctx.fillText(text, x(at) + (isRight ? -5 : 5) * ratio, bbox.top + (12 + 14 * (i % 3)) * ratio);
  });
  ctx.restore();
};
const TIME = /^(\d{4})-?(\d\d)-?(\d\d)T(\d\d):?(\d\d):?(\d\d).*/;
const ticksOf = names => { // times in the fewest words that tell them apart, above their days
  const times = names.filter(name => TIME.test(name)), forms = ["$1-$2-$3", "$4:$5\n$1-$2-$3", "$4:$5:$6\n$1-$2-$3"];
  const told = forms.map(form => new Set(times.map(time => time.replace(TIME, form))).size);
  return names.map(name => name.replace(TIME, forms[told.indexOf(told[2])]).replace(/^(.{11}).{2,}$/u, "$1…"));
};
const untold = (text, i, all) => all[i - 1]?.split("\n")[1] === text.split("\n")[1] ? text.split("\n")[0] : text;
const draw = (figure, chart) => {
  const box = figure.querySelector(".plot"), numbers = figure.querySelector("details"), { positions, unit } = chart;
  const [least, most] = extent(chart.series.flatMap(own => [...own.values, ...own.low, ...own.high]));
  const isWide = 0 < least && least * 50 < most; // on a linear scale the lower ones would lie on the axis
  const ticks = ticksOf(chart.ticks || chart.names), names = new Map(positions.map((at, i) => [at, ticks[i]]));
  const nameAt = at => at < positions[0] || at > positions.at(-1) ? "" : String(names.get(at) || at);
  const words = splits => {
    const [factor, name] = scaleOf(Math.max(...splits.map(Math.abs)), unit);
    return splits.map(value => value ? Number((value / factor).toPrecision(6)) + name : value === null ? null : "0");
  };
  const around = value => [-1, 1].map(sign => value + sign * (Math.abs(value) / 10 || 1));
  const grid = { stroke: () => colour("rule", 60), width: 1 };
  const axis = { stroke: () => colour("muted"), font: "12px system-ui, sans-serif", grid, ticks: grid };
  const { columns, ...parts } = plotted(chart);
  charts.get(box)?.destroy();
  charts.set(box, new uPlot({
    ...parts, width: box.clientWidth || 600, height: 260, cursor: { drag: { x: true, y: false } },
    scales: {
      x: { time: false, range: (_, a, b) => [a - ((b - a) * 0.02 || 0.5), b + ((b - a) * 0.02 || 0.5)] },
      y: isWide ? { distr: 3 } : { range: (_, a, b) => a < b ? uPlot.rangeNum(a, b, 0.1, true) : around(a) },
    },
    axes: [
      { ...axis, grid: { show: false }, space: 75, incrs: positions.at(-1) - positions[0] < 1 ? undefined : STEPS,
        values: (_, splits) => splits.map(nameAt).map(untold) },
      { ...axis, incrs: unit === "bytes" ? BINARY_STEPS : undefined, values: (_, splits) => words(splits),
        size: (_, texts) => 18 + 7 * Math.max(4, ...known(texts || []).map(text => text.length)) },
    ],
    hooks: { draw: [plot => decorate(plot, chart)] },
  }, columns, box));
  sizes.observe(box);
  const ranges = chart.series.filter(own => own.style !== "pairs" && known(own.values).length).map(own =>
    `${own.label} from ${extent(own.values).map(end => quantity(end, unit)).join(" to ")}`);
  const marks = chart.marks.map(([at, text]) => `${chart.noun} ${at}: ${text}`);
  box.ariaLabel = [chart.title, ...ranges, ...marks].join("; ");
  figure.querySelector("figcaption").textContent = chart.title;
  numbers.open = false;
  numbers.ontoggle = () => numbers.open && numbers.replaceChildren(numbers.firstChild, exactly(chart));
};
const exactly = ({ title, unit, series, ...chart }) => {
  const columns = series.filter(({ style }) => style !== "pairs").flatMap(({ label, values, low, high }) =>
    [[label, values], [`${label}, low`, low], [`${label}, high`, high]]).filter(([, numbers]) => known(numbers).length);
  const cell = value => make("td", { class: "number", title: value ?? "" }, isIn(value) ? quantity(value, unit) : "–");
  const line = (_, i) => columns.some(([, numbers]) => isIn(numbers[i])) ? make("tr", {},
    make("th", { scope: "row" }, nameOf(chart, i)), ...columns.map(([, numbers]) => cell(numbers[i]))) : "";
  const head = [chart.noun, ...columns.map(([label]) => label)].map(label => make("th", { scope: "col" }, label));
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `Numbers of ${title}` }, make("table", {},
    make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...chart.positions.map(line))));
};

const STORED = ".chart:has(script)"; // those with data; the history's is made of the row's
const resize = (box, most = Infinity) => {
  const plot = charts.get(box), width = Math.min(most, box.clientWidth);
  if (!box.isConnected) (plot.destroy(), charts.delete(box), sizes.unobserve(box));
  else if (width && width !== plot.width) plot.setSize({ width, height: plot.height });
};
const sizes = new ResizeObserver(entries => entries.forEach(({ target }) => resize(target)));
const drawStored = figure => figure.querySelector(".uplot") ||
  draw(figure, JSON.parse(figure.querySelector("script").textContent));
const whenSeen = (act, options) => new IntersectionObserver((entries, observer) => entries.forEach(entry =>
  entry.isIntersecting && (observer.unobserve(entry.target), act(entry.target))), { rootMargin: "300px", ...options });
const pending = whenSeen(drawStored);
const drawSeen = root => root.querySelectorAll(STORED).forEach(figure => pending.observe(figure));
for (const query of ["(prefers-color-scheme: dark)", "print"])
  matchMedia(query).addEventListener("change", () => charts.forEach(plot => plot.redraw(false, true)));
for (const is of [true, false]) addEventListener(is ? "beforeprint" : "afterprint", () => {
  document.documentElement.classList.toggle("paper", is);
  for (const each of document.querySelectorAll(is ? "details:not([open], .numbers)" : ".unfolded"))
    each.open = each.classList.toggle("unfolded", is);
  for (const figure of is ? document.querySelectorAll(STORED) : []) if (figure.checkVisibility()) drawStored(figure);
  charts.forEach((plot, box) => (resize(box, is ? 660 : Infinity), plot.redraw(false, true)));
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
    ticks: runs.map(([id, started, commit]) => started || commit.slice(0, 9) || id),
    series: [
      band && series("interval of the baseline", "band", "reference", { low, high }),
      series("measured", "line", "head", part(false)),
      doubts.size && series("in doubt", "dots", "doubt", part(true)),
    ].filter(Boolean),
  };
};
const sparkline = row => {
  const { values, doubts } = historyOf(row), first = Math.max(0, values.length - 24);
  const [low, high] = extent(values.slice(first)), step = 114 / Math.max(1, values.length - 1 - first);
  const places = values.map((value, i) => i < first || value === null ? "" :
    `${(3 + (i - first) * step).toFixed(1)} ${(19 - 16 * (value - low) / (high - low || 1)).toFixed(1)}`);
  const part = isDoubtful => places.filter((place, i) => place && doubts.has(i) === isDoubtful);
  const dot = (name, shape) => place => make("path", { class: name, d: `M${place}${shape}` });
  row.line.querySelector(".history").replaceChildren(make("svg", { viewBox: "0 0 120 22", "aria-hidden": true },
    make("polyline", { points: part(false).join(" ") }), ...part(true).map(dot("doubt", "m0-3l3 3-3 3-3-3z")),
    ...part(false).slice(-1).map(dot("last", "h0"))));
};
addEventListener("beforeprint", () => rows.forEach(row => row.data.history && sparkline(row)));

// The table. The address has the view of it.
const table = $("rows"), headers = [...table.tHead.rows[0].cells], kindText = kind => kind.replaceAll("_", " ");
const rows = Array.from(table.tBodies[0].rows, (line, i) => {
  const own = Object.assign(data.rows[i], { id: data.rows[i].id.toWellFormed() }); // as in an address
  const cells = new Map(headers.map((header, at) => [header.dataset.column, line.cells[at].textContent.trim()]));
  const facets = new Map([...data.facets.map((name, at) => [`facet.${name}`, [own.facets[at]]]),
    ["outcome", [kindText(own.outcome)]], ["verdict", [kindText(own.kind)]],
    ["doubt", own.doubts.length ? own.doubts : ["none"]]]);
  return { line, i, data: own, cells, facets, text: [own.id, line.textContent, ...own.facets].join("\n").toLowerCase() };
});
const rowOf = new Map(rows.map(row => [row.line, row]));
const order = new Intl.Collator("en", { numeric: true }).compare, WORSE = { regressed: 1, improved: -1 };
const severity = new Map(rows.toReversed().map(row => [row.cells.get("verdict"), row.i])); // the worst come first
const keyOf = ({ data: { number, change, kind }, cells }, column) => {
  const worse = isIn(change) ? Math.abs(change) * WORSE[kind] || change : null; // more can be better
  const keys = { value: number, change: worse, verdict: severity.get(cells.get("verdict")) };
  return column in keys ? keys[column] : cells.get(column) || null;
};
let view = new URLSearchParams(), arranged = "", chosen = null;
const put = (entries, isStep = false) => {
  for (const [name, value] of Object.entries(entries)) value ? view.set(name, value) : view.delete(name);
  history[isStep ? "pushState" : "replaceState"](null, "", `#${view}`);
  show();
};
const selects = $("controls").getElementsByTagName("select");
const addSelect = (name, title, ...options) => $("controls").append(make("label", {}, `${title} `,
  make("select", { name, "aria-label": title }, ...options.map(([value, text]) => make("option", { value }, text)))));
for (const name of rows[0].facets.keys()) {
  const values = Map.groupBy(rows.flatMap(row => row.facets.get(name)).filter(Boolean), value => value);
  const options = [...values.keys()].sort(order).map(value => [value, `${value} (${values.get(value).length})`]);
  if (options.length > 1) addSelect(name, name.replace(/^facet\./, ""), ["", "all"], ...options);
}
addSelect("group", "group by", ["", "–"], ["file", "file"], ...Array.from(selects, each => [each.name, each.ariaLabel]));
$("controls").addEventListener("input", ({ target }) => put({ [target.name]: target.value }), true);

const matching = () => {
  const sought = (view.get("search") || "").toLowerCase().split(/\s+/);
  const runs = sought.map(word => data.runs.flatMap(([id, , commit], i) =>
    word.length > 5 && `${id} ${commit}`.toLowerCase().includes(word) ? [i] : []));
  const isOf = ({ data: { history } }, i) => history && runs[i].some(run => history.runs?.includes(run) ?? true);
  const filters = [...view].filter(([name, value]) => value && rows[0].facets.has(name));
  return rows.filter(row => sought.every((word, i) => row.text.includes(word) || isOf(row, i)) &&
    filters.every(([name, value]) => row.facets.get(name).includes(value)));
};
const sorted = shown => {
  const sort = view.get("sort") || "", column = sort.replace("-", ""), sign = sort === column ? 1 : -1;
  const compare = (a, b) => isIn(a, b) ? sign * (typeof a === "string" ? order(a, b) : a - b) : isIn(b) - isIn(a);
  const keys = new Map(shown.map(row => [row, keyOf(row, column)]));
  return sort ? shown.toSorted((a, b) => compare(keys.get(a), keys.get(b))) : shown;
};
const grouped = (shown, name) => {
  const group = row => name === "file" ? row.data.id.split("::")[0] : row.facets.get(name)?.join(", ") || "none";
  return Array.from(Map.groupBy(shown, group), ([title, own]) => {
    const kinds = Map.groupBy(own, ({ data: { kind, outcome } }) => kindText(kind || outcome));
    const counts = Array.from(kinds, ([kind, those]) => kind === title ? those.length : `${those.length} ${kind}`);
    const head = make("th", { scope: "rowgroup", colspan: headers.length }, `${title}: ${counts.join(", ")}`);
    return make("tbody", {}, make("tr", { class: "group" }, head), ...own.map(row => row.line));
  });
};
const arrange = () => {
  const group = view.get("group"), sort = view.get("sort");
  const wanted = String([...view].filter(([name]) => name !== "benchmark"));
  if (wanted === arranged) return;
  arranged = wanted;
  const shown = sorted(matching());
  const bodies = group ? grouped(shown, group) : [make("tbody", {}, ...shown.map(row => row.line))];
  for (const body of [...table.tBodies]) body.remove(); // the head keeps the focus
  table.append(...bodies);
  $("count").textContent = `${shown.length} of ${rows.length} shown`;
  $("nothing").hidden = shown.length > 0;
  for (const each of [$("search"), ...selects]) // what is typed keeps its caret
    if (each.value !== (view.get(each.name) || "")) each.value = view.get(each.name) || "";
  const direction = sort?.startsWith("-") ? "descending" : "ascending";
  for (const header of headers) header.ariaSort = sort?.endsWith(header.dataset.column) ? direction : "none";
};
const choose = row => {
  if (row === chosen) return;
  chosen?.line.removeAttribute("aria-current");
  (chosen = row).line.setAttribute("aria-current", "true");
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
  choose(row || rows.find(({ data: { kind, outcome } }) => kind || outcome === "measured") || rows[0]);
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
  if (name) (put({ benchmark: rowOf.get(name.closest("tr")).data.id }, true), reveal());
};
$("clear").onclick = () => (put(Object.fromEntries(["search", ...rows[0].facets.keys()].map(name => [name, ""]))),
  $("search").focus());
const restore = () => {
  if (location.hash && !location.hash.includes("=")) return; // a place on the page
  view = new URLSearchParams(location.hash.slice(1));
  show();
  if (view.has("benchmark")) reveal();
};
addEventListener("hashchange", restore);
const seen = whenSeen(line => sparkline(rowOf.get(line)), { root: $("region") });
rows.forEach(row => row.data.history && seen.observe(row.line));
$("controls").hidden = false;
restore();
performance.mark("usable");
})();
