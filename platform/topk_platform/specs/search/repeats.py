"""The division of an arm's search trials and confirmations among its repeated searches."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Repeats"]

_SPAN = 1_000_000


@dataclass(frozen=True)
class Repeats:
    """The searches of an arm, counted from 0, each with its own numbers, positions and seeds.

    A search's trials have *positions*, counted from 0. The trial at position ``p`` of search ``r`` has the number
    ``1,000,000 r + p``, and the seeds that confirm what search ``r`` chose are ``1,000,000 r + 1``, ``1,000,000 r +
    2``, .... Numbers and seeds depend neither on how many searches there are nor on the budget. So a larger budget only
    adds trials and seeds, and the first search is the same as that of an arm with one search.

    All searches begin with the first values. With the same seed, that trial gives the same result, bit for bit, so it
    is trained once, as number 0, and is at position 0 of every search.

    Args:
        count: How many searches there are.
        blocks: How many blocks of seeds there are; 0 stands for ``count``. An arm that searches nothing counts as one
            search, but has as many blocks as the searches of the other arms: its one configuration is confirmed with
            the seeds of all blocks.

    Example:
        >>> two = Repeats(2)
        >>> two.numbers(0, trials=6), two.numbers(1, trials=6)
        ((0, 1, 2), (0, 1000001, 1000002))
        >>> two.seeds(4)
        (1, 1000001, 2, 1000002)
        >>> two.search_of(1000002), two.position(1000002), two.search_of_seed(1000001)
        (1, 2, 1)
    """

    count: int = 1
    blocks: int = 0

    def search_of(self, number: int) -> int:
        """Return the search to which a trial belongs; a trial that all searches share belongs to the first."""
        return number // _SPAN

    def position(self, number: int) -> int:
        """Return a trial's position in its search."""
        return number % _SPAN

    def number_at(self, search: int, position: int) -> int:
        """Return the number of the trial at a position of a search."""
        return 0 if position == 0 else _SPAN * search + position

    def length(self, search: int, trials: int) -> int:
        """Return how many positions a search has if all searches together have ``trials`` trials."""
        return len(range(search, trials, self.count))

    def numbers(self, search: int, trials: int) -> tuple[int, ...]:
        """Return the numbers of a search's trials, in order, if all searches together have ``trials`` trials."""
        return tuple(self.number_at(search, position) for position in range(self.length(search, trials)))

    def own(self, search: int, trials: int) -> tuple[int, ...]:
        """Return the numbers of a search's trials without those that belong to an earlier search."""
        return tuple(number for number in self.numbers(search, trials) if self.search_of(number) == search)

    def asked(self, trials: int) -> int:
        """Return how many trials are trained if all searches together have ``trials``; a shared trial is trained once.

        Example:
            >>> Repeats(3).asked(30), Repeats(1).asked(30)
            (28, 30)
        """
        return sum(len(self.own(search, trials)) for search in range(self.count))

    def holds(self, number: int, trials: int) -> bool:
        """Return whether a trial's number occurs if all searches together have ``trials`` trials."""
        search, position = self.search_of(number), self.position(number)
        known = search < self.count and self.number_at(search, position) == number
        return known and position < self.length(search, trials)

    def order(self, number: int) -> tuple[int, int]:
        """Return a trial's key for sorting, by which the searches take turns."""
        return self.position(number), self.search_of(number)

    @property
    def seed_blocks(self) -> int:
        """How many blocks of seeds there are."""
        return self.blocks or self.count

    def seeds(self, count: int) -> tuple[int, ...]:
        """Return the first ``count`` seeds, in an order in which the searches take turns."""
        return tuple(self.seed_at(rank) for rank in range(1, count + 1))

    def seed_at(self, rank: int) -> int:
        """Return the seed with this rank in the order of :meth:`seeds`, from 1."""
        turn, block = divmod(rank - 1, self.seed_blocks)
        return _SPAN * block + turn + 1

    def rank_of(self, seed: int) -> int:
        """Return a seed's rank in the order of :meth:`seeds`, from 1; 0 for seed 0, with which searches train."""
        block, turn = divmod(seed, _SPAN)
        return (turn - 1) * self.seed_blocks + block + 1 if seed else 0

    def search_of_seed(self, seed: int) -> int:
        """Return the search whose choice a seed confirms."""
        return seed // _SPAN % self.count

    def seeds_of(self, search: int, count: int) -> tuple[int, ...]:
        """Return those of the first ``count`` seeds that confirm the choice of a search."""
        return tuple(seed for seed in self.seeds(count) if self.search_of_seed(seed) == search)

    def block(self, number: int, size: int) -> tuple[int, ...]:
        """Return the block in which a trial trains: ``size`` consecutive trials of its search, without a shared one.

        Example:
            >>> Repeats(2).block(1, size=3), Repeats(2).block(1_000_001, size=3)
            ((0, 1, 2), (1000001, 1000002))
        """
        search, first = self.search_of(number), self.position(number) // size * size
        members = (self.number_at(search, position) for position in range(first, first + size))
        return tuple(member for member in members if self.search_of(member) == search)

    def seed_block(self, seed: int, size: int) -> tuple[int, ...]:
        """Return the block in which a seed trains: ``size`` consecutive seeds."""
        first = seed - (seed % _SPAN - 1) % size
        return tuple(range(first, first + size))
