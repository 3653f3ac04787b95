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

  // Charts of runs are figures of Plotly: data, and a layout for a wide and for a narrow window. Colours are names of
  // variables in the style sheet (`@cwnd`, or `@cwnd/44` with an alpha value).
  const charts = JSON.parse(document.getElementById("charts-data").textContent);
  const { runs } = charts;
  const races = JSON.parse(document.getElementById("races")?.textContent ?? "[]");
  if (!runs.length && !races.length) return;

  const color = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
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

  const coloured = (value) => {
    if (typeof value === "string" && value.startsWith("@")) {
      const [name, alpha = ""] = value.slice(1).split("/");
      return color(name) + alpha;
    }
    if (Array.isArray(value)) return value.map(coloured);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, coloured(part)]));
  };
  const wrapped = (text, columns) => {
    const rows = [""];
    for (const word of text.split(" ")) {
      const last = rows.length - 1, row = rows[last] ? `${rows[last]} ${word}` : word;
      if (row.length <= columns || !rows[last]) rows[last] = row;
      else rows.push(word);
    }
    return rows.join("<br>");
  };
  const show = (id, figure) => {
    const element = document.getElementById(id);
    if (!element) return;
    const wide = width(element) >= 600;
    const layout = coloured(wide ? figure.wide : figure.narrow), data = coloured(figure.data);
    layout.width = width(element);
    layout.font.family = getComputedStyle(document.body).fontFamily;
    // In a narrow window, the library would cut off a long name in a legend below the chart.
    if (!wide && layout.legend?.yanchor === "top") {
      // A character of the legend is about 6 pixels wide, and the sample of the curve 46.
      const columns = Math.floor((width(element) - 122) / 6);
      for (const trace of data) {
        trace.name = wrapped(trace.name ?? "", columns);
        const added = 20 * (trace.name.split("<br>").length - 1);
        layout.height += added;
        layout.margin.b += added;
      }
    }
    draw(element, data, layout);
  };
  const plane = ({ phase }) => {
    document.getElementById("phase").hidden = !phase;
    document.getElementById("phase-none").hidden = Boolean(phase);
    if (phase) show("phase", phase);
  };

  // The downloads of a race on one path: times above, ratios below, over the size.
  const racePicker = document.getElementById("race-path");
  const race = () => {
    const element = document.getElementById("race");
    const wide = width(element) >= 600;
    const shown = races[racePicker ? Number(racePicker.value) : 0];
    const sizes = shown.ideal.map(([size]) => size);
    const name = (size) => (size >= 1e6 ? `${size / 1e6} MB` : `${size / 1e3} kB`);
    const data = [{
      x: sizes, y: shown.ideal.map(([, time]) => time), name: "ideal sender", type: "scatter", mode: "lines",
      line: { color: color("path"), width: 1.4, dash: "dot" }, hovertemplate: "%{y:.3f} s<extra>ideal sender</extra>",
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
  const run = () => runs[picker ? Number(picker.value) : 0];
  const sections = new Map([
    ["overview", () => show("overview", charts.rates)],
    ["time", () => show("time", run().time)],
    ["phase-section", () => plane(run())],
    ["race", race],
  ]);
  // A chart is drawn when it comes near the window, so many charts do not delay the page.
  const drawn = new Set();
  const redraw = (all) => {
    if (runs.length) document.getElementById("scene-note").textContent = run().note;
    for (const [name, chart] of sections) {
      if (all === true && document.getElementById(name)) drawn.add(name);
      if (drawn.has(name)) chart();
    }
  };
  const near = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      drawn.add(target.id);
      sections.get(target.id)();
    }
  }, { rootMargin: "600px" });
  const start = () => {
    library();
    for (const name of sections.keys()) {
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
