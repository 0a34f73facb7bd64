"""A deadline that ends what waits, also where its first alarm is lost."""

import time

import pytest

from wire.deadline import deadline


class SlowToGo:
    """Takes a while when it is collected, where Python drops whatever is raised."""

    def __del__(self) -> None:
        time.sleep(0.15)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_alarm_that_is_lost_in_a_finaliser_comes_again_soon() -> None:
    with pytest.raises(TimeoutError), deadline(0.05):
        SlowToGo()
        time.sleep(0.6)
