"""A network of one's own beside the platform's: a function of the inputs' shape, the classes and the head."""

from torch import nn

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.models.heads import make_head


def pooled(shape: tuple[int, ...], classes: int, head: str, width: int = 32) -> nn.Module:
    """Two convolutions, the mean over all places, and a head from its features to the scores (N, classes)."""
    return nn.Sequential(
        nn.Conv2d(shape[0], width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        make_head(width, classes, head),
    )


RATE = Float(0.01, 1, log=True)
study = Study(
    name="own-network",
    arms=grid(
        regimes=[Regime("digits", "digits")],
        models=[Model("convnet"), Model("own_network:pooled", {"width": 16})],
        losses=[Loss("cross_entropy", {"learning_rate": RATE}, {"learning_rate": 0.1})],
        k=3,
        recipe=Recipe(epochs=10),
    ),
    topk=(1, 3),
    trials=5,
    seeds=3,
)
