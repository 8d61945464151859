"""Plots the delay and the concealment of calls by the second, as SVG, upwards and downwards."""

from html import escape
from math import ceil, floor, log10

# Colours of Okabe and Ito, which colour-blind readers can distinguish.
LINES = {False: ("alone", "#d55e00"), True: ("with the agent", "#0072b2")}
COLUMNS = {"up": "Upwards, from the agent's host", "down": "Downwards, to the agent's host"}
ROWS = ["Delay of the jitter buffer (ms)", "Concealed samples (%)"]
WIDTH, HEIGHT = 860, 620
PANEL_WIDTH, PANEL_HEIGHT = 262, 180
LEFTS, TOPS = [56, 474], [124, 382]
# The least distance between two lines of text.
APART = 16
INK, FAINT, BACKGROUND = "#24292f", "#d8dee4", "#ffffff"


def by_second(tries, way, row):
    """Returns the mean of the tries for each second: `None` if no try has a figure for it."""
    seconds = zip(*([second[row] for second in tried[way]["seconds"]] for tried in tries))
    known = ([value for value in values if value is not None] for values in seconds)
    return [sum(values) / len(values) if values else None for values in known]


def mean(values):
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def series(tries, way, row):
    """Returns the lines of a panel: whether the agent helped, and the means by the second."""
    groups = {agent: [tried for tried in tries if tried["agent"] == agent] for agent in LINES}
    return {agent: by_second(group, way, row) for agent, group in groups.items() if group}


def ticks(most):
    """Returns round numbers from 0 on. The last one is at least `most`."""
    rough = max(most, 1e-9) / 4
    power = 10 ** floor(log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    return [step * number for number in range(ceil(most / step - 1e-9) + 1)]


def text(x, y, words, size=13, anchor="start", **attributes):
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def rule(x1, y1, x2, y2, colour):
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}"/>'


def path(points, colour):
    steps, drawing = [], False
    for point in points:
        if point:
            steps.append(f"{'L' if drawing else 'M'}{point[0]:.1f} {point[1]:.1f}")
        drawing = point is not None
    return f'<path d="{"".join(steps)}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"/>'


def labels(lines, right, at):
    """The lines' names beside their ends."""
    ends = sorted((at(mean(values[-10:]) or 0), agent) for agent, values in lines.items())
    drawn, least = [], float("-inf")
    # The lowest label must stay within the panel.
    room = at(0) - APART * (len(ends) - 1)
    for y, agent in ends:
        least = max(min(y, room), least)
        name, colour = LINES[agent]
        drawn.append(text(right + 6, least + 4, name, 12, fill=colour, font_weight="bold"))
        least, room = least + APART, room + APART
    return drawn


def panel(lines, left, top, marks, seconds):
    right, bottom = left + PANEL_WIDTH, top + PANEL_HEIGHT

    def at(value):
        return bottom - PANEL_HEIGHT * value / marks[-1]

    drawn = []
    for mark in marks:
        drawn.append(rule(left, at(mark), right, at(mark), FAINT))
        drawn.append(text(left - 8, at(mark) + 4, f"{mark:g}", anchor="end"))
    for second in range(0, seconds + 1, 10 if seconds >= 30 else 2):
        x = left + PANEL_WIDTH * second / seconds
        drawn += [rule(x, bottom, x, bottom + 4, INK), text(x, bottom + 19, f"{second}", anchor="middle")]
    drawn.append(rule(left, bottom, right, bottom, INK))
    for agent, values in lines.items():
        points = [
            # Draw a second's figure in the middle of the second.
            None if value is None else (left + PANEL_WIDTH * (second + 0.5) / seconds, at(value))
            for second, value in enumerate(values)
        ]
        drawn.append(path(points, LINES[agent][1]))
    return drawn + labels(lines, right, at)


def summary(tries):
    """Describes the plot in words."""
    said = []
    for way, where in (("up", "upwards"), ("down", "downwards")):
        delays, concealed = (series(tries, way, row) for row in range(len(ROWS)))
        for agent in delays:
            figures = f"{shown(mean(delays[agent]), 0)} ms and {shown(mean(concealed[agent]), 2)} %"
            said.append(f"{where} {LINES[agent][0]} {figures}")
    return f"On average: {', '.join(said)}."


def shown(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def call(tries, title):
    """The plot of a call's tries, alone and with the agent."""
    seeds = len({tried["seed"] for tried in tries})
    of_all = "one seed" if seeds == 1 else f"the means of {seeds} seeds"
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" font-family="system-ui, -apple-system, \'Segoe UI\', '
        f'\'DejaVu Sans\', sans-serif" fill="{INK}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(summary(tries))}</desc>",
        # The plot has its own background, for dark pages.
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6" fill="{BACKGROUND}" '
        f'stroke="{FAINT}"/>',
        text(20, 32, title, 17, font_weight="bold"),
        text(20, 53, f"Each second of the call, {of_all}"),
    ]
    for row, unit in enumerate(ROWS):
        panels = {way: series(tries, way, row) for way in COLUMNS}
        known = [value for lines in panels.values() for values in lines.values() for value in values]
        # Both directions share one scale.
        marks = ticks(max((value for value in known if value is not None), default=1) or 1)
        top = TOPS[row]
        for left, (way, heading) in zip(LEFTS, COLUMNS.items()):
            if row == 0:
                drawn.append(text(left - 36, top - 38, heading, 14, font_weight="bold"))
            drawn.append(text(left - 36, top - 14, unit))
            seconds = max(map(len, panels[way].values()), default=1)
            drawn += panel(panels[way], left, top, marks, seconds)
            under = top + PANEL_HEIGHT + 38
            drawn.append(text(left + PANEL_WIDTH / 2, under, "Time in the call (s)", anchor="middle"))
    return "\n".join([*drawn, "</svg>"]) + "\n"
