"""What metrics are called where people read them; files, REST and JSON keep the names on the left."""

METRIC_WORDS = {
    "zero_one_loss": "share of wrong answers",
    "rmse": "root mean squared error",
    "log_loss": "log loss",
    "class_shares_log_loss": "log loss of the class shares",
    "brier": "Brier score",
    "ece": "calibration error",
    "log_likelihood": "log likelihood per row",
    "n_test_rows": "rows measured",
    "evaluated_on": "measured on",
    "train_s": "seconds of training",
    "rows_per_s": "rows per second",
}
ROWS_MEASURED = {"hold-out": "rows kept back", "test data": "rows of test data"}
