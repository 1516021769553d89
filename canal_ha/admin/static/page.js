// What the page does in a browser besides htmx: it listens for changes, pauses the updates, and draws the curves of the lag.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const updating = document.getElementById("updating");
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (updating && !updating.checked) event.preventDefault();
    else if (source && source.readyState === EventSource.OPEN && !changed) event.preventDefault();
    else changed = false;
  });

  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (!event.detail.successful) changed = true; // the next poll asks again
  });

  // Only a page that somebody sees listens: a browser opens few connections to one node. Without a stream, as when too
  // many pages listen, htmx asks every 5 s.
  const how = document.getElementById("how");
  let source = null, changed = false;
  const tell = () => (how.textContent = source && source.readyState === EventSource.OPEN ? "at once" : "every 5 s");
  const listen = () => {
    const wanted = updating && updating.checked && !document.hidden;
    if (wanted && !source) {
      source = new EventSource("/events");
      source.onopen = source.onerror = tell;
      source.addEventListener("change", () => {
        changed = true;
        htmx.trigger("#live", "changed");
      });
      source.addEventListener("same", (event) => {
        const asOf = document.getElementById("as-of");
        if (asOf) asOf.textContent = event.data;
      });
    } else if (!wanted && source) {
      source.close();
      source = null;
      tell();
    }
  };
  if (updating) {
    updating.addEventListener("change", listen);
    document.addEventListener("visibilitychange", listen);
    addEventListener("pagehide", () => source && source.close());
    listen();
  }

  const box = document.getElementById("curve");
  if (!box) return;
  const note = document.getElementById("curve-note");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const size = (value) => {
    if (value == null) return "–";
    let unit = 0;
    for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
    return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
  };
  const seconds = (value) => (value == null ? "–" : `${value < 10 ? value.toFixed(1) : Math.round(value)} s`);
  const clock = (time, exact) => new Date(time * 1000).toTimeString().slice(0, exact ? 8 : 5);
  const steps = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** (power - 1))).flat();
  let plot = null, shown = null;

  const draw = () => {
    const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const times = [...new Set(shown.streams.flatMap((each) => each.at))].sort((one, other) => one - other);
    const series = [{ value: (_, time) => (time == null ? "–" : clock(time, true)) }], data = [times];
    shown.streams.forEach((stream, number) => {
      const at = new Map(stream.at.map((time, index) => [time, index]));
      const column = (values) => times.map((time) => (at.has(time) && values[at.get(time)] >= 0 ? values[at.get(time)] : null));
      const dash = number ? [4 + 2 * number, 4] : [];
      const who = shown.streams.length > 1 ? ` of ${stream.client_id}` : "";
      series.push({ label: `seconds${who}`, scale: "s", stroke: color("--curve"), width: 2, dash, value: (_, value) => seconds(value) });
      series.push({ label: `bytes${who}`, scale: "b", stroke: color("--curve-2"), width: 2, dash, value: (_, value) => size(value) });
      data.push(column(stream.seconds_behind), column(stream.bytes_behind));
    });
    const grid = { stroke: color("--line"), width: 1 }, text = color("--dim");
    const axis = (more) => ({ stroke: text, grid, ticks: grid, ...more });
    const floor = (_, low, high) => [0, Math.max(high || 0, 1) * 1.1];
    if (plot) plot.destroy();
    plot = new uPlot({
      width: box.clientWidth, height: 220, series, scales: { s: { range: floor }, b: { range: floor } },
      axes: [axis({ values: (_, ticks, index, space, step) => ticks.map((tick) => clock(tick, step < 60)), space: 80 }),
        axis({ scale: "s", size: 60, incrs: steps, values: (_, ticks) => ticks.map(seconds) }),
        axis({ scale: "b", side: 1, size: 80, incrs: steps.filter((step) => step >= 1), grid: { show: false }, values: (_, ticks) => ticks.map(size) })],
    }, data, box);
  };

  const load = async () => {
    if (plot && updating && !updating.checked) return;
    try {
      const answer = await fetch(box.dataset.url, { headers: { accept: "application/json" } });
      const found = await answer.json();
      if (answer.status === 409) throw new Error("no node runs the destination now");
      if (!answer.ok) throw new Error(found.error);
      const streams = found.streams.slice(0, 8);
      shown = { streams };
      note.textContent = streams.length ? "" : "The node that runs it has no samples yet; it takes one every 15 s.";
      if (streams.length) draw();
    } catch (error) {
      note.textContent = `The curve cannot be read: ${error.message}`;
    }
  };
  dark.addEventListener("change", () => shown && shown.streams.length && draw());
  addEventListener("resize", () => plot && plot.setSize({ width: box.clientWidth, height: 220 }));
  load();
  setInterval(load, 15000);
});
