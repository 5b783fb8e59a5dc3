"""A package of a user's own, which imports a module beside it."""


def with_dropout(shape, classes, head):
    from lab import with_dropout

    return with_dropout(shape, classes, head)
