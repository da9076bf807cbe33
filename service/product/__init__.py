"""The face of the product: every verb that REST, the command line and the worker call, on an opened workspace.

>>> with Workspace(Settings()) as workspace:
...     product.train(workspace, TrainRequest(uris=["sales/*.parquet"], target="bought", model="buyers"))
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.jobs.queue import job_queue as job_queue
    from service.product.datasets.data_files import load_example as load_example
    from service.product.datasets.data_files import upload_folder as upload_folder
    from service.product.datasets.data_files import upload_place as upload_place
    from service.product.datasets.datasets import dataset_columns as dataset_columns
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
    from service.product.monitoring.labels import labels_of_files as labels_of_files
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
    from service.product.views.mlflow_models import export_to_mlflow as export_to_mlflow
    from service.product.views.mlflow_models import import_from_mlflow as import_from_mlflow
    from service.product.views.reports import kept_report as kept_report
    from service.product.views.reports import report as report
    from service.product.views.reports import write_report as write_report
    from service.product.views.sql import sql as sql
    from service.product.views.structures import draw_posterior as draw_posterior
    from service.product.views.structures import network as network

# Each is imported when it is first used: a command that lists models should not wait for numba and the job queue.
_NAMES = {
    "service.jobs.queue": "job_queue",
    "service.product.datasets.data_files": "load_example upload_folder upload_place",
    "service.product.datasets.datasets": "dataset_columns dataset_schema delete_dataset get_dataset kind_of_name list_datasets "
    "register_dataset schema_of_files",
    "service.product.datasets.profile": "dataset_profile",
    "service.product.datasets.rules": "damaged_rules",
    "service.product.forgetting.forgetting_served": "forget_predictions",
    "service.product.forgetting.withdrawal": "withdraw_rule",
    "service.product.inference.answering": "evaluate_beside impute predict_files query score",
    "service.product.keys": "create_key list_keys revoke_key",
    "service.product.monitoring.alerts": "acknowledge_alert alert_rule list_alerts mute_alert resolve_alert "
    "set_alert_rule",
    "service.product.monitoring.drift": "drift",
    "service.product.monitoring.labels": "add_labels labels_of_files performance",
    "service.product.monitoring.prediction_counts": "monitoring_predictions monitoring_slices",
    "service.product.monitoring.settings": "monitor_of set_monitor",
    "service.product.monitoring.webhooks": "create_webhook delete_webhook list_deliveries list_webhooks test_webhook",
    "service.product.monitoring.windows": "monitor monitoring_column monitoring_families monitoring_windows",
    "service.product.monitoring_loop": "model_states",
    "service.product.notes": "damaged_notes",
    "service.product.outputs": "write_output",
    "service.product.submission.job_steps": "clean evaluate forget job_kinds train train_with_passes unclean",
    "service.product.submission.prechecks": "check_request",
    "service.product.submission.schedules": "change_schedule create_schedule delete_schedule get_schedule "
    "list_schedule_runs list_schedules pause_schedule resume_schedule run_schedule submit_scheduled",
    "service.product.submission.submitting": "forget_old_jobs job_log job_output submit write_job_output",
    "service.product.versions.deletion": "delete_model delete_version prune",
    "service.product.versions.export_import": "export_version import_version write_export",
    "service.product.versions.fitted": "import_network",
    "service.product.versions.registry": "alias_history aliases_of delete_alias find_version list_models "
    "list_promotions list_versions retention_of roll_back set_alias set_retention set_tag",
    "service.product.versions.served": "served",
    "service.product.views.graphs": "family graph",
    "service.product.views.inspecting": "circuit draw draw_trace lineage structure",
    "service.product.views.mlflow_models": "export_to_mlflow import_from_mlflow",
    "service.product.views.reports": "kept_report report write_report",
    "service.product.views.sql": "sql",
    "service.product.views.structures": "draw_posterior network",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = list(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'service.product' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
