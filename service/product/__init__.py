"""The face of the product: every verb that REST, the command line and the worker call, on an opened workspace.

>>> with Workspace(Settings()) as workspace:
...     product.train(workspace, TrainRequest(uris=["sales/*.parquet"], target="bought", model="buyers"))
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.jobs.queue import job_queue as job_queue
    from service.product.datasets.data_files import load_example as load_example
    from service.product.datasets.data_files import upload_place as upload_place
    from service.product.datasets.datasets import dataset_schema as dataset_schema
    from service.product.datasets.datasets import delete_dataset as delete_dataset
    from service.product.datasets.datasets import get_dataset as get_dataset
    from service.product.datasets.datasets import kind_of_name as kind_of_name
    from service.product.datasets.datasets import list_datasets as list_datasets
    from service.product.datasets.datasets import register_dataset as register_dataset
    from service.product.datasets.datasets import schema_of_files as schema_of_files
    from service.product.datasets.profile import dataset_profile as dataset_profile
    from service.product.datasets.rules import damaged_rules as damaged_rules
    from service.product.forgetting.forgetting_served import forget_predictions as forget_predictions
    from service.product.forgetting.withdrawal import withdraw_rule as withdraw_rule
    from service.product.inference.answering import evaluate_beside as evaluate_beside
    from service.product.inference.answering import impute as impute
    from service.product.inference.answering import predict_files as predict_files
    from service.product.inference.answering import query as query
    from service.product.inference.answering import score as score
    from service.product.keys import create_key as create_key
    from service.product.keys import list_keys as list_keys
    from service.product.keys import revoke_key as revoke_key
    from service.product.monitoring.alerts import acknowledge_alert as acknowledge_alert
    from service.product.monitoring.alerts import alert_rule as alert_rule
    from service.product.monitoring.alerts import list_alerts as list_alerts
    from service.product.monitoring.alerts import mute_alert as mute_alert
    from service.product.monitoring.alerts import resolve_alert as resolve_alert
    from service.product.monitoring.alerts import set_alert_rule as set_alert_rule
    from service.product.monitoring.drift import drift as drift
    from service.product.monitoring.labels import add_labels as add_labels
    from service.product.monitoring.labels import performance as performance
    from service.product.monitoring.prediction_counts import monitoring_predictions as monitoring_predictions
    from service.product.monitoring.prediction_counts import monitoring_slices as monitoring_slices
    from service.product.monitoring.settings import monitor_of as monitor_of
    from service.product.monitoring.settings import set_monitor as set_monitor
    from service.product.monitoring.webhooks import create_webhook as create_webhook
    from service.product.monitoring.webhooks import delete_webhook as delete_webhook
    from service.product.monitoring.webhooks import list_deliveries as list_deliveries
    from service.product.monitoring.webhooks import list_webhooks as list_webhooks
    from service.product.monitoring.webhooks import test_webhook as test_webhook
    from service.product.monitoring.windows import monitor as monitor
    from service.product.monitoring.windows import monitoring_column as monitoring_column
    from service.product.monitoring.windows import monitoring_families as monitoring_families
    from service.product.monitoring.windows import monitoring_windows as monitoring_windows
    from service.product.monitoring_loop import model_states as model_states
    from service.product.notes import damaged_notes as damaged_notes
    from service.product.outputs import write_output as write_output
    from service.product.submission.job_steps import clean as clean
    from service.product.submission.job_steps import evaluate as evaluate
    from service.product.submission.job_steps import forget as forget
    from service.product.submission.job_steps import job_kinds as job_kinds
    from service.product.submission.job_steps import train as train
    from service.product.submission.job_steps import train_with_passes as train_with_passes
    from service.product.submission.job_steps import unclean as unclean
    from service.product.submission.prechecks import check_request as check_request
    from service.product.submission.schedules import change_schedule as change_schedule
    from service.product.submission.schedules import create_schedule as create_schedule
    from service.product.submission.schedules import delete_schedule as delete_schedule
    from service.product.submission.schedules import get_schedule as get_schedule
    from service.product.submission.schedules import list_schedule_runs as list_schedule_runs
    from service.product.submission.schedules import list_schedules as list_schedules
    from service.product.submission.schedules import pause_schedule as pause_schedule
    from service.product.submission.schedules import resume_schedule as resume_schedule
    from service.product.submission.schedules import run_schedule as run_schedule
    from service.product.submission.schedules import submit_scheduled as submit_scheduled
    from service.product.submission.submitting import forget_old_jobs as forget_old_jobs
    from service.product.submission.submitting import job_log as job_log
    from service.product.submission.submitting import job_output as job_output
    from service.product.submission.submitting import submit as submit
    from service.product.submission.submitting import write_job_output as write_job_output
    from service.product.versions.deletion import delete_model as delete_model
    from service.product.versions.deletion import delete_version as delete_version
    from service.product.versions.deletion import prune as prune
    from service.product.versions.export_import import export_version as export_version
    from service.product.versions.export_import import import_version as import_version
    from service.product.versions.export_import import write_export as write_export
    from service.product.versions.fitted import import_network as import_network
    from service.product.versions.registry import alias_history as alias_history
    from service.product.versions.registry import aliases_of as aliases_of
    from service.product.versions.registry import delete_alias as delete_alias
    from service.product.versions.registry import find_version as find_version
    from service.product.versions.registry import list_models as list_models
    from service.product.versions.registry import list_promotions as list_promotions
    from service.product.versions.registry import list_versions as list_versions
    from service.product.versions.registry import retention_of as retention_of
    from service.product.versions.registry import roll_back as roll_back
    from service.product.versions.registry import set_alias as set_alias
    from service.product.versions.registry import set_retention as set_retention
    from service.product.versions.registry import set_tag as set_tag
    from service.product.versions.served import served as served
    from service.product.views.graphs import family as family
    from service.product.views.graphs import graph as graph
    from service.product.views.inspecting import circuit as circuit
    from service.product.views.inspecting import draw as draw
    from service.product.views.inspecting import draw_trace as draw_trace
    from service.product.views.inspecting import lineage as lineage
    from service.product.views.inspecting import structure as structure
    from service.product.views.reports import kept_report as kept_report
    from service.product.views.reports import report as report
    from service.product.views.reports import write_report as write_report
    from service.product.views.sql import sql as sql
    from service.product.views.structures import draw_posterior as draw_posterior
    from service.product.views.structures import network as network

# Each is imported when it is first used: a command that lists models should not wait for numba and the job queue.
_VERBS = {
    "acknowledge_alert": "service.product.monitoring.alerts",
    "alert_rule": "service.product.monitoring.alerts",
    "set_alert_rule": "service.product.monitoring.alerts",
    "list_alerts": "service.product.monitoring.alerts",
    "mute_alert": "service.product.monitoring.alerts",
    "network": "service.product.views.structures",
    "resolve_alert": "service.product.monitoring.alerts",
    "add_labels": "service.product.monitoring.labels",
    "performance": "service.product.monitoring.labels",
    "create_webhook": "service.product.monitoring.webhooks",
    "delete_webhook": "service.product.monitoring.webhooks",
    "list_webhooks": "service.product.monitoring.webhooks",
    "list_deliveries": "service.product.monitoring.webhooks",
    "test_webhook": "service.product.monitoring.webhooks",
    "alias_history": "service.product.versions.registry",
    "aliases_of": "service.product.versions.registry",
    "change_schedule": "service.product.submission.schedules",
    "check_request": "service.product.submission.prechecks",
    "circuit": "service.product.views.inspecting",
    "clean": "service.product.submission.job_steps",
    "create_key": "service.product.keys",
    "create_schedule": "service.product.submission.schedules",
    "dataset_schema": "service.product.datasets.datasets",
    "delete_alias": "service.product.versions.registry",
    "delete_dataset": "service.product.datasets.datasets",
    "delete_model": "service.product.versions.deletion",
    "delete_schedule": "service.product.submission.schedules",
    "delete_version": "service.product.versions.deletion",
    "drift": "service.product.monitoring.drift",
    "draw": "service.product.views.inspecting",
    "draw_posterior": "service.product.views.structures",
    "draw_trace": "service.product.views.inspecting",
    "evaluate": "service.product.submission.job_steps",
    "evaluate_beside": "service.product.inference.answering",
    "export_version": "service.product.versions.export_import",
    "family": "service.product.views.graphs",
    "find_version": "service.product.versions.registry",
    "forget": "service.product.submission.job_steps",
    "forget_predictions": "service.product.forgetting.forgetting_served",
    "forget_old_jobs": "service.product.submission.submitting",
    "damaged_notes": "service.product.notes",
    "damaged_rules": "service.product.datasets.rules",
    "withdraw_rule": "service.product.forgetting.withdrawal",
    "get_dataset": "service.product.datasets.datasets",
    "get_schedule": "service.product.submission.schedules",
    "graph": "service.product.views.graphs",
    "import_network": "service.product.versions.fitted",
    "import_version": "service.product.versions.export_import",
    "impute": "service.product.inference.answering",
    "job_log": "service.product.submission.submitting",
    "job_output": "service.product.submission.submitting",
    "job_kinds": "service.product.submission.job_steps",
    "kind_of_name": "service.product.datasets.datasets",
    "lineage": "service.product.views.inspecting",
    "list_datasets": "service.product.datasets.datasets",
    "list_keys": "service.product.keys",
    "list_models": "service.product.versions.registry",
    "list_promotions": "service.product.versions.registry",
    "list_schedule_runs": "service.product.submission.schedules",
    "list_schedules": "service.product.submission.schedules",
    "list_versions": "service.product.versions.registry",
    "pause_schedule": "service.product.submission.schedules",
    "dataset_profile": "service.product.datasets.profile",
    "load_example": "service.product.datasets.data_files",
    "upload_place": "service.product.datasets.data_files",
    "model_states": "service.product.monitoring_loop",
    "monitor_of": "service.product.monitoring.settings",
    "monitor": "service.product.monitoring.windows",
    "monitoring_column": "service.product.monitoring.windows",
    "monitoring_families": "service.product.monitoring.windows",
    "monitoring_predictions": "service.product.monitoring.prediction_counts",
    "monitoring_slices": "service.product.monitoring.prediction_counts",
    "monitoring_windows": "service.product.monitoring.windows",
    "predict_files": "service.product.inference.answering",
    "prune": "service.product.versions.deletion",
    "query": "service.product.inference.answering",
    "register_dataset": "service.product.datasets.datasets",
    "resume_schedule": "service.product.submission.schedules",
    "retention_of": "service.product.versions.registry",
    "revoke_key": "service.product.keys",
    "roll_back": "service.product.versions.registry",
    "run_schedule": "service.product.submission.schedules",
    "schema_of_files": "service.product.datasets.datasets",
    "score": "service.product.inference.answering",
    "served": "service.product.views.inspecting",
    "set_alias": "service.product.versions.registry",
    "set_monitor": "service.product.monitoring.settings",
    "set_retention": "service.product.versions.registry",
    "set_tag": "service.product.versions.registry",
    "sql": "service.product.views.sql",
    "structure": "service.product.views.inspecting",
    "submit": "service.product.submission.submitting",
    "submit_scheduled": "service.product.submission.schedules",
    "train": "service.product.submission.job_steps",
    "train_with_passes": "service.product.submission.job_steps",
    "unclean": "service.product.submission.job_steps",
    "write_export": "service.product.versions.export_import",
    "write_output": "service.product.outputs",
    "kept_report": "service.product.views.reports",
    "report": "service.product.views.reports",
    "write_report": "service.product.views.reports",
    "write_job_output": "service.product.submission.submitting",
    "job_queue": "service.jobs.queue",
}

__all__ = list(_VERBS)


def __getattr__(name: str) -> object:
    if name not in _VERBS:
        raise AttributeError(f"module 'service.product' has no attribute {name!r}")
    return getattr(import_module(_VERBS[name]), name)
