"""The face of the product: every verb that REST, the command line and the worker call, on an opened workspace.

>>> with Workspace(Settings()) as workspace:
...     product.train(workspace, TrainRequest(uris=["sales/*.parquet"], target="bought", model="buyers"))
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.jobs.queue import job_queue as job_queue
    from service.product.alerts import acknowledge_alert as acknowledge_alert
    from service.product.alerts import alert_rule as alert_rule
    from service.product.alerts import list_alerts as list_alerts
    from service.product.alerts import mute_alert as mute_alert
    from service.product.alerts import resolve_alert as resolve_alert
    from service.product.alerts import set_alert_rule as set_alert_rule
    from service.product.answering import impute as impute
    from service.product.answering import predict_files as predict_files
    from service.product.answering import query as query
    from service.product.answering import score as score
    from service.product.datasets import dataset_schema as dataset_schema
    from service.product.datasets import delete_dataset as delete_dataset
    from service.product.datasets import get_dataset as get_dataset
    from service.product.datasets import kind_of_name as kind_of_name
    from service.product.datasets import list_datasets as list_datasets
    from service.product.datasets import register_dataset as register_dataset
    from service.product.datasets import schema_of_files as schema_of_files
    from service.product.drifting import drift as drift
    from service.product.forgetting_served import forget_predictions as forget_predictions
    from service.product.graphs import family as family
    from service.product.graphs import graph as graph
    from service.product.histograms import class_histogram as class_histogram
    from service.product.histograms import counting_version as counting_version
    from service.product.inspecting import circuit as circuit
    from service.product.inspecting import draw as draw
    from service.product.inspecting import draw_trace as draw_trace
    from service.product.inspecting import lineage as lineage
    from service.product.inspecting import served as served
    from service.product.inspecting import structure as structure
    from service.product.inspecting import write_circuit as write_circuit
    from service.product.inspecting import write_trace as write_trace
    from service.product.job_steps import clean as clean
    from service.product.job_steps import evaluate as evaluate
    from service.product.job_steps import forget as forget
    from service.product.job_steps import job_kinds as job_kinds
    from service.product.job_steps import train as train
    from service.product.job_steps import train_with_passes as train_with_passes
    from service.product.job_steps import unclean as unclean
    from service.product.keys import create_key as create_key
    from service.product.keys import list_keys as list_keys
    from service.product.keys import revoke_key as revoke_key
    from service.product.labels import add_labels as add_labels
    from service.product.labels import performance as performance
    from service.product.looking import model_states as model_states
    from service.product.monitor_choice import monitor_of as monitor_of
    from service.product.monitor_choice import set_monitor as set_monitor
    from service.product.notes import damaged_notes as damaged_notes
    from service.product.prechecks import check_request as check_request
    from service.product.predicted import monitoring_predictions as monitoring_predictions
    from service.product.predicted import monitoring_slices as monitoring_slices
    from service.product.pruning import delete_model as delete_model
    from service.product.pruning import delete_version as delete_version
    from service.product.pruning import prune as prune
    from service.product.registry import alias_history as alias_history
    from service.product.registry import aliases_of as aliases_of
    from service.product.registry import delete_alias as delete_alias
    from service.product.registry import find_version as find_version
    from service.product.registry import list_models as list_models
    from service.product.registry import list_promotions as list_promotions
    from service.product.registry import list_versions as list_versions
    from service.product.registry import retention_of as retention_of
    from service.product.registry import roll_back as roll_back
    from service.product.registry import set_alias as set_alias
    from service.product.registry import set_retention as set_retention
    from service.product.registry import set_tag as set_tag
    from service.product.rules import damaged_rules as damaged_rules
    from service.product.rules import withdraw_rule as withdraw_rule
    from service.product.schedules import change_schedule as change_schedule
    from service.product.schedules import create_schedule as create_schedule
    from service.product.schedules import delete_schedule as delete_schedule
    from service.product.schedules import get_schedule as get_schedule
    from service.product.schedules import list_schedule_runs as list_schedule_runs
    from service.product.schedules import list_schedules as list_schedules
    from service.product.schedules import pause_schedule as pause_schedule
    from service.product.schedules import resume_schedule as resume_schedule
    from service.product.schedules import run_schedule as run_schedule
    from service.product.schedules import submit_scheduled as submit_scheduled
    from service.product.structures import bif as bif
    from service.product.structures import draw_posterior as draw_posterior
    from service.product.structures import write_bif as write_bif
    from service.product.structures import write_picture as write_picture
    from service.product.submitting import forget_old_jobs as forget_old_jobs
    from service.product.submitting import job_log as job_log
    from service.product.submitting import job_output as job_output
    from service.product.submitting import submit as submit
    from service.product.submitting import write_job_output as write_job_output
    from service.product.transfer import export_version as export_version
    from service.product.transfer import import_version as import_version
    from service.product.transfer import write_export as write_export
    from service.product.webhooks import create_webhook as create_webhook
    from service.product.webhooks import delete_webhook as delete_webhook
    from service.product.webhooks import list_deliveries as list_deliveries
    from service.product.webhooks import list_webhooks as list_webhooks
    from service.product.webhooks import test_webhook as test_webhook
    from service.product.windows import monitoring as monitoring
    from service.product.windows import monitoring_column as monitoring_column
    from service.product.windows import monitoring_families as monitoring_families
    from service.product.windows import monitoring_windows as monitoring_windows

# Each is imported when it is first used: a command that lists models should not wait for numba and the job queue.
_VERBS = {
    "acknowledge_alert": "service.product.alerts",
    "alert_rule": "service.product.alerts",
    "set_alert_rule": "service.product.alerts",
    "list_alerts": "service.product.alerts",
    "mute_alert": "service.product.alerts",
    "resolve_alert": "service.product.alerts",
    "add_labels": "service.product.labels",
    "performance": "service.product.labels",
    "create_webhook": "service.product.webhooks",
    "delete_webhook": "service.product.webhooks",
    "list_webhooks": "service.product.webhooks",
    "list_deliveries": "service.product.webhooks",
    "test_webhook": "service.product.webhooks",
    "alias_history": "service.product.registry",
    "aliases_of": "service.product.registry",
    "bif": "service.product.structures",
    "change_schedule": "service.product.schedules",
    "check_request": "service.product.prechecks",
    "circuit": "service.product.inspecting",
    "clean": "service.product.job_steps",
    "create_key": "service.product.keys",
    "create_schedule": "service.product.schedules",
    "dataset_schema": "service.product.datasets",
    "delete_alias": "service.product.registry",
    "delete_dataset": "service.product.datasets",
    "delete_model": "service.product.pruning",
    "delete_schedule": "service.product.schedules",
    "delete_version": "service.product.pruning",
    "drift": "service.product.drifting",
    "draw": "service.product.inspecting",
    "draw_posterior": "service.product.structures",
    "draw_trace": "service.product.inspecting",
    "evaluate": "service.product.job_steps",
    "export_version": "service.product.transfer",
    "family": "service.product.graphs",
    "find_version": "service.product.registry",
    "forget": "service.product.job_steps",
    "forget_predictions": "service.product.forgetting_served",
    "forget_old_jobs": "service.product.submitting",
    "damaged_notes": "service.product.notes",
    "damaged_rules": "service.product.rules",
    "withdraw_rule": "service.product.rules",
    "get_dataset": "service.product.datasets",
    "get_schedule": "service.product.schedules",
    "graph": "service.product.graphs",
    "import_version": "service.product.transfer",
    "impute": "service.product.answering",
    "job_log": "service.product.submitting",
    "job_output": "service.product.submitting",
    "job_kinds": "service.product.job_steps",
    "kind_of_name": "service.product.datasets",
    "lineage": "service.product.inspecting",
    "list_datasets": "service.product.datasets",
    "list_keys": "service.product.keys",
    "list_models": "service.product.registry",
    "list_promotions": "service.product.registry",
    "list_schedule_runs": "service.product.schedules",
    "list_schedules": "service.product.schedules",
    "list_versions": "service.product.registry",
    "pause_schedule": "service.product.schedules",
    "class_histogram": "service.product.histograms",
    "counting_version": "service.product.histograms",
    "model_states": "service.product.looking",
    "monitor_of": "service.product.monitor_choice",
    "monitoring": "service.product.windows",
    "monitoring_column": "service.product.windows",
    "monitoring_families": "service.product.windows",
    "monitoring_predictions": "service.product.predicted",
    "monitoring_slices": "service.product.predicted",
    "monitoring_windows": "service.product.windows",
    "predict_files": "service.product.answering",
    "prune": "service.product.pruning",
    "query": "service.product.answering",
    "register_dataset": "service.product.datasets",
    "resume_schedule": "service.product.schedules",
    "retention_of": "service.product.registry",
    "revoke_key": "service.product.keys",
    "roll_back": "service.product.registry",
    "run_schedule": "service.product.schedules",
    "schema_of_files": "service.product.datasets",
    "score": "service.product.answering",
    "served": "service.product.inspecting",
    "set_alias": "service.product.registry",
    "set_monitor": "service.product.monitor_choice",
    "set_retention": "service.product.registry",
    "set_tag": "service.product.registry",
    "structure": "service.product.inspecting",
    "submit": "service.product.submitting",
    "submit_scheduled": "service.product.schedules",
    "train": "service.product.job_steps",
    "train_with_passes": "service.product.job_steps",
    "unclean": "service.product.job_steps",
    "write_bif": "service.product.structures",
    "write_circuit": "service.product.inspecting",
    "write_export": "service.product.transfer",
    "write_picture": "service.product.structures",
    "write_job_output": "service.product.submitting",
    "write_trace": "service.product.inspecting",
    "job_queue": "service.jobs.queue",
}

__all__ = list(_VERBS)


def __getattr__(name: str) -> object:
    if name not in _VERBS:
        raise AttributeError(f"module 'service.product' has no attribute {name!r}")
    return getattr(import_module(_VERBS[name]), name)
