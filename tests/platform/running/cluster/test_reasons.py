"""The reason is in what is shown, whatever Ray writes around it; the exceptions are Ray's own."""

from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError, RayTaskError

from topk_platform.running.cluster.reasons import reason_in


def test_an_actor_that_was_cancelled_is_shown_with_the_reason_before_it() -> None:
    why = "The actor is dead because its owner has died."
    context = ActorDiedErrorContext(actor_id=b"0123456789abcdef", error_message=why, never_started=True)
    assert why in reason_in(str(ActorDiedError(context))).replace("\n", " ")


def test_a_task_that_raised_is_shown_with_its_exception_alone() -> None:
    text = "Traceback (most recent call last):\n  File 'a.py', line 1\nOSError: first\n\nThe above exception was the "
    text += "direct cause of the following exception:\n\nray::f() (pid=7)\n  File\nValueError: two\nlines"
    assert reason_in(str(RayTaskError("f", text, ValueError("two\nlines")))) == "ValueError: two lines"


def test_nothing_is_a_reason_that_is_not_known_and_a_long_one_is_cut() -> None:
    assert reason_in("") == reason_in("\n\n") == "no reason is known"
    assert reason_in("ValueError: " + "x" * 1000) == "ValueError: " + "x" * 588
