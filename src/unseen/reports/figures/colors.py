"""Colours for a paper; the page has its own pair of palettes (light, dark) in page.css."""

PALETTE = (
    *("#566579", "#0072b2", "#d55e00", "#00856a", "#a8487f", "#a87400"),
    *("#2b8cc4", "#6f4bb3", "#84542a", "#4b7a28", "#a12c2c", "#2a828f"),
)
"""Told apart by people with colour-blindness for the first six; the first is the baseline's."""

HEAT = "#0b4f8a"
NEGATIVE = "#b0482a"
PAPER = "#ffffff"
INK = "#1c2430"


def color(number: int) -> str:
    return PALETTE[number % len(PALETTE)]


def mixed(strength: float, full: str = HEAT) -> tuple[float, float, float]:
    """From paper (0) to the full colour (1)."""
    strength = min(max(strength, 0.0), 1.0)
    parts = (int(full[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (1 + strength * (part - 1) for part in parts)
    return red, green, blue
