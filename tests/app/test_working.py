"""A process gives back what it holds, whatever becomes of its metadata."""

from pathlib import Path

from app.db import Database
from app.jobs.running.instances import InstanceLock
from app.settings import Settings
from app.working import Worker


def test_worker_without_its_metadata_stops_and_frees_its_directory(
    settings: Settings, tmp_path: Path
) -> None:
    away = Database(f"sqlite:///{tmp_path / 'nowhere' / 'lethe.db'}")
    Worker(settings, away, role="worker").stop()
    InstanceLock(settings.data_dir).release()
