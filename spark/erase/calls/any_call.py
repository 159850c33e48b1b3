"""Every call that hands take, and everything that they answer."""

from spark.erase.calls.calls import (
    DeleteReservedAnswer,
    DeleteReservedCall,
    HeaderTimesAnswer,
    HeaderTimesCall,
    PlanAnswer,
    PlanCall,
    PrepareAnswer,
    PrepareCall,
    ProveAnswer,
    ProveCall,
    RoundAnswer,
    RoundCall,
    VerifyAnswer,
    VerifyCall,
)
from spark.erase.calls.count_calls import CountAnswer, CountCall

_Reading = HeaderTimesCall | PlanCall | VerifyCall | CountCall
Call = _Reading | PrepareCall | RoundCall | ProveCall | DeleteReservedCall
_Read = HeaderTimesAnswer | PlanAnswer | VerifyAnswer | CountAnswer
Done = _Read | PrepareAnswer | RoundAnswer | ProveAnswer | DeleteReservedAnswer
