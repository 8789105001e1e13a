"""ŷ(x) = Σ α(x, xᵢ) yᵢ as a scikit-learn estimator: from the plain mean to Nadaraya-Watson regression (1964)."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from jumok.errors import ArgumentError, MissingExtraError
from jumok.models import bandwidth as bandwidths
from jumok.models.progress import shown
from jumok.models.smoother import KERNELS, Smoother, chunks

try:
    from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as missing:
    raise MissingExtraError("scikit-learn", "sklearn", "KernelRegressor") from missing


class KernelRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predict the mean of the training outputs, weighed by how near each training point is.

    α(x, xᵢ) = K(‖x − xᵢ‖ / h) / Σⱼ K(‖x − xⱼ‖ / h), which is attention with log K for its score. A query that no
    kernel reaches takes the mean of its nearest training points, never 0 or NaN. One h serves all input dimensions, so
    scale them alike (StandardScaler), or let each learn its own. Computed in float64 unless X is float32, a few queries
    at a time: memory does not grow with their number.

    Parameters
    ----------
    kernel : "constant" (the plain mean), "gaussian", "boxcar", "epanechnikov" or "triangular"
    bandwidth : h as a positive number, or one for each input dimension;
        "loo" searches the smallest leave-one-out squared error, "learned" descends its gradient
    per_dimension : whether "learned" gives every input dimension an h of its own
    loo_points : how many training points are left out in turn, at most, drawn at random; None leaves out every one
    device : where to compute, for example "cuda"; None for the CPU
    verbose : whether predictions of more than two seconds show a progress bar
    random_state : draws the points to leave out

    Attributes
    ----------
    bandwidth_ : float, or an array of one for each input dimension; inf for the constant kernel
    loo_error_ : mean squared leave-one-out error at bandwidth_ where it was searched or learned, else None
    X_, y_ : the training points

    >>> KernelRegressor(bandwidth=0.5).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0]).predict([[1.0]]).round(3)
    array([1.213])

    """

    def __init__(
        self,
        kernel: Any = "gaussian",  # by scikit-learn's rules a constructor takes anything, and fit complains
        bandwidth: Any = "loo",
        *,
        per_dimension: Any = False,
        loo_points: Any = 2048,
        device: Any = None,
        verbose: Any = False,
        random_state: Any = 0,
    ) -> None:
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.per_dimension = per_dimension
        self.loo_points = loo_points
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> "KernelRegressor":  # noqa: N803
        """Remember the training points, and choose the bandwidth if it is not given."""
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)  # noqa: N806
        self._check_parameters()
        self.X_, self.y_ = X, y.astype(X.dtype)
        self.loo_error_: float | None = None
        if self.kernel == "constant":
            self.bandwidth_ = np.inf
        elif isinstance(self.bandwidth, str):
            self._choose_bandwidth()
        else:
            self.bandwidth_ = _given(self.bandwidth, X.shape[1])
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Σ α yᵢ for each row of X."""
        query = self._queries(X)
        smoother = self._smoother(self.bandwidth_)
        # Filled in place: small results kept between large blocks would stop the C library from reusing their memory.
        y = query.new_empty(len(query), smoother.y_and_one.shape[-1] - 1)
        with torch.no_grad():
            if self.kernel == "constant":
                return self._shaped(y.copy_(smoother(query[:1])))
            rows = torch.arange(len(query), device=query.device)
            parts = list(chunks(rows, len(self.X_), query.element_size()))
            for part in shown(parts, "predicting", enabled=self.verbose):
                y[part] = smoother(query[part])
        return self._shaped(y)

    def weights(self, X: Any) -> np.ndarray:  # noqa: N803
        """α: how much each row of X looks at each training point, [queries, points]; its product with y_ is predict."""
        with torch.no_grad():
            return self._smoother(self.bandwidth_).weights(self._queries(X)).cpu().numpy()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self.kernel == "constant"  # the plain mean explains nothing, as it should
        return tags

    def _check_parameters(self) -> None:
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
        if self.loo_points is not None and not (isinstance(self.loo_points, int | np.integer) and self.loo_points >= 1):
            raise ArgumentError(f"loo_points must be a number of at least 1, or None, but it is {self.loo_points!r}")
        _device(self.device)

    def _choose_bandwidth(self) -> None:
        unit = self._unit()
        if len(self.X_) == 1:  # nothing is left when one is left out, and every bandwidth predicts the same
            self.bandwidth_ = _plain(unit)
            return
        choose = bandwidths.search if self.bandwidth == "loo" else bandwidths.learn
        with torch.no_grad():
            chosen = choose(self._smoother(unit), self._left_out())
        self.bandwidth_, self.loo_error_ = _plain(chosen.bandwidth.cpu().numpy()), chosen.error

    def _unit(self) -> Any:
        """What the search multiplies: 1, or the spread of each dimension."""
        if not self.per_dimension:
            return 1.0
        spread = self.X_.std(0)
        return np.where(spread > 0, spread, 1.0)

    def _left_out(self) -> Tensor:
        points = len(self.X_)
        if self.loo_points is None or points <= self.loo_points:
            return torch.arange(points, device=_device(self.device))
        drawn = check_random_state(self.random_state).permutation(points)[: int(self.loo_points)]
        return torch.as_tensor(np.sort(drawn), device=_device(self.device))

    def _smoother(self, bandwidth: Any) -> Smoother:
        def tensor(array: Any) -> Tensor:
            # A copy, for PyTorch wants no tensor over memory that may only be read.
            return torch.tensor(array, dtype=getattr(torch, self.X_.dtype.name), device=_device(self.device))

        return Smoother.of(self.kernel, tensor(bandwidth), tensor(self.X_), tensor(self.y_.reshape(len(self.y_), -1)))

    def _queries(self, X: Any) -> Tensor:  # noqa: N803
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=self.X_.dtype)  # noqa: N806
        return torch.tensor(X, device=_device(self.device))

    def _shaped(self, y: Tensor) -> np.ndarray:
        return y.cpu().numpy().reshape(-1, *self.y_.shape[1:])


def _given(bandwidth: Any, dimensions: int) -> Any:
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
