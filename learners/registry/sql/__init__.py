"""Networks as plain SQL: tables, and one view that answers every row of a table as the model does."""
