#!/usr/bin/env python3
"""Draw congestion windows over time as SVG, from the trace of experiments/cwnd-pictures.toml or slow-start.toml.

    python3 docs/explanation/algorithms/plot.py TRACE.csv DIRECTORY

Needs only Python. The dashed lines show the BDP, and the BDP plus the full queue, of the path: 100 Mbit/s, 40 ms.
"""
import csv
import sys
from pathlib import Path

# By the swept key and the name of the picture: the curves, the queue's size in BDP, the height in packets and the time in
# seconds. The first overshoot may exceed the height, because the picture is about the time after it.
PICTURES = {
    "cc": {
        name: (lines, 1, 1000, 60)
        for name, lines in {
            "reno": ["reno"],
            "bic": ["bic"],
            "cubic": ["cubic"],
            "vegas": ["vegas"],
            "bbr1": ["bbr1"],
            "bbr3": ["bbr3"],
            "surge": ["surge"],
            "reno-cubic": ["reno", "cubic"],
            "cubic-reno-bbr": ["cubic", "reno", "bbr1"],
            "bbr1-bbr3": ["bbr1", "bbr3"],
        }.items()
    },
    "slow_start": {"slow-start": (["standard", "hystart", "hystart++"], 2, 2000, 3)},
}
COLOURS = ["#0072b2", "#d55e00", "#009e73"]
PACKET = 1500
BDP = 100e6 * 0.040 / 8 / PACKET
WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 92, 34, 40


def read(path):
    """Return the swept key, and for each point rows of seconds, window and queue in packets."""
    series = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            swept, value = row["point"].split("=", 1)
            window = int(row["cwnd_bytes"]) / int(row["mss_bytes"])
            queue = int(row["queue_bytes"] or 0) / PACKET
            series.setdefault(value, []).append((float(row["t_s"]), window, queue))
    return swept, series


def points(rows, column, x, y):
    return " ".join(f"{x(row[0]):.1f},{y(row[column]):.1f}" for row in rows)


def draw(names, series, queue, top, last):
    series = {name: [row for row in rows if row[0] <= last] for name, rows in series.items()}
    x = lambda t: LEFT + (WIDTH - LEFT - RIGHT) * t / last
    y = lambda n: TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(n, top) / top)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for n in range(0, top + 1, top // 5):
        out.append(f'<line x1="{LEFT}" y1="{y(n):.1f}" x2="{WIDTH - RIGHT}" y2="{y(n):.1f}" stroke="#e4e4e4"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(n) + 4:.1f}" text-anchor="end" fill="#444">{n}</text>')
    for t in range(0, last + 1, max(last // 6, 1)):
        out.append(f'<text x="{x(t):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle" fill="#444">{t}</text>')
    for level, name in ((BDP, "BDP"), ((1 + queue) * BDP, "BDP + queue")):
        out.append(
            f'<line x1="{LEFT}" y1="{y(level):.1f}" x2="{WIDTH - RIGHT}" y2="{y(level):.1f}" stroke="#888" stroke-dasharray="5 4"/>'
        )
        out.append(f'<text x="{WIDTH - RIGHT + 6}" y="{y(level) + 4:.1f}" fill="#666">{name}</text>')
    legend = LEFT
    if len(names) == 1:
        out.append(f'<polyline fill="none" stroke="#b0b0b0" stroke-width="1" points="{points(series[names[0]], 2, x, y)}"/>')
    for name, colour in zip(names, COLOURS):
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.4" points="{points(series[name], 1, x, y)}"/>')
        out.append(f'<line x1="{legend}" y1="16" x2="{legend + 22}" y2="16" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{legend + 28}" y="20" fill="#222">cwnd of {name}</text>')
        legend += 150
    if len(names) == 1:
        out.append(f'<line x1="{legend}" y1="16" x2="{legend + 22}" y2="16" stroke="#b0b0b0" stroke-width="3"/>')
        out.append(f'<text x="{legend + 28}" y="20" fill="#222">queue</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle" fill="#444">seconds</text>')
    out.append(f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" fill="#444" transform="rotate(-90 14 {HEIGHT / 2})">packets</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.strip())
    (swept, series), directory = read(sys.argv[1]), Path(sys.argv[2])
    for picture, (names, queue, top, last) in PICTURES[swept].items():
        (directory / f"{picture}.svg").write_text(draw(names, series, queue, top, last))


if __name__ == "__main__":
    main()
