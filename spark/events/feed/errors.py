"""Why a feed refuses. Errors of the target itself are the other TargetErrors.

TargetError
├── NeedsTotal               NEEDS_TOTAL             what follows the position is gone, or may be
├── OriginElsewhere          ORIGIN_ELSEWHERE        the node is not the origin that was asked for
├── PositionNotASync         POSITION_NOT_A_SYNC     an event of another type
├── FeedSetUnknown           SET_UNKNOWN             no such set of this origin
└── ReaderTooSlow            READER_TOO_SLOW         transient: the log was held longer than it may be
"""

from spark.targets.errors import TargetError


class NeedsTotal(TargetError):
    code = "NEEDS_TOTAL"


class OriginElsewhere(TargetError):
    code = "ORIGIN_ELSEWHERE"


class PositionNotASync(TargetError):
    code = "POSITION_NOT_A_SYNC"


class FeedSetUnknown(TargetError):
    code = "SET_UNKNOWN"


class ReaderTooSlow(TargetError):
    code = "READER_TOO_SLOW"
    transient = True
