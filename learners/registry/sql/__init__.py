"""Export of networks to plain SQL: tables, and a view that predicts every row of a table as the model does."""
