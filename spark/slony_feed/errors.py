"""Why a feed does not go on. Errors of the node and of the replica are beside these; NEEDS_TOTAL is one.

TargetError
├── FeedDiffers              FEED_DIFFERS            the replica is filled by another feed
├── FeedNotAlone             FEED_NOT_ALONE          somebody else has written into the replica
├── FeedRowTooLarge          FEED_ROW_TOO_LARGE      a key or a row that no entry holds
├── FeedKeyExtinct           KEY_EXTINCT             an extinction forbids a key of the feed
├── FeedTableUnknown         TABLE_UNKNOWN           no such table in the sets
└── FeedMoved                FEED_MOVED              transient: another attempt has moved the cursor
"""

from spark.targets.errors import TargetError


class FeedDiffers(TargetError):
    code = "FEED_DIFFERS"


class FeedNotAlone(TargetError):
    code = "FEED_NOT_ALONE"


class FeedRowTooLarge(TargetError):
    code = "FEED_ROW_TOO_LARGE"


class FeedKeyExtinct(TargetError):
    code = "KEY_EXTINCT"


class FeedTableUnknown(TargetError):
    code = "TABLE_UNKNOWN"


class FeedMoved(TargetError):
    code = "FEED_MOVED"
    transient = True
