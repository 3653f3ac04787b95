"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const status = document.getElementById("status");

  // Buttons that copy commands.
  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Browsers can deny pages of local files the clipboard, but allow copying a selection.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  for (const box of document.querySelectorAll(".copyable")) {
    const button = document.createElement("button");
    const text = box.querySelector("code").textContent;
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy: ${text}`);
    button.addEventListener("click", async () => {
      await copied(text);
      button.textContent = status.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; status.textContent = ""; }, 1500);
    });
    box.append(button);
  }

  const scenes = JSON.parse(document.getElementById("scenes").textContent);
  const races = JSON.parse(document.getElementById("races")?.textContent ?? "[]");
  if (!scenes.length && !races.length) return;

  // Units: the data are in bit/s, bytes and ms; a chart uses the prefix that fits its largest value.
  const scaled = (most, steps) => steps.find(([least]) => most >= least) ?? steps[steps.length - 1];
  const units = {
    rate: (most) => scaled(most, [[1e9, 1e9, "Gbit/s"], [1e6, 1e6, "Mbit/s"], [1e3, 1e3, "kbit/s"], [0, 1, "bit/s"]]),
    bytes: (most) => scaled(most, [[2 ** 30, 2 ** 30, "GiB"], [2 ** 20, 2 ** 20, "MiB"], [2 ** 10, 2 ** 10, "KiB"], [0, 1, "B"]]),
    time: () => [0, 1, "ms"],
  };
  const largest = (values) => values.reduce((most, value) => Math.max(most, value), 0);
  const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const end = (scene) => largest([scene.rate_bps, scene.cwnd_bytes].flatMap((curve) => curve?.t ?? []));
  const width = (element) => Math.max(280, Math.floor(element.getBoundingClientRect().width));
  const printing = () => root.hasAttribute("data-print");
  const config = { displaylogo: false, responsive: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };

  const frame = (wide) => ({
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: wide ? 13 : 11, color: color("ink") },
    hoverlabel: { bgcolor: color("paper"), bordercolor: color("rule"), font: { color: color("ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("soft"), activecolor: color("link"), orientation: "h" },
    dragmode: wide ? "zoom" : false,
  });
  const axis = (more) => ({
    gridcolor: color("grid"), linecolor: color("rule"), zerolinecolor: color("grid"), tickcolor: color("rule"),
    automargin: false, ...more,
  });
  const label = (text, more) => ({
    text, showarrow: false, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom",
    font: { color: color("ink") }, ...more,
  });
  // A horizontal line at a value that the path determines, labelled at its end.
  const rule = (layout, yref, y, text, wide) => {
    layout.shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, yref, y0: y, y1: y, line: { color: color("path"), dash: "dash", width: 1.2 } });
    layout.annotations.push({
      text, xref: "paper", x: 1, yref, y, xanchor: wide ? "left" : "right", yanchor: wide ? "middle" : "bottom", xshift: wide ? 5 : 0,
      showarrow: false, borderpad: 0, font: { color: color("soft"), size: wide ? 12 : 10.5 }, bgcolor: wide ? undefined : color("paper"),
    });
  };
  // The library takes longer to start than the rest of the page, so it starts after the page is displayed.
  const library = () => {
    const holder = document.getElementById("plotly");
    if (!holder) return;
    const script = document.createElement("script");
    script.textContent = holder.textContent;
    holder.remove();
    document.head.append(script);
  };
  const draw = (element, data, layout) => {
    library();
    Plotly.react(element, data, layout, config);
  };

  // Breaks a name of the legend, which the library would cut off at the edge of a narrow window.
  const wrapped = (text, columns) => {
    const rows = [""];
    for (const word of text.split(" ")) {
      const last = rows.length - 1, row = rows[last] ? `${rows[last]} ${word}` : word;
      if (row.length <= columns || !rows[last]) rows[last] = row;
      else rows.push(word);
    }
    return rows.join("<br>");
  };

  // All runs on one axis.
  const overview = () => {
    const element = document.getElementById("overview");
    if (!element) return;
    const shown = scenes.filter((scene) => scene.mean_bps);
    const wide = width(element) >= 600;
    const lines = shown.map((scene) => scene.path.line_bps).filter(Boolean);
    const line = lines.length && lines.every((rate) => Math.abs(rate / lines[0] - 1) < 0.05) ? Math.max(...lines) : null;
    const [, unit, name] = units.rate(largest(shown.flatMap((scene) => scene.mean_bps.v).concat(line ?? 0)));
    // A character of the legend is about 6 pixels wide, and the sample of the curve 46.
    const names = shown.map((scene) => (wide ? scene.label : wrapped(scene.label, Math.floor((width(element) - 122) / 6))));
    const data = shown.map((scene, i) => ({
      x: scene.mean_bps.t, y: scene.mean_bps.v.map((v) => v / unit), name: names[i], type: "scatter", mode: "lines",
      line: { width: i ? 1.7 : 2.4, color: color(`s${i % 8}`), dash: ["solid", "dot", "dash"][Math.floor(i / 8) % 3] },
      hovertemplate: `%{y:.4g} ${name}<extra>%{fullData.name}</extra>`,
    }));
    const inNarrow = names.reduce((sum, name) => sum + name.split("<br>").length, 0);
    const rows = wide ? (shown.length > 3 ? Math.ceil(shown.length / 2) : shown.length) : inNarrow;
    const below = 20 * Math.min(rows, 12) + 56;
    const layout = {
      ...frame(wide), height: (wide ? 330 : 280) + below, width: width(element), hovermode: wide ? "x" : "closest",
      margin: { l: 64, r: wide ? 48 : 12, t: 30, b: below },
      xaxis: axis({ title: { text: "time, s", standoff: 8 }, range: [0, largest(shown.flatMap((scene) => scene.mean_bps.t))] }),
      yaxis: axis({ title: { text: `rate, ${name}`, standoff: 8 }, rangemode: "tozero" }),
      legend: { orientation: "h", x: 0, y: -56 / (wide ? 300 : 250), yanchor: "top", font: { size: wide ? 12 : 10.5 }, itemwidth: 30 },
      shapes: [], annotations: [],
    };
    if (line) rule(layout, "y", line / unit, "link", wide);
    draw(element, data, layout);
  };

  const limits = ["slow_start", "cwnd", "recovery", "rwnd", "sndbuf", "pacing", "app", "receiver_app", "policer", "link"];

  // One run: panels with a common time axis, with the band of limits at the bottom.
  const course = (scene) => {
    const element = document.getElementById("time");
    const wide = width(element) >= 600;
    const { path } = scene;
    const panels = [
      { title: "Rate", unit: "rate", curves: [["pacing_bps", "pacing", "pacing", { dash: "dot", width: 1.2 }], ["rate_bps", "rate", "rate", {}]],
        rules: [[path.line_bps, "link"]] },
      { title: "Window and data in flight", short: "In flight", unit: "bytes",
        curves: [["rwnd_bytes", "rwnd", "rwnd", { dash: "dash" }], ["cwnd_bytes", "cwnd", "cwnd", {}], ["inflight_bytes", "in flight", "inflight", {}]],
        rules: [[path.bdp_bytes, "BDP"]] },
      { title: "RTT", unit: "time", curves: [["rtt_ms", "RTT", "rtt", {}]], rules: [[path.rtt_ms, "idle"]] },
      { title: "Queue at the bottleneck", short: "Queue", unit: "bytes", curves: [["queue_bytes", "queue", "queue", { fill: "tozeroy" }]],
        rules: [] },
    ].map((panel) => ({ ...panel, curves: panel.curves.filter(([key]) => scene[key]) }))
      .filter((panel) => panel.curves.length);
    const held = limits.filter((limit) => scene.band.some((span) => span.limit === limit));
    const others = [...new Set(scene.band.map((span) => span.limit))].filter((limit) => !held.includes(limit));
    held.push(...others);
    // Each panel has its title above it and, in a narrow window, its legend below the title.
    const gap = wide ? 44 : 66, top = wide ? 62 : 76, bottom = 46, row = 21, lift = wide ? 4 : 22;
    const heights = panels.map((panel) => (panel.unit === "time" || panel.title.startsWith("Queue") ? 105 : 150));
    if (held.length) heights.push(row * held.length + 8);
    const inner = heights.reduce((sum, height) => sum + height + gap, -gap);
    const layout = {
      ...frame(wide), width: width(element), height: inner + top + bottom, margin: { l: wide ? 118 : 96, r: wide ? 48 : 12, t: top, b: bottom },
      showlegend: true, hovermode: "x unified", hoversubplots: "axis", shapes: [], annotations: [],
    };
    const data = [];
    let y = 1;
    heights.forEach((height, i) => {
      const n = i ? i + 1 : "";
      const domain = [Math.max(0, y - height / inner), y];
      y = domain[0] - gap / inner;
      const panel = panels[i];
      const above = { y: domain[1], yshift: panel && (panel.curves.length > 1 || panel.unit === "rate") ? lift : 4, x: 0 };
      if (!panel) {
        const span = scene.band.reduce((sum, { from_s, to_s }) => sum + to_s - from_s, 0);
        const share = (limit) => scene.band.filter((s) => s.limit === limit).reduce((sum, s) => sum + s.to_s - s.from_s, 0) / span;
        layout.annotations.push(label("<b>Held by</b>, and share of the time", above));
        layout[`yaxis${n}`] = axis({
          domain, range: [held.length - 0.4, -0.6], tickvals: held.map((_, at) => at), fixedrange: true, ticks: "",
          ticktext: held.map((limit) => `${limit} ${Math.round(100 * share(limit))} %`), showgrid: false, zeroline: false,
        });
        held.forEach((limit, at) => {
          const spans = scene.band.filter((s) => s.limit === limit);
          const tone = color(`l-${limit}`) || color("soft");
          layout.shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, yref: `y${n}`, y0: at, y1: at, layer: "below", line: { color: color("grid"), width: 1 } });
          data.push({
            x: spans.flatMap((s) => [s.from_s, s.to_s, s.to_s, s.from_s, s.from_s, null]),
            y: spans.flatMap(() => [at - 0.36, at - 0.36, at + 0.36, at + 0.36, at - 0.36, null]),
            type: "scatter", mode: "lines", fill: "toself", fillcolor: tone, line: { width: 0.6, color: tone }, hoverinfo: "skip",
            showlegend: false, xaxis: "x", yaxis: `y${n}`,
          });
        });
        // Invisible points, dense enough for the pointer to meet one, show the limit of that moment.
        const step = span / 250;
        const points = scene.band.flatMap((s) => {
          const count = Math.max(1, Math.round((s.to_s - s.from_s) / step));
          return Array.from({ length: count }, (_, k) => [s.from_s + (k + 0.5) * (s.to_s - s.from_s) / count, s.limit]);
        });
        data.push({
          x: points.map(([t]) => t), y: points.map(([, limit]) => held.indexOf(limit)), customdata: points.map(([, limit]) => limit),
          type: "scatter", mode: "markers", marker: { opacity: 0 }, hovertemplate: "%{customdata}", name: "limit", showlegend: false,
          xaxis: "x", yaxis: `y${n}`,
        });
        return;
      }
      const curves = panel.curves.flatMap(([key]) => scene[key].v);
      // A window far above all other values would flatten the other curves.
      const rwnd = panel.curves.find(([key]) => key === "rwnd_bytes");
      const rest = panel.curves.filter(([key]) => !["rwnd_bytes", "pacing_bps"].includes(key)).flatMap(([key]) => scene[key].v);
      const most = largest(rest);
      const rules = panel.rules.filter(([value]) => value && value < 3 * most);
      const ceiling = 1.12 * Math.max(most, largest(rules.map(([value]) => value)), rwnd ? Math.min(largest(scene.rwnd_bytes.v), 2 * most) : 0);
      const [, unit, name] = units[panel.unit](Math.max(ceiling / 1.12, 0));
      const low = panel.unit === "time" ? 0.9 * Math.min(path.rtt_ms ?? Infinity, ...curves) : 0;
      layout.annotations.push(label(`<b>${wide ? panel.title : panel.short ?? panel.title}</b>, ${name}`, above));
      layout[`yaxis${n}`] = axis({
        domain, range: most > 0 ? [low / unit, ceiling / unit] : [0, 1], title: wide ? { text: name, standoff: 6 } : undefined, nticks: 5,
      });
      layout[`legend${n}`] = { orientation: "h", x: wide ? 1 : 0, xanchor: wide ? "right" : "left", y: domain[1], yanchor: "bottom", font: { size: 11.5 }, itemwidth: 30, bgcolor: "rgba(0,0,0,0)" };
      for (const [key, text, tone, style] of panel.curves) {
        const { fill, ...line } = style;
        data.push({
          x: scene[key].t, y: scene[key].v.map((v) => v / unit), name: text, type: "scatter", mode: "lines", fill,
          fillcolor: fill ? `${color(tone)}44` : undefined, line: { width: 1.7, color: color(tone), ...line },
          hovertemplate: `%{y:.4g} ${name}`, xaxis: "x", yaxis: `y${n}`, legend: `legend${n}`, showlegend: panel.curves.length > 1 || key === "rate_bps",
        });
      }
      if (panel.unit === "rate" && scene.retransmits) {
        data.push({
          x: scene.retransmits.t, y: scene.retransmits.t.map(() => 0.03 * ceiling / unit), customdata: scene.retransmits.v, name: "retransmitted", type: "scatter",
          mode: "markers", marker: { symbol: "x", size: 6, color: color("bad") }, hovertemplate: "%{customdata} segments", xaxis: "x", yaxis: `y${n}`, legend: `legend${n}`,
        });
      }
      for (const [value, text] of rules) rule(layout, `y${n}`, value / unit, text, wide);
    });
    const last = heights.length > 1 ? `y${heights.length}` : "y";
    layout.xaxis = axis({ title: { text: "time, s", standoff: 8 }, anchor: last, range: [0, end(scene)], showspikes: true, spikemode: "across", spikethickness: 1, spikedash: "solid", spikecolor: color("soft"), hoverformat: ".2f" });
    draw(element, data, layout);
  };

  // The mean values of a run's second half. The runs of a sweep together form the curve of the path.
  const rest = ({ label, phase }) => {
    const late = phase.t.findIndex((t) => t >= phase.t[phase.t.length - 1] / 2);
    const mean = (values) => values.slice(late).reduce((sum, v) => sum + v, 0) / (values.length - late);
    return { label, inflight: mean(phase.inflight_bytes), rtt: mean(phase.rtt_ms), rate: mean(phase.rate_bps) };
  };
  const samePath = (a, b) => ["bdp_bytes", "buffer_bytes", "rtt_ms", "line_bps"].every((key) => a[key] === b[key]);

  // RTT and rate against data in flight, with the limits of the path.
  const plane = (scene) => {
    const element = document.getElementById("phase");
    const none = document.getElementById("phase-none");
    element.hidden = !scene.phase;
    none.hidden = Boolean(scene.phase);
    if (!scene.phase) return;
    const wide = width(element) >= 600;
    const { phase, path } = scene;
    const full = path.bdp_bytes && path.buffer_bytes ? path.bdp_bytes + path.buffer_bytes : path.bdp_bytes;
    const others = scenes.filter((other) => other !== scene && other.phase && samePath(other.path, path)).map(rest);
    const far = 1.06 * Math.max(largest(phase.inflight_bytes), full ?? 0, ...others.map((other) => other.inflight));
    const [, bytes, bytesName] = units.bytes(far);
    const [, bits, bitsName] = units.rate(Math.max(largest(phase.rate_bps), path.line_bps ?? 0));
    const dots = (values, y, legend) => ({
      x: phase.inflight_bytes.map((v) => v / bytes), y: values, customdata: phase.t, type: "scatter", mode: "markers", yaxis: y, showlegend: false,
      marker: {
        size: 5.5, color: phase.t, colorscale: [[0, color("early")], [1, color("late")]], line: { width: 0.5, color: color("paper") }, showscale: legend,
        colorbar: wide ? { title: { text: "time, s", side: "right" }, thickness: 11, len: 1, outlinewidth: 0, x: 1.01 }
          : { title: { text: "time, s", side: "top" }, thickness: 9, orientation: "h", outlinewidth: 0, y: -0.16, yanchor: "top" },
      },
      hovertemplate: `${y === "y" ? "RTT %{y:.4g} ms" : `rate %{y:.4g} ${bitsName}`}, in flight %{x:.4g} ${bytesName}, at %{customdata:.4g} s<extra></extra>`,
    });
    const rests = (value, y) => ({
      x: others.map((other) => other.inflight / bytes), y: others.map(value), customdata: others.map((other) => other.label), type: "scatter",
      mode: "markers", yaxis: y, showlegend: false, marker: { size: 9, symbol: "diamond-open", color: color("ink"), line: { width: 1.4 } },
      hovertemplate: "%{customdata}<extra></extra>",
    });
    const data = [
      dots(phase.rtt_ms, "y", true), dots(phase.rate_bps.map((v) => v / bits), "y2", false),
      rests((other) => other.rtt, "y"), rests((other) => other.rate / bits, "y2"),
    ];
    const layout = {
      ...frame(wide), width: width(element), height: wide ? 560 : 520, margin: { l: 68, r: wide ? 84 : 12, t: 46, b: wide ? 52 : 104 }, hovermode: "closest",
      xaxis: axis({ title: { text: `data in flight, ${bytesName}`, standoff: 8 }, anchor: "y2", range: [0, far / bytes] }),
      yaxis: axis({ title: { text: "RTT, ms", standoff: 8 }, domain: [0.54, 1], nticks: 6 }),
      yaxis2: axis({ title: { text: `rate, ${bitsName}`, standoff: 8 }, domain: [0, 0.46], rangemode: "tozero", nticks: 6 }),
      shapes: [], annotations: [],
    };
    const ideal = (x, y, axisName) => data.unshift({
      x, y, yaxis: axisName, type: "scatter", mode: "lines", line: { color: color("path"), width: 1.4, dash: "dot" }, hoverinfo: "skip", showlegend: false,
    });
    if (path.rtt_ms && path.line_bps) {
      const knee = path.line_bps * path.rtt_ms / 8e3;
      ideal([0, knee / bytes, far / bytes], [path.rtt_ms, path.rtt_ms, path.rtt_ms * Math.max(1, far / knee)], "y");
      ideal([0, knee / bytes, far / bytes], [0, path.line_bps / bits, path.line_bps / bits], "y2");
    }
    const mark = (value, text, anchor) => {
      layout.shapes.push({ type: "line", x0: value / bytes, x1: value / bytes, yref: "paper", y0: 0, y1: 1, line: { color: color("ink"), width: 1.2, dash: "dash" } });
      layout.annotations.push({ text, x: value / bytes, yref: "paper", y: 1, yanchor: "bottom", xanchor: anchor, showarrow: false, font: { size: 12, color: color("ink") } });
    };
    if (path.bdp_bytes) mark(path.bdp_bytes, "BDP", "center");
    if (full && full !== path.bdp_bytes) mark(full, "BDP + buffer", "right");
    const high = Math.max(largest(phase.rtt_ms), path.rtt_ms ?? 0, ...others.map((other) => other.rtt));
    const low = Math.min(path.rtt_ms ?? Infinity, ...phase.rtt_ms);
    const room = Math.max(0.08 * low, 0.12 * (high - low));
    const reach = path.rtt_ms && full && far > path.bdp_bytes ? Math.max(high, path.rtt_ms * Math.min(far / path.bdp_bytes, 2.2)) : high;
    layout.yaxis.range = [low - room, reach + room];
    draw(element, data, layout);
  };

  // The downloads of a race on one path: times above, ratios below, over the size.
  const racePicker = document.getElementById("race-path");
  const race = () => {
    const element = document.getElementById("race");
    const wide = width(element) >= 600;
    const shown = races[racePicker ? Number(racePicker.value) : 0];
    const sizes = shown.floors.map(([size]) => size);
    const name = (size) => (size >= 1e6 ? `${size / 1e6} MB` : `${size / 1e3} kB`);
    const data = [{
      x: sizes, y: shown.floors.map(([, floor]) => floor), name: "floor", type: "scatter", mode: "lines",
      line: { color: color("path"), width: 1.4, dash: "dot" }, hovertemplate: "%{y:.3f} s<extra>floor</extra>",
    }];
    shown.arms.forEach(({ arm, points }, i) => {
      // The arms stand side by side, so that their bars do not cover each other.
      const aside = 1.04 ** (i - (shown.arms.length - 1) / 2);
      const bars = (above, below) => ({ type: "data", symmetric: false, array: above, arrayminus: below, thickness: 1.3, width: 4 });
      const marks = (of, value, bar, more) => ({
        x: of.map((point) => point.size_bytes * aside), y: of.map(value), customdata: of.map((point) => name(point.size_bytes)),
        error_y: bar, name: arm, legendgroup: arm, type: "scatter", mode: "lines+markers",
        line: { width: 1.5, color: color(`s${i % 8}`) }, marker: { size: 7, symbol: ["circle", "square", "diamond", "triangle-up"][i % 4] }, ...more,
      });
      data.push(marks(points, (point) => point.mean_s, bars(
        points.map((point) => Math.max(0, point.p95_s - point.mean_s)), points.map((point) => point.mean_s - point.min_s),
      ), { hovertemplate: `%{customdata}: %{y:.3f} s<extra>${arm}</extra>` }));
      const compared = points.filter((point) => point.ratio);
      if (!compared.length) return;
      data.push(marks(compared, ({ ratio }) => ratio.ratio, bars(
        compared.map(({ ratio }) => ratio.high - ratio.ratio), compared.map(({ ratio }) => ratio.ratio - ratio.low),
      ), { yaxis: "y2", showlegend: false, hovertemplate: `%{customdata}: %{y:.2f}<extra>${arm}</extra>` }));
    });
    const layout = {
      ...frame(wide), width: width(element), height: wide ? 620 : 560, margin: { l: 64, r: wide ? 48 : 12, t: 56, b: 56 }, hovermode: "closest",
      xaxis: axis({ title: { text: "size of the download", standoff: 8 }, type: "log", tickvals: sizes, ticktext: sizes.map(name), anchor: "y2" }),
      yaxis: axis({ title: { text: "time, s", standoff: 8 }, type: "log", domain: [0.46, 1], nticks: 8 }),
      yaxis2: axis({ title: { text: `time of ${shown.against} / time`, standoff: 8 }, domain: [0, 0.38], nticks: 6 }),
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: wide ? 12 : 10.5 }, itemwidth: 30 },
      shapes: [], annotations: [],
    };
    rule(layout, "y2", 1, "equal", wide);
    draw(element, data, layout);
  };

  const picker = document.getElementById("scene");
  const scene = () => scenes[picker ? Number(picker.value) : 0];
  const charts = new Map([
    ["overview", overview],
    ["time", () => course(scene())],
    ["phase-section", () => plane(scene())],
    ["race", race],
  ]);
  // A chart is drawn when it comes near the window, so many charts do not delay the page.
  const drawn = new Set();
  const redraw = (all) => {
    if (scenes.length) document.getElementById("scene-note").textContent = scene().note;
    for (const [name, chart] of charts) {
      if (all === true && document.getElementById(name)) drawn.add(name);
      if (drawn.has(name)) chart();
    }
  };
  const near = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      drawn.add(target.id);
      charts.get(target.id)();
    }
  }, { rootMargin: "600px" });
  const start = () => {
    library();
    for (const name of charts.keys()) {
      const element = document.getElementById(name);
      if (element) near.observe(element);
    }
    redraw(everything);
  };
  // `#all` draws all charts at once, for scripts that print the page, which have no frames and do not scroll.
  const everything = window.location.hash === "#all";
  window.addEventListener("load", () => {
    if (everything) start();
    else requestAnimationFrame(() => setTimeout(start));
  });
  picker?.addEventListener("change", redraw);
  racePicker?.addEventListener("change", redraw);
  let before = window.innerWidth;
  let pending = 0;
  window.addEventListener("resize", () => {
    if (window.innerWidth === before || printing()) return;
    before = window.innerWidth;
    clearTimeout(pending);
    pending = setTimeout(redraw, 120);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // On paper, the background is white.
  window.addEventListener("beforeprint", () => {
    root.setAttribute("data-print", "");
    redraw(true);
  });
  window.addEventListener("afterprint", () => {
    root.removeAttribute("data-print");
    redraw();
  });
})();
