"""ŷ(x) = Σ α(x, xᵢ) yᵢ as a scikit-learn estimator: from the plain mean to local linear regression."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jumok.attention.distance_scores import unit_of
from jumok.errors import ArgumentError, MissingExtraError
from jumok.regression import bandwidth as bandwidths
from jumok.regression.interval import interval
from jumok.regression.nearby import predict_nearby
from jumok.regression.smoother import FEW, KERNELS, Smoother
from jumok.regression.sums import POINTS, near_order

try:
    from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, clone
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as missing:
    raise MissingExtraError("scikit-learn", "sklearn", "KernelRegressor") from missing

AFFORDABLE = {"cpu": 2**26, "cuda": 2**31}
"""Default limit on the distances that leave-one-out may compute: seconds of work."""
FEWEST_LEFT_OUT = 2048
"""Smallest number of points left out; fewer would estimate the error too roughly."""


class Interval(NamedTuple):
    """A fit, and the ends of its confidence interval; arrays of the shape of the predictions."""

    fit: np.ndarray
    low: np.ndarray
    high: np.ndarray


class KernelRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predict the mean of the training outputs, weighted by the distance of each training point.

    α(x, xᵢ) = K(‖x − xᵢ‖ / h) / Σⱼ K(‖x − xⱼ‖ / h), which is attention with log K for its score. A query that no
    kernel reaches takes the mean of its nearest training points, never 0 or NaN. One h serves all input dimensions, so
    scale them alike (StandardScaler), or let each learn its own. Computed in float64 unless X is float32, in tiles of a
    few megabytes: memory grows with the points and the queries, never with their product. With many points each query
    reads only blocks of points that affect its prediction, and on a CUDA GPU Triton kernels compute the sums.

    Parameters
    ----------
    kernel : "constant" (the plain mean), "gaussian", "boxcar", "epanechnikov" or "triangular"
    bandwidth : h as a positive number, or one for each input dimension;
        "loo" finds the smallest leave-one-out squared error, over all sizes in one pass: to 0.14 % for the Gaussian,
        whose error is smooth, and to 2.2 % for the others; "learned" descends its gradient from there
    degree : 0 predicts the local mean (Nadaraya and Watson 1964); 1 the value of a line fitted around x by weighted
        least squares, which has no bias at the edge of the data. It takes longer, most of all to choose the bandwidth
    per_dimension : whether "learned" gives every input dimension an h of its own
    per_output : whether every output has an h of its own; a given bandwidth then has one row for each output
    loo_points : how many training points are left out in turn, at most, drawn at random; None leaves out every one;
        "auto" does so up to 8,192 points (46,340 on a GPU), fewer of more points, so that about as many distances are
        computed, but 2,048 at least
    device : where to compute, for example "cuda"; None for the CPU
    verbose : whether to show a progress bar for work of more than two seconds
    random_state : seed or generator that samples the points to leave out

    Attributes
    ----------
    bandwidth_ : float, or an array of one for each input dimension; inf for the constant kernel
    loo_error_ : mean squared leave-one-out error at bandwidth_ where it was searched or learned, else None
    X_, y_ : the training points, without those of weight 0
    outputs_ : with per_output, the fitted regressor of every output
    order_ : with many points, an order in which neighbours stand together, else None

    >>> KernelRegressor(bandwidth=0.5).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0]).predict([[1.0]]).round(3)
    array([1.213])

    """

    def __init__(
        self,
        kernel: Any = "gaussian",  # by scikit-learn's rules a constructor takes anything, and fit complains
        bandwidth: Any = "loo",
        *,
        degree: Any = 0,
        per_dimension: Any = False,
        per_output: Any = False,
        loo_points: Any = "auto",
        device: Any = None,
        verbose: Any = False,
        random_state: Any = 0,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.degree = degree
        self.per_dimension = per_dimension
        self.per_output = per_output
        self.loo_points = loo_points
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "KernelRegressor":  # noqa: N803
        """Store the training points, and choose the bandwidth unless it is given.

        A point of `sample_weight` s counts as s points do; leave-one-out leaves it out as a whole.
        """
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)  # noqa: N806
        self._check_parameters()
        if isinstance(self.bandwidth, str) and self.kernel != "constant":
            _check_squared_errors(y, X.dtype)
        X, y, self._weight = _weighted(X, y, sample_weight)  # noqa: N806
        self.X_, self.y_ = X, y.astype(X.dtype)
        if self.per_output and y.ndim == 2:
            return self._fit_each()
        self.loo_error_: float | None = None
        self.order_ = self._sorted()
        if self.kernel == "constant":
            self.bandwidth_: Any = np.inf
        elif isinstance(self.bandwidth, str):
            self._choose_bandwidth()
        else:
            self.bandwidth_ = _checked_bandwidth(self.bandwidth, X.shape[1])
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Σ α yᵢ for each row of X."""
        query = self._queries(X)
        if self._is_split():
            return np.stack([regressor.predict(query.cpu().numpy()) for regressor in self.outputs_], 1)
        smoother, order = self._smoother(self.bandwidth_), self._order()
        with torch.no_grad():
            if self.degree and order is not None:
                return self._shaped(predict_nearby(smoother, query, order, verbose=self.verbose))
            return self._shaped(smoother.predict(query, order, verbose=self.verbose))

    def interval(self, X: Any, level: float = 0.95) -> Interval:  # noqa: N803
        """The fit at each row of X and the ends of its pointwise confidence interval, ŷ ± z √(σ²(x) Σ α²).

        It contains the smoothed mean Σ α f(xᵢ) with probability `level` where the noise is independent and changes
        slowly, and the true curve f too where the bandwidth is small enough for the smoothing not to matter. Its ends
        are NaN where no point has a neighbour to estimate the noise from. Up to 4,096 points the noise comes from
        the residuals of all, of more points from those of some near X, 128 for each row or all it mixes.
        """
        if not (isinstance(level, float | np.floating) and 0 < level < 1):
            raise ArgumentError(f"level must be between 0 and 1, for example 0.95, but it is {level!r}")
        query = self._queries(X)
        if self._is_split():
            ends = zip(*(regressor.interval(query.cpu().numpy(), level) for regressor in self.outputs_), strict=True)
            return Interval(*(np.stack(end, 1) for end in ends))
        with torch.no_grad():
            bounds = interval(self._smoother(self.bandwidth_), query, float(level), self._order(), verbose=self.verbose)
        return Interval(*(self._shaped(end) for end in bounds))

    def weights(self, X: Any) -> np.ndarray:  # noqa: N803
        """α, the weight of each training point for each row of X, [queries, points]; predict is its product with y_.

        With degree=1 the weights sum to 1 but can be negative. With per_output, ask one of `outputs_` instead.
        """
        check_is_fitted(self)
        if self._is_split():
            raise ArgumentError("per_output=True gives every output weights of its own; use outputs_[0].weights(X)")
        with torch.no_grad():
            return self._smoother(self.bandwidth_).weights(self._queries(X)).cpu().numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self.kernel == "constant"  # the plain mean explains nothing, as it should
        return tags

    def _fit_each(self) -> "KernelRegressor":
        """Fit a regressor to every output."""
        count, shared = self.y_.shape[1], isinstance(self.bandwidth, str) or np.ndim(self.bandwidth) == 0
        if not shared and len(self.bandwidth) != count:
            raise ArgumentError(
                f"bandwidth has {len(self.bandwidth)} rows, but y has {count} outputs; with per_output=True give one "
                "for each"
            )
        single = clone(self).set_params(per_output=False)
        self.outputs_ = [
            clone(single)
            .set_params(bandwidth=self.bandwidth if shared else self.bandwidth[output])
            .fit(self.X_, self.y_[:, output], self._weight)
            for output in range(count)
        ]
        self.bandwidth_ = np.stack([np.asarray(regressor.bandwidth_) for regressor in self.outputs_])
        errors = [regressor.loo_error_ for regressor in self.outputs_]
        self.loo_error_ = None if None in errors else sum(errors)
        self.order_ = None
        return self

    def _is_split(self) -> bool:
        return bool(self.per_output) and self.y_.ndim == 2

    def _check_parameters(self) -> None:
        if isinstance(self.degree, bool) or self.degree not in (0, 1):
            raise ArgumentError(f"degree must be 0 (a local mean) or 1 (a local line), but it is {self.degree!r}")
        kernels = ("constant", *KERNELS)
        if self.kernel not in kernels:
            raise ArgumentError(f"kernel must be one of {', '.join(kernels)}, but it is {self.kernel!r}")
        rule = self.bandwidth if isinstance(self.bandwidth, str) else None
        if rule not in (None, "loo", "learned"):
            raise ArgumentError(
                f'bandwidth must be a positive number, "loo" or "learned", but it is {self.bandwidth!r}'
            )
        if rule == "learned" and self.kernel == "boxcar":
            raise ArgumentError(
                'bandwidth="learned" needs a slope, and the boxcar kernel has none; use bandwidth="loo" instead'
            )
        if self.per_dimension and rule != "learned":
            raise ArgumentError(
                f'per_dimension=True needs bandwidth="learned", but bandwidth is {self.bandwidth!r}; '
                "to set the bandwidths yourself, give bandwidth one number for each input dimension"
            )
        count = isinstance(self.loo_points, int | np.integer) and self.loo_points >= 1
        if not (count or self.loo_points is None or self.loo_points == "auto"):
            raise ArgumentError(
                f'loo_points must be "auto", a number of at least 1, or None, but it is {self.loo_points!r}'
            )
        _device(self.device)

    def _choose_bandwidth(self) -> None:
        unit = self._unit()
        if len(self.X_) == 1:  # nothing is left when one is left out, and every bandwidth predicts the same
            self.bandwidth_ = _plain(unit)
            return
        choose = bandwidths.search_grid if self.bandwidth == "loo" else bandwidths.learn
        with torch.no_grad():
            chosen = choose(self._smoother(unit), self._left_out(), self._order(), verbose=self.verbose)
        self.bandwidth_, self.loo_error_ = _plain(chosen.bandwidth.cpu().numpy()), chosen.error

    def _unit(self) -> Any:
        """The unit of the search: 1 unless X spreads so far, or so little, that squares overflow or underflow.

        With `per_dimension` the spread of each dimension.
        """
        spread = float(np.ptp(self.X_.astype(np.float64) / 2, axis=0).max()) * 2
        unit = unit_of(spread, getattr(torch, self.X_.dtype.name))
        if not self.per_dimension:
            return unit
        spreads = (self.X_ / unit).std(0) * unit
        return np.where(spreads > 0, spreads, unit)

    def _left_out(self) -> Tensor:
        points, device = len(self.X_), _device(self.device)
        affordable = max(FEWEST_LEFT_OUT, AFFORDABLE.get(device.type, AFFORDABLE["cuda"]) // points)
        most = affordable if self.loo_points == "auto" else points if self.loo_points is None else int(self.loo_points)
        if points <= most:
            return torch.arange(points, device=device)
        drawn = check_random_state(self.random_state).permutation(points)[:most]
        return torch.as_tensor(np.sort(drawn), device=device)

    def _sorted(self) -> np.ndarray | None:
        """An order of many points in which neighbours stand together; None for few."""
        if len(self.X_) <= FEW or self.kernel == "constant" or self._weight is not None:
            return None
        order: np.ndarray = near_order(torch.tensor(self.X_, device=_device(self.device)), POINTS["cpu"]).cpu().numpy()
        return order

    def _order(self) -> Tensor | None:
        return None if self.order_ is None else torch.tensor(self.order_, device=_device(self.device))

    def _smoother(self, bandwidth: Any) -> Smoother:
        def tensor(array: Any) -> Tensor:
            # A copy, for PyTorch wants no tensor over memory that may only be read.
            return torch.tensor(array, dtype=getattr(torch, self.X_.dtype.name), device=_device(self.device))

        limits = np.finfo(self.X_.dtype)
        bandwidth = np.clip(bandwidth, limits.tiny, limits.max)  # those beyond weigh points as these do
        weight = None if self._weight is None else tensor(self._weight)
        y = tensor(self.y_.reshape(len(self.y_), -1))
        return Smoother.of(self.kernel, tensor(bandwidth), tensor(self.X_), y, int(self.degree), weight)

    def _queries(self, X: Any) -> Tensor:  # noqa: N803
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=self.X_.dtype)  # noqa: N806
        return torch.tensor(X, device=_device(self.device))

    def _shaped(self, y: Tensor) -> np.ndarray:
        return y.cpu().numpy().reshape(-1, *self.y_.shape[1:])


def _weighted(x: np.ndarray, y: np.ndarray, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The points that count, and how much, 1 on average; None if all count the same."""
    if sample_weight is None:
        return x, y, None
    weight = _check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True)
    counts = weight > 0
    if not counts.any():
        raise ArgumentError("sample_weight is 0 for every point; at least one must be positive")
    weight = weight[counts] / weight[counts].max()
    return x[counts], y[counts], None if np.all(weight == 1) else weight / weight.mean()


def _check_squared_errors(y: np.ndarray, dtype: np.dtype) -> None:
    """Refuse outputs whose squared errors overflow: the search of a bandwidth compares them."""
    with np.errstate(over="ignore", invalid="ignore"):
        span = np.ptp(y.astype(dtype), axis=0)
        if np.isfinite(np.square(span).sum() * len(y)):
            return
    largest = np.abs(y).max()
    raise ArgumentError(
        f"y holds numbers as large as {largest:.3g}, and squares of their differences are too large for {dtype}; "
        f"divide y by {largest:.0e}, for example"
    )


def _checked_bandwidth(bandwidth: Any, dimensions: int) -> Any:
    try:
        values = np.asarray(bandwidth, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.asarray(np.nan)
    if not np.all((values > 0) & np.isfinite(values)):
        raise ArgumentError(f"bandwidth must be finite and greater than 0, but it is {bandwidth!r}")
    if values.shape not in ((), (dimensions,)):
        raise ArgumentError(
            f"bandwidth must be one number, or one for each of the {dimensions} input dimensions, "
            f"but its shape is {list(values.shape)}"
        )
    return _plain(values)


def _plain(bandwidth: Any) -> Any:
    values = np.array(bandwidth, dtype=np.float64)
    return values if values.ndim else float(values)


def _device(device: Any) -> torch.device:
    try:
        return torch.empty(0, device=device or "cpu").device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ArgumentError(f"device {device!r} cannot be used: {str(error).splitlines()[0]}") from None
