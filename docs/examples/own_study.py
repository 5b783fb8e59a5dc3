"""Own photos, network and loss beside the platform's: which pair finds the bird in three guesses, and where?"""

from topk_platform import Augmentation, Float, LongTail, Loss, Model, Recipe, Regime, Study, grid

PHOTOS = {"folder": "birds", "size": 32}
SEARCHED = {"learning_rate": Float(0.001, 1, log=True), "weight_decay": Float(1e-6, 1e-2, log=True)}
FIRST = {"learning_rate": 0.1, "weight_decay": 1e-4}

study = Study(
    name="own-study",
    arms=grid(
        regimes=[
            Regime("all", "image_folder", options=PHOTOS),
            Regime("tail-10", "image_folder", options=PHOTOS, conditions=(LongTail(10),)),
        ],
        models=[Model("convnet"), Model("own_network:pooled", {"width": 64})],
        losses=[
            Loss("cross_entropy", SEARCHED, FIRST),
            Loss("smooth_topk_svm", {**SEARCHED, "tau": Float(0.01, 10, log=True)}, {**FIRST, "tau": 1.0}),
            Loss("own_loss:Poly1", {**SEARCHED, "epsilon": Float(0, 5)}, {**FIRST, "epsilon": 1.0}),
        ],
        k=3,
        recipe=Recipe(epochs=30, augmentation=Augmentation(crop=4, flip=True)),
    ),
    topk=(1, 3),
    trials=15,
    seeds=5,
)
