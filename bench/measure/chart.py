"""Lines over an axis, and groups of bars, as SVG text."""

from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 860, 480, 64, 36, 170, 44
# Told apart with any colour vision (Okabe and Ito, 2008), and grey; then once more with dashes.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#969696", "#000000"]


def lines(title, x_name, y_name, series, y_max=None):
    """`series`: (name, [(x, y), ...])."""
    points = [point for _, line in series for point in line]
    x_from, x_to = min(x for x, _ in points), max(x for x, _ in points)
    x_from, x_to = min(0.0, x_from), max(x_to, x_from + 1e-9)
    y_to = y_max or max(1e-9, *(y for _, y in points)) * 1.05
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x, y):
        return f"{LEFT + (x - x_from) / (x_to - x_from) * across:.1f},{TOP + down - min(y, y_to) / y_to * down:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="16">{escape(title)}</text>',
        f'<text x="{LEFT + across / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_name)}</text>',
        f'<text x="14" y="{TOP + down / 2}" transform="rotate(-90 14 {TOP + down / 2})" text-anchor="middle">{escape(y_name)}</text>',
        f'<path d="M{LEFT},{TOP}V{TOP + down}H{LEFT + across}" fill="none" stroke="black"/>',
    ]
    for value in steps(y_to):
        _, y = place(x_from, value).split(",")
        parts.append(f'<text x="{LEFT - 6}" y="{float(y) + 4}" text-anchor="end">{value:g}</text>')
        parts.append(f'<path d="M{LEFT},{y}H{LEFT + across}" stroke="#ddd"/>')
    for value in steps(x_to):
        x, _ = place(value, 0).split(",")
        parts.append(f'<text x="{x}" y="{TOP + down + 16}" text-anchor="middle">{value:g}</text>')
    for number, (name, line) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        style = f'stroke="{colour}" fill="none" stroke-width="2"' + (' stroke-dasharray="5 3"' if number >= len(COLOURS) else "")
        parts.append(f'<polyline points="{" ".join(place(x, y) for x, y in line)}" {style}/>')
        at = TOP + 10 + 18 * number
        parts.append(f'<path d="M{WIDTH - RIGHT + 12},{at}h18" {style}/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 36}" y="{at + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def bars(title, y_name, groups):
    """`groups`: (name, [(name of the bar, y), ...]); the same bars in each."""
    names = [name for name, _ in groups[0][1]]
    y_to = max(1e-9, *(y for _, group in groups for _, y in group)) * 1.1
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="16">{escape(title)}</text>',
        f'<text x="14" y="{TOP + down / 2}" transform="rotate(-90 14 {TOP + down / 2})" text-anchor="middle">{escape(y_name)}</text>',
        f'<path d="M{LEFT},{TOP}V{TOP + down}H{LEFT + across}" fill="none" stroke="black"/>',
    ]
    for value in steps(y_to):
        y = TOP + down - value / y_to * down
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        parts.append(f'<path d="M{LEFT},{y:.1f}H{LEFT + across}" stroke="#ddd"/>')
    wide = across / len(groups)
    for number, (name, group) in enumerate(groups):
        left, each = LEFT + number * wide + wide * 0.1, wide * 0.8 / len(names)
        parts.append(f'<text x="{left + wide * 0.4:.1f}" y="{TOP + down + 18}" text-anchor="middle">{escape(name)}</text>')
        for at, (_, y) in enumerate(group):
            high, x = y / y_to * down, left + at * each
            parts.append(f'<rect x="{x + 2:.1f}" y="{TOP + down - high:.1f}" width="{each - 4:.1f}" height="{high:.1f}" fill="{COLOURS[at]}"/>')
            parts.append(f'<text x="{x + each / 2:.1f}" y="{TOP + down - high - 4:.1f}" text-anchor="middle">{y:.0f}</text>')
    for at, name in enumerate(names):
        y = TOP + 10 + 18 * at
        parts.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{y - 8}" width="18" height="12" fill="{COLOURS[at]}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 36}" y="{y + 3}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def steps(to):
    """Round numbers from 0 on, at most ten."""
    step = next(step for power in range(-6, 15) for step in (10.0**power, 2 * 10.0**power, 5 * 10.0**power) if to / step <= 8)
    return [number * step for number in range(int(to / step) + 1)]
