#!/usr/bin/python3
"""bench/fits.py COUNT...: how a store grows with its images, by the curves that Squirrel compares (figures 14 to 18).

Reads the bytes that each image added, one number a line, in order. Each curve is fitted to all sums, and to the first half
of them, which then predicts the second half. Prints both errors (root mean square, as a ratio to the last sum), and what each
curve of all sums predicts for each COUNT of images. Needs the package python3-scipy.
"""
import sys

import numpy
from scipy.optimize import curve_fit

# Name, formula, start of the search, and limits of its parameters. Sums are scaled so that the last is 1.
CURVES = [
    ("linear", lambda x, a, b: a + b * x, (0, 0.01), (-numpy.inf, numpy.inf)),
    ("power", lambda x, a, b: a * x**b, (0.1, 0.5), (0, numpy.inf)),
    ("Hoerl", lambda x, a, b, c: a * b**x * x**c, (0.1, 1, 0.5), (0, numpy.inf)),
    ("MMF", lambda x, a, b, c, d: (a * b + c * x**d) / (b + x**d), (0.01, 10, 2, 0.7), (0, numpy.inf)),
]


def fitted(curve, x, y):
    """The curve's parameters for these points, or None if the search does not end."""
    _, formula, start, limits = curve
    try:
        return curve_fit(formula, x, y, start, bounds=limits, method="trf", max_nfev=100_000)[0]
    except RuntimeError:
        return None


def error(curve, parameters, x, y):
    """Root mean square of the curve's distance from these points."""
    return float(numpy.sqrt(numpy.mean((curve[1](x, *parameters) - y) ** 2)))


def main():
    counts = [int(count) for count in sys.argv[1:]]
    sums = numpy.cumsum([float(line) for line in sys.stdin])
    x = numpy.arange(1, len(sums) + 1, dtype=float)
    y = sums / sums[-1]
    half = len(x) // 2
    print(f"{'curve':8} {'error':>8} {'of the 2nd half':>16}" + "".join(f" {f'{count:,} images':>18}" for count in counts))
    for curve in CURVES:
        parameters, early = fitted(curve, x, y), fitted(curve, x[:half], y[:half])
        if parameters is None or early is None:
            print(f"{curve[0]:8} no fit")
            continue
        ahead = error(curve, early, x[half:], y[half:])
        predicted = "".join(f" {curve[1](float(count), *parameters) * sums[-1] / 1e6:>15,.0f} MB" for count in counts)
        print(f"{curve[0]:8} {error(curve, parameters, x, y):8.4f} {ahead:16.4f}{predicted}")


if __name__ == "__main__":
    main()
