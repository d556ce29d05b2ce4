"""Explaining what an agent does: recordings of its episodes, the moments that matter, and pictures of them."""

from lazymdp.explain.explain import explain
from lazymdp.explain.rank import Ranking, rank
from lazymdp.explain.ranking_trust import ranking_trust
from lazymdp.explain.record import record
from lazymdp.explain.recording import Recording, load
from lazymdp.explain.report import report
from lazymdp.explain.strip import strip
from lazymdp.explain.video import video

__all__ = ["Ranking", "Recording", "explain", "load", "rank", "ranking_trust", "record", "report", "strip", "video"]


def __dir__() -> list[str]:
    return __all__
