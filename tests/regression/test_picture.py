"""The pictures of kernel regression: written by file name, with the numbers they claim to show."""

import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from jumok import KernelRegressor
from jumok.regression.picture import (
    NoisySine,
    _draw_interval,
    _figure,
    _new_figure,
    degrees_figure,
    draw_bandwidths,
    draw_interval,
    draw_kernels,
)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [draw_kernels, draw_bandwidths, draw_interval])
def test_a_picture_is_written_in_the_format_of_its_name(draw, tmp_path):
    assert draw(tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(draw(str(tmp_path / "fit.svg"))).getroot().tag.endswith("svg")


def test_every_kernel_has_a_fit_and_under_it_its_weights():
    data = NoisySine.draw(20)
    fits = [data.fit(KernelRegressor("constant")), data.fit(KernelRegressor("gaussian", 0.3))]
    axes = _figure(data, fits, ["mean", "h = 0.3"], "two fits").axes
    assert [plot.get_title(loc="left") for plot in axes[:2]] == ["mean", "h = 0.3"]
    for plot, heatmap, fit in zip(axes[:2], axes[2:4], fits, strict=True):
        line = next(line for line in plot.lines if line.get_label() == "fit")
        np.testing.assert_allclose(line.get_ydata(), fit.predict(data.queries[:, None]))
        drawn = np.asarray(heatmap.images[0].get_array())
        np.testing.assert_allclose(drawn.T @ data.y, line.get_ydata())


def test_the_band_is_the_interval_of_the_fit():
    data = NoisySine.draw(40)
    fit = data.fit(KernelRegressor(bandwidth=0.3))
    axes = _new_figure(width=3, height=3).subplots()
    _draw_interval(axes, data, fit, 0.8)
    band = next(patch for patch in axes.collections if patch.get_label() == "interval").get_paths()[0].vertices
    _, low, high = fit.interval(data.queries[:, None], 0.8)
    middle = band[np.isclose(band[:, 0], data.queries[100])]
    np.testing.assert_allclose(np.unique(middle[:, 1].round(9)), [low[100].round(9), high[100].round(9)])


def test_all_heatmaps_of_a_picture_share_one_colour_scale():
    data = NoisySine.draw(20)
    fits = [data.fit(KernelRegressor(bandwidth=bandwidth)) for bandwidth in (0.1, 1.0)]
    figure = _figure(data, fits, ["", ""], "")
    scales = {heatmap.images[0].get_clim() for heatmap in figure.axes[2:4]}
    assert len(scales) == 1


def test_the_data_is_the_same_for_the_same_seed_and_has_the_noise_asked_for():
    one, same, other = (NoisySine.draw(5000, noise=0.3, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.y, same.y)
    assert not np.array_equal(one.y, other.y)
    assert np.std(one.y - 2 * np.sin(one.x) - one.x) == pytest.approx(0.3, rel=0.05)


@pytest.mark.slow
def test_drawing_leaves_pyplot_alone():
    program = """
import sys, tempfile
from jumok.regression.picture import draw_bandwidths
draw_bandwidths(tempfile.mkdtemp() + "/fit.svg", bandwidths=[0.5])
sys.exit("matplotlib.pyplot" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_local_line_is_nearer_to_the_truth_at_the_boundary(tmp_path):
    degrees_figure().savefig(tmp_path / "degrees.svg")
    assert (tmp_path / "degrees.svg").stat().st_size > 1000
    data = NoisySine.draw(120, noise=0.35)
    mean, line = (data.fit(KernelRegressor("gaussian", 0.5, degree=degree)) for degree in (0, 1))
    assert abs(line.predict([[0.0]])[0]) < abs(mean.predict([[0.0]])[0]) / 2
