"""Kernel regression as a loop, and points to try it on."""

import numpy as np

KERNELS = {
    "constant": lambda u: 1.0,
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "boxcar": lambda u: float(u <= 1),
    "epanechnikov": lambda u: max(0.0, 1 - u**2),
    "triangular": lambda u: max(0.0, 1 - u),
}
COMPACT = ["boxcar", "epanechnikov", "triangular"]


def noisy_sine(points=60, dimensions=1, outputs=None):
    random = np.random.default_rng(0)
    x = random.uniform(0, 5, (points, dimensions))
    y = 2 * np.sin(x[:, 0]) + x[:, 0] + random.normal(0, 0.5, points)
    return x, y if outputs is None else np.stack([y + i * x.sum(1) for i in range(outputs)], 1)


def by_loops(kernel, bandwidth, x, y, queries):
    """Nadaraya and Watson, as they wrote it."""
    answers = []
    for query in queries:
        weights = [KERNELS[kernel](np.linalg.norm((query - point) / bandwidth)) for point in x]
        answers.append(sum(w * output for w, output in zip(weights, y, strict=True)) / sum(weights))
    return np.array(answers)


def loo_error_by_loops(kernel, bandwidth, x, y):
    without = [(np.delete(x, i, 0), np.delete(y, i, 0), x[i : i + 1]) for i in range(len(x))]
    return np.mean((y - np.array([by_loops(kernel, bandwidth, *rest)[0] for rest in without])) ** 2)
