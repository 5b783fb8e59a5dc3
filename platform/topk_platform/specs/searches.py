"""The search of an arm: its rules, and how its trials and confirmations are divided among repeated searches."""

from __future__ import annotations

from dataclasses import dataclass, field

from topk_platform.specs.fields import Checked, Count
from topk_platform.specs.search_rules import TPE, Pruner, Quantile, Sampler

__all__ = ["Protocol", "Repeats"]

_SPAN = 1_000_000


@dataclass(frozen=True)
class Repeats:
    """The searches of an arm, counted from 0, each with its own numbers, positions and seeds.

    A search's trials have *positions*, counted from 0. The trial at position ``p`` of search ``r`` has the number
    ``1,000,000 r + p``. All trials of search ``r`` train with the seed ``1,000,000 r``, and the seeds that confirm what
    it chose are ``1,000,000 r + 1``, ``1,000,000 r + 2``, .... Numbers and seeds depend neither on how many searches
    there are nor on the budget. So a larger budget only adds trials and seeds, and the first search is the same as that
    of an arm with one search.

    Searches have different seeds, so each has its own draw of the data and of label noise, its own order and its own
    initial weights. The searches of different arms with the same index have the same ones.

    Args:
        count: How many searches there are.
        blocks: How many blocks of seeds there are; 0 stands for ``count``. An arm that searches nothing counts as one
            search, but has as many blocks as the searches of the other arms: its one configuration is confirmed with
            the seeds of all blocks.

    Example:
        >>> two = Repeats(2)
        >>> two.numbers(0, trials=6), two.numbers(1, trials=6)
        ((0, 1, 2), (1000000, 1000001, 1000002))
        >>> two.search_seeds, two.seeds(4)
        ((0, 1000000), (1, 1000001, 2, 1000002))
        >>> two.search_of(1000002), two.position(1000002), two.search_of_seed(1000001)
        (1, 2, 1)
    """

    count: int = 1
    blocks: int = 0

    def search_of(self, number: int) -> int:
        """Return the search to which a trial belongs."""
        return number // _SPAN

    def position(self, number: int) -> int:
        """Return a trial's position in its search."""
        return number % _SPAN

    def number_at(self, search: int, position: int) -> int:
        """Return the number of the trial at a position of a search."""
        return _SPAN * search + position

    def length(self, search: int, trials: int) -> int:
        """Return how many trials a search has if all searches together have ``trials`` trials."""
        return len(range(search, trials, self.count))

    def numbers(self, search: int, trials: int) -> tuple[int, ...]:
        """Return the numbers of a search's trials, in order, if all searches together have ``trials`` trials."""
        return tuple(self.number_at(search, position) for position in range(self.length(search, trials)))

    def holds(self, number: int, trials: int) -> bool:
        """Return whether a trial's number occurs if all searches together have ``trials`` trials."""
        search = self.search_of(number)
        return search < self.count and self.position(number) < self.length(search, trials)

    def order(self, number: int) -> tuple[int, int]:
        """Return a trial's key for sorting, by which the searches take turns."""
        return self.position(number), self.search_of(number)

    def search_seed(self, search: int) -> int:
        """Return the seed with which all trials of a search train."""
        return _SPAN * search

    @property
    def search_seeds(self) -> tuple[int, ...]:
        """The seeds with which the searches train."""
        return tuple(map(self.search_seed, range(self.count)))

    @property
    def seed_blocks(self) -> int:
        """How many blocks of seeds there are."""
        return self.blocks or self.count

    def seeds(self, count: int) -> tuple[int, ...]:
        """Return the first ``count`` seeds of confirmations, in an order in which the searches take turns."""
        return tuple(self.seed_at(rank) for rank in range(1, count + 1))

    def seed_at(self, rank: int) -> int:
        """Return the seed with this rank in the order of :meth:`seeds`, from 1."""
        turn, block = divmod(rank - 1, self.seed_blocks)
        return _SPAN * block + turn + 1

    def rank_of(self, seed: int) -> int:
        """Return a seed's rank in the order of :meth:`seeds`, from 1; 0 for a seed with which a search trains."""
        block, turn = divmod(seed, _SPAN)
        return (turn - 1) * self.seed_blocks + block + 1 if turn else 0

    def search_of_seed(self, seed: int) -> int:
        """Return the search whose choice a seed confirms."""
        return seed // _SPAN % self.count

    def seeds_of(self, search: int, count: int) -> tuple[int, ...]:
        """Return those of the first ``count`` seeds that confirm the choice of a search."""
        return tuple(seed for seed in self.seeds(count) if self.search_of_seed(seed) == search)

    def block(self, number: int, size: int) -> tuple[int, ...]:
        """Return the block in which a trial trains: ``size`` consecutive trials of its search.

        Example:
            >>> Repeats(2).block(1, size=3), Repeats(2).block(1_000_001, size=3)
            ((0, 1, 2), (1000000, 1000001, 1000002))
        """
        first = number - self.position(number) % size
        return tuple(range(first, first + size))

    def seed_block(self, seed: int, size: int) -> tuple[int, ...]:
        """Return the block in which a seed trains: ``size`` consecutive seeds of confirmations."""
        first = seed - (seed % _SPAN - 1) % size
        return tuple(range(first, first + size))


@dataclass(frozen=True)
class Protocol(Checked):
    """The search of an arm. It is part of the arm's identity.

    Args:
        sampler: The rule that chooses the next values; by default TPE after five random draws.
        width: How many of the arm's trials may run at once. The n-th suggestion is based on the trials numbered up to
            ``n - width``, even if others have ended by then.
        pruner: The rule by which search trials are stopped.
        ensemble: How many of an arm's trials train together, as one stack of networks: search trials in blocks of
            consecutive numbers, confirmations in blocks of consecutive seeds. A block belongs to one search, and a
            suggestion uses no results of its own block. Training together changes the last bits, so it is part of the
            key.
        searches: How often the arm's search is repeated, each time with another seed: with other suggestions, another
            draw of data and label noise, and other initial weights. Repeats show how much a result depends on the luck
            of a search, and average over it. All arms of a study that search need the same number. The arm's ``trials``
            and ``seeds`` are the totals over its searches, see :class:`Repeats`, so equal budgets stay equal. Every
            search begins with the first values. ``searches`` is not part of the arm's identity: more searches only add
            trials.
    """

    sampler: Sampler = field(default_factory=TPE)
    width: Count = 1
    pruner: Pruner = field(default_factory=Quantile)
    ensemble: Count = 1
    searches: Count = 1

    def known(self, number: int) -> range:
        """Return the numbers of the trials on which a search trial's suggestion is based.

        The last of them is the first number of the trial's block minus ``width``.

        Args:
            number: The trial's position in its search.

        Example:
            >>> Protocol(width=2).known(5), Protocol(ensemble=4).known(6)
            (range(0, 4), range(0, 4))
        """
        return range(max(0, number // self.ensemble * self.ensemble - self.width + 1))

    def informed(self, trials: int) -> int:
        """Return for how many of a search's trials the sampler uses the results of earlier trials.

        Args:
            trials: How many trials the search has.

        Example:
            >>> Protocol(ensemble=5).informed(15), Protocol(ensemble=8).informed(15)
            (9, 7)
        """
        return sum(number > self.sampler.random and len(self.known(number)) > 0 for number in range(trials))
