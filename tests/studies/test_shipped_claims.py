"""The verdicts that the pages state are those of the shipped findings."""

from __future__ import annotations

from shipped import shipped

STATED = {
    "letters_searches": {
        "svm-ahead-with-noise": "undecided",
        "svm-ahead-with-few-images": "undecided",
        "uneven-margins-ahead-on-the-tail": "refuted",
        "balanced-softmax-ahead-on-the-tail": "confirmed",
        "top-1-is-the-price": "confirmed",
        "ahead-with-few-images-and-very-wrong-labels": "undecided",
        "level-with-many-clean-images": "undecided",
    },
    "kanji": {
        "svm-beats-cross-entropy-with-noise": "undecided",
        "svm-beats-cross-entropy-in-top1-with-noise": "undecided",
        "cross-entropy-ahead-in-top1-without-noise": "undecided",
        "svm-beats-cross-entropy-with-little-data": "undecided",
        "level-with-all-data": "undecided",
        "imbalanced-beats-cross-entropy": "refuted",
    },
    "kanji_map": {"noise-helps-the-svm": "undecided", "few-images-help-the-svm": "undecided"},
    "photos_noise": {
        "svm-beats-cross-entropy-with-noise": "undecided",
        "svm-beats-cross-entropy-in-top1-with-noise": "refuted",
        "improvement-grows-with-noise": "undecided",
        "svm-loses-less-by-noise": "undecided",
        "cross-entropy-ahead-in-top1-without-noise": "confirmed",
        "level-in-top5-without-noise": "undecided",
        "svm-beats-cross-entropy-with-human-errors": "undecided",
        "two-losses-ahead-with-noise-0.8": "undecided",
        "soft-top5-ahead-with-noise-0.8": "refuted",
        "top5-losses-cost-the-first-guess": "confirmed",
    },
    "photos_fraction": {
        "svm-beats-cross-entropy-with-little-data": "undecided",
        "the-less-data-the-more": "undecided",
        "level-with-all-data": "undecided",
    },
    "photos_map": {
        "noise-helps-the-svm": "undecided",
        "few-images-help-the-svm": "undecided",
        "transition-leads-again": "confirmed",
    },
    "photos_pixels": {
        "svm-beats-cross-entropy-with-noise": "undecided",
        "svm-beats-cross-entropy-in-top1-with-noise": "undecided",
        "svm-loses-less-by-noise": "undecided",
        "cross-entropy-ahead-in-top1-without-noise": "undecided",
        "level-in-top5-without-noise": "undecided",
        "transition-leads-from-pixels": "undecided",
    },
    "photos_tail": {"imbalanced-beats-cross-entropy": "undecided"},
    "letters_k": {
        "svm-ahead-with-noise": "undecided",
        "each-k-costs-more-of-the-first-guess": "confirmed",
        "more-guesses-than-are-shown": "confirmed",
    },
    "letters_imbalance": {
        "behind-on-the-clean-tail": "undecided",
        "ahead-on-the-noisy-tail": "undecided",
        "uneven-margins-help-the-noised-hinge": "confirmed",
    },
    "letters_capacity": {
        "wide-networks-favour-the-svm": "undecided",
        "wide-networks-cost-the-svm-its-first-guess": "undecided",
    },
    "letters_epsilon": {"robust-to-large-epsilon": "confirmed", "best-near-0.1": "undecided"},
    "letters_temperature": {"without-smoothing-it-fails": "refuted", "from-0.01-it-trains": "confirmed"},
    "letters_samples": {"samples-hardly-matter": "confirmed"},
    "letters_fraction": {
        "svm-beats-cross-entropy-with-little-data": "undecided",
        "level-with-all-data": "undecided",
    },
    "letters_map": {
        "noise-helps-the-svm": "undecided",
        "few-images-help-the-svm": "undecided",
        "ahead-with-few-images-and-noise": "undecided",
        "the-svm-costs-the-first-guess": "confirmed",
    },
    "letters_margin": {"imbalanced-beats-cross-entropy": "refuted", "ldam-beats-cross-entropy": "refuted"},
    "letters_convnet": {
        "ahead-with-five-images-and-noise": "undecided",
        "svm-ahead-with-noise": "undecided",
        "top5-losses-cost-the-first-guess": "undecided",
    },
    "letters_memory": {
        "svm-ahead-at-the-papers-values": "confirmed",
        "not-memorising-helps-cross-entropy": "confirmed",
    },
    "letters_tradeoff": {
        "cross-entropy-best-in-top1": "confirmed",
        "transition-beats-cross-entropy-in-top5": "undecided",
        "smooth-svm-beats-cross-entropy-in-top5": "confirmed",
        "grouping-behind-cross-entropy": "undecided",
    },
    "letters_underfit": {"svm-behind-at-the-papers-values": "confirmed"},
}
"""Verdicts by study and claim: docs/what-holds.md, letters.md, kanji.md, photos.md and papers.md state them."""


def test_the_pages_state_the_verdicts_of_the_shipped_findings() -> None:
    decided = {
        findings.study.name: {one.claim.name: one.verdict for one in findings.decisions()}
        for findings in shipped()
    }
    shown = {
        study: {name: verdict for name, verdict in of.items() if verdict != "waits for data"}
        for study, of in decided.items()
    }
    assert {study: of for study, of in shown.items() if of} == STATED
