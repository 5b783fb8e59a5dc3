"""How an arm's search trials and confirmations are divided among its repeated searches."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Repeats"]

_SPAN = 1_000_000


@dataclass(frozen=True)
class Repeats:
    """The searches of an arm, counted from 0, each with numbers, positions and seeds of its own.

    A search's trials have *positions*, counted from 0. The trial at position ``p`` of search ``r`` has the number
    ``1,000,000 r + p``, and the seeds that confirm what search ``r`` chose are ``1,000,000 r + 1``, ``1,000,000 r +
    2``, ...: numbers and seeds depend neither on how many searches there are nor on the budget. More searches, trials
    or seeds therefore only add some, and the first search is the one that an arm searched once has.

    All searches begin with the first values. With the same seed, that trial gives the same result, bit for bit, so it
    is trained once, as number 0, and is at position 0 of every search.

    Args:
        count: How many searches there are.
        blocks: How many blocks of seeds there are: as many as searches, but an arm that searches nothing, beside arms
            that were searched several times, has one configuration that is confirmed with the seeds of all of them.
            0 stands for ``count``.
        shared: Whether the trial at position 0 is the same for all searches. It is not if each starts from what
            another arm's search chose.

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
    shared: bool = True

    def search_of(self, number: int) -> int:
        """Return the search that a trial belongs to; a trial that all searches share belongs to the first."""
        return number // _SPAN

    def position(self, number: int) -> int:
        """Return a trial's position in its search."""
        return number % _SPAN

    def number_at(self, search: int, position: int) -> int:
        """Return the trial at a position of a search."""
        return 0 if position == 0 and self.shared else _SPAN * search + position

    def length(self, search: int, trials: int) -> int:
        """Return how many positions a search has if the searches share out so many trials."""
        return len(range(search, trials, self.count))

    def numbers(self, search: int, trials: int) -> tuple[int, ...]:
        """Return the trials of a search, in order, if the searches share out so many."""
        return tuple(self.number_at(search, position) for position in range(self.length(search, trials)))

    def own(self, search: int, trials: int) -> tuple[int, ...]:
        """Return the trials of a search that no earlier one shares."""
        return tuple(number for number in self.numbers(search, trials) if self.search_of(number) == search)

    def asked(self, trials: int) -> int:
        """Return how many trials are trained if the searches share out so many: a shared one once.

        Example:
            >>> Repeats(3).asked(30), Repeats(1).asked(30)
            (28, 30)
        """
        return sum(len(self.own(search, trials)) for search in range(self.count))

    def holds(self, number: int, trials: int) -> bool:
        """Return whether a trial is one of those asked for if the searches share out so many."""
        search, position = self.search_of(number), self.position(number)
        known = search < self.count and self.number_at(search, position) == number
        return known and position < self.length(search, trials)

    def order(self, number: int) -> tuple[int, int]:
        """Return a trial's key in an order in which the searches take turns."""
        return self.position(number), self.search_of(number)

    @property
    def seed_blocks(self) -> int:
        """How many blocks of seeds there are."""
        return self.blocks or self.count

    def seeds(self, count: int) -> tuple[int, ...]:
        """Return the first ``count`` seeds, in an order in which the searches take turns."""
        return tuple(self.seed_at(rank) for rank in range(1, count + 1))

    def seed_at(self, rank: int) -> int:
        """Return a seed by its rank in that order, from 1."""
        turn, block = divmod(rank - 1, self.seed_blocks)
        return _SPAN * block + turn + 1

    def rank_of(self, seed: int) -> int:
        """Return a seed's rank in that order, from 1; 0 for 0, the search's own seed."""
        block, turn = divmod(seed, _SPAN)
        return (turn - 1) * self.seed_blocks + block + 1 if seed else 0

    def search_of_seed(self, seed: int) -> int:
        """Return the search whose choice a seed confirms."""
        return seed // _SPAN % self.count

    def seeds_of(self, search: int, count: int) -> tuple[int, ...]:
        """Return those of the first ``count`` seeds that confirm what a search chose."""
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
