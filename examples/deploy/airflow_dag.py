"""A DAG of Apache Airflow 3 that runs a pipeline every quarter of an hour, one run at a time.

The job has no interval: each run reads what is there, and ends. Odradek has an environment of its own on the workers,
because its packages are not Airflow's.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

ODRADEK = "/opt/odradek/bin/odradek"
JOB = "/etc/odradek/orders.toml"

with DAG(
    "odradek_orders",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    # The offset store says where a run begins, not the date of the run.
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
):
    check = BashOperator(task_id="check", bash_command=f"exec {ODRADEK} pipeline check {JOB}")
    run = BashOperator(task_id="run", bash_command=f"exec {ODRADEK} pipeline run --format jsonl {JOB}")
    status = BashOperator(task_id="status", bash_command=f"exec {ODRADEK} pipeline status {JOB}")
    check >> run >> status
