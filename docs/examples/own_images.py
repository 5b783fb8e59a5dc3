"""Photos of birds, as they are and with a long tail: which loss finds the right one of five guesses?"""

from topk_platform import Augmentation, Float, LongTail, Loss, Model, Recipe, Regime, Study, grid

PHOTOS = {"folder": "birds", "size": 32}  # DATA/birds/CLASS/IMAGE, the shorter side scaled to 32 pixels
RATE = Float(0.001, 1, log=True)

study = Study(
    name="own-images",
    arms=grid(
        regimes=[
            Regime("all", "image_folder", options=PHOTOS),
            Regime("tail-10", "image_folder", options=PHOTOS, conditions=(LongTail(10),)),
        ],
        models=[Model("convnet")],
        losses=[
            Loss("cross_entropy", {"learning_rate": RATE}, {"learning_rate": 0.1}),
            Loss("balanced_softmax", {"learning_rate": RATE}, {"learning_rate": 0.1}),
        ],
        k=5,
        recipe=Recipe(epochs=30, augmentation=Augmentation(crop=4, flip=True)),
        metric="macro_top5",  # the mean over classes: a rare one counts as much as a frequent one
    ),
    topk=(1, 5),
    trials=10,
    seeds=5,
)
