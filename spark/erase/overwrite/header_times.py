"""When the files of a log were created, by their headers alone."""

from pathlib import Path

from spark.erase.calls.calls import Costs, HeaderTime, HeaderTimesAnswer, HeaderTimesCall
from spark.erase.errors import EnvironmentUnreadable
from spark.erase.reading.directory import file_names, opened, read_file_header
from spark.formats.je import log as je_log


def read_header_times(call: HeaderTimesCall) -> HeaderTimesAnswer:
    """Read the headers of files; one that vanishes meanwhile is left out.

    Raises: LogRefused.
    """
    directory = Path(call.directory)
    numbers = [je_log.file_number(name) for name in file_names(directory)]
    found, costs = [], Costs()
    for number in [each for each in numbers if each >= call.first][: call.count]:
        try:
            with opened(directory, [je_log.file_name(number)]) as (file,):
                header = read_file_header(file)
        except EnvironmentUnreadable as unreadable:
            if isinstance(unreadable.__cause__, FileNotFoundError):
                continue
            raise
        identity = file.identity
        created_ms = None if header is None else header.created_ms
        found.append(HeaderTime(number, identity.size, created_ms, identity.links))
        costs += Costs(reads=1, read_bytes=min(identity.size, je_log.FILE_HEADER_BYTES))
    return HeaderTimesAnswer(tuple(found), costs)
