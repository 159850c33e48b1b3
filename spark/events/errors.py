"""Why a cluster's catalog refuses. Errors of the target itself are the other TargetErrors.

TargetError
├── NotASlonyDatabase         NOT_A_SLONY_CLUSTER     no cluster has its catalog in this database
│   └── UnknownCluster        UNKNOWN_CLUSTER         others have
├── CatalogIncomplete         CATALOG_INCOMPLETE      a table is missing, or is not where it says
├── NodeUninitialised         NODE_UNINITIALISED      the catalog is there, and belongs to no node yet
└── FunctionsMissing          FUNCTIONS_MISSING       a function is not there, or its library is not
"""

from spark.targets.errors import TargetError


class NotASlonyDatabase(TargetError):
    code = "NOT_A_SLONY_CLUSTER"


class UnknownCluster(NotASlonyDatabase):
    code = "UNKNOWN_CLUSTER"


class CatalogIncomplete(TargetError):
    code = "CATALOG_INCOMPLETE"


class NodeUninitialised(TargetError):
    code = "NODE_UNINITIALISED"


class FunctionsMissing(TargetError):
    code = "FUNCTIONS_MISSING"
