"""The map of settings: a ring around the one to copy, hatching over those that the store throttles."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.patches import Rectangle

from studies.requests_in_flight import figures


def test_the_setting_to_copy_has_a_ring_and_throttled_ones_are_hatched() -> None:
    """One that would be refused in a long read alone is hatched too."""
    table = pd.DataFrame(
        [
            (1, 4, 20.0, 0.0, False),
            (1, 64, 60.0, 0.0, True),
            (2, 4, 40.0, 0.0, False),
            (2, 64, 90.0, 7.0, True),
        ],
        index=["1 x 4", "1 x 64", "2 x 4", "2 x 64"],
        columns=["threads", "concurrency", "share", "refused", "is_over_rate"],
    )
    _, ax = plt.subplots()
    figures.draw_map(ax, table, "2 x 4")
    patches = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    hatched = {(patch.get_x() + 0.5, patch.get_y() + 0.5) for patch in patches if patch.get_hatch()}
    assert hatched == {(1, 0), (1, 1)}
    (ring,) = [patch for patch in patches if not patch.get_hatch()]
    assert (round(ring.get_x() + 0.46), round(ring.get_y() + 0.46)) == (0, 1)
    texts = [text.get_text() for text in ax.texts]
    assert texts.count("90 %\nrefused 7 %") == 1
    plt.close()
