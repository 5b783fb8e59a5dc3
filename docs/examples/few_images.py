"""Few photos of many classes: heads on a frozen network, decay searched, each search repeated."""

from topk_platform import Float, Loss, Model, Protocol, Recipe, Regime, Study, grid

PHOTOS = {
    "of": "image_folder",
    "folder": "birds",
    "size": 64,
    "backbone": "efficientnet_lite0",
    "pixels": 64,
}
SPACE = {"learning_rate": Float(0.001, 10, log=True), "weight_decay": Float(3e-6, 0.1, log=True)}
FIRST = {"learning_rate": 0.1, "weight_decay": 1e-4}

study = Study(
    name="few-images",
    arms=grid(
        regimes=[Regime("birds", "image_features", options=PHOTOS)],
        models=[Model("linear")],
        losses=[
            Loss("cross_entropy", SPACE, FIRST),
            Loss("label_smoothing", {**SPACE, "epsilon": Float(0.01, 0.5)}, {**FIRST, "epsilon": 0.1}),
            Loss("smooth_topk_svm", {**SPACE, "tau": Float(0.003, 100, log=True)}, {**FIRST, "tau": 1.0}),
        ],
        k=5,
        recipe=Recipe(epochs=30),
        metric="macro_top5",
        protocol=Protocol(searches=3),
    ),
    topk=(1, 5),
    trials=36,
    seeds=9,
)
