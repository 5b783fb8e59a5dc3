"""Networks of timm by name, each with the head that the loss asks for."""

import timm
from torch import nn

from topk_platform import Float, Loss, Model, Recipe, Regime, Study, grid
from topk_platform.models.heads import make_head


def network(
    shape: tuple[int, ...], classes: int, head: str, name: str, pretrained: bool = False
) -> nn.Module:
    """One of timm's networks without its classifier, and a head from its features to the scores (N, classes)."""
    body = timm.create_model(name, pretrained=pretrained, in_chans=shape[0], num_classes=0)
    return nn.Sequential(body, make_head(body.num_features, classes, head))


PHOTOS = {"folder": "birds", "size": 32}
SPACE = {"learning_rate": Float(0.001, 1, log=True), "weight_decay": Float(1e-6, 1e-2, log=True)}
FIRST = {"learning_rate": 0.1, "weight_decay": 1e-4}

study = Study(
    name="timm-network",
    arms=grid(
        regimes=[Regime("birds", "image_folder", options=PHOTOS)],
        models=[Model("timm_network:network", {"name": "resnet10t"})],
        losses=[Loss(name, SPACE, FIRST) for name in ("cross_entropy", "smooth_topk_svm")],
        k=5,
        recipe=Recipe(epochs=30),
    ),
    topk=(1, 5),
    trials=10,
    seeds=5,
)
