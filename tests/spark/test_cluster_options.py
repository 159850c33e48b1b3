"""What settings of a cluster become in Spark's configuration, what is refused, and where a secret goes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.jobs.engines.spark_service import _options
from app.settings import Settings, SparkSettings
from spark.pool.cluster.secret_file import write_secret
from spark.pool.errors import SparkStartFailed
from spark.pool.options import SparkOptions, spark_conf
from spark.pool.refused import REFUSED, check_conf

SECRET = "0123456789abcdef0123456789abcdef"
STANDALONE = "spark://cluster:7077"
ENCRYPTED = ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled")


def conf_of(tmp_path: Path, **spark: Any) -> dict[str, str]:
    settings = Settings(data_dir=tmp_path, spark=SparkSettings(driver_host="10.0.0.5", **spark))
    return spark_conf(_options(settings), directory=tmp_path, packages=())


@pytest.mark.parametrize(
    ("master", "encryption", "is_encrypted"),
    [
        (None, None, False),
        ("local[4]", None, False),
        ("spark://127.0.0.1:7077", None, False),
        (STANDALONE, None, True),
        ("k8s://https://10.0.0.1:6443", None, True),
        ("yarn", None, True),
        ("yarn", False, False),
        ("spark://127.0.0.1:7077", True, True),
    ],
)
def test_what_leaves_this_machine_is_encrypted_unless_somebody_says_no(
    tmp_path: Path, master: str | None, encryption: bool | None, is_encrypted: bool
) -> None:
    conf = conf_of(tmp_path, master=master, encryption=encryption)
    assert [conf.get(name) for name in ENCRYPTED] == ["true" if is_encrypted else None] * 3


def test_kubernetes_gets_its_image_namespace_and_environment(tmp_path: Path) -> None:
    conf = conf_of(
        tmp_path,
        master="k8s://https://10.0.0.1:6443",
        image="registry/lethe:1",
        namespace="data",
        archives=["/srv/env.tar.gz#environment", "more.zip"],
        executors=3,
    )
    assert conf["spark.kubernetes.container.image"] == "registry/lethe:1"
    assert conf["spark.kubernetes.namespace"] == "data"
    assert conf["spark.archives"] == "/srv/env.tar.gz#environment,more.zip"
    assert conf["spark.executor.instances"] == "3"
    assert conf["spark.driver.host"] == "10.0.0.5"
    assert not [name for name in conf if name.startswith("spark.dynamicAllocation")]


def test_executors_that_come_and_go_have_limits(tmp_path: Path) -> None:
    conf = conf_of(tmp_path, master=STANDALONE, executors_min=2, executors_max=9, executor_cores=1)
    allocation = {name.rpartition(".")[2]: value for name, value in conf.items() if "dynamicAll" in name}
    assert allocation == {
        "enabled": "true",  # of the shuffle tracking too
        "minExecutors": "2",
        "initialExecutors": "2",
        "maxExecutors": "9",
        "executorIdleTimeout": "60s",
    }
    assert conf["spark.executor.cores"] == "1"


@pytest.mark.parametrize(
    "wrong",
    [{"executors": 2, "executors_max": 3}, {"executors_min": 4, "executors_max": 3}],
)
def test_numbers_of_executors_that_exclude_each_other_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="executors"):
        SparkSettings(**wrong)  # type: ignore[arg-type]


def test_pages_and_event_logs_are_off_until_somebody_wants_them(tmp_path: Path) -> None:
    usual = conf_of(tmp_path)
    assert usual["spark.ui.enabled"] == "false"
    assert "spark.eventLog.enabled" not in usual
    shown = conf_of(tmp_path, ui=True, ui_port=4050, event_log_dir=tmp_path / "event logs")
    assert (shown["spark.ui.enabled"], shown["spark.ui.port"]) == ("true", "4050")
    assert shown["spark.ui.killEnabled"] == "false"
    assert shown["spark.eventLog.dir"] == (tmp_path / "event logs").as_uri()
    assert shown["spark.eventLog.rolling.enabled"] == "true"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_lethe_must_set_itself_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ValidationError, match=name.replace(".", r"\.")) as refused:
        SparkSettings(conf={name: "x", "spark.sql.shuffle.partitions": "9"})
    assert REFUSED[name] in str(refused.value)
    assert "shuffle.partitions" not in str(refused.value).partition("[type=")[0]


@pytest.mark.parametrize(
    "name",
    [
        "spark.ssl.keyPassword",
        "spark.x.secret",
        "spark.hadoop.my.access.TOKEN",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.account.key.mine.dfs.core.windows.net",
        "spark.hadoop.fs.azure.account.oauth2.client.secret.mine.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.box.mine.blob.core.windows.net",
        "spark.hadoop.fs.azure.sas.fixed.token.mine.dfs.core.windows.net",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.DB_PASSWD",
    ],
)
def test_a_secret_is_refused_as_ps_would_show_it(name: str) -> None:
    with pytest.raises(ValueError, match="`ps` would show it"):
        check_conf({name: "hush"})


def test_refusal_does_not_repeat_the_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="ps") as refused:
        check_conf({"spark.ssl.keyPassword": "hush"})
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "name", ["spark.speculation=true", "spark.authenticate.secret ", "spark.master\n", " x"]
)
def test_name_that_spark_would_read_as_another_is_refused(name: str) -> None:
    """It goes to Spark as `name=value`."""
    with pytest.raises(ValueError, match="no name of Spark") as refused:
        check_conf({name: "hush"})
    assert "hush" not in str(refused.value)
    assert "=" not in str(refused.value)


@pytest.mark.parametrize("name", ["fs.s3a.endpoint", "Spark.task.cpus", "SPARK_WORKER_DIR", "sparkling", ""])
def test_name_that_spark_would_leave_out_is_refused(name: str) -> None:
    """It said so in its log alone, and went on without."""
    with pytest.raises(ValueError, match=r"Spark leaves out what does not begin with `spark\.`"):
        check_conf({name: "x"})


def test_what_only_names_a_secret_of_kubernetes_passes() -> None:
    check_conf({"spark.kubernetes.executor.secretKeyRef.DB_PASSWORD": "orders:password"})
    check_conf({"spark.kubernetes.driver.secrets.orders-token": "/etc/orders"})


def test_everything_else_passes(tmp_path: Path) -> None:
    conf = {"spark.driver.port": "7001", "spark.ssl.keyPasswordFile": "/f", "spark.kubernetes.a": "b"}
    conf |= {"spark.hadoop.fs.azure.account.oauth2.client.id.mine.dfs.core.windows.net": "x"}
    conf |= {"spark.hadoop.fs.s3a.encryption.key": "arn:aws:kms:x", "spark.executorEnv.A_CREDENTIALS": "/f"}
    assert conf.items() <= conf_of(tmp_path, conf=conf).items()


def test_conf_comes_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_SPARK__CONF", json.dumps({"spark.speculation": "true"}))
    with pytest.raises(ValidationError, match="a unit would be done twice"):
        Settings()


def options(secret_file: Path | None, *, master: str = STANDALONE, encrypted: bool = True) -> SparkOptions:
    return SparkOptions(master=master, encrypted=encrypted, secret_file=secret_file)


def test_secret_goes_by_a_file_of_the_owner_and_never_by_an_argument(tmp_path: Path) -> None:
    source = tmp_path / "secret"
    source.write_text(f"{SECRET}\n")
    place = write_secret(options(source), tmp_path)
    assert place is not None
    assert place.read_text() == f"spark.authenticate.secret {SECRET}\n"
    assert place.stat().st_mode & 0o777 == 0o600
    conf = spark_conf(options(source), directory=tmp_path, packages=())
    assert conf["spark.authenticate"] == "true"
    assert SECRET not in str(conf)


@pytest.mark.parametrize(
    "content",
    [None, "", "short", "with space 0123456789", "0123456789\\u0041bcdef", "ä" * 20],
)
def test_secret_that_cannot_be_used_is_refused_without_being_said(
    tmp_path: Path, content: str | None
) -> None:
    source = tmp_path / "secret"
    if content is not None:
        source.write_text(content)
    with pytest.raises(SparkStartFailed) as refused:
        write_secret(options(source), tmp_path)
    assert refused.value.reason == "NO_SECRET"
    assert str(source) in refused.value.detail
    assert not content or content not in refused.value.detail
    assert sorted(each.name for each in tmp_path.iterdir()) == ([] if content is None else ["secret"])


def test_pipe_in_place_of_the_secret_holds_up_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "secret")
    with pytest.raises(SparkStartFailed, match="no usable secret"):
        write_secret(options(tmp_path / "secret"), tmp_path)


def test_standalone_cluster_elsewhere_needs_one_and_the_message_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SparkStartFailed, match="LETHE_SPARK__SECRET_FILE") as refused:
        write_secret(options(None), tmp_path)
    assert "LETHE_SPARK__ENCRYPTION=false" in refused.value.detail


@pytest.mark.parametrize("master", ["yarn", "local[2]"])
def test_who_brings_a_secret_by_himself_needs_none(tmp_path: Path, master: str) -> None:
    assert write_secret(options(None, master=master), tmp_path) is None
    assert write_secret(options(None, encrypted=False), tmp_path) is None
