"""One's own arrays and one's own torch.nn.Module: which loss finds the right one among three guesses?"""

import numpy as np
from torch import Tensor, nn

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.data import Dataset, data_folder, from_tensors
from topk_platform.models.heads import make_head


def table() -> Dataset:
    """DATA/table.npz: x (n, 20), any real numbers; y (n,), whole numbers from 0 on."""
    arrays = np.load(data_folder() / "table.npz")
    return from_tensors((arrays["x"], arrays["y"]))


class Net(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int, head: str, hidden: int) -> None:
        super().__init__()
        body = nn.Linear(shape[0], hidden), nn.BatchNorm1d(hidden), nn.ReLU()
        self.layers = nn.Sequential(*body, make_head(hidden, classes, head))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)


SPACE, FIRST = {"learning_rate": Float(0.001, 1, log=True)}, {"learning_rate": 0.1}
study = Study(
    name="own-tensors",
    arms=grid(
        regimes=[Regime("table", "own_tensors:table")],
        models=[Model("own_tensors:Net", {"hidden": 32})],
        losses=[Loss(name, SPACE, FIRST) for name in ("cross_entropy", "balanced_softmax")],
        k=3,
        recipe=Recipe(epochs=20),
    ),
    topk=(1, 3),
    seeds=3,
)
